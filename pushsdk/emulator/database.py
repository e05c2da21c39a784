"""The store's file: made, recognised and locked; one connection that writes, and as many that read as are in use."""

from __future__ import annotations

import os
import shutil
import sqlite3
import tempfile
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from pushsdk._broadcast.locking import HAVE_FLOCK, is_locked, lock

__all__ = ["Database", "StoreError"]

_APPLICATION_ID = 0x70757368  # "push", in the head of the file
_VERSION = 1
_BUSY = 5.0  # seconds; only a checkpoint or a backup of somebody else can hold the file at all
_CACHE_KIB = 16_384
_WAL_LIMIT = 64 * 1024 * 1024  # bytes that the log keeps after a checkpoint
_TEMPORARY = "pushsdk-emulator-"

_SCHEMA = """
CREATE TABLE secrets(salt BLOB NOT NULL);
INSERT INTO secrets VALUES (randomblob(32));
CREATE TABLE inboxes(
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    digest BLOB UNIQUE,                      -- NULL once it was reset: what is left of it goes bit by bit
    name TEXT NOT NULL UNIQUE,
    label TEXT);
CREATE TABLE requests(
    id INTEGER PRIMARY KEY AUTOINCREMENT,    -- never used again, so that a mark in the list stays one
    inbox INTEGER NOT NULL,
    time REAL NOT NULL,
    endpoint TEXT,
    status INTEGER,
    accepted INTEGER NOT NULL,
    fault TEXT,
    error TEXT,
    users INTEGER NOT NULL,
    bytes INTEGER NOT NULL,
    card BLOB NOT NULL,
    title TEXT NOT NULL,
    text TEXT NOT NULL,
    langs TEXT NOT NULL,
    body BLOB NOT NULL);
CREATE INDEX requests_of_inbox ON requests(inbox, id);
-- Who was accepted how often, in parts: an index over random users would cost ever more as it grows (measured: 4 us
-- a row at two million rows against 1.4 us, which stays). A look-up seeks in each part.
CREATE TABLE parts(part INTEGER PRIMARY KEY);
INSERT INTO parts VALUES (1);
CREATE TABLE received(
    part INTEGER NOT NULL,
    inbox INTEGER NOT NULL,
    user TEXT NOT NULL,
    request INTEGER NOT NULL,
    times INTEGER NOT NULL,
    PRIMARY KEY(part, inbox, user, request)) WITHOUT ROWID;
CREATE TABLE campaigns(
    uuid TEXT PRIMARY KEY,
    inbox INTEGER NOT NULL,
    request INTEGER NOT NULL UNIQUE,
    name TEXT,
    external_id TEXT,
    state TEXT NOT NULL,
    start REAL,
    reading TEXT NOT NULL,
    started REAL,
    finished REAL,
    users INTEGER,
    error TEXT) WITHOUT ROWID;
CREATE INDEX campaigns_of_inbox ON campaigns(inbox, request);
CREATE TABLE recipients(
    request INTEGER NOT NULL,
    user TEXT NOT NULL,
    fields TEXT NOT NULL,
    PRIMARY KEY(request, user)) WITHOUT ROWID;
"""


class StoreError(Exception):
    """The store's file can't be used; the text says why and what to do."""


