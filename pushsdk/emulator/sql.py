"""The statements of the store, each a function over a connection. See ``search`` for its condition."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from pushsdk.emulator.records import Campaign, Card, Delivered, Entry, Push, Request
from pushsdk.emulator.search import Search, condition

__all__ = [
    "NONE_BEFORE",
    "Size",
    "accepted",
    "add_recipients",
    "campaign",
    "campaigns",
    "count",
    "delete",
    "delivered",
    "drop_recipients",
    "index",
    "insert",
    "newest",
    "older",
    "oldest",
    "pushes",
    "recipients",
    "request",
    "requests",
    "sizes",
    "sweep",
    "unfinished",
    "update_campaign",
    "users",
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
NONE_BEFORE = (1 << 63) - 1
_card = msgspec.json.Decoder(Card)
_encode = msgspec.json.Encoder().encode


class Size(NamedTuple):
    """What dropping a request gives back, and to which inbox."""

    id: int
    inbox: int
    bytes: int


def insert(db: sqlite3.Connection, entry: Entry) -> int:
    """Store a request, and its campaign where it is one; its id."""
    cursor = db.execute(
        "INSERT INTO requests(inbox, time, endpoint, status, accepted, fault, error, users, bytes, card, title, text,"
        " langs, body) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            *(entry.inbox, entry.time, entry.endpoint, entry.status, entry.accepted, entry.fault, entry.error),
            *(entry.users, len(entry.body), _encode(entry.card), entry.title, entry.text),
            *(f" {' '.join(entry.card.languages)} ".casefold(), entry.body),
        ),
    )
    if entry.campaign is not None:
        each = entry.campaign
        db.execute(
            "INSERT INTO campaigns(uuid, inbox, request, name, external_id, state, start, reading)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            (
                *(each.uuid, entry.inbox, cursor.lastrowid, each.name, each.external_id),
                *(each.state, each.start, each.reading),
            ),
        )
    return int(cursor.lastrowid or 0)


def index(db: sqlite3.Connection, part: int, entry: Entry) -> int:
    """Count an accepted push for its users, in this part; the rows it takes."""
    times = Counter(entry.user_ids)
    rows = [(part, entry.inbox, user, entry.id, number) for user, number in times.items()]
    db.executemany("INSERT INTO received VALUES (?, ?, ?, ?, ?)", rows)
    return len(rows)


def older(db: sqlite3.Connection, time: float) -> Iterator[Size]:
    """The requests from before this time."""
    for number, inbox, size, received in db.execute("SELECT id, inbox, bytes, time FROM requests ORDER BY id"):
        if received >= time:
            return
        yield Size(number, inbox, size)


def oldest(db: sqlite3.Connection, inbox: int, *, count: int | None = None, size: int | None = None) -> Iterator[Size]:
    """The oldest requests of an inbox: this many, or enough to have this many bytes."""
    rows = db.execute(
        "SELECT id, inbox, bytes FROM requests WHERE inbox = ? ORDER BY id LIMIT ?",
        (inbox, -1 if count is None else count),
    )
    taken = 0
    for row in rows:
        if size is not None and taken >= size:
            return
        taken += row[2]
        yield Size(*row)


def delete(db: sqlite3.Connection, ids: Sequence[int]) -> None:
    """Drop requests, with their campaigns and these campaigns' recipients. The counts per user stay."""
    keys = [(number,) for number in ids]
    for table, column in (("recipients", "request"), ("campaigns", "request"), ("requests", "id")):
        db.executemany(f"DELETE FROM {table} WHERE {column} = ?", keys)


def sweep(db: sqlite3.Connection, inbox: int, rows: int) -> bool:
    """Drop up to this many rows of each kind of an inbox; whether there were any."""
    ids = db.execute("SELECT id FROM requests WHERE inbox = ? LIMIT ?", (inbox, rows)).fetchall()
    delete(db, [number for (number,) in ids])
    keys = db.execute(f"SELECT part, inbox, user, request {_RECEIVED} LIMIT ?", (inbox, rows)).fetchall()
    db.executemany("DELETE FROM received WHERE part = ? AND inbox = ? AND user = ? AND request = ?", keys)
    if ids or keys:
        return True
    db.execute("DELETE FROM inboxes WHERE id = ?", (inbox,))
    return False


# Campaigns


def _campaign(row: tuple[Any, ...]) -> Campaign:
    return Campaign(**dict(zip(_CAMPAIGN_FIELDS, row[1:], strict=True)))


def update_campaign(db: sqlite3.Connection, campaign: Campaign) -> None:
    """Store what became of a campaign, if it is still there."""
    db.execute(
        "UPDATE campaigns SET state = ?, start = ?, reading = ?, started = ?, finished = ?, users = ?, error = ?"
        " WHERE uuid = ?",
        (
            *(campaign.state, campaign.start, campaign.reading, campaign.started, campaign.finished),
            *(campaign.users, campaign.error, campaign.uuid),
        ),
    )


