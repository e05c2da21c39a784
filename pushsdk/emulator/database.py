"""The store's file: made, recognised and locked; one connection that writes, and as many that read as are in use."""

from __future__ import annotations

import os
import shutil
import sqlite3
import tempfile
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from pushsdk._broadcast.locking import lock
from pushsdk._io.forks import no_fork, unforked
from pushsdk._io.ownership import database_objection

__all__ = ["Database", "StoreError"]

_APPLICATION_ID = 0x70757368  # "push", in the head of the file
_VERSION = 2
_BUSY = 5.0  # seconds; only somebody else's program can hold the file at all
_WRITER_CACHE_KIB, _READER_CACHE_KIB = 16_384, 2_048
_WAL_LIMIT = 64 * 1024 * 1024  # bytes that the log keeps after a checkpoint
_TEMPORARY = "pushsdk-emulator-"
_FILE = "store"  # in a temporary folder
_TRIES = 100  # for a folder that nobody who cleans up takes for a former one

# https://www.sqlite.org/fileformat.html, 1.3: where the head has what.
_MAGIC = b"SQLite format 3\0"
_HEAD = 100

_SCHEMA = """
CREATE TABLE secrets(salt BLOB NOT NULL);
INSERT INTO secrets VALUES (randomblob(32));
CREATE TABLE inboxes(
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    digest BLOB UNIQUE,                      -- NULL once it was reset: what is left of it goes bit by bit
    name TEXT NOT NULL UNIQUE,
    label TEXT NOT NULL);
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
CREATE INDEX requests_of_inbox ON requests(inbox, id, bytes);
-- Who was accepted how often, in parts: an index over random users would cost ever more as it grows (measured: 4 us
-- a row at two million rows against 1.4 us, which stays). A look-up seeks in each part.
CREATE TABLE parts(part INTEGER PRIMARY KEY);
INSERT INTO parts VALUES (1);
CREATE TABLE received(
    part INTEGER NOT NULL,
    inbox INTEGER NOT NULL,
    user TEXT NOT NULL,
    request INTEGER NOT NULL,
    digest INTEGER NOT NULL,                 -- of what the users got, see PushBody
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
CREATE TABLE ended(request INTEGER PRIMARY KEY);  -- campaigns that are gone, whose recipients go bit by bit
"""


class StoreError(Exception):
    """The store's file can't be used; the text says why and what to do."""


class Database:
    """One SQLite file with a write-ahead log.

    ``path`` is kept, locked for this process, and survives it. None is a temporary one, removed with this object
    or with the process. Opening raises `StoreError` where the file is in use, foreign, newer or damaged: such a file is
    never written to. A forked child can neither read nor write, and leaves everything to its parent.
    """

    def __init__(self, path: Path | None) -> None:
        self._process = os.getpid()
        self._idle: list[sqlite3.Connection] = []  # readers that nobody uses now
        self._temporary = path is None
        self._path, release = _temporary_place() if path is None else _kept_place(path)
        try:
            self._writer: sqlite3.Connection | None = self._open()  # None after close()
        except BaseException:
            release()
            raise
        folder = self._path.parent if self._temporary else None
        #: Close all and let go, at once; a second call does nothing.
        self.discard: Callable[[], object] = weakref.finalize(
            self, _discard, self._process, self._writer, readers=self._idle, release=release, folder=folder
        )
        self._release = release

    @unforked
    def _open(self) -> sqlite3.Connection:
        opened = _recognise(self._path)
        try:
            writer = self._connect(_WRITER_CACHE_KIB)
            with _closed_on_error(writer):
                if why := database_objection(self._path, opened):
                    raise StoreError(f"{self._path} can't be used as a store: {why}; or name another file")
            return self._prepared(writer)
        except sqlite3.Error as error:
            raise StoreError(f"{self._path} can't be used as a store: {error}; name another file") from None

    def _prepared(self, writer: sqlite3.Connection) -> sqlite3.Connection:
        with _closed_on_error(writer):
            # None where the file is new, or whoever began it was ended in the middle.
            if writer.execute("SELECT 1 FROM sqlite_master").fetchone() is None:
                # All at once, and the head first of all: what is recognised is whole, or nothing yet.
                head = f"PRAGMA application_id = {_APPLICATION_ID}; PRAGMA user_version = {_VERSION};"
                writer.executescript(f"BEGIN; {head} {_SCHEMA} COMMIT;")
            (mode,) = writer.execute("PRAGMA journal_mode = WAL").fetchone()
            if mode != "wal":
                raise sqlite3.OperationalError(f"its folder allows no write-ahead log, only {mode}")
            # A temporary file has nothing to lose to a power cut; the other may lose its last commits, never itself.
            writer.execute(f"PRAGMA synchronous = {'OFF' if self._temporary else 'NORMAL'}")
            writer.execute(f"PRAGMA journal_size_limit = {_WAL_LIMIT}")
        return writer

    def _connect(self, cache_kib: int) -> sqlite3.Connection:
        uri = f"{self._path.as_uri()}?mode=rw"  # never makes a file: one that was removed is not there
        db = sqlite3.connect(uri, uri=True, timeout=_BUSY, isolation_level=None, check_same_thread=False)
        with _closed_on_error(db):
            db.execute(f"PRAGMA cache_size = -{cache_kib}")
            db.execute("PRAGMA trusted_schema = OFF")
        return db

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """One transaction: committed at the end, or nothing of it at all. In one thread at a time.

        Raises `StoreError`, as where the disk is full.
        """
        self._stay()
        if self._writer is None:
            raise StoreError("the emulator has ended: its store can only be read")
        try:
            with no_fork():
                self._writer.execute("BEGIN IMMEDIATE")
                try:
                    yield self._writer
                    self._writer.execute("COMMIT")
                finally:
                    self._writer.rollback()  # what was not committed; a full disk has ended it already
        except sqlite3.Error as error:
            hint = "; free some space, or reset an inbox" if _name_of(error) == "SQLITE_FULL" else ""
            raise StoreError(f"the emulator's store can't be written: {error}{hint}") from None

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """One snapshot: all that is read in it is of the same moment. From any thread, also after the end."""
        self._stay()
        try:
            with no_fork():
                db = self._reader()
                try:
                    db.execute("BEGIN")
                    yield db
                finally:
                    self._give_back(db)
        except sqlite3.Error as error:
            raise StoreError(f"the emulator's store can't be read: {error}") from None

    def _reader(self) -> sqlite3.Connection:
        with suppress(IndexError):
            return self._idle.pop()
        db = self._connect(_READER_CACHE_KIB)
        db.execute("PRAGMA query_only = ON")
        return db

    def _give_back(self, db: sqlite3.Connection) -> None:
        db.rollback()
        self._idle.append(db)
        if self._writer is None:
            self._close_idle()

    def _close_idle(self) -> None:
        """After the end no reader is kept: the file is not ours any more."""
        with suppress(IndexError):
            while True:
                self._idle.pop().close()

    def _stay(self) -> None:
        if os.getpid() != self._process:
            raise StoreError("the emulator runs in the process that this one was forked from: ask there")

    @unforked
    def close(self) -> None:
        """End writing and give the lock back; a temporary file goes with this object. What was written can be read."""
        if self._temporary or self._writer is None:
            return
        writer, self._writer = self._writer, None
        writer.close()
        self._close_idle()
        self._release()