class Database:
    """One SQLite file with a write-ahead log.

    ``path`` is kept, locked for this process, and survives it. None is a temporary one, removed with this object
    or with the process. Opening raises `StoreError` where the file is in use, foreign, newer or damaged: such a file is
    never written to.
    """

    def __init__(self, path: Path | None) -> None:
        self._idle: list[sqlite3.Connection] = []  # readers that nobody uses now
        self._lock = threading.RLock()  # one writer at a time, whatever its thread
        self._temporary = path is None
        self._path = path or _new_folder() / "store"
        self._release = _locked(self._path)
        try:
            self._writer: sqlite3.Connection | None = self._open()  # None after close()
        except BaseException:
            self._release()
            raise
        folder = self._path.parent if self._temporary else None
        self._end = weakref.finalize(self, _remove, folder, self._writer, self._idle, self._release)

    def _open(self) -> sqlite3.Connection:
        try:
            os.close(os.open(self._path, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o600))
        except OSError as error:
            raise StoreError(f"{self._path}: {error.strerror}") from None
        writer = self._connect()
        try:
            if _is_new(writer, self._path):
                writer.executescript(
                    f"PRAGMA journal_mode = WAL; PRAGMA application_id = {_APPLICATION_ID};"
                    f"PRAGMA user_version = {_VERSION}; BEGIN; {_SCHEMA} COMMIT;"
                )
            # A temporary file has nothing to lose to a power cut; the other may lose its last commits, never itself.
            writer.execute(f"PRAGMA synchronous = {'OFF' if self._temporary else 'NORMAL'}")
            writer.execute(f"PRAGMA journal_size_limit = {_WAL_LIMIT}")
        except sqlite3.Error as error:
            writer.close()
            raise StoreError(f"{self._path} can't be used as a store: {error}") from None
        except StoreError:
            writer.close()
            raise
        return writer

    def _connect(self) -> sqlite3.Connection:
        db = sqlite3.connect(self._path, timeout=_BUSY, isolation_level=None, check_same_thread=False)
        db.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")
        db.execute("PRAGMA trusted_schema = OFF")
        return db

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """One transaction: committed at the end, or nothing of it at all. Raises sqlite3.Error, as for a full disk."""
        with self._lock:
            if self._writer is None:
                raise StoreError("the store is closed")
            self._writer.execute("BEGIN IMMEDIATE")
            try:
                yield self._writer
                self._writer.execute("COMMIT")
            finally:
                # SQLite ends some transactions by itself, as on a full disk.
                if self._writer.in_transaction:
                    self._writer.execute("ROLLBACK")

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """One snapshot: all that is read in it is of the same moment. From any thread, also after the end."""
        try:
            db = self._idle.pop()
        except IndexError:
            db = self._connect()
            db.execute("PRAGMA query_only = ON")
        db.execute("BEGIN")
        try:
            yield db
        finally:
            db.execute("ROLLBACK")
            self._idle.append(db)

    def close(self) -> None:
        """End writing and give the lock back; a temporary file goes with this object. What was written can be read."""
        if self._temporary:
            return
        with self._lock:
            writer, self._writer = self._writer, None
            if writer is not None:
                writer.close()
        while self._idle:
            self._idle.pop().close()
        self._release()


def _new_folder() -> Path:
    """A folder for a temporary store; those that a kill left behind go at the same time."""
    folders = Path(tempfile.gettempdir())
    with suppress(OSError):
        for former in folders.glob(f"{_TEMPORARY}*") if HAVE_FLOCK else ():
            held = former / "store.lock"
            if held.exists() and not is_locked(held):
                shutil.rmtree(former, ignore_errors=True)
    return Path(tempfile.mkdtemp(prefix=_TEMPORARY))


def _locked(path: Path) -> Callable[[], None]:
    try:
        return lock(path.with_name(f"{path.name}.lock"))
    except BlockingIOError:
        raise StoreError(f"{path} is in use by another emulator: end that one, or name another file") from None
    except OSError as error:
        raise StoreError(f"{path}: {error.strerror}") from None


def _is_new(db: sqlite3.Connection, path: Path) -> bool:
    """Whether the file is empty yet; raises where it is something else than a store of this version."""
    try:
        (application,), (version,) = (
            db.execute(f"PRAGMA {name}").fetchone() for name in ("application_id", "user_version")
        )
        (tables,) = db.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except sqlite3.DatabaseError:
        raise StoreError(f"{path} is no emulator store, or it is damaged: name another file") from None
    if not application and not tables:
        return True
    if application != _APPLICATION_ID:
        raise StoreError(f"{path} is a database of something else: name another file")
    if version != _VERSION:
        raise StoreError(f"{path} is a store of version {version}, this pushsdk has {_VERSION}: name another file")
    return False


def _remove(
    folder: Path | None, writer: sqlite3.Connection, readers: list[sqlite3.Connection], release: Callable[[], None]
) -> None:
    for db in (writer, *readers):
        with suppress(sqlite3.Error):
            db.close()
    if folder is not None:
        shutil.rmtree(folder, ignore_errors=True)
    release()
