"""The store's file: its tables and its lock; one connection that writes, and a pool of those that read."""

from __future__ import annotations

import os
import shutil
import sqlite3
import tempfile
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from pushsdk._io.files import lock
from pushsdk._io.forks import ProcessGuard
from pushsdk._sqlite import FileFormat, FileRefused, connect, open_database

__all__ = ["Database", "StoreError"]

_BUSY = 5.0  # seconds; only another program can hold the file at all
_WRITER_CACHE_KIB, _READER_CACHE_KIB = 16_384, 2_048
# Bytes of the log. Users in no order change many pages, which a checkpoint at every commit would write twice.
_WAL_LIMIT = 64 * 1024 * 1024
_TEMPORARY = "pushsdk-emulator-"
_FILE = "store"  # in a temporary folder
_TRIES = 100  # for a folder that no cleaner takes for an abandoned one

_SCHEMA = """
CREATE TABLE store(
    salt BLOB NOT NULL,                      -- of the digests of keys
    bytes INTEGER NOT NULL);                 -- of all bodies
INSERT INTO store VALUES (randomblob(32), 0);
CREATE TABLE inboxes(
    id INTEGER PRIMARY KEY AUTOINCREMENT,    -- never used again: what is in flight to a reset inbox finds no row
    digest BLOB NOT NULL UNIQUE,
    name TEXT NOT NULL UNIQUE,
    label TEXT NOT NULL,
    requests INTEGER NOT NULL DEFAULT 0,     -- those that are kept
    bytes INTEGER NOT NULL DEFAULT 0);       -- of their bodies
CREATE TABLE requests(
    id INTEGER PRIMARY KEY AUTOINCREMENT,    -- never used again, so a mark in the list stays valid
    inbox INTEGER NOT NULL REFERENCES inboxes ON DELETE CASCADE,
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
CREATE INDEX requests_of_inbox ON requests(inbox, id, bytes);
CREATE TRIGGER added AFTER INSERT ON requests BEGIN
    UPDATE inboxes SET requests = requests + 1, bytes = bytes + new.bytes WHERE id = new.inbox;
    UPDATE store SET bytes = bytes + new.bytes;
END;
CREATE TRIGGER dropped AFTER DELETE ON requests BEGIN
    UPDATE inboxes SET requests = requests - 1, bytes = bytes - old.bytes WHERE id = old.inbox;
    UPDATE store SET bytes = bytes - old.bytes;
END;
CREATE TABLE received(                       -- accepted pushes of each user; outlives the request
    inbox INTEGER NOT NULL REFERENCES inboxes ON DELETE CASCADE,
    user TEXT NOT NULL,
    digest INTEGER NOT NULL,                 -- of the content, see PushBody
    request INTEGER NOT NULL,
    times INTEGER NOT NULL,
    PRIMARY KEY(inbox, user, digest, request)) WITHOUT ROWID;
CREATE TABLE campaigns(
    request INTEGER PRIMARY KEY REFERENCES requests ON DELETE CASCADE,
    uuid TEXT NOT NULL UNIQUE,
    name TEXT,
    external_id TEXT,
    state TEXT NOT NULL,
    start REAL,
    reading TEXT NOT NULL,
    started REAL,
    finished REAL,
    users INTEGER,
    error TEXT);
CREATE TABLE recipients(
    request INTEGER NOT NULL REFERENCES campaigns ON DELETE CASCADE,
    user TEXT NOT NULL,
    fields TEXT NOT NULL,
    PRIMARY KEY(request, user)) WITHOUT ROWID;
"""
_FORMAT = FileFormat(name="emulator store", application_id=0x70757368, version=3, schema=_SCHEMA)  # "push"


class StoreError(Exception):
    """The store's file can't be used; the text says why and what to do."""


