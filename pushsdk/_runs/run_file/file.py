"""The run file in SQLite: path, lock, creation, opening, commits and errors. The journal decides on its rows.

It has a rollback journal, not a write-ahead log, so after each commit the file is complete without a file beside it.
One connection, one process, one thread at a time. An event loop's thread makes its calls ``at_once``: they don't wait
for another thread, another program's lock or the disk, but do nothing and raise BlockingIOError.
"""

import json
import os
import sqlite3
import stat
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

from pushsdk._core.damage import is_filled
from pushsdk._core.errors import Advice, RunFileError, RunInUseError
from pushsdk._core.outcome import Outcome
from pushsdk._io.file_names import check_path
from pushsdk._io.files import HAVE_FLOCK, database_objection, is_locked, lock, objection, sync_folder, write_new
from pushsdk._io.forks import ProcessGuard
from pushsdk._sqlite import connect, identity
from pushsdk._texts import text_beside

Connection = sqlite3.Connection

# In the first page, where `file` and SQLite's tools find them: "push", and the schema version.
APPLICATION = 0x70757368
FORMAT = 7
PAGE = 4096
SCHEMA = text_beside(__name__, "schema.sql").splitlines()
# Seconds to wait for the lock of a reader or a backup.
LOCK_TIMEOUT = 30.0

# sqlite3 decodes SQLite's messages, which may quote bytes from a damaged file.
_ERRORS = (sqlite3.Error, UnicodeDecodeError)
# Reasons by prefix of SQLite's error name.
_REASONS: dict[str, str] = json.loads(text_beside(__name__, "reasons.json"))
_FOREIGN = _REASONS["SQLITE_NOTADB"]
# The fix after a failed commit, by the users' outcome: an incomplete plan can't be resumed.
_NEXT_STEP = {
    Outcome.NOT_SENT: "start the broadcast again: its plan is incomplete and nothing was sent",
    Outcome.UNKNOWN: "resume the run",
}
_DAMAGED = "it is damaged, so its outcomes are lost: a new run, or an older copy, would push to users again"
#: The fix if a call has other users, or another message.
OTHER_USERS = (
    "; for the present users, name another run: it pushes to all users again{earlier_run}; to continue with the "
    "planned users, also with those who opted out since: {resume}"
)
OTHER_MESSAGE = "; to send its message to the other planned users: {resume}; for another message, name another run"
_EMPTY = "it is empty, nothing was planned in it: start the broadcast again"


def run_file_error(
    path: Path | None,
    why: str,
    fix: str = "",
    *,
    kind: type[RunFileError] = RunFileError,
    outcome: Outcome | None = None,
) -> RunFileError:
    """Return the error for a run file. ``why`` and ``fix`` follow the path; ``fix`` may have placeholders."""
    error = kind(Advice(f"{path or 'the temporary run file'}: {why}", fix), outcome=outcome)
    error.path = str(path or "")
    return error


@contextmanager
def system_errors(path: Path, text: str, outcome: Outcome | None = None) -> Iterator[None]:
    """Raise RunFileError for the system's error in the block: this text, then the reason."""
    try:
        yield
    except BlockingIOError:
        why = "it is in use by another call or process: wait for it, or end it"
        raise run_file_error(path, why, kind=RunInUseError) from None
    except (OSError, ValueError) as error:
        why = f"{text}: {getattr(error, 'strerror', None) or error}"
        raise run_file_error(path, why, outcome=outcome) from None


def run_path(run: object) -> Path:
    """Return a run's absolute path. Raises ConfigurationError."""
    return Path(os.path.abspath(check_path("run", run, "spring.run")))


def filled_in(path: Path) -> Path:
    """Return an absolute path. Raise RunFileError for a new name whose value is missing: nights would share a run."""
    there = next(filter(os.path.lexists, (path, *path.parents)), "")
    if not is_filled(str(path).removeprefix(str(there))):
        raise run_file_error(path, "the name has a placeholder instead of its value", "; with today's date: {new_run}")
    return path


