"""The store: every SQL statement over the tables in ``database``.

The number of accepted pushes to each user is kept forever, per inbox: tests rely on it. Stored bodies are bounded.
`Store.received` decides what is a duplicate.
"""

import hmac
import re
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from itertools import groupby, islice
from operator import itemgetter
from pathlib import Path
from sqlite3 import Connection
from typing import Any

import msgspec
from msgspec import Struct

from pushsdk._texts import text_beside
from pushsdk.emulator.store.database import Database
from pushsdk.emulator.store.records import (
    Campaign,
    Delivered,
    InboxView,
    Preview,
    Push,
    RequestRecord,
    RequestSummary,
    UserCount,
    user_key,
)
from pushsdk.emulator.store.search import Search

NO_BOUND = (1 << 63) - 1
_NAME_BYTES = 8
_MOST_DELIVERED = 1000
_SLACK = 100  # an overfull store drops a hundredth more, or each further request would drop another
_ALL = Search()

_TEXT = text_beside(__name__, "queries.sql")
_SQL: dict[str, str] = dict(re.findall(r"-- (\w+).*\n([^;]+);", _TEXT))  # by the name in the comment above each

_ACCEPTED = "SELECT coalesce(sum(times), 0) FROM received WHERE inbox = ? AND (stem, length, digits) = (?, ?, ?)"

_encode = msgspec.json.Encoder().encode
_preview = msgspec.json.Decoder(Preview)


class InboxRef(Struct, frozen=True):
    """An inbox in the store: ``name`` is public and stays, ``id`` is internal and changes with each reset."""

    id: int
    name: str


NO_INBOX = InboxRef(0, "")
ALL_INBOXES = InboxRef(-1, "*")
"""For reading requests, whose ids count up over all inboxes."""


