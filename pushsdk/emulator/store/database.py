"""The store's file: tables, lock, one writing connection, a reading one for each read."""

import shutil
import sqlite3
import tempfile
import weakref
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

from pushsdk._io.files import lock
from pushsdk._io.forks import ProcessGuard
from pushsdk._sqlite import FileFormat, FileRefused, connect, open_database
from pushsdk._texts import text_beside
from pushsdk.emulator.guard import Refused

_BUSY = 5.0  # seconds; only a foreign program can lock the file
_CACHE_KIB = 16_384
# Log size in bytes. Unordered users change many pages, which frequent checkpoints would write twice.
_WAL_LIMIT = 64 * 1024 * 1024

_SCHEMA = text_beside(__name__, "schema.sql")
_FORMAT = FileFormat(name="emulator store", application_id=0x70656D75, version=8, schema=_SCHEMA)  # "pemu"


class StoreError(Refused):
    """The store's file can't be used; the text states the reason and the fix."""

    def __init__(self, text: str) -> None:
        super().__init__(507, text)


class Database:
    """One SQLite file with a write-ahead log.

    A file at ``path`` is locked for this process, and stays. None is a temporary file, removed with this object or at
    the process exit (a kill leaves the file to the system's temporary file cleaning). Raises `StoreError` if the
    file is in use, foreign, of another version or damaged; such a file is never written to. A forked child can neither
    read nor write, and closes nothing.
    """

    def __init__(self, path: Path | None) -> None:
        self._guard = ProcessGuard()
        self._temporary = path is None
        with ExitStack() as stack:
            self._path = _temporary_path(stack) if path is None else _locked_path(path.absolute(), stack)
            try:
                writer = stack.enter_context(closing(open_database(self._path, _FORMAT, timeout=_BUSY)))
                # After a power cut a temporary file is gone anyway; another loses its last commits at most.
                _set(writer, synchronous="OFF" if self._temporary else "NORMAL", foreign_keys="ON")
                _set(writer, journal_size_limit=_WAL_LIMIT, wal_autocheckpoint=_WAL_LIMIT // 4096)
                _set(writer, cache_size=-_CACHE_KIB)
                self.salt: bytes = writer.execute("SELECT salt FROM store").fetchone()[0]
            except (FileRefused, sqlite3.Error, OSError) as error:
                raise _unusable(self._path, error) from None
            ending = stack.pop_all()
        self._writer: sqlite3.Connection | None = writer  # None after close()
        #: Close everything now; a second call does nothing.
        self.discard: Callable[[], object] = weakref.finalize(self, _discard, self._guard, ending)

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """Run one transaction, committed when the block ends. Raises `StoreError`, for example for a full disk.

        Only one thread may write at a time.
        """
        self._check_process()
        if self._writer is None:
            raise StoreError("the emulator has ended: its store can only be read")
        try:
            self._writer.execute("BEGIN IMMEDIATE")
            with self._writer:  # commits or rolls back
                yield self._writer
        except sqlite3.Error as error:
            is_full = getattr(error, "sqlite_errorname", "") == "SQLITE_FULL"
            hint = "; free some space" if is_full else ""
            raise StoreError(f"the emulator's store can't be written: {error}{hint}") from None

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """Open one snapshot: all reads in the block see the same state. From any thread, also after `close`."""
        self._check_process()
        try:
            with closing(connect(self._path, timeout=_BUSY)) as db:
                db.row_factory = sqlite3.Row
                _set(db, trusted_schema="OFF", query_only="ON")
                db.execute("BEGIN")
                yield db
        except sqlite3.Error as error:
            raise StoreError(f"the emulator's store can't be read: {error}") from None

    def _check_process(self) -> None:
        if self._guard.is_inherited:
            raise StoreError("a forked child can't use its parent's emulator: use it in the parent")

    def close(self) -> None:
        """Stop writing and unlock the file. Reading still works; a temporary file is removed with this object."""
        if not self._temporary:
            self._writer = None
            self.discard()


def _set(db: sqlite3.Connection, **settings: object) -> None:
    for name, value in settings.items():
        db.execute(f"PRAGMA {name} = {value}")


def _unusable(path: Path, error: Exception) -> StoreError:
    reason = error.strerror if isinstance(error, OSError) else error
    return StoreError(f"{path} can't be used as a store: {reason}; name another file")


def _temporary_path(stack: ExitStack) -> Path:
    """Return a file in a new folder, which the stack removes."""
    try:
        folder = Path(tempfile.mkdtemp(prefix="pushsdk-emulator-"))
    except OSError as error:
        raise StoreError(f"no temporary store can be made: {error.strerror}; name a file, or set TMPDIR") from None
    stack.callback(shutil.rmtree, folder, ignore_errors=True)
    return folder / "store"


def _locked_path(path: Path, stack: ExitStack) -> Path:
    """Lock the path, which the stack unlocks."""
    try:
        stack.callback(lock(path.with_name(f"{path.name}.lock")))
    except BlockingIOError:
        raise StoreError(f"{path} is in use by another emulator: end that one, or name another file") from None
    except OSError as error:
        raise _unusable(path, error) from None
    return path


def _discard(guard: ProcessGuard, ending: ExitStack) -> None:
    (ending.pop_all if guard.is_inherited else ending.close)()  # a forked child leaves all to its parent