class RunFilePath:
    """The path to a run file that may not exist yet, and its lock while this process writes to it."""

    def __init__(self, path: Path, *, write: bool) -> None:
        """Lock the file for writing. Raise RunFileError if another process or journal has locked it."""
        # Releases the lock; set while the lock is held.
        self._release: Callable[[], None] | None = None
        with system_errors(path, "its folder can't be used"):
            # Resolved, so all paths to one file lead to one lock.
            self.path = path = path.parent.resolve(strict=True) / path.name
        # The stop mark: a file that names who asks the process with the lock to stop.
        self.mark = self._beside("-stop")
        if write:
            with system_errors(path, "its folder can't be used"):
                self._release = lock(self._beside("-lock"))
            self.drop_mark()  # of a process that was killed

    def _beside(self, suffix: str) -> Path:
        return self.path.with_name(self.path.name + suffix)

    @property
    def in_use(self) -> bool:
        """Return True if another process or journal is writing to the file now."""
        return is_locked(self._beside("-lock"))

    def stopped_by(self) -> str:
        """Return who has left a stop mark for the process that holds the lock; an empty text if nobody has."""
        with suppress(OSError):
            if not objection(os.lstat(self.mark)):  # a link has one, too
                return self.mark.read_text(encoding="utf-8", errors="replace") or "somebody"
        return ""

    def drop_mark(self) -> None:
        with suppress(OSError):
            self.mark.unlink()

    def release(self) -> None:
        """Release the lock. Safe to call again."""
        if self._release is not None:
            release, self._release = self._release, None
            self.drop_mark()
            release()

    @contextmanager
    def released_on_error(self) -> Iterator[None]:
        try:
            yield
        except BaseException:
            self.release()
            raise

    def check(self) -> int:
        """Return the file's size in bytes. Raise RunFileError if there is no regular file that is safe to use."""
        with system_errors(self.path, "it can't be opened"):
            file = os.lstat(self.path)
        if stat.S_ISLNK(file.st_mode):
            raise run_file_error(self.path, "it is a symbolic link: pass the path of the file itself")
        if not stat.S_ISREG(file.st_mode):
            raise run_file_error(self.path, "it is not a file: pass the path of a run file")
        if why := database_objection(self.path, file):
            raise run_file_error(self.path, why)
        if os.path.lexists(self._beside("-wal")):
            # SQLite would write the log into the file.
            raise run_file_error(self.path, "a -wal file is beside it, which no run makes: move that file away")
        return file.st_size

    def make(self) -> bool:
        """Create the file, empty and private. Return False if the path exists."""
        with system_errors(self.path, "it can't be created"):
            try:
                write_new(self.path, b"", durable=False)
            except FileExistsError:
                return False
        return True

    def clear(self) -> None:
        """Remove the file and its rollback journal."""
        with system_errors(self.path, "its incomplete plan can't be removed"):
            self.path.unlink()
            self._beside("-journal").unlink(missing_ok=True)

    def drop(self) -> None:
        """Clear after an error, which says more than another one would."""
        with suppress(RunFileError):
            self.clear()


def ask_to_stop(path: Path, by: str) -> None:
    """Leave a stop mark for the process that writes to a run file. Raise RunFileError if there is none."""
    run_path = RunFilePath(path, write=False)
    _identify(run_path)
    its_lock = run_path._beside("-lock")
    if its_lock.exists() and not os.access(its_lock, os.R_OK):
        raise run_file_error(path, "its lock can't be read: stop it as the user who sends it")
    # A look, not the lock itself, which would refuse a process that begins now. On Windows only the lock tells.
    with suppress(RunInUseError):
        if not HAVE_FLOCK:
            RunFilePath(path, write=True).release()
        if not run_path.in_use:
            raise run_file_error(path, "no process is sending it")
    with system_errors(path, "its stop mark can't be left"):
        run_path.drop_mark()  # of an earlier stop, which may not count
        write_new(run_path.mark, by.encode(errors="replace"), durable=False)


