"""What the service took, and what it was sent: every statement over the tables of ``database``.

The record of the oracle: how often each user was accepted, per inbox. Bodies are bounded, those counts are not.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import groupby, islice
from operator import itemgetter
from pathlib import Path
from sqlite3 import Connection
from typing import Any

import msgspec
from msgspec import Struct

from pushsdk.emulator.store.database import Database, StoreError
from pushsdk.emulator.store.records import (
    Campaign,
    Delivered,
    InboxView,
    Preview,
    Push,
    RequestRecord,
    RequestSummary,
    UserCount,
)
from pushsdk.emulator.store.search import Search

__all__ = ["NO_BOUND", "NO_INBOX", "InboxRef", "Store", "StoreError"]

NO_BOUND = (1 << 63) - 1
_SLACK = 100  # if there are too many bytes, a hundredth more is dropped: not one request for each that arrives
_ALL = Search()

_ENTRY = ("inbox", "time", "endpoint", "status", "accepted", "fault", "error", "users", "title", "text", "body")
_COLUMNS = (*_ENTRY, "bytes", "card", "langs")
# No row if the inbox was reset meanwhile.
_INSERT = (
    f"INSERT INTO requests({', '.join(_COLUMNS)}) SELECT {', '.join(f':{name}' for name in _COLUMNS)}"
    " FROM inboxes WHERE id = :inbox"
)
_SUMMARY = ("id", "time", "endpoint", "status", "accepted", "fault", "error", "users", "bytes", "card")
_REQUEST = f"SELECT {', '.join(_SUMMARY)}, (SELECT uuid FROM campaigns WHERE request = requests.id)"

_STATE = ("uuid", "name", "external_id", "state", "start", "reading", "started", "finished", "users", "error")
_CAMPAIGN = f"SELECT inbox, id, time, {', '.join(f'campaigns.{name}' for name in _STATE)}"
_CAMPAIGN_FROM = "FROM campaigns JOIN requests ON id = request"

_encode = msgspec.json.Encoder().encode
_card = msgspec.json.Decoder(Preview)


class InboxRef(Struct, frozen=True):
    """An inbox as the store knows it: ``id`` within, another one after a reset, ``name`` towards the outside."""

    id: int
    name: str


NO_INBOX = InboxRef(0, "")


class Store:
    """Keeps requests, campaigns and who was accepted, per inbox; in ``path``, or a temporary file.

    ``keep`` requests of each inbox and ``max_bytes`` of bodies over all of them are kept, and for ``max_age`` seconds:
    beyond, each write drops the oldest. The counts per user, on which the verdicts rest, are never dropped.

    Any thread may read and write. Every reader sees one moment, also after the end. The file is opened by the first
    use. Raises `StoreError` if that fails, or if nothing can be written, for example to a full disk: then nothing of
    the write is stored.
    """

    def __init__(
        self,
        path: Path | None = None,
        *,
        keep: int = 100_000,
        max_bytes: int = 1 << 30,
        max_age: float | None = None,
    ) -> None:
        if keep < 0 or max_bytes < 0 or (max_age is not None and max_age < 0):
            raise ValueError("keep, max_bytes and max_age must not be negative")
        self._path = path
        self._keep = keep
        self._max_bytes = max_bytes
        self._max_age = max_age
        self._lock = threading.RLock()  # held while the file is opened or written
        self._opened: Database | None = None  # set by the first use, kept after the end

    def open(self) -> Database:
        """Open the file now, not at the first use."""
        with self._lock:
            if self._opened is None:
                self._opened = Database(self._path)
            return self._opened

    @property
    def _database(self) -> Database:
        return self._opened or self.open()

    def close(self) -> None:
        """End writing. Reading goes on."""
        with self._lock:
            if self._opened is not None:
                self._opened.close()

    @contextmanager
    def _writing(self) -> Iterator[Connection]:
        with self._lock, self._database.writing() as db:
            yield db

    # Inboxes

    def inbox(self, api_key: str) -> InboxRef:
        """Return the inbox of this key, made if there is none. The key is not stored, only a salted digest."""
        ref = self.find(api_key)
        if ref is NO_INBOX:
            with self._writing() as db:
                db.execute(
                    "INSERT OR IGNORE INTO inboxes(digest, name, label)"
                    " SELECT ?, ?, 'Inbox ' || (count(*) + 1) FROM inboxes",
                    (self._digest(api_key), secrets.token_hex(8)),
                )
            ref = self.find(api_key)
        return ref

    def find(self, api_key: str) -> InboxRef:
        """Return the inbox of this key, or `NO_INBOX`, which is empty."""
        return self._inbox("digest", self._digest(api_key)) or NO_INBOX

    def named(self, name: str) -> InboxRef | None:
        """Return the inbox of this name."""
        return self._inbox("name", name)

    def _digest(self, api_key: str) -> bytes:
        return hmac.digest(self._database.salt, api_key.encode("utf-8", "surrogatepass"), hashlib.sha256)

    def _inbox(self, column: str, value: str | bytes) -> InboxRef | None:
        with self._database.reading() as db:
            row = db.execute(f"SELECT id, name FROM inboxes WHERE {column} = ?", (value,)).fetchone()
            return row and InboxRef(*row)

    def inboxes(self) -> list[InboxView]:
        """Return all inboxes, the one with the last request first."""
        with self._database.reading() as db:
            rows = db.execute(
                "SELECT name, label, requests,"
                " (SELECT time FROM requests WHERE inbox = inboxes.id ORDER BY id DESC LIMIT 1) AS last"
                " FROM inboxes ORDER BY last DESC, id"
            )
            return [InboxView(*row) for row in rows]

    def label(self, inbox: InboxRef, label: str) -> None:
        """Name an inbox for those who look at it."""
        with self._writing() as db:
            db.execute("UPDATE inboxes SET label = ? WHERE id = ?", (label, inbox.id))

    def reset(self, inbox: InboxRef) -> InboxRef:
        """Replace an inbox by an empty one and return that. What is in flight to the former one is not stored."""
        with self._writing() as db:
            row = db.execute("SELECT digest, name, label FROM inboxes WHERE id = ?", (inbox.id,)).fetchone()
            if row is not None:
                db.execute("DELETE FROM inboxes WHERE id = ?", (inbox.id,))
                db.execute("INSERT INTO inboxes(digest, name, label) VALUES (?, ?, ?)", row)
        return self.named(inbox.name) or inbox

    # Writing

    def write(self, entries: Sequence[RequestRecord]) -> None:
        """Store all or none of these, and give each its ``id``; 0 if its inbox was reset meanwhile."""
        with self._writing() as db:
            for entry in entries:
                entry.id = _insert(db, entry)
            self._drop_surplus(db, entries)

    def _drop_surplus(self, db: Connection, new: Sequence[RequestRecord]) -> None:
        if self._max_age is not None and new:
            since = "SELECT id FROM requests WHERE time >= ? ORDER BY id LIMIT 1"
            db.execute(f"DELETE FROM requests WHERE id < ({since})", (new[-1].time - self._max_age,))
        for inbox in {entry.inbox for entry in new}:
            surplus = db.execute("SELECT requests - ? FROM inboxes WHERE id = ?", (self._keep, inbox)).fetchone()
            if surplus is not None and surplus[0] > 0:
                _drop_oldest(db, inbox, count=surplus[0])
        (excess,) = db.execute("SELECT bytes - ? FROM store", (self._max_bytes,)).fetchone()
        excess += self._max_bytes // _SLACK if excess > 0 else 0
        while excess > 0:  # the inbox with most bytes gives first
            inbox, size = db.execute("SELECT id, bytes FROM inboxes ORDER BY bytes DESC LIMIT 1").fetchone()
            _drop_oldest(db, inbox, size=excess)
            excess -= size

    def delete(self, inbox: InboxRef, search: Search = _ALL, *, only: int | None = None) -> int:
        """Drop requests from the list, not from the counts: one, or those of a search. Return how many."""
        after, before = (0, NO_BOUND) if only is None else (only - 1, only + 1)
        where, values = _where(inbox, search, after, before)
        with self._writing() as db:
            return db.execute(f"DELETE FROM requests WHERE id IN (SELECT id {where})", values).rowcount

    def update(self, campaign: Campaign) -> None:
        """Store what became of a campaign, if it is still there."""
        values = [getattr(campaign, name) for name in _STATE]
        with self._writing() as db:
            db.execute(
                f"UPDATE campaigns SET {', '.join(f'{name} = ?' for name in _STATE)} WHERE request = ?",
                (*values, campaign.id),
            )

    def deliver(self, campaign: Campaign, batch: Iterable[tuple[str, Mapping[str, object]]]) -> bool:
        """Store recipients of a campaign, with the rows that fill the placeholders; False if the campaign is gone."""
        rows = [(campaign.id, user, _encode(fields)) for user, fields in batch]
        with self._writing() as db:
            if db.execute("SELECT 1 FROM campaigns WHERE request = ?", (campaign.id,)).fetchone() is None:
                return False
            db.executemany("INSERT INTO recipients VALUES (?, ?, ?)", rows)
            return True

    def withdraw(self, campaign: Campaign) -> None:
        """Drop the recipients of a campaign, so that it can begin anew."""
        with self._writing() as db:
            db.execute("DELETE FROM recipients WHERE request = ?", (campaign.id,))

    # Users

    def accepted(self, inbox: InboxRef, user_id: str) -> int:
        """Return how many times a push to this user was accepted."""
        with self._database.reading() as db:
            return _accepted(db, inbox, user_id)

    def received(
        self, inbox: InboxRef, *, like: str = "", after: str = "", same: int = 1, limit: int | None = None
    ) -> list[UserCount]:
        """Return the users with the same push accepted at least ``same`` times, by their ids after ``after``."""
        with self._database.reading() as db:
            rows = db.execute(
                "SELECT user, sum(times) FROM received WHERE inbox = ? AND user > ? AND (? = '' OR instr(user, ?))"
                " GROUP BY user, digest ORDER BY user, digest",
                (inbox.id, after, like, like),
            )
            # In the order of the key, so that a page of few users reads no others.
            counts = ((user, [times for _, times in group]) for user, group in groupby(rows, itemgetter(0)))
            found = (UserCount(user, sum(times), max(times)) for user, times in counts if max(times) >= same)
            return list(islice(found, limit))

    def users(self, inbox: InboxRef) -> dict[str, int]:
        """Return every user with an accepted push, and how many."""
        return {user.user_id: user.accepted for user in self.received(inbox)}

    def duplicates(self, inbox: InboxRef) -> dict[str, int]:
        """Return every user to whom the same push was accepted more than once, and how often at most."""
        return {user.user_id: user.same for user in self.received(inbox, same=2)}

    def delivered(
        self, inbox: InboxRef, user_id: str, *, limit: int = 1000, size: int = NO_BOUND
    ) -> tuple[int, list[Delivered]]:
        """Return how many times a user was accepted, and the newest of what is kept of that, oldest first.

        Bodies beyond ``size`` bytes of newer ones are left out.
        """
        with self._database.reading() as db:
            rows = db.execute(
                """
                WITH pushed AS (
                    SELECT request, sum(times) AS times FROM received WHERE inbox = ? AND user = ? GROUP BY request),
                got AS (
                    SELECT request AS id, time AS at, bytes AS size, times, NULL AS uuid, NULL AS fields
                    FROM pushed JOIN requests ON requests.id = request
                    UNION ALL
                    SELECT id, coalesce(started, time), bytes, 1, uuid, fields
                    FROM requests JOIN campaigns ON campaigns.request = id
                    JOIN recipients ON recipients.request = id AND user = ? WHERE inbox = ?
                    ORDER BY at DESC, id DESC LIMIT ?),
                summed AS (SELECT *, sum(size) OVER (ORDER BY at DESC, id DESC) AS sum FROM got)
                SELECT id, at, CASE WHEN sum <= ? THEN body ELSE x'' END, times, uuid, fields
                FROM summed JOIN requests USING (id) ORDER BY at, id
                """,
                (inbox.id, user_id, user_id, inbox.id, limit, size),
            )
            found = [
                Delivered(
                    **dict(zip(Delivered.__struct_fields__, row, strict=False)),
                    fields=fields and msgspec.json.decode(fields),
                )
                for *row, fields in rows
            ]
            return _accepted(db, inbox, user_id), found

    # Campaigns

    def campaigns(self, inbox: InboxRef, *, limit: int = -1, size: int = NO_BOUND) -> tuple[Campaign, ...]:
        """Return the newest campaigns that are kept, oldest first, without bodies over ``size`` bytes."""
        body = "CASE WHEN bytes <= ? THEN body ELSE x'' END"
        with self._database.reading() as db:
            rows = db.execute(
                f"{_CAMPAIGN}, {body} {_CAMPAIGN_FROM} WHERE inbox = ? ORDER BY id DESC LIMIT ?",
                (size, inbox.id, limit),
            )
            return tuple(_campaign(row) for row in rows)[::-1]

    def campaign(self, inbox: InboxRef, uuid: str) -> Campaign | None:
        """Return one campaign of this inbox."""
        with self._database.reading() as db:
            row = db.execute(
                f"{_CAMPAIGN}, body {_CAMPAIGN_FROM} WHERE uuid = ? AND inbox = ?", (uuid, inbox.id)
            ).fetchone()
            return row and _campaign(row)

    def unfinished(self) -> list[tuple[int, Campaign]]:
        """Return the campaigns that wait or were running, with the inbox of each."""
        with self._database.reading() as db:
            rows = db.execute(f"{_CAMPAIGN}, body {_CAMPAIGN_FROM} WHERE state IN ('waiting', 'running') ORDER BY id")
            return [(row[0], _campaign(row)) for row in rows]

    def recipients(
        self, campaign: Campaign, *, after: str = "", limit: int = 100
    ) -> list[tuple[str, dict[str, object]]]:
        """Return the recipients of a campaign with their rows, by their ids after ``after``."""
        with self._database.reading() as db:
            rows = db.execute(
                "SELECT user, fields FROM recipients WHERE request = ? AND user > ? ORDER BY user LIMIT ?",
                (campaign.id, after, limit),
            )
            return [(user, msgspec.json.decode(fields)) for user, fields in rows]

    # Requests

    def pushes(self, inbox: InboxRef) -> tuple[Push, ...]:
        """Return the accepted pushes that are kept, oldest first."""
        with self._database.reading() as db:
            rows = db.execute(
                "SELECT id, body, time FROM requests WHERE inbox = ? AND endpoint = 'push' AND accepted ORDER BY id",
                (inbox.id,),
            )
            return tuple(Push(id=number, body=body, time=time) for number, body, time in rows)

    def requests(
        self,
        inbox: InboxRef,
        search: Search = _ALL,
        *,
        after: int = 0,
        before: int = NO_BOUND,
        limit: int = 100,
        forward: bool = False,
    ) -> list[RequestSummary]:
        """Return requests with an id between the two, the newest first, or the oldest first if ``forward``."""
        where, values = _where(inbox, search, after, before)
        with self._database.reading() as db:
            rows = db.execute(
                f"{_REQUEST} {where} ORDER BY id {'ASC' if forward else 'DESC'} LIMIT ?", (*values, limit)
            )
            return [_summary(row) for row in rows]

    def request(self, inbox: InboxRef, number: int) -> tuple[RequestSummary, bytes] | None:
        """Return one request and its body."""
        with self._database.reading() as db:
            row = db.execute(
                f"{_REQUEST}, body FROM requests WHERE inbox = ? AND id = ?", (inbox.id, number)
            ).fetchone()
            return row and (_summary(row[:-1]), row[-1])

    def count_new(self, inbox: InboxRef, search: Search, after: int) -> tuple[int, int]:
        """Return how many requests of a search have an id over ``after``, and the newest id of the inbox."""
        where, values = _where(inbox, search, after, NO_BOUND)
        with self._database.reading() as db:
            (number,) = db.execute(f"SELECT count(*) {where}", values).fetchone()
            (newest,) = db.execute("SELECT max(id) FROM requests WHERE inbox = ?", (inbox.id,)).fetchone()
            return number, max(after, newest or 0)

    def last_id(self) -> int:
        """Return the id that was given last, also if that request is gone; 0 in a new store."""
        with self._database.reading() as db:
            row = db.execute("SELECT seq FROM sqlite_sequence WHERE name = 'requests'").fetchone()
            return row[0] if row else 0

    def check(self) -> None:
        """Raise `StoreError` if nothing can be written."""
        with self._writing():
            pass

    def totals(self) -> dict[str, int]:
        """Count over all inboxes: users with an accepted push, with more than one, the pushes and campaigns kept."""
        queries = {
            "users": "(SELECT DISTINCT inbox, user FROM received)",
            "duplicates": "(SELECT DISTINCT inbox, user FROM"
            " (SELECT inbox, user FROM received GROUP BY inbox, user, digest HAVING sum(times) > 1))",
            "pushes": "requests WHERE endpoint = 'push' AND accepted",
            "campaigns": "campaigns",
        }
        with self._database.reading() as db:
            return {name: db.execute(f"SELECT count(*) FROM {query}").fetchone()[0] for name, query in queries.items()}


def _insert(db: Connection, entry: RequestRecord) -> int:
    values = {name: getattr(entry, name) for name in _ENTRY} | {
        "bytes": len(entry.body),
        "card": _encode(entry.card),
        "langs": f" {' '.join(entry.card.languages)} ".casefold(),
    }
    cursor = db.execute(_INSERT, values)
    if not cursor.rowcount:
        return 0
    request = int(cursor.lastrowid or 0)
    db.executemany(
        "INSERT INTO received VALUES (?, ?, ?, ?, ?)",
        [(entry.inbox, user, entry.digest, request, times) for user, times in Counter(entry.user_ids).items()],
    )
    if entry.campaign is not None:
        state = [getattr(entry.campaign, name) for name in _STATE]
        marks = ", ".join("?" * len(_STATE))
        db.execute(f"INSERT INTO campaigns(request, {', '.join(_STATE)}) VALUES (?, {marks})", (request, *state))
    return request


def _drop_oldest(db: Connection, inbox: int, *, count: int = -1, size: float = float("inf")) -> None:
    """Drop at most so many of the oldest requests of an inbox, and as few as have this many bytes."""
    gone = []
    for number, bytes_ in db.execute(
        "SELECT id, bytes FROM requests WHERE inbox = ? ORDER BY id LIMIT ?", (inbox, count)
    ):
        if size <= 0:
            break
        size -= bytes_
        gone.append((number,))
    db.executemany("DELETE FROM requests WHERE id = ?", gone)


def _accepted(db: Connection, inbox: InboxRef, user_id: str) -> int:
    (times,) = db.execute(
        "SELECT total(times) FROM received WHERE inbox = ? AND user = ?", (inbox.id, user_id)
    ).fetchone()
    return int(times)


def _campaign(row: tuple[Any, ...]) -> Campaign:
    return Campaign(**dict(zip(("id", "time", *_STATE, "body"), row[1:], strict=True)))


def _summary(row: tuple[Any, ...]) -> RequestSummary:
    values = dict(zip((*_SUMMARY, "campaign"), row, strict=True))
    card = msgspec.structs.asdict(_card.decode(values.pop("card")))
    return RequestSummary(**{**values, "accepted": bool(values["accepted"])}, **card)


def _where(inbox: InboxRef, search: Search, after: int, before: int) -> tuple[str, list[Any]]:
    """Return FROM and WHERE of a search. Users are found by the index, not in the bodies."""
    condition = f" AND {search.condition}" if search.condition else ""
    where = f"FROM requests WHERE inbox = ? AND id > ? AND id < ?{condition}"
    values: list[Any] = [inbox.id, after, before, *search.values]
    for user in search.users:
        where += (
            " AND id IN (SELECT request FROM received WHERE inbox = ? AND user = ? UNION ALL"
            " SELECT request FROM campaigns JOIN recipients USING (request) WHERE user = ?)"
        )
        values += [inbox.id, user, user]
    return where, values
