"""What the service took, and what it was sent: written in groups, told again as of one moment.

The record of the oracle: how often each user was accepted, per inbox. Bodies are bounded, those counts are not.
"""

from __future__ import annotations

import hashlib
import hmac
import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from sqlite3 import Connection

from msgspec import Struct

from pushsdk.emulator import changes, sql
from pushsdk.emulator.changes import Size
from pushsdk.emulator.database import Database, StoreError
from pushsdk.emulator.records import Campaign, Delivered, Entry, Push, Request
from pushsdk.emulator.search import Search

__all__ = ["NO_BOX", "Box", "Store", "StoreError"]

_SLACK = 100  # where the bytes are too many, a hundredth more goes: not one request for each that comes

_PART = 20_000  # rows of one part of the index: small enough to stay in the cache while it grows
_STEP = 2_000  # rows that go at a time, so that nobody waits for it
_KEYS = 10_000  # Api-Keys whose inbox is remembered


class Keeping:
    """The bounds, and the counts they are held against. See `Store` for what they mean. In one thread at a time."""

    def __init__(self, *, keep: int, max_bytes: int, max_age: float | None) -> None:
        if keep < 0 or max_bytes < 0 or (max_age is not None and max_age < 0):
            raise ValueError("what is kept must not be negative: keep, max_bytes, max_age")
        self._keep = keep
        self._max_bytes = max_bytes
        self._max_age = max_age
        self._requests: dict[int, int] = {}  # by inbox
        self._bytes: Counter[int] = Counter()  # of their bodies
        self._all_bytes = 0

    def __contains__(self, inbox: int) -> bool:
        """Whether this inbox is known, and was not forgotten."""
        return inbox in self._requests

    def add(self, inbox: int, requests: int = 0, size: int = 0) -> None:
        """An inbox, new or with what is in it."""
        self._requests[inbox], self._bytes[inbox] = requests, size
        self._all_bytes += size

    def forget(self, inbox: int) -> None:
        """An inbox is no more."""
        del self._requests[inbox]
        self._all_bytes -= self._bytes.pop(inbox)

    def surplus(self, db: Connection, new: Sequence[Entry]) -> list[Size]:
        """What has to go, now that these are stored too."""
        gone: set[Size] = set()
        if self._max_age is not None and new:
            gone.update(changes.older(db, new[-1].time - self._max_age))
        for inbox, number in Counter(entry.inbox for entry in new).items():
            if (over := self._requests[inbox] + number - self._keep) > 0:
                gone.update(changes.oldest(db, inbox, count=over))
        total = self._all_bytes + sum(len(entry.body) for entry in new)
        if total - sum(each.bytes for each in gone) > self._max_bytes:
            gone.update(self._too_large(db, new, total))
        return list(gone)

    def _too_large(self, db: Connection, new: Sequence[Entry], total: int) -> Iterable[Size]:
        """Enough of the oldest; who has most gives first."""
        sizes = self._bytes.copy()
        for entry in new:
            sizes[entry.inbox] += len(entry.body)
        excess = total - self._max_bytes * (_SLACK - 1) // _SLACK
        for inbox, size in sizes.most_common():
            if excess > 0:
                yield from changes.oldest(db, inbox, size=excess)
                excess -= size

    def count(self, new: Iterable[Entry], gone: Iterable[Size]) -> None:
        """The first were stored, the others dropped."""
        for entry in new:
            self._change(entry.inbox, 1, len(entry.body))
        for size in gone:
            if size.inbox in self:
                self._change(size.inbox, -1, -size.bytes)

    def _change(self, inbox: int, requests: int, size: int) -> None:
        self._requests[inbox] += requests
        self._bytes[inbox] += size
        self._all_bytes += size


class Box(Struct, frozen=True):
    """An inbox as the store knows it: ``id`` within, another one after a reset, ``name`` towards the outside."""

    id: int
    name: str


NO_BOX = Box(0, "")