def campaigns(db: sqlite3.Connection, inbox: int) -> tuple[Campaign, ...]:
    """The campaigns of an inbox, oldest first."""
    rows = db.execute(f"{_CAMPAIGN} WHERE campaigns.inbox = ? ORDER BY requests.id", (inbox,))
    return tuple(_campaign(row) for row in rows)


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


def add_recipients(db: sqlite3.Connection, request: int, batch: Iterable[tuple[str, Mapping[str, object]]]) -> None:
    """Store who gets a campaign, with the row that fills the placeholders."""
    rows = [(request, user, _encode(fields)) for user, fields in batch]
    db.executemany("INSERT INTO recipients VALUES (?, ?, ?)", rows)


def recipients(db: sqlite3.Connection, request: int, *, after: str, limit: int) -> list[tuple[str, dict[str, object]]]:
    """Who gets a campaign, by user id from ``after`` on."""
    rows = db.execute(
        "SELECT user, fields FROM recipients WHERE request = ? AND user > ? ORDER BY user LIMIT ?",
        (request, after, limit),
    )
    return [(user, msgspec.json.decode(fields)) for user, fields in rows]


def drop_recipients(db: sqlite3.Connection, request: int, rows: int) -> int:
    """Drop up to this many recipients of a campaign that begins anew; how many there were."""
    return db.execute(
        "DELETE FROM recipients WHERE request = ? AND user IN (SELECT user FROM recipients WHERE request = ? LIMIT ?)",
        (request, request, rows),
    ).rowcount


# Users


def accepted(db: sqlite3.Connection, inbox: int, user: str) -> int:
    """How many times a push to this user was accepted."""
    (times,) = db.execute(f"SELECT total(times) {_RECEIVED} AND user = ?", (inbox, user)).fetchone()
    return int(times)


def users(
    db: sqlite3.Connection,
    inbox: int,
    *,
    like: str = "",
    after: str = "",
    least: int = 1,
    limit: int = -1,
) -> dict[str, int]:
    """How often each user was accepted, at ``least`` so often; by user id from ``after`` on."""
    rows = db.execute(
        f"SELECT user, sum(times) AS accepted {_RECEIVED} AND user > ? AND (? = '' OR instr(user, ?))"
        " GROUP BY user HAVING accepted >= ? ORDER BY user LIMIT ?",
        (inbox, after, like, like, least, limit),
    )
    return dict(rows.fetchall())


def delivered(db: sqlite3.Connection, inbox: int, user: str, *, limit: int) -> list[Delivered]:
    """What was accepted for this user and is kept, pushes and campaigns, the newest of them, oldest first."""
    rows = db.execute(
        f"SELECT id, time, body, times, NULL, NULL FROM (SELECT request, sum(times) AS times {_RECEIVED} AND user = ?"
        "  GROUP BY request) JOIN requests ON id = request "
        "UNION ALL SELECT requests.id, coalesce(started, time), body, 1, uuid, fields FROM campaigns"
        "  JOIN recipients ON recipients.request = campaigns.request AND user = ?"
        "  JOIN requests ON requests.id = campaigns.request WHERE campaigns.inbox = ? "
        "ORDER BY 2 DESC, 1 DESC LIMIT ?",
        (inbox, user, user, inbox, limit),
    )
    return [
        Delivered(
            id=number, time=time, body=body, times=times, campaign=uuid, fields=fields and msgspec.json.decode(fields)
        )
        for number, time, body, times, uuid, fields in reversed(rows.fetchall())
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
    where, values = _where(inbox, search, after, NONE_BEFORE)
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


def sizes(db: sqlite3.Connection, inbox: int, search: Search) -> list[Size]:
    """What the requests of a search take."""
    where, values = _where(inbox, search, 0, NONE_BEFORE)
    return [Size(*row) for row in db.execute(f"SELECT id, inbox, bytes {where}", values)]


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
    """Counts over the inboxes that are not forgotten: users, and pushes and campaigns kept."""
    inboxes = "(SELECT id FROM inboxes WHERE digest NOT NULL)"
    queries = {
        "users": f"SELECT count(*) FROM (SELECT DISTINCT inbox, user FROM received WHERE inbox IN {inboxes})",
        "pushes": f"SELECT count(*) FROM requests WHERE endpoint = 'push' AND accepted AND inbox IN {inboxes}",
        "campaigns": f"SELECT count(*) FROM campaigns WHERE inbox IN {inboxes}",
    }
    return {name: db.execute(query).fetchone()[0] for name, query in queries.items()}
