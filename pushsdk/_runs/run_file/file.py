"""The run file as SQLite keeps it: its place, how it is made, opened, locked and written, and what its errors mean.

What is in its rows is the journal's business. A rollback journal, not a WAL: after each commit the file alone is the
truth. One connection, one thread at a time, one process.
"""

from __future__ import annotations

import os
import sqlite3
import stat
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from pushsdk._core.errors import RunFileError
from pushsdk._core.outcome import Outcome
from pushsdk._io.files import is_locked, lock, objection
from pushsdk._io.forks import ProcessGuard

__all__ = ["Connection", "RunFile", "RunFilePath", "run_file_error"]

Connection = sqlite3.Connection

# In the first page, where `file` and SQLite's tools look: "push", and the version of what is in the tables.
APPLICATION = 0x70757368
FORMAT = 2
PAGE = 4096
SCHEMA = (
    # One row: what the run is about, and once the plan is complete its seal.
    "CREATE TABLE meta (id INTEGER PRIMARY KEY, data BLOB NOT NULL, crc INTEGER NOT NULL)",
    # One row: the last row of the log, so that its loss is noticed.
    "CREATE TABLE head (id INTEGER PRIMARY KEY, seq INTEGER NOT NULL, crc INTEGER NOT NULL)",
    # Several chunks per row; `first` is the number of the first of them.
    "CREATE TABLE plan (first INTEGER PRIMARY KEY, sizes BLOB NOT NULL, bodies BLOB NOT NULL, crc INTEGER NOT NULL)",
    # The events of one commit per row; the crc goes on from the row before.
    "CREATE TABLE log (seq INTEGER PRIMARY KEY, events BLOB NOT NULL, crc INTEGER NOT NULL)",
)
# Seconds to wait for a reader that is in the middle of a page, or for somebody's backup.
PATIENCE = 30.0

# The module decodes SQLite's words, and these may quote a damaged file.
_ERRORS = (sqlite3.Error, UnicodeDecodeError)
# By the beginning of SQLite's name of the error.
_WHY = (
    ("SQLITE_FULL", "the disk is full: make room, then {again}"),
    ("SQLITE_BUSY", "another program keeps it locked (a backup, a database browser): end that, then {again}"),
    ("SQLITE_READONLY_ROLLBACK", "its writer was killed: open it once where file and folder may be written"),
    ("SQLITE_READONLY", "it may not be written: check the permissions of file and folder"),
    ("SQLITE_CANTOPEN", "it can't be opened: check the permissions of file and folder"),
    ("SQLITE_IOERR", "the disk failed: check the disk and its free space, then {again}"),
    ("SQLITE_NOTADB", "it is not a run file"),
    ("SQLITE_TOOBIG", "a request is too large for a run file"),
    ("SQLITE_CONSTRAINT", "another process has written to it, which no lock kept from that: nothing more is written"),
)
# What to do after a failed commit, by what the failure says of the users: a plan that was not sealed can't be resumed.
_AGAIN = {
    Outcome.NOT_SENT: "start the broadcast again: its plan was not finished and nothing was sent",
    Outcome.UNKNOWN: "resume the run",
}
# Not: use an older copy. That would push again to those who were reached since.
_DAMAGED = "it is damaged, so who was reached can't be told from it any more; a new run would push to all of them again"
_EMPTY = "it is empty, nothing was planned in it"


def run_file_error(path: Path | None, why: str, *, outcome: Outcome | None = None) -> RunFileError:
    """The error for a run file, in the words that all of them have in common."""
    error = RunFileError(f"{path or 'the temporary run file'}: {why}", outcome=outcome)
    error.path = str(path or "")
    return error