class Store:
    """Keeps requests, campaigns and who was accepted, per inbox; in ``path``, or a temporary file.

    ``keep`` requests of each inbox and ``max_bytes`` of bodies over all of them are kept, and for ``max_age`` seconds:
    beyond, the oldest go, whenever something comes. The counts per user, on which the verdicts rest, never do.

    Any thread may read and write. Every reader sees one moment, also after the end. The file is opened by the first
    use. Raises `StoreError` where that fails, or nothing can be written, as where the disk is full: nothing of it is
    stored then.
    """

    def __init__(
        self,
        path: Path | None = None,
        *,
        keep: int = 100_000,
        max_bytes: int = 1 << 30,
        max_age: float | None = None,
        part: int = _PART,
    ) -> None:
        self._path = path
        self._part_rows = part
        # Held while something is written, and for what follows, which then changes too.
        self._lock = threading.RLock()
        self._opened: Database | None = None  # set by the first use, kept after the end
        self._salt = b""
        self._boxes: dict[str, Box] = {}  # by Api-Key
        self._keeping = Keeping(keep=keep, max_bytes=max_bytes, max_age=max_age)
        self._part = 1
        self._rows = 0  # of that part
        self.unswept: bool = False  # whether there is something to sweep

    @property
    def _database(self) -> Database:
        return self._opened or self.open()

    def open(self) -> Database:
        """Open the file now, not at the first use."""
        with self._lock:
            if self._opened is None:
                database = Database(self._path)
                try:
                    self._load(database)
                except StoreError as error:
                    database.discard()
                    raise StoreError(f"{self._path}: {error}; name another file") from None
                self._opened = database
            return self._opened

    def _load(self, database: Database) -> None:
        with database.reading() as db:
            self._salt = sql.salt(db)
            self._part, self._rows = sql.newest_part(db)
            for inbox, requests, size in sql.kept(db):
                self._keeping.add(inbox, requests, size)
            self.unswept = changes.unswept(db)

    def close(self) -> None:
        """End writing. What was written can still be read."""
        with self._lock:
            if self._opened is not None:
                self._opened.close()

    @contextmanager
    def _writing(self) -> Iterator[Connection]:
        """One transaction of this thread alone. What depends on its success is done after it, under the lock."""
        with self._lock, self._database.writing() as db:
            yield db

    @contextmanager
    def _reading(self, box: Box) -> Iterator[tuple[Connection, int]]:
        """One moment, and the inbox in it: `NO_BOX`'s where it was forgotten by then, whatever is left of it."""
        with self._database.reading() as db:
            yield db, box.id if sql.alive(db, box.id) else NO_BOX.id

    # Inboxes

    def box(self, api_key: str) -> Box:
        """The inbox of this key, made where there is none. The key itself is not stored, only a salted digest."""
        with self._lock:
            box = self.find(api_key)
            if box is NO_BOX:
                with self._writing() as db:
                    changes.add_inbox(db, self._digest(api_key))
                box = self.find(api_key)
                self._keeping.add(box.id)
            return box

    def find(self, api_key: str) -> Box:
        """The inbox of this key, or `NO_BOX`, in which nothing is."""
        box = self._boxes.get(api_key)
        if box is not None:
            return box
        with self._lock:  # what is read must not be remembered after a reset
            with self._database.reading() as db:
                row = sql.box(db, self._digest(api_key))
            if row is None:
                return NO_BOX
            if len(self._boxes) >= _KEYS:
                self._boxes.clear()
            self._boxes[api_key] = box = Box(*row)
            return box

    def _digest(self, api_key: str) -> bytes:
        return hmac.digest(self._salt, api_key.encode("utf-8", "surrogatepass"), hashlib.sha256)

    def named(self, name: str) -> Box | None:
        """The inbox of this name."""
        with self._database.reading() as db:
            row = sql.named(db, name)
        return row and Box(*row)

    def boxes(self) -> list[sql.Known]:
        """Every inbox with its requests that are kept and the time of its last: the last one first."""
        with self._database.reading() as db:
            return sql.boxes(db)

    def label(self, box: Box, label: str) -> None:
        """Name an inbox for those who look at it."""
        with self._writing() as db:
            changes.set_label(db, box.id, label)

    def forget(self, box: Box) -> Box:
        """Begin the inbox anew, at once, however much is in it. What is on its way with the older `Box` stays out."""
        with self._lock:
            with self._writing() as db:
                new = changes.begin_anew(db, box.id)
            if new is None:
                return self.named(box.name) or box
            self._boxes = {key: other for key, other in self._boxes.items() if other.id != box.id}
            self._keeping.forget(box.id)
            self._keeping.add(new)
            self.unswept = True
            return Box(new, box.name)

    def sweep(self) -> bool:
        """Give some of the room of what is gone back; whether there is more to do."""
        with self._lock:
            if self.unswept:
                with self._writing() as db:
                    changes.sweep(db, _STEP)
                    unswept = changes.unswept(db)
                self.unswept = unswept
            return self.unswept

    # Writing

    def write(self, entries: Sequence[Entry]) -> None:
        """Store these, all or none, and give each its ``id``; it stays 0 where its inbox was forgotten meanwhile."""
        with self._lock:
            there = [entry for entry in entries if entry.inbox in self._keeping]
            with self._writing() as db:
                part, rows = self._insert(db, there)
                gone = self._keeping.surplus(db, there)
                ended = changes.delete(db, gone)
            self._part, self._rows = part, rows
            self._keeping.count(there, gone)
            self.unswept = self.unswept or ended

    def _insert(self, db: Connection, entries: Sequence[Entry]) -> tuple[int, int]:
        part, rows = self._part, self._rows
        for entry in entries:
            entry.id = changes.insert(db, entry)
            if entry.user_ids:
                if rows >= self._part_rows:
                    part, rows = part + 1, 0
                    changes.add_part(db, part)
                rows += changes.index(db, part, entry)
        return part, rows

    def delete(self, box: Box, search: Search | None = None, *, only: int | None = None) -> int:
        """Drop requests from the list, not from the counts: one, or those of a search. How many went."""
        with self._reading(box) as (db, inbox):
            ids = sql.ids(db, inbox, search or Search(), only=only)
        deleted = 0
        for start in range(0, len(ids), _STEP):
            with self._lock:
                with self._writing() as db:
                    gone = list(changes.sizes(db, ids[start : start + _STEP]))
                    ended = changes.delete(db, gone)
                self._keeping.count((), gone)
                self.unswept = self.unswept or ended
                deleted += len(gone)
        return deleted

    def update(self, campaign: Campaign) -> None:
        """Store what became of a campaign."""
        with self._writing() as db:
            changes.update_campaign(db, campaign)

    def deliver(self, campaign: Campaign, batch: Iterable[tuple[str, Mapping[str, object]]]) -> bool:
        """Store some of those who get a campaign, with the rows that fill the placeholders; False where it is gone."""
        with self._writing() as db:
            return changes.add_recipients(db, campaign.id, batch)

    def withdraw(self, campaign: Campaign) -> None:
        """Forget who got a campaign, so that it can begin anew."""
        rows = _STEP
        while rows == _STEP:
            with self._writing() as db:
                rows = changes.drop_recipients(db, campaign.id, _STEP)

    # Reading

    def accepted(self, box: Box, user_id: str) -> int:
        """How many times a push to this user was accepted."""
        with self._reading(box) as (db, inbox):
            return sql.accepted(db, inbox, user_id)

    def received(
        self, box: Box, *, like: str = "", after: str = "", same: int = 1, limit: int = -1
    ) -> list[sql.Received]:
        """Return the users with a push accepted at least ``same`` times, in the order of their ids after ``after``."""
        with self._reading(box) as (db, inbox):
            return sql.received(db, inbox, like=like, after=after, same=same, limit=limit)

    def users(self, box: Box) -> dict[str, int]:
        """Return every user with an accepted push, and how many."""
        return {user.user_id: user.accepted for user in self.received(box)}

    def duplicates(self, box: Box) -> dict[str, int]:
        """Return every user to whom the same push was accepted more than once, and how often at most."""
        return {user.user_id: user.same for user in self.received(box, same=2)}

    def delivered(
        self, box: Box, user_id: str, *, limit: int = 1000, size: int = sql.NO_BOUND
    ) -> tuple[int, list[Delivered]]:
        """How many times a user was accepted, and the newest of what is kept of that, oldest first."""
        with self._reading(box) as (db, inbox):
            return sql.accepted(db, inbox, user_id), sql.delivered(db, inbox, user_id, limit=limit, size=size)

    def pushes(self, box: Box) -> tuple[Push, ...]:
        """The pushes that were accepted and are kept, oldest first."""
        with self._reading(box) as (db, inbox):
            return sql.pushes(db, inbox)

    def campaigns(self, box: Box, *, limit: int = -1, size: int = sql.NO_BOUND) -> tuple[Campaign, ...]:
        """The newest campaigns that were accepted and are kept, oldest first, without bodies over ``size`` bytes."""
        with self._reading(box) as (db, inbox):
            return sql.campaigns(db, inbox, limit=limit, size=size)

    def campaign(self, box: Box, uuid: str) -> Campaign | None:
        """One campaign of this inbox."""
        with self._reading(box) as (db, inbox):
            found = sql.campaign(db, uuid)
            return found[1] if found is not None and found[0] == inbox else None

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
        before: int = sql.NO_BOUND,
        limit: int = 100,
        forward: bool = False,
    ) -> list[Request]:
        """Requests with an id between the two, the newest first, or the oldest first where ``forward``."""
        with self._reading(box) as (db, inbox):
            return sql.requests(db, inbox, search or Search(), after=after, before=before, limit=limit, forward=forward)

    def request(self, box: Box, number: int) -> tuple[Request, bytes] | None:
        """One request and its body."""
        with self._reading(box) as (db, inbox):
            return sql.request(db, inbox, number)

    def count_new(self, box: Box, search: Search, after: int) -> tuple[int, int]:
        """How many requests of a search are kept with an id over ``after``, and the newest id of the inbox."""
        with self._reading(box) as (db, inbox):
            return sql.count(db, inbox, search, after=after), max(after, sql.newest(db, inbox))

    def last_id(self) -> int:
        """The id given last, also where that request is gone; 0 in a new store."""
        with self._database.reading() as db:
            return sql.last_id(db)

    def check(self) -> None:
        """Raise `StoreError` where nothing can be written."""
        with self._writing():
            pass

    def totals(self) -> dict[str, int]:
        """Over all inboxes: users with an accepted push, with more than one, and the pushes and campaigns kept."""
        with self._database.reading() as db:
            return sql.totals(db)