class Database:
    """One SQLite file with a write-ahead log.

    A file at ``path`` is locked for this process, and survives it. None is a temporary file, removed with this object
    or with the process. Opening raises `StoreError` if the file is in use, foreign, of another version or damaged: such
    a file is never written to. A forked child can neither read nor write, and leaves everything to its parent.
    """

    def __init__(self, path: Path | None) -> None:
        self._guard = ProcessGuard()
        self._idle: list[sqlite3.Connection] = []  # readers that are not in use
        self._temporary = path is None
        self._path, release = _temporary_place() if path is None else _kept_place(path.absolute())
        try:
            writer = self._open()
        except BaseException:
            release()
            raise
        self._writer: sqlite3.Connection | None = writer  # None after close()
        folder = self._path.parent if self._temporary else None
        #: Close everything now; a second call does nothing.
        self.discard: Callable[[], object] = weakref.finalize(
            self, _discard, self._guard, [writer], self._idle, release=release, folder=folder
        )

    def _open(self) -> sqlite3.Connection:
        try:
            writer = open_database(self._path, _FORMAT, timeout=_BUSY)
            try:
                # A temporary file has nothing to lose to a power cut; another may lose its last commits, never itself.
                writer.execute(f"PRAGMA synchronous = {'OFF' if self._temporary else 'NORMAL'}")
                writer.execute(f"PRAGMA journal_size_limit = {_WAL_LIMIT}")
                writer.execute(f"PRAGMA wal_autocheckpoint = {_WAL_LIMIT // 4096}")
                writer.execute(f"PRAGMA cache_size = -{_WRITER_CACHE_KIB}")
                writer.execute("PRAGMA foreign_keys = ON")
                self.salt: bytes = writer.execute("SELECT salt FROM store").fetchone()[0]
            except BaseException:
                writer.close()
                raise
            return writer
        except (FileRefused, sqlite3.Error, OSError) as error:
            raise _unusable(self._path, error) from None

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """One transaction: committed at the end, or nothing of it at all. In one thread at a time.

        Raises `StoreError`, for example if the disk is full.
        """
        self._check_process()
        if self._writer is None:
            raise StoreError("the emulator has ended: its store can only be read")
        try:
            self._writer.execute("BEGIN IMMEDIATE")
            try:
                yield self._writer
                self._writer.execute("COMMIT")
            finally:
                self._writer.rollback()  # what was not committed; a full disk has rolled back already
        except sqlite3.Error as error:
            is_full = getattr(error, "sqlite_errorname", "") == "SQLITE_FULL"
            hint = "; free some space, or reset an inbox" if is_full else ""
            raise StoreError(f"the emulator's store can't be written: {error}{hint}") from None

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """One snapshot: all reads in it see the same moment. From any thread, also after the end."""
        self._check_process()
        try:
            db = self._reader()
            try:
                db.execute("BEGIN")
                yield db
            finally:
                db.rollback()
                self._idle.append(db)
                if self._writer is None:  # after the end the file is not ours any more
                    _close_all(self._idle)
        except sqlite3.Error as error:
            raise StoreError(f"the emulator's store can't be read: {error}") from None

    def _reader(self) -> sqlite3.Connection:
        with suppress(IndexError):
            return self._idle.pop()
        db = connect(self._path, timeout=_BUSY)
        db.execute("PRAGMA trusted_schema = OFF")
        db.execute(f"PRAGMA cache_size = -{_READER_CACHE_KIB}")
        db.execute("PRAGMA query_only = ON")
        return db

    def _check_process(self) -> None:
        if self._guard.is_inherited:
            raise StoreError("the emulator runs in the process that this one was forked from: ask there")

    def close(self) -> None:
        """End writing and unlock the file; a temporary file goes with this object. Reading goes on."""
        if not self._temporary:
            self._writer = None
            self.discard()


def _unusable(path: Path, error: Exception) -> StoreError:
    why = error.strerror if isinstance(error, OSError) else error
    return StoreError(f"{path} can't be used as a store: {why}; name another file")


def _temporary_place() -> tuple[Path, Callable[[], None]]:
    """Return a file in a new, locked folder, and its unlocking. Folders that a kill left behind are removed."""
    try:
        _clean_up(Path(tempfile.gettempdir()))
        for _ in range(_TRIES):
            path = Path(tempfile.mkdtemp(prefix=_TEMPORARY)) / _FILE
            # Another process that cleans up now may lock first, and then removes the folder.
            with suppress(BlockingIOError, FileNotFoundError):
                return path, lock(_lock_of(path))
    except OSError as error:
        raise StoreError(f"no temporary store can be made: {error.strerror}; name a file, or set TMPDIR") from None
    raise StoreError("no temporary store can be made: others take it at once; name a file")


def _clean_up(folders: Path) -> None:
    for held in folders.glob(f"{_TEMPORARY}*/{_FILE}.lock"):
        with suppress(OSError):  # it is in use, or gone meanwhile
            if held.parent.lstat().st_uid == getattr(os, "getuid", int)():
                release = lock(held)
                shutil.rmtree(held.parent, ignore_errors=True)
                release()


def _kept_place(path: Path) -> tuple[Path, Callable[[], None]]:
    try:
        return path, lock(_lock_of(path))
    except BlockingIOError:
        raise StoreError(f"{path} is in use by another emulator: end that one, or name another file") from None
    except OSError as error:
        raise _unusable(path, error) from None


def _lock_of(path: Path) -> Path:
    return path.with_name(f"{path.name}.lock")


def _discard(
    guard: ProcessGuard,
    *connections: list[sqlite3.Connection],
    release: Callable[[], None],
    folder: Path | None,
) -> None:
    if guard.is_inherited:
        return
    for each in connections:
        _close_all(each)
    if folder is not None:
        shutil.rmtree(folder, ignore_errors=True)
    release()


def _close_all(connections: list[sqlite3.Connection]) -> None:
    with suppress(IndexError):
        while True:
            connections.pop().close()