class RunFilePath:
    """Where a run file is or is to be, and whether this process may write there."""

    def __init__(self, path: Path, *, write: bool) -> None:
        """Raises RunFileError where another process, or another journal of this one, writes to it."""
        self.path = path
        # Gives the lock back; set while it is held.
        self._release: Callable[[], None] | None = None
        try:
            # The same place has the same lock, whatever way led there.
            self.path = path = path.parent.resolve(strict=True) / path.name
            if write:
                self._release = lock(self._lock)
        except BlockingIOError:
            raise run_file_error(path, "it is in use by another process: wait for that, or end it") from None
        except (OSError, ValueError) as error:
            raise run_file_error(path, f"the folder can't be used: {_words(error)}") from None

    @property
    def _lock(self) -> Path:
        return self.path.with_name(self.path.name + "-lock")

    @property
    def in_use(self) -> bool:
        """Whether it is being written to now, by another process or by another journal of this one."""
        return is_locked(self._lock)

    def release(self) -> None:
        """Let others write. Once is enough."""
        if self._release is not None:
            release, self._release = self._release, None
            release()

    def look(self) -> int:
        """The bytes of the file. Raises RunFileError where there is none, or something else than a file."""
        try:
            found = os.lstat(self.path)
        except (OSError, ValueError) as error:
            raise run_file_error(self.path, f"it can't be opened: {_words(error)}") from None
        if stat.S_ISLNK(found.st_mode):
            raise run_file_error(self.path, "it is a symbolic link: give the path of the file itself")
        if not stat.S_ISREG(found.st_mode):
            raise run_file_error(self.path, "it is not a file: give the path of a run file")
        if why := objection(found):
            raise run_file_error(self.path, why)
        if os.path.lexists(f"{self.path}-wal"):
            # SQLite would work it into the file.
            raise run_file_error(self.path, "there is a -wal file beside it, which is none of a run's: move that away")
        return found.st_size

    def make(self) -> bool:
        """Create the file, empty and for its owner only; False where there is something already."""
        try:
            file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0), 0o600)
        except FileExistsError:
            return False
        except OSError as error:
            raise run_file_error(self.path, f"it can't be created: {_words(error)}") from None
        with suppress(OSError, AttributeError):  # a mask may have taken bits away; not on Windows
            os.fchmod(file, 0o600)
        os.close(file)
        return True

    def clear(self) -> None:
        """Remove the file, and what a killed writer left beside it."""
        try:
            self.path.unlink()
            self.path.with_name(self.path.name + "-journal").unlink(missing_ok=True)
        except OSError as error:
            raise run_file_error(self.path, f"it can't be planned anew: {_words(error)}") from None


def _words(error: OSError | ValueError) -> str:
    return getattr(error, "strerror", None) or str(error)


class RunFile:
    """One open run file. Raises RunFileError, whatever SQLite raises."""

    def __init__(self, place: RunFilePath, db: sqlite3.Connection, *, write: bool) -> None:
        self.path = place.path
        self._place = place
        self._db = db
        # A forked child shares the connection, and must not use it.
        self._guard = ProcessGuard()
        # Why nothing can be written; set by the first failure. A failed sync is never tried again: the system may
        # have dropped what it could not write, and say yes the next time.
        self._failed = None if write else "it was opened for reading only"
        self._closed = False
        # Whether it waits for other programs' locks. Set by ``commit``.
        self._patient = True

    @classmethod
    def create(cls, place: RunFilePath, *, durable: bool) -> RunFile:
        """Make the empty file at ``place`` ready for its schema."""
        return cls(place, _connect(place, "mode=rw"), write=True)._prepared(
            lambda file: file._for_writing(durable=durable)
        )

    @classmethod
    def open(cls, place: RunFilePath, *, write: bool, durable: bool = False) -> RunFile:
        """Open the file at ``place``, once it has been seen to be a run file, and to be whole as SQLite sees it.

        Also a reader opens it for writing where it may: what a killed writer left half done has to be rolled back.
        """
        if not place.look():
            raise run_file_error(place.path, _EMPTY)
        _identify(place)

        def prepare(file: RunFile) -> None:
            file._db.execute("PRAGMA cell_size_check = ON")
            file._check_schema()
            if write:
                # A reader does without: it would keep the writer waiting, and what it reads has checksums.
                file._check_structure()
                file._for_writing(durable=durable)
                file._db.execute("UPDATE head SET seq = 0 WHERE 0")  # is it allowed to?
            else:
                file._db.execute("PRAGMA query_only = ON")

        return cls(place, _connect(place, "mode=rw"), write=write)._prepared(prepare)

    def build(self) -> None:
        """The tables of a new file; within the first commit, so that there never is half a schema."""
        self._db.execute(f"PRAGMA application_id = {APPLICATION}")
        self._db.execute(f"PRAGMA user_version = {FORMAT}")
        for statement in SCHEMA:
            self._db.execute(statement)

    def read(self, sql: str, *values: int) -> list[Any]:
        """All rows at once: a statement that is left open would keep the writer waiting."""
        self._check_usable()
        try:
            return self._db.execute(sql, values).fetchall()
        except _ERRORS as error:
            raise run_file_error(self.path, _why(error)) from None

    def commit(self, work: Callable[[Connection], object], *, outcome: Outcome, at_once: bool = False) -> bool:
        """Do ``work`` in one transaction. After one failure every later call fails, with the same words.

        ``outcome`` is what the error says of the users where it fails. Where another program keeps the file locked it
        waits for ``PATIENCE``; ``at_once`` it does not wait: False, and nothing is done, so try again otherwise.
        """
        self._check_usable()
        if self._failed is not None:
            raise run_file_error(self.path, self._failed, outcome=outcome)
        execute = self._db.execute
        try:
            if at_once is self._patient:
                execute(f"PRAGMA busy_timeout = {0 if at_once else int(PATIENCE * 1000)}")
                self._patient = not at_once
            execute("BEGIN IMMEDIATE")
            work(self._db)
            execute("COMMIT")
            return True
        except _ERRORS as error:
            if at_once and _name(error).startswith("SQLITE_BUSY"):
                with suppress(*_ERRORS):
                    execute("ROLLBACK")
                return False
            why = _why(error, _AGAIN[outcome])
            self._fail(why)
            raise run_file_error(self.path, why, outcome=outcome) from error
        except BaseException:
            self._fail("an earlier write was broken off")
            raise

    def damaged(self) -> RunFileError:
        """What it holds is not what was written."""
        return run_file_error(self.path, _DAMAGED)

    def close(self) -> None:
        """Give back the file and the lock. May be called again, and after anything."""
        if self._closed:
            return
        self._closed = True
        if self._guard.is_inherited:
            return
        with suppress(*_ERRORS):
            if self._failed is None:
                # The rollback journal, which is kept between commits, is not needed any more.
                self._db.execute("PRAGMA busy_timeout = 0")
                self._db.execute("PRAGMA journal_mode = DELETE")
        self._db.close()
        self._place.release()

    def _prepared(self, prepare: Callable[[RunFile], None]) -> RunFile:
        try:
            prepare(self)
        except _ERRORS as error:
            self.close()
            raise run_file_error(self.path, _why(error)) from None
        except BaseException:
            self.close()
            raise
        return self

    def _check_usable(self) -> None:
        if self._closed:
            raise run_file_error(self.path, "it has been closed: open it again")
        if self._guard.is_inherited:
            raise run_file_error(self.path, "it was opened by the process that this one was forked from: open it here")

    def _fail(self, why: str) -> None:
        self._failed = why
        # Readers, this process too, get to see what was committed before.
        with suppress(*_ERRORS):
            self._db.execute("ROLLBACK")

    def _for_writing(self, *, durable: bool) -> None:
        db = self._db
        db.execute(f"PRAGMA page_size = {PAGE}")
        # A journal that is kept between commits is the cheapest.
        db.execute("PRAGMA journal_mode = PERSIST")
        # Killing the process loses nothing that the system has been given: only a power failure needs the disk.
        db.execute(f"PRAGMA synchronous = {'EXTRA' if durable else 'OFF'}")
        if durable:
            _sync_folder(self.path.parent)

    def _check_schema(self) -> None:
        schema = tuple(sql for (sql,) in self._db.execute("SELECT sql FROM sqlite_master"))
        if schema != _SCHEMA_BYTES:
            # Nothing: its writer was killed within the first commit, which has been rolled back by now.
            raise self.damaged() if schema else run_file_error(self.path, _EMPTY)

    def _check_structure(self) -> None:
        if self._db.execute("PRAGMA quick_check(1)").fetchall() != [(b"ok",)]:
            raise self.damaged()


