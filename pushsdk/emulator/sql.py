"""The statements that read the store, each a function over a connection. See ``search`` for its condition."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec

from pushsdk.emulator.records import Campaign, Card, Delivered, Push, Request
from pushsdk.emulator.search import Search, condition

__all__ = [
    "NO_BOUND",
    "Known",
    "accepted",
    "alive",
    "box",
    "boxes",
    "campaign",
    "campaigns",
    "count",
    "delivered",
    "ids",
    "kept",
    "last_id",
    "named",
    "newest",
    "newest_part",
    "pushes",
    "received",
    "recipients",
    "request",
    "requests",
    "salt",
    "totals",
    "unfinished",
]

_REQUEST = (
    "SELECT id, time, endpoint, status, accepted, fault, error, users, bytes, card,"
    " (SELECT uuid FROM campaigns WHERE request = requests.id)"
)
_CAMPAIGN = (
    "SELECT campaigns.inbox, uuid, body, time, requests.id, campaigns.name, external_id, state, start, reading,"
    " started, finished, campaigns.users, campaigns.error FROM campaigns"
    " JOIN requests ON requests.id = campaigns.request"
)
_CAMPAIGN_FIELDS = (
    *("uuid", "body", "time", "id", "name", "external_id", "state", "start", "reading", "started", "finished"),
    *("users", "error"),
)
_RECEIVED = "FROM parts CROSS JOIN received USING (part) WHERE inbox = ?"  # a seek in each part, never a scan of all
NO_BOUND = (1 << 63) - 1
_card = msgspec.json.Decoder(Card)


class Known(NamedTuple):
    """An inbox as a list shows it: what is kept of its requests, and the time of the last."""

    id: int
    name: str
    label: str
    requests: int
    last: float | None


class Received(NamedTuple):
    """A user, how many pushes to this user were accepted, and how often the one that was accepted most often.

    A duplicate is a push with the same content to the same user, also twice in one request: ``same`` is over 1 then.
    """

    user_id: str
    accepted: int
    same: int


# Inboxes


def box(db: sqlite3.Connection, digest: bytes) -> tuple[int, str] | None:
    """The id and the name of the inbox of a key."""
    found: tuple[int, str] | None = db.execute("SELECT id, name FROM inboxes WHERE digest = ?", (digest,)).fetchone()
    return found


def named(db: sqlite3.Connection, name: str) -> tuple[int, str] | None:
    """The same by its name."""
    found: tuple[int, str] | None = db.execute(
        "SELECT id, name FROM inboxes WHERE name = ? AND digest NOT NULL", (name,)
    ).fetchone()
    return found


def alive(db: sqlite3.Connection, inbox: int) -> bool:
    """Whether this inbox was not begun anew."""
    return db.execute("SELECT 1 FROM inboxes WHERE id = ? AND digest NOT NULL", (inbox,)).fetchone() is not None


def boxes(db: sqlite3.Connection) -> list[Known]:
    """All inboxes, the one with the last request first."""
    rows = db.execute(
        "SELECT id, name, label, (SELECT count(*) FROM requests WHERE inbox = inboxes.id),"
        " (SELECT time FROM requests WHERE inbox = inboxes.id ORDER BY id DESC LIMIT 1) AS last"
        " FROM inboxes WHERE digest NOT NULL ORDER BY last DESC, id"
    )
    return [Known(*row) for row in rows]


def kept(db: sqlite3.Connection) -> Iterator[tuple[int, int, int]]:
    """Each inbox with the count of its requests, and their bytes."""
    yield from db.execute(
        "SELECT inboxes.id, count(requests.id), coalesce(sum(bytes), 0)"
        " FROM inboxes LEFT JOIN requests ON inbox = inboxes.id WHERE digest NOT NULL GROUP BY inboxes.id"
    )


def newest_part(db: sqlite3.Connection) -> tuple[int, int]:
    """The part of the index that grows, and the rows in it."""
    (part,) = db.execute("SELECT max(part) FROM parts").fetchone()
    (rows,) = db.execute("SELECT count(*) FROM received WHERE part = ?", (part,)).fetchone()
    return part, rows


def salt(db: sqlite3.Connection) -> bytes:
    """What the digests of keys are salted with."""
    (found,) = db.execute("SELECT salt FROM secrets").fetchone()
    return bytes(found)


# Campaigns


def _campaign(row: tuple[Any, ...]) -> Campaign:
    return Campaign(**dict(zip(_CAMPAIGN_FIELDS, row[1:], strict=True)))


def campaigns(db: sqlite3.Connection, inbox: int, *, limit: int, size: int) -> tuple[Campaign, ...]:
    """Return the newest campaigns of an inbox, oldest first. A body over ``size`` bytes is left out."""
    select = _CAMPAIGN.replace(" body,", f" CASE WHEN bytes <= {size} THEN body ELSE x'' END,")
    rows = db.execute(f"{select} WHERE campaigns.inbox = ? ORDER BY requests.id DESC LIMIT ?", (inbox, limit))
    return tuple(_campaign(row) for row in rows)[::-1]


def campaign(db: sqlite3.Connection, uuid: str) -> tuple[int, Campaign] | None:
    """A campaign and its inbox."""
    row = db.execute(f"{_CAMPAIGN} WHERE uuid = ?", (uuid,)).fetchone()
    return row and (row[0], _campaign(row))


def unfinished(db: sqlite3.Connection) -> list[tuple[int, Campaign]]:
    """The campaigns that wait or were running, of all inboxes but forgotten ones."""
    rows = db.execute(
        f"{_CAMPAIGN} JOIN inboxes ON inboxes.id = campaigns.inbox AND digest NOT NULL"
        " WHERE state IN ('waiting', 'running') ORDER BY requests.id"
    )
    return [(row[0], _campaign(row)) for row in rows]


def recipients(db: sqlite3.Connection, request: int, *, after: str, limit: int) -> list[tuple[str, dict[str, object]]]:
    """Who gets a campaign, by user id from ``after`` on."""
    rows = db.execute(
        "SELECT user, fields FROM recipients WHERE request = ? AND user > ? ORDER BY user LIMIT ?",
        (request, after, limit),
    )
    return [(user, msgspec.json.decode(fields)) for user, fields in rows]


# Users


def accepted(db: sqlite3.Connection, inbox: int, user: str) -> int:
    """How many times a push to this user was accepted."""
    (times,) = db.execute(f"SELECT total(times) {_RECEIVED} AND user = ?", (inbox, user)).fetchone()
    return int(times)


def received(
    db: sqlite3.Connection, inbox: int, *, like: str = "", after: str = "", same: int = 1, limit: int = -1
) -> list[Received]:
    """Return the users with a push accepted at least ``same`` times, by user id from ``after`` on."""
    rows = db.execute(
        f"SELECT user, sum(times), max(times) AS same FROM (SELECT user, sum(times) AS times {_RECEIVED} AND user > ?"
        " AND (? = '' OR instr(user, ?)) GROUP BY user, digest) GROUP BY user HAVING same >= ? ORDER BY user LIMIT ?",
        (inbox, after, like, like, same, limit),
    )
    return [Received(*row) for row in rows]


def delivered(db: sqlite3.Connection, inbox: int, user: str, *, limit: int, size: int) -> list[Delivered]:
    """What was accepted for this user and is kept, pushes and campaigns, the newest of them, oldest first.

    Bodies beyond ``size`` bytes of newer ones are left out.
    """
    rows = db.execute(
        f"""
        WITH pushed AS (SELECT request, sum(times) AS times {_RECEIVED} AND user = ? GROUP BY request),
        got AS (
            SELECT request AS id, time AS at, bytes AS size, times, NULL AS uuid, NULL AS fields
            FROM pushed JOIN requests ON requests.id = request
            UNION ALL
            SELECT campaigns.request, coalesce(started, time), bytes, 1, uuid, fields
            FROM campaigns JOIN recipients ON recipients.request = campaigns.request AND user = ?
            JOIN requests ON requests.id = campaigns.request WHERE campaigns.inbox = ?
            ORDER BY at DESC, id DESC LIMIT ?),
        summed AS (SELECT *, sum(size) OVER (ORDER BY at DESC, id DESC) AS sum FROM got)
        SELECT id, at, CASE WHEN sum <= ? THEN body ELSE x'' END, times, uuid, fields
        FROM summed JOIN requests USING (id) ORDER BY at, id
        """,
        (inbox, user, user, inbox, limit, size),
    )
    return [
        Delivered(
            id=number, time=at, body=body, times=times, campaign=uuid, fields=fields and msgspec.json.decode(fields)
        )
        for number, at, body, times, uuid, fields in rows
    ]


# Requests


def pushes(db: sqlite3.Connection, inbox: int) -> tuple[Push, ...]:
    """The accepted pushes that are kept, oldest first."""
    rows = db.execute(
        "SELECT id, body, time FROM requests WHERE inbox = ? AND endpoint = 'push' AND accepted ORDER BY id", (inbox,)
    )
    return tuple(Push(id=number, body=body, time=time) for number, body, time in rows)


def requests(
    db: sqlite3.Connection, inbox: int, search: Search, *, after: int, before: int, limit: int, forward: bool = False
) -> list[Request]:
    """Requests with an id between the two, the newest first, or the oldest first where ``forward``."""
    where, values = _where(inbox, search, after, before)
    rows = db.execute(f"{_REQUEST} {where} ORDER BY id {'ASC' if forward else 'DESC'} LIMIT ?", (*values, limit))
    return [_request(row) for row in rows]


def count(db: sqlite3.Connection, inbox: int, search: Search, *, after: int = 0) -> int:
    """How many requests of the search are kept, of those with an id over ``after``."""
    where, values = _where(inbox, search, after, NO_BOUND)
    (number,) = db.execute(f"SELECT count(*) {where}", values).fetchone()
    return int(number)


def request(db: sqlite3.Connection, inbox: int, number: int) -> tuple[Request, bytes] | None:
    """One request and its body."""
    row = db.execute(f"{_REQUEST}, body FROM requests WHERE inbox = ? AND id = ?", (inbox, number)).fetchone()
    return row and (_request(row[:-1]), row[-1])


def newest(db: sqlite3.Connection, inbox: int) -> int:
    """The id of the newest request, 0 where there is none."""
    (number,) = db.execute("SELECT max(id) FROM requests WHERE inbox = ?", (inbox,)).fetchone()
    return number or 0


def ids(db: sqlite3.Connection, inbox: int, search: Search, *, only: int | None = None) -> list[int]:
    """The requests of a search, or whether it is this one."""
    after, before = (0, NO_BOUND) if only is None else (only - 1, only + 1)
    where, values = _where(inbox, search, after, before)
    return [number for (number,) in db.execute(f"SELECT id {where} ORDER BY id", values)]


def last_id(db: sqlite3.Connection) -> int:
    """The id that was given last in the whole store, 0 where none was."""
    row = db.execute("SELECT seq FROM sqlite_sequence WHERE name = 'requests'").fetchone()
    return 0 if row is None else int(row[0])


def _request(row: tuple[Any, ...]) -> Request:
    number, time, endpoint, status, accepted, fault, error, users, size, card, campaign = row
    return Request(
        id=number,
        time=time,
        endpoint=endpoint,
        status=status,
        accepted=bool(accepted),
        fault=fault,
        error=error,
        users=users,
        bytes=size,
        card=_card.decode(card),
        campaign=campaign,
    )


def _where(inbox: int, search: Search, after: int, before: int) -> tuple[str, list[Any]]:
    """From and where of a search. Users are found by the index, not in the bodies."""
    clause, found = condition(search)
    where = f"FROM requests WHERE inbox = ? AND id > ? AND id < ?{f' AND ({clause})' if clause else ''}"
    values: list[Any] = [inbox, after, before, *found]
    for user in search.users:
        where += (
            f" AND id IN (SELECT request {_RECEIVED} AND user = ? UNION ALL SELECT campaigns.request FROM campaigns"
            " JOIN recipients ON recipients.request = campaigns.request AND user = ? WHERE campaigns.inbox = ?)"
        )
        values += [inbox, user, user, inbox]
    return where, values


def totals(db: sqlite3.Connection) -> dict[str, int]:
    """Counts over the inboxes that are not forgotten: users, duplicates among them, pushes and campaigns kept."""
    inboxes = "(SELECT id FROM inboxes WHERE digest NOT NULL)"
    users = "SELECT count(*) FROM (SELECT DISTINCT inbox, user FROM"
    queries = {
        "users": f"{users} received WHERE inbox IN {inboxes})",
        "duplicates": f"{users} (SELECT inbox, user FROM received WHERE inbox IN {inboxes}"
        " GROUP BY inbox, user, digest HAVING sum(times) > 1))",
        "pushes": f"SELECT count(*) FROM requests WHERE endpoint = 'push' AND accepted AND inbox IN {inboxes}",
        "campaigns": f"SELECT count(*) FROM campaigns WHERE inbox IN {inboxes}",
    }
    return {name: db.execute(query).fetchone()[0] for name, query in queries.items()}