class RunFile:
    """One open run file. Raises RunFileError for every error of SQLite."""

    def __init__(self, run_path: RunFilePath, *, write: bool) -> None:
        self.path = run_path.path
        self._db = _connect(self.path, "mode=rw")
        # A forked child inherits the connection and must not use it.
        self._guard = ProcessGuard()
        # Why nothing can be written; set by the first failure. A failed fsync is never retried: the system may have
        # dropped the pages that it could not write, and would report success the next time.
        self._failed = None if write else "it was opened for reading only: open it with write=True"
        # The next step if it can't be read.
        self._next_step = _NEXT_STEP[Outcome.UNKNOWN] if write else "try again"
        # Held while a thread uses the connection.
        self._turn = threading.Lock()
        # True if SQLite waits for other programs' locks. Set by ``_used``.
        self._waits = True
        # True if each commit waits for the disk. Set by ``_for_writing``.
        self._durable = False

    @classmethod
    def create(cls, run_path: RunFilePath, fill: Callable[[Connection], object], *, durable: bool) -> "RunFile":
        """Create and fill the tables in an empty file. In one commit, so the schema is complete or absent."""

        def build(db: Connection) -> None:
            db.execute(f"PRAGMA application_id = {APPLICATION}")
            db.execute(f"PRAGMA user_version = {FORMAT}")
            for statement in SCHEMA:
                db.execute(statement)
            fill(db)

        file = cls(run_path, write=True)
        with file.closed_on_error():
            file._for_writing(durable=durable)
            file.commit(build, outcome=Outcome.NOT_SENT)
        return file

    @classmethod
    def open(cls, run_path: RunFilePath, *, write: bool, durable: bool = False) -> "RunFile":
        """Open the file at ``run_path`` after checking that it is an intact run file.

        A reader opens it for writing too if permitted: SQLite must roll back the commit of a killed writer.
        """
        _identify(run_path)
        file = cls(run_path, write=write)
        with file.closed_on_error():
            run_path.check()  # once more before SQLite rolls back: another user may have left a journal meanwhile
            file._db.execute("PRAGMA cell_size_check = ON")
            if file._db.execute("SELECT 1 FROM sqlite_master").fetchone() is None:
                # The writer was killed in the first commit, which opening has rolled back.
                raise run_file_error(file.path, _EMPTY)
            if write:
                # Not for a reader: the check would block the writer, and the rows have checksums.
                if file._db.execute("PRAGMA quick_check(1)").fetchall() != [(b"ok",)]:
                    raise file.damaged()
                file._for_writing(durable=durable)
                file._db.execute("UPDATE head SET seq = 0 WHERE 0")  # fails without write access
            else:
                file._db.execute("PRAGMA query_only = ON")
        return file

    @contextmanager
    def closed_on_error(self) -> Iterator[None]:
        """Close the file if the block raises. Raise RunFileError for an SQLite error."""
        try:
            yield
        except BaseException as error:
            self.close()
            if isinstance(error, _ERRORS):
                raise run_file_error(self.path, why_failed(error)) from None
            raise

    def read(self, sql: str, *values: int, at_once: bool = False) -> list[Any]:
        """Return all rows. An open statement would block the writer."""
        self._check_usable()
        try:
            with self._used(at_once):
                return self._db.execute(sql, values).fetchall()
        except _ERRORS as error:
            raise run_file_error(self.path, why_failed(error, self._next_step)) from None

    def commit(self, work: Callable[[Connection], object], *, outcome: Outcome, at_once: bool = False) -> None:
        """Do ``work`` in one transaction. After a failure every later call fails with the same reason.

        ``outcome`` is the users' outcome if the commit fails. After a BlockingIOError, nothing was done.
        """
        self._check_usable()
        if self._failed is not None:
            raise run_file_error(self.path, self._failed, outcome=outcome)
        if at_once and self._durable:
            raise BlockingIOError
        try:
            with self._used(at_once):
                self._db.execute("BEGIN IMMEDIATE")
                work(self._db)
                self._db.execute("COMMIT")
        except BlockingIOError:
            raise
        except _ERRORS as error:
            why = why_failed(error, _NEXT_STEP[outcome])
            self._fail(why)
            raise run_file_error(self.path, why, outcome=outcome) from error
        except BaseException:
            self._fail("an earlier write was interrupted: open it again")
            raise

    @contextmanager
    def _used(self, at_once: bool) -> Iterator[None]:
        """Use the connection. Wait for other programs' locks, for ``LOCK_TIMEOUT`` seconds, unless ``at_once``."""
        if not self._turn.acquire(blocking=not at_once):
            raise BlockingIOError
        try:
            if at_once is self._waits:
                self._db.execute(f"PRAGMA busy_timeout = {0 if at_once else int(LOCK_TIMEOUT * 1000)}")
                self._waits = not at_once
            yield
        except sqlite3.Error as error:
            if not (at_once and _name(error).startswith("SQLITE_BUSY")):
                raise
            with suppress(*_ERRORS):
                self._db.execute("ROLLBACK")
            raise BlockingIOError from None
        finally:
            self._turn.release()

    def damaged(self) -> RunFileError:
        """Return the error for a file with damaged content."""
        return run_file_error(self.path, _DAMAGED)

    def close(self) -> None:
        """Close the file. Safe to call again, and after a failure."""
        if self._guard.is_inherited:
            return
        with suppress(*_ERRORS):
            if self._failed is None:
                # Remove the rollback journal, which is kept between commits.
                self._db.execute("PRAGMA busy_timeout = 0")
                self._db.execute("PRAGMA journal_mode = DELETE")
        self._db.close()

    def _check_usable(self) -> None:
        if self._guard.is_inherited:
            raise run_file_error(self.path, "it was opened before this process was forked: open it here")

    def _fail(self, why: str) -> None:
        self._failed = why
        # So that readers, in this process too, see the last commit.
        with suppress(*_ERRORS):
            self._db.execute("ROLLBACK")

    def _for_writing(self, *, durable: bool) -> None:
        db = self._db
        db.execute(f"PRAGMA page_size = {PAGE}")
        # Keeping the rollback journal between commits is cheapest.
        db.execute("PRAGMA journal_mode = PERSIST")
        # A killed process loses nothing that the system has received; only a power failure does.
        db.execute(f"PRAGMA synchronous = {'EXTRA' if durable else 'OFF'}")
        self._durable = durable
        if durable:
            with system_errors(self.path, "its folder can't be synced"):
                sync_folder(self.path.parent)


