"""What the service took, and what it was sent: written in groups, told again as of one moment.

The record of the oracle: how often each user was accepted, per inbox. Bodies are bounded, those counts are not.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import sqlite3
import threading
import time
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cached_property
from pathlib import Path

from msgspec import Struct

from pushsdk.emulator import sql
from pushsdk.emulator.database import Database, StoreError
from pushsdk.emulator.records import Campaign, Delivered, Entry, Push, Request
from pushsdk.emulator.search import Search

__all__ = ["NO_BOX", "Box", "Store", "StoreError"]

_PART = 20_000  # rows of one part of the index: small enough to stay in the cache while it grows
_SWEPT = 5_000  # rows of a forgotten inbox that go at a time, so that nobody waits for it
_KEYS = 10_000  # Api-Keys whose inbox is remembered


class Box(Struct, frozen=True):
    """An inbox as the store knows it: ``id`` within, ``name`` towards the outside, a ``label`` if somebody gave one."""

    id: int
    name: str
    label: str | None = None


NO_BOX = Box(0, "")


class Store:
    """Keeps requests, campaigns and who was accepted, per inbox; in ``path``, or a temporary file.

    ``keep`` requests of each inbox and ``max_bytes`` of bodies over all of them are kept, and for ``max_age`` seconds:
    beyond, the oldest go. The counts per user, on which the verdicts rest, never do. Writing raises `StoreError`, as
    where the disk is full; nothing of it is stored then. Reading is safe from any thread, and possible after the end.
    """

    def __init__(
        self, path: Path | None = None, *, keep: int = 100_000, max_bytes: int = 1 << 30, max_age: float | None = None
    ) -> None:
        self._path = path
        self._keep = keep
        self._max_bytes = max_bytes
        self._max_age = max_age
        self._changing = threading.RLock()  # for what follows, which writers of any thread change
        self._boxes: dict[str, Box] = {}  # by Api-Key
        self._forgotten: deque[int] = deque()  # inboxes whose rows are to go
        self._kept: Counter[int] = Counter()  # requests by inbox
        self._bytes: Counter[int] = Counter()  # of bodies, by inbox
        self._part = 1
        self._rows = 0  # of that part

    @cached_property
    def _database(self) -> Database:
        database = Database(self._path)
        with database.reading() as db:
            (self._salt,) = db.execute("SELECT salt FROM secrets").fetchone()
            (self._part,) = db.execute("SELECT max(part) FROM parts").fetchone()
            (self._rows,) = db.execute("SELECT count(*) FROM received WHERE part = ?", (self._part,)).fetchone()
            for inbox, count, size in db.execute("SELECT inbox, count(*), sum(bytes) FROM requests GROUP BY inbox"):
                self._kept[inbox], self._bytes[inbox] = count, size
            self._forgotten.extend(inbox for (inbox,) in db.execute("SELECT id FROM inboxes WHERE digest IS NULL"))
        return database

    def open(self) -> None:
        """Open the file now, not at the first use. Raises `StoreError`."""
        _ = self._database

    def close(self) -> None:
        """End writing. What was written can still be read."""
        if "_database" in self.__dict__:
            self._database.close()

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        """One transaction of this thread alone."""
        try:
            with self._changing, self._database.writing() as db:
                yield db
        except sqlite3.Error as error:
            raise StoreError(f"the store can't be written: {error}; free some space, or reset") from None

    # Inboxes

    def box(self, api_key: str) -> Box:
        """The inbox of this key, made where there is none. The key itself is not stored, only a salted digest."""
        box = self.find(api_key)
        if box is NO_BOX:
            with self._writing() as db:
                digest = self._digest(api_key)
                db.execute("INSERT INTO inboxes(digest, name) VALUES (?, ?) ON CONFLICT DO NOTHING", (digest, _name()))
            box = self.find(api_key)
        return box

    def find(self, api_key: str) -> Box:
        """The inbox of this key, or `NO_BOX`, in which nothing is."""
        box = self._boxes.get(api_key)
        if box is not None:
            return box
        with self._database.reading() as db:
            find = "SELECT id, name, label FROM inboxes WHERE digest = ?"
            row = db.execute(find, (self._digest(api_key),)).fetchone()
        if row is None:
            return NO_BOX
        with self._changing:
            if len(self._boxes) >= _KEYS:
                self._boxes.clear()
            return self._boxes.setdefault(api_key, Box(*row))

    def _digest(self, api_key: str) -> bytes:
        return hmac.digest(self._salt, api_key.encode("utf-8", "surrogatepass"), hashlib.sha256)

    def named(self, name: str) -> Box | None:
        """The inbox of this name."""
        with self._database.reading() as db:
            row = db.execute(
                "SELECT id, name, label FROM inboxes WHERE name = ? AND digest NOT NULL", (name,)
            ).fetchone()
        return row and Box(*row)

    def boxes(self) -> list[tuple[Box, int, float | None]]:
        """Every inbox with its requests that are kept and the time of its last: the last one first."""
        with self._database.reading() as db:
            rows = db.execute(
                "SELECT id, name, label, (SELECT count(*) FROM requests WHERE inbox = inboxes.id),"
                " (SELECT time FROM requests WHERE inbox = inboxes.id ORDER BY id DESC LIMIT 1) AS last"
                " FROM inboxes WHERE digest NOT NULL ORDER BY last DESC, id"
            ).fetchall()
        return [(Box(*row[:3]), row[3], row[4]) for row in rows]

    def label(self, box: Box, label: str) -> None:
        """Name an inbox for those who look at it."""
        with self._changing, self._writing() as db:
            db.execute("UPDATE inboxes SET label = ? WHERE id = ?", (label, box.id))
            self._boxes.clear()

    def forget(self, box: Box) -> None:
        """Begin the inbox anew, at once, however much is in it. What is on its way with the older `Box` stays out."""
        with self._changing, self._writing() as db:
            row = db.execute("SELECT digest, name, label FROM inboxes WHERE id = ? AND digest NOT NULL", (box.id,))
            if (old := row.fetchone()) is None:
                return
            db.execute("UPDATE inboxes SET digest = NULL, name = ? WHERE id = ?", (_name(), box.id))
            db.execute("INSERT INTO inboxes(digest, name, label) VALUES (?, ?, ?)", old)
            self._boxes = {key: kept for key, kept in self._boxes.items() if kept.id != box.id}
            self._forgotten.append(box.id)

    def sweep(self) -> bool:
        """Give some of the room of forgotten inboxes back; whether there is more to do."""
        with self._changing:
            if not self._forgotten:
                return False
            inbox = self._forgotten[0]
            with self._writing() as db:
                more = sql.sweep(db, inbox, _SWEPT)
            if not more:
                self._forgotten.popleft()
                del self._kept[inbox], self._bytes[inbox]
            return bool(self._forgotten)

    # Writing

    def write(self, entries: Sequence[Entry]) -> None:
        """Store these, all or none, and give each its ``id``."""
        rows, part = self._rows, self._part
        with self._changing:
            with self._writing() as db:
                for entry in entries:
                    entry.id = sql.insert(db, entry)
                    if entry.user_ids:
                        if rows >= _PART:
                            rows, part = 0, part + 1
                            db.execute("INSERT INTO parts VALUES (?)", (part,))
                        rows += sql.index(db, part, entry)
            self._rows, self._part = rows, part
            for entry in entries:
                self._kept[entry.inbox] += 1
                self._bytes[entry.inbox] += len(entry.body)
            with suppress(StoreError):  # a full disk is told by what is written to it, which this has been
                self._evict({entry.inbox for entry in entries})

    def _evict(self, inboxes: Iterable[int]) -> None:
        """Drop the oldest requests as far as they are over the bounds."""
        gone: list[sql.Size] = []
        with self._database.reading() as db:
            if self._max_age is not None:
                gone += sql.older(db, time.time() - self._max_age)
            for inbox in inboxes:
                if (count := self._kept[inbox] - self._keep) > 0:
                    gone += sql.oldest(db, inbox, count=count)
            if (excess := self._bytes.total() - self._max_bytes) > 0:  # of all inboxes: who has most gives
                gone += sql.oldest(db, max(self._bytes, key=self._bytes.__getitem__), size=excess)
        self._drop(gone)

    def _drop(self, gone: Iterable[sql.Size]) -> int:
        sizes = set(gone)
        if sizes:
            with self._writing() as db:
                sql.delete(db, [size.id for size in sizes])
            for size in sizes:
                self._kept[size.inbox] -= 1
                self._bytes[size.inbox] -= size.bytes
        return len(sizes)

    def delete(self, box: Box, search: Search | None = None, *, only: int | None = None) -> int:
        """Drop requests from the list, not from the counts: one, or those of a search. How many went."""
        with self._changing:
            with self._database.reading() as db:
                sizes = sql.sizes(db, box.id, search or Search())
            return self._drop(size for size in sizes if only in (None, size.id))

    def update(self, campaign: Campaign) -> None:
        """Store what became of a campaign."""
        with self._writing() as db:
            sql.update_campaign(db, campaign)

    def deliver(self, campaign: Campaign, batch: Iterable[tuple[str, Mapping[str, object]]]) -> None:
        """Store some of those who get a campaign, with the rows that fill the placeholders."""
        with self._writing() as db:
            sql.add_recipients(db, campaign.id, batch)

    def withdraw(self, campaign: Campaign) -> None:
        """Forget who got a campaign, so that it can begin anew."""
        rows = _SWEPT
        while rows == _SWEPT:
            with self._writing() as db:
                rows = sql.drop_recipients(db, campaign.id, _SWEPT)

    # Reading

    def accepted(self, box: Box, user_id: str) -> int:
        """How many times a push to this user was accepted."""
        with self._database.reading() as db:
            return sql.accepted(db, box.id, user_id)

    def users(self, box: Box, *, like: str = "", after: str = "", least: int = 1, limit: int = -1) -> dict[str, int]:
        """How often each user was accepted, at ``least`` so often, in the order of their ids from ``after`` on."""
        with self._database.reading() as db:
            return sql.users(db, box.id, like=like, after=after, least=least, limit=limit)

    def delivered(self, box: Box, user_id: str, *, limit: int = 1000) -> tuple[int, list[Delivered]]:
        """How many times a user was accepted, and the newest of what is kept of that, oldest first."""
        with self._database.reading() as db:
            return sql.accepted(db, box.id, user_id), sql.delivered(db, box.id, user_id, limit=limit)

    def pushes(self, box: Box) -> tuple[Push, ...]:
        """The pushes that were accepted and are kept, oldest first."""
        with self._database.reading() as db:
            return sql.pushes(db, box.id)

    def campaigns(self, box: Box) -> tuple[Campaign, ...]:
        """The campaigns that were accepted and are kept, oldest first."""
        with self._database.reading() as db:
            return sql.campaigns(db, box.id)

    def campaign(self, box: Box, uuid: str) -> Campaign | None:
        """One campaign of this inbox."""
        with self._database.reading() as db:
            found = sql.campaign(db, uuid)
        return found[1] if found is not None and found[0] == box.id else None

    def unfinished(self) -> list[tuple[int, Campaign]]:
        """The campaigns that wait or were running, with the inbox of each."""
        with self._database.reading() as db:
            return sql.unfinished(db)

    def recipients(
        self, campaign: Campaign, *, after: str = "", limit: int = 100
    ) -> list[tuple[str, dict[str, object]]]:
        """Who gets a campaign with their rows, in the order of their ids from ``after`` on."""
        with self._database.reading() as db:
            return sql.recipients(db, campaign.id, after=after, limit=limit)

    def requests(
        self,
        box: Box,
        search: Search | None = None,
        *,
        after: int = 0,
        before: int = sql.NONE_BEFORE,
        limit: int = 100,
        forward: bool = False,
    ) -> list[Request]:
        """Requests with an id between the two, the newest first, or the oldest first where ``forward``."""
        with self._database.reading() as db:
            return sql.requests(
                db, box.id, search or Search(), after=after, before=before, limit=limit, forward=forward
            )

    def request(self, box: Box, number: int) -> tuple[Request, bytes] | None:
        """One request and its body."""
        with self._database.reading() as db:
            return sql.request(db, box.id, number)

    def count_new(self, box: Box, search: Search, after: int) -> tuple[int, int]:
        """How many requests of a search are kept with an id over ``after``, and the newest id of the inbox."""
        with self._database.reading() as db:
            return sql.count(db, box.id, search, after=after), max(after, sql.newest(db, box.id))

    def check(self) -> None:
        """Raise `StoreError` where nothing can be written."""
        with self._writing():
            pass

    def totals(self) -> dict[str, int]:
        """Over all inboxes: the users with an accepted push, the pushes accepted and the campaigns that are kept."""
        with self._database.reading() as db:
            return sql.totals(db)


def _name() -> str:
    return secrets.token_hex(8)