class Store:
    """Keeps the requests, campaigns and accepted users in each inbox; in ``path``, or in a temporary file.

    Keeps ``keep`` requests per inbox, ``max_bytes`` for all bodies, and nothing older than ``max_age`` seconds: each
    write drops the oldest beyond. The counts per user are never dropped.

    Any thread may read and write, and may still read after `close`. The first use opens the file. Methods raise
    `StoreError` if the file can't be used, and then store no part of the write.
    """

    def __init__(
        self, path: Path | None, *, keep: int = 100_000, max_bytes: int = 1 << 30, max_age: float | None = None
    ) -> None:
        self._path = path
        self._keep = keep
        self._max_bytes = max_bytes
        self._max_age = max_age
        self._lock = threading.RLock()  # held while the file is opened or written
        self._opened: Database | None = None  # set by open(), kept after close() for readers
        #: Number of writes so far: a reader who knows this number has nothing new to read.
        self.writes: int = 0

    def open(self) -> Database:
        """Open the file if it is not open yet."""
        if self._opened is None:
            with self._lock:
                self._opened = self._opened or Database(self._path)
        return self._opened

    def close(self) -> None:
        """Stop writing; reading still works."""
        with self._lock:
            if self._opened is not None:
                self._opened.close()

    @contextmanager
    def _writing(self) -> Iterator[Connection]:
        with self._lock, self.open().writing() as db:
            yield db
        self.writes += 1

    def _all(self, query: str, *values: object) -> list[Any]:
        with self.open().reading() as db:
            return db.execute(query, values).fetchall()

    def _first(self, query: str, *values: object) -> Any:
        return next(iter(self._all(query, *values)), None)

    # Inboxes

    def inbox(self, api_key: str) -> InboxRef:
        """Return the inbox for this key; create one if there is none."""
        if self.find(api_key) is NO_INBOX:
            with self._writing() as db:
                db.execute(_SQL["inbox"], (self.name_of(api_key),))
        return self.find(api_key)

    def find(self, api_key: str) -> InboxRef:
        """Return the inbox for this key, or the empty `NO_INBOX`."""
        return self.named(self.name_of(api_key)) or NO_INBOX

    def named(self, name: str) -> InboxRef | None:
        """Return the inbox with this name."""
        row = self._first("SELECT id, name FROM inboxes WHERE name = ?", name)
        return row and InboxRef(*row)

    def name_of(self, api_key: str) -> str:
        """Return the public name for this key's inbox: a salted digest, as the key itself is not stored."""
        digest = hmac.digest(self.open().salt, api_key.encode("utf-8", "surrogatepass"), "sha256")
        return digest[:_NAME_BYTES].hex()

    def inboxes(self) -> list[InboxView]:
        """Return all inboxes, the one with the latest request first."""
        return [InboxView(*row) for row in self._all(_SQL["inboxes"])]

    def label(self, inbox: InboxRef, label: str) -> None:
        """Set the label that the page shows for an inbox."""
        with self._writing() as db:
            db.execute("UPDATE inboxes SET label = ? WHERE id = ?", (label, inbox.id))

    def reset(self, inbox: InboxRef) -> InboxRef:
        """Replace an inbox by an empty one and return the new one. Requests in flight during a reset are not stored."""
        with self._writing() as db:
            row = db.execute("SELECT name, label FROM inboxes WHERE id = ?", (inbox.id,)).fetchone()
            if row is not None:
                db.execute("DELETE FROM inboxes WHERE id = ?", (inbox.id,))
                db.execute("INSERT INTO inboxes(name, label) VALUES (?, ?)", row)
        return self.named(inbox.name) or inbox

    # Writing

    def write(self, record: RequestRecord) -> None:
        """Store a record, and set its ``id``; 0 if the inbox was reset in the meantime."""
        with self._writing() as db:
            record.id = _insert(db, record)
            self._drop_surplus(db, record)

    def _drop_surplus(self, db: Connection, new: RequestRecord) -> None:
        if self._max_age is not None:
            since = "SELECT id FROM requests WHERE time >= ? ORDER BY id LIMIT 1"
            db.execute(f"DELETE FROM requests WHERE id < ({since})", (new.time - self._max_age,))
        surplus = "SELECT max(0, requests - ?) FROM inboxes WHERE id = ?"
        oldest = f"SELECT id FROM requests WHERE inbox = ? ORDER BY id LIMIT coalesce(({surplus}), 0)"
        db.execute(f"DELETE FROM requests WHERE id IN ({oldest})", (new.inbox, self._keep, new.inbox))
        (excess,) = db.execute("SELECT bytes - ? FROM store", (self._max_bytes,)).fetchone()
        excess += self._max_bytes // _SLACK if excess > 0 else 0
        while excess > 0:  # take from the largest inbox first
            inbox, size = db.execute("SELECT id, bytes FROM inboxes ORDER BY bytes DESC LIMIT 1").fetchone()
            older = "SELECT id, sum(bytes) OVER (ORDER BY id) - bytes AS size FROM requests WHERE inbox = ?"
            db.execute(f"DELETE FROM requests WHERE id IN (SELECT id FROM ({older}) WHERE size < ?)", (inbox, excess))
            excess -= size

    def delete(self, inbox: InboxRef, search: Search = _ALL, *, only: int | None = None) -> int:
        """Delete the requests that a search finds, or only one, and return their number. The counts per user stay."""
        after, before = (0, NO_BOUND) if only is None else (only - 1, only + 1)
        where, values = _where(inbox, search, after, before)
        with self._writing() as db:
            return db.execute(f"DELETE FROM requests WHERE id IN (SELECT id {where})", values).rowcount

    # Users

    def accepted(self, inbox: InboxRef, user_id: str) -> int:
        """Count the accepted pushes to this user."""
        return int(self._first(_ACCEPTED, inbox.id, *user_key(user_id))[0])

    def received(
        self, inbox: InboxRef, *, like: str = "", after: str = "", same: int = 1, limit: int | None = None
    ) -> list[UserCount]:
        """Return the users with an equal push accepted at least ``same`` times, or a page: ``limit`` users after one.

        Pushes are equal if `PushBody.digest` is: equal message and custom fields, in one request or several.
        """
        # The whole list begins before the empty id, which pages leave out.
        start = ("", -1, "") if limit is None else user_key(after)
        values = (inbox.id, like, *start)
        with self.open().reading() as db, closing(db.execute(_SQL["received"], values)) as rows:
            counts = ((user, [times for _, times in group]) for user, group in groupby(rows, itemgetter(0)))
            users = (UserCount(user, sum(times), max(times)) for user, times in counts if max(times) >= same)
            return list(islice(users, limit))

    def delivered(self, inbox: InboxRef, user_id: str, *, size: int) -> tuple[int, list[Delivered]]:
        """Return `accepted` and the user's newest stored pushes, oldest first, in one snapshot.

        Bodies are included newest first, up to ``size`` bytes in all; further ones are empty.
        """
        key = user_key(user_id)
        with self.open().reading() as db:
            (accepted,) = db.execute(_ACCEPTED, (inbox.id, *key)).fetchone()
            rows = db.execute(_SQL["delivered"], (inbox.id, *key, _MOST_DELIVERED, size)).fetchall()
        return accepted, [Delivered(**row) for row in rows]

    # Requests

    def sent(self, inbox: InboxRef, search: Search = _ALL) -> list[Push | Campaign]:
        """Return the stored accepted pushes and campaigns that a search finds, oldest first."""
        where, values = _where(inbox, search, 0, NO_BOUND)
        rows = self._all(f"SELECT id, body, time, campaign AS uuid {where} AND accepted ORDER BY id", *values)
        return [Campaign(**row) if row["uuid"] else msgspec.convert({**row}, Push) for row in rows]

    def requests(
        self,
        inbox: InboxRef,
        search: Search = _ALL,
        *,
        after: int = 0,
        before: int = NO_BOUND,
        limit: int = 100,
        grouped: bool = False,
    ) -> list[RequestSummary]:
        """Return stored requests with ``after`` < id < ``before``, newest first.

        With ``grouped``, return the newest request in each group with ``after`` < group < ``before``.
        """
        key = '"group"' if grouped else "id"
        where, values = _where(inbox, search, after, before, key)
        order = f"GROUP BY requests.{key} ORDER BY requests.{key} DESC LIMIT ?"
        return [_summary(row) for row in self._all(f"{_SQL['request']} {where} {order}", *values, limit)]

    def request(self, inbox: InboxRef, number: int) -> tuple[RequestSummary, bytes] | None:
        """Return one request and its body."""
        where, values = _where(inbox, _ALL, number - 1, number + 1)
        row = self._first(f"{_SQL['request']}, body AS raw {where} GROUP BY requests.id", *values)
        return row and (_summary(row), row["raw"])

    def totals(self) -> dict[str, int]:
        """Count over all inboxes: users with an accepted push, users with a duplicate, stored pushes and campaigns."""
        return dict(self._first(_SQL["totals"]))