def _connect(path: Path, options: str) -> sqlite3.Connection:
    try:
        db = connect(path, timeout=LOCK_TIMEOUT, options=options)
    except _ERRORS as error:
        raise run_file_error(path, why_failed(error)) from None
    # Decoding a damaged text would raise in the middle of a query, whose cursor then keeps a lock on the file.
    db.text_factory = bytes
    return db


def _identify(run_path: RunFilePath) -> None:
    """Raise RunFileError if the file is not a run file in this version, before anything is done to it.

    Unlike closing our descriptor, closing SQLite's keeps the locks that it holds on the file for another journal of
    this process.
    """
    if not run_path.check():
        raise run_file_error(run_path.path, _EMPTY)
    try:
        with closing(_connect(run_path.path, "mode=ro&immutable=1")) as db:
            # Without it SQLite refuses a file that is still shorter than a commit in progress, or a killed one, needs.
            db.execute("PRAGMA writable_schema = ON")
            application, version = identity(db)
    except _ERRORS as error:
        # SQLite says CANTOPEN for a file with a write-ahead log, which no run file has.
        foreign = _name(error) == "SQLITE_CANTOPEN"
        raise run_file_error(run_path.path, _FOREIGN if foreign else why_failed(error)) from None
    if application != APPLICATION:
        raise run_file_error(run_path.path, _FOREIGN)
    if version != FORMAT:
        why = f"it has format {version}, and this pushsdk reads format {FORMAT}: use the version that made it"
        raise run_file_error(run_path.path, why)


def why_failed(error: BaseException, next_step: str = "try again", *, otherwise: str = _DAMAGED) -> str:
    """Return the reason for an SQLite error, and the fix."""
    name = _name(error)
    why = next((why for start, why in _REASONS.items() if name.startswith(start)), otherwise)
    return why.format(next_step=next_step) + (f" ({name})" if name else "")


def _name(error: BaseException) -> str:
    return getattr(error, "sqlite_errorname", "")
