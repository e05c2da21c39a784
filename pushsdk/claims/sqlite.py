"""Claims in a file of SQLite: for the processes of one machine."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from pushsdk._core.errors import ConfigurationError
from pushsdk._io.forks import unforked
from pushsdk._io.ownership import database_objection
from pushsdk._io.threads import DaemonThreads
from pushsdk.claims._blocking import uncancelled
from pushsdk.claims.store import Claim, ClaimStore

__all__ = ["SqliteClaims"]

# In the head of the file: "pcla", and the version of the table.
APPLICATION, FORMAT = 0x70636C61, 1
SCHEMA = f"""
PRAGMA application_id = {APPLICATION};
PRAGMA user_version = {FORMAT};
CREATE TABLE claims(
    key TEXT PRIMARY KEY,
    token TEXT NOT NULL,
    record BLOB NOT NULL,
    expires REAL NOT NULL) WITHOUT ROWID;
CREATE INDEX claims_by_expiry ON claims(expires);
"""
# Seconds between two looks for what has expired, and rows that go at a time: so many hold nobody up.
SWEEP_EVERY, SWEPT = 60.0, 1000

_FIND = "SELECT token, record FROM claims WHERE key = ? AND expires > ?"
_ADD = "INSERT OR REPLACE INTO claims VALUES (?, ?, ?, ?)"
_SWAP = "UPDATE claims SET token = ?, record = ?, expires = ? WHERE key = ? AND token = ? AND expires > ?"
_SWEEP = "DELETE FROM claims WHERE key IN (SELECT key FROM claims WHERE expires <= ? LIMIT ?)"

Work = Callable[[sqlite3.Connection, float], Any]


class _Order(NamedTuple):
    """What the thread is to do, and who is told."""

    work: Work
    told: Future[Any]


class SqliteClaims(ClaimStore):
    """Claims in the file at ``path``, made where there is none (mode 0600, with a write-ahead log beside it).

    Any number of processes of one machine may share the file; not over a network's file system. What comes while a
    commit is under way shares the next one. A claim survives the death of the process; ``durable`` syncs it to the disk
    as well, for a loss of power. Expiry goes by the clock of the system. Nothing is opened before the first use.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        durable: bool = False,
        claim_ttl: float = 7 * 86400.0,
        timeout: float = 5.0,
    ) -> None:
        """See ``ClaimStore`` for ``claim_ttl`` and ``timeout``."""
        super().__init__(claim_ttl=claim_ttl, timeout=timeout)
        self._path = Path(path).absolute()
        self._durable = durable
        self._lock = threading.Lock()
        # What the thread takes next; guarded by the lock, as is the rest.
        self._orders: list[_Order] = []
        # Whether the thread will look for orders. Set when it is woken, cleared when it finds none.
        self._busy = False
        self._thread: DaemonThreads | None = None
        self._process = 0
        self._closed = False
        # Of the thread alone.
        self._db: sqlite3.Connection | None = None
        self._swept = 0.0

    def __repr__(self) -> str:
        return f"SqliteClaims({str(self._path)!r})"

    async def add(self, key: str, claim: Claim, ttl: float) -> Claim | None:
        def work(db: sqlite3.Connection, now: float) -> Claim | None:
            row = db.execute(_FIND, (key, now)).fetchone()
            if row is not None:
                return Claim(*row)
            db.execute(_ADD, (key, claim.token, claim.record, now + ttl))
            self._sweep(db, now)
            return None

        found: Claim | None = await self._have_done(work)
        return found

    async def get(self, key: str) -> Claim | None:
        row = await self._have_done(lambda db, now: db.execute(_FIND, (key, now)).fetchone())
        return None if row is None else Claim(*row)

    async def swap(self, key: str, token: str, claim: Claim, ttl: float) -> bool:
        return bool(
            await self._have_done(
                lambda db, now: db.execute(_SWAP, (claim.token, claim.record, now + ttl, key, token, now)).rowcount
            )
        )

    async def aclose(self) -> None:
        """Close the file, after what is being written."""
        with self._lock:
            self._closed = True
            thread, self._thread = self._thread, None
        if thread is not None and self._process == os.getpid():
            closed = thread.submit(self._close)
            thread.shutdown(wait=False)
            await asyncio.wrap_future(closed)

    async def _have_done(self, work: Work) -> Any:
        order = _Order(work, uncancelled())
        with self._lock:
            if self._closed:
                raise ConfigurationError("the claim store is closed: close the client before it")
            if self._thread is None:
                self._thread = DaemonThreads(1, name="pushsdk-claims")
                self._process = os.getpid()
            if self._process != os.getpid():
                raise ConfigurationError("the claim store was used before a fork: make one in each process")
            if not self._busy:
                self._thread.submit(self._work)
                self._busy = True
            # After what may raise: what is told to have failed must not be done.
            self._orders.append(order)
        # What is ordered is done: a cancelled call gives its claim back by a later order.
        return await asyncio.wrap_future(order.told)

    # -- in the thread ------------------------------------------------------------------------------------------

    def _work(self) -> None:
        while True:
            with self._lock:
                orders, self._orders = self._orders, []
                if not orders:
                    self._busy = False
                    return
            try:
                answers = self._commit(orders)
            except Exception as error:  # noqa: BLE001 - told to those who wait
                for order in orders:
                    order.told.set_exception(error)
            else:
                for order, answer in zip(orders, answers, strict=True):
                    order.told.set_result(answer)

    @unforked
    def _commit(self, orders: list[_Order]) -> list[Any]:
        """All of them in one transaction."""
        db = self._db or self._open()
        db.execute("BEGIN IMMEDIATE")
        try:
            now = time.time()
            answers = [order.work(db, now) for order in orders]
            db.execute("COMMIT")
            return answers
        finally:
            db.rollback()  # what was not committed

    def _open(self) -> sqlite3.Connection:
        # Made here, not by SQLite: for its owner only, from the first moment on.
        file = os.open(self._path, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o600)
        opened = os.fstat(file)
        os.close(file)
        db = sqlite3.connect(
            f"{self._path.as_uri()}?mode=rw",
            uri=True,
            timeout=self.timeout,
            isolation_level=None,
            check_same_thread=False,
        )
        try:
            if why := database_objection(self._path, opened):
                raise ConfigurationError(f"the file of the claim store can't be trusted: {why}")
            self._prepare(db)
        except BaseException:
            db.close()
            raise
        self._db = db
        return db

    def _prepare(self, db: sqlite3.Connection) -> None:
        db.execute("PRAGMA trusted_schema = OFF")
        db.execute("BEGIN")
        is_new = _is_new(db)
        db.execute("COMMIT")
        self._log_ahead(db)
        db.execute(f"PRAGMA synchronous = {'FULL' if self._durable else 'NORMAL'}")
        if is_new:
            db.execute("BEGIN IMMEDIATE")
            # Another process may have been first.
            if _is_new(db):
                for statement in SCHEMA.split(";"):
                    db.execute(statement)
            db.execute("COMMIT")

    def _log_ahead(self, db: sqlite3.Connection) -> None:
        """For this change alone SQLite does not wait for a process that makes it, too."""
        until = time.monotonic() + self.timeout
        while True:
            try:
                (mode,) = db.execute("PRAGMA journal_mode = WAL").fetchone()
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() > until:
                    raise
                time.sleep(0.002)
                continue
            if mode != "wal":
                raise ConfigurationError("the folder of the claim store allows no write-ahead log")
            return

    def _sweep(self, db: sqlite3.Connection, now: float) -> None:
        if now >= self._swept + SWEEP_EVERY and db.execute(_SWEEP, (now, SWEPT)).rowcount < SWEPT:
            self._swept = now

    @unforked
    def _close(self) -> None:
        db, self._db = self._db, None
        if db is not None:
            with suppress(sqlite3.Error):
                db.close()


def _is_new(db: sqlite3.Connection) -> bool:
    """Whether nothing was ever in it. Raises ConfigurationError where it is not ours. Within a transaction."""
    # First of all what takes the lock: the head must not change between two looks at it.
    is_empty = db.execute("SELECT 1 FROM sqlite_master").fetchone() is None
    (application,) = db.execute("PRAGMA application_id").fetchone()
    (version,) = db.execute("PRAGMA user_version").fetchone()
    if (application, version) == (APPLICATION, FORMAT):
        return False
    if application or version or not is_empty:
        raise ConfigurationError("the file of the claim store is of something else, or of another version")
    return True