def _insert(db: Connection, record: RequestRecord) -> int:
    values = msgspec.structs.asdict(record) | {
        "users": len(record.user_ids),
        "bytes": len(record.body),
        "preview": _encode(record.preview),
        "langs": f" {' '.join(record.preview.languages)} ".casefold(),
    }
    cursor = db.execute(_SQL["insert"], values)
    if not cursor.rowcount:
        return 0
    request = int(cursor.lastrowid or 0)
    if not record.accepted:
        return request
    db.executemany(
        "INSERT INTO received VALUES (?, ?, ?, ?, ?, ?, ?)",
        [
            (record.inbox, *user_key(user), record.digest, request, times)
            for user, times in Counter(record.user_ids).items()
        ],
    )
    return request


def _summary(row: Any) -> RequestSummary:
    preview = msgspec.structs.asdict(_preview.decode(row["preview"]))
    values = {**row, **preview, "accepted": bool(row["accepted"])}
    return RequestSummary(**{name: values[name] for name in RequestSummary.__struct_fields__})


def _where(inbox: InboxRef, search: Search, after: int, before: int, key: str = "id") -> tuple[str, list[Any]]:
    """Return FROM and WHERE for a search, and their values."""
    condition = f" AND {search.condition}" if search.condition else ""
    own = [] if inbox == ALL_INBOXES else [inbox.id]
    where = f"FROM requests WHERE{' inbox = ? AND' * len(own)} {key} > ? AND {key} < ?{condition}"
    return where, [*own, after, before, *search.values]