def _temporary_place() -> tuple[Path, Callable[[], None]]:
    """A new folder, locked, for a store; those that a kill left behind go at the same time."""
    try:
        _clean_up(Path(tempfile.gettempdir()))
        for _ in range(_TRIES):
            path = Path(tempfile.mkdtemp(prefix=_TEMPORARY)) / _FILE
            # Whoever cleans up at this moment may have the lock first, and then removes the folder.
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
    path = path.absolute()
    try:
        return path, lock(_lock_of(path))
    except BlockingIOError:
        raise StoreError(f"{path} is in use by another emulator: end that one, or name another file") from None
    except OSError as error:
        raise StoreError(f"{path} can't be used as a store: {error.strerror}; name another file") from None


def _lock_of(path: Path) -> Path:
    return path.with_name(f"{path.name}.lock")


def _recognise(path: Path) -> os.stat_result:
    """Make the file where there is none; raise where it is something else than a store of this version.

    By its first bytes, not by SQLite: to open a database can already change it.
    """
    try:
        with open(path, "r+b", buffering=0, opener=_open_private) as file:
            opened, head = os.fstat(file.fileno()), file.read(_HEAD)
            if not head and hasattr(os, "fchmod"):
                os.fchmod(file.fileno(), 0o600)
    except IsADirectoryError:
        raise StoreError(f"{path} is a folder: name a file") from None
    except OSError as error:
        why = "it is a link" if path.is_symlink() else error.strerror
        raise StoreError(f"{path} can't be used as a store: {why}; name another file") from None
    if not head:
        return opened
    if len(head) < _HEAD or not head.startswith(_MAGIC):
        raise StoreError(f"{path} is no emulator store, or it is damaged: name another file")
    version, application = (int.from_bytes(head[at : at + 4], "big") for at in (60, 68))
    if application != _APPLICATION_ID:
        raise StoreError(f"{path} is a database of something else: name another file")
    if version != _VERSION:
        raise StoreError(f"{path} is a store of version {version}, this pushsdk has {_VERSION}: name another file")
    return opened


def _open_private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o600)


@contextmanager
def _closed_on_error(db: sqlite3.Connection) -> Iterator[None]:
    try:
        yield
    except BaseException:
        db.close()
        raise


def _name_of(error: sqlite3.Error) -> str:
    return getattr(error, "sqlite_errorname", "")


@unforked
def _discard(
    process: int,
    writer: sqlite3.Connection,
    *,
    readers: list[sqlite3.Connection],
    release: Callable[[], None],
    folder: Path | None,
) -> None:
    if os.getpid() != process:
        return  # a forked child: nothing of it is its own
    for db in (writer, *readers):
        with suppress(sqlite3.Error):
            db.close()
    if folder is not None:
        shutil.rmtree(folder, ignore_errors=True)
    release()