_SCHEMA_BYTES = tuple(statement.encode() for statement in SCHEMA)


def _connect(place: RunFilePath, options: str) -> sqlite3.Connection:
    try:
        uri = f"{place.path.as_uri()}?{options}"
        db = sqlite3.connect(uri, uri=True, timeout=PATIENCE, isolation_level=None, check_same_thread=False)
    except _ERRORS as error:
        raise run_file_error(place.path, _why(error)) from None
    # A damaged text must not raise from within.
    db.text_factory = bytes
    return db


def _identify(place: RunFilePath) -> None:
    """Refuse what is not ours before anything is done to it.

    ``immutable`` takes no lock, rolls nothing back and makes no file; and unlike a descriptor of our own, closing it
    leaves alone the locks that SQLite holds on the file for another journal of this process.
    """
    db = _connect(place, "mode=ro&immutable=1")
    try:
        # Or it would refuse a file that a commit under way, or one that was killed, has not made longer yet.
        db.execute("PRAGMA writable_schema = ON")
        (application,) = db.execute("PRAGMA application_id").fetchone()
        (version,) = db.execute("PRAGMA user_version").fetchone()
    except _ERRORS as error:
        # So says an SQLite file of the other kind of journal, which is none of ours.
        foreign = _name(error) == "SQLITE_CANTOPEN"
        raise run_file_error(place.path, "it is not a run file" if foreign else _why(error)) from None
    finally:
        db.close()
    if application != APPLICATION:
        raise run_file_error(place.path, "it is not a run file")
    if version > FORMAT:
        raise run_file_error(place.path, "it was made by a newer pushsdk: update this one")
    if 0 < version < FORMAT:
        raise run_file_error(place.path, "it was made by an older pushsdk: resume it with that one")
    if version != FORMAT:
        raise run_file_error(place.path, _DAMAGED)


def _sync_folder(folder: Path) -> None:
    """So that the name of the file is on the disk, too. Where a folder can't be synced, there is nothing to do."""
    with suppress(OSError):
        file = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(file)
        finally:
            os.close(file)


def _why(error: Exception, again: str = "try again") -> str:
    name = _name(error)
    why = next((why for start, why in _WHY if name.startswith(start)), _DAMAGED)
    return why.format(again=again) + (f" ({name})" if name else "")


def _name(error: Exception) -> str:
    return getattr(error, "sqlite_errorname", "")
