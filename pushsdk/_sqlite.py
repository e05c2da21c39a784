"""This package's SQLite files: private from the start, and identified before anything in them is changed."""

import os
import sqlite3
import time
from contextlib import closing, suppress
from pathlib import Path
from stat import S_ISREG

from msgspec import Struct

from pushsdk._io.files import database_objection, write_new


class FileFormat(Struct, frozen=True):
    """A file format: its name in errors, the two numbers in its head, and the statements that create its tables."""

    name: str
    application_id: int
    version: int
    schema: str


class FileRefused(Exception):
    """Raised for a file that must not be used. The text is the reason, for after the path."""


def connect(path: Path, *, timeout: float, options: str = "mode=rw") -> sqlite3.Connection:
    """Return a connection without implicit transactions, usable from any thread. ``mode=rw`` creates no file."""
    uri = f"{path.as_uri()}?{options}"
    return sqlite3.connect(uri, uri=True, timeout=timeout, isolation_level=None, check_same_thread=False)


def identity(db: sqlite3.Connection) -> tuple[int, int]:
    """Return a file's application id and version. Raises sqlite3.Error.

    If it was opened as ``immutable``, this takes no lock, makes no file, rolls nothing back and writes no log back.
    """
    (application_id,) = db.execute("PRAGMA application_id").fetchone()
    (version,) = db.execute("PRAGMA user_version").fetchone()
    return application_id, version


def open_database(path: Path, form: FileFormat, *, timeout: float) -> sqlite3.Connection:
    """Open a file for writing, with a write-ahead log. A missing or empty file gets this format.

    Raises ``FileRefused``, without changing the file, if it is a link, belongs to another program, has another version,
    or is writable by other users. Raises OSError and sqlite3.Error too.
    """
    with suppress(FileExistsError):
        write_new(path, b"", durable=False)
    opened = os.lstat(path)
    if not S_ISREG(opened.st_mode):
        raise FileRefused("it is a folder, a link or a device")
    if opened.st_size:
        _recognize(path, form, timeout)
    db = connect(path, timeout=timeout)
    try:
        if why := database_objection(path, opened):
            raise FileRefused(why)
        db.execute("PRAGMA trusted_schema = OFF")
        if db.execute("SELECT 1 FROM sqlite_master").fetchone() is None:
            os.chmod(path, 0o600)  # an empty file may have existed before
            # In one transaction, so after a kill the file is complete or has no table.
            head = f"PRAGMA application_id = {form.application_id}; PRAGMA user_version = {form.version};"
            db.executescript(f"BEGIN IMMEDIATE; {head} {form.schema} COMMIT;")
        _log_ahead(db, timeout)
    except BaseException:
        db.close()
        raise
    return db


def _log_ahead(db: sqlite3.Connection, timeout: float) -> None:
    """Switch to a write-ahead log. SQLite's busy timeout does not cover two processes that do this at once."""
    until, mode = time.monotonic() + timeout, ""
    while not mode:
        try:
            (mode,) = db.execute("PRAGMA journal_mode = WAL").fetchone()
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() > until:
                raise
            time.sleep(0.002)
    if mode != "wal":
        raise FileRefused(f"its folder allows no write-ahead log, only {mode}")


def _recognize(path: Path, form: FileFormat, timeout: float) -> None:
    # The first mode fails while another process writes the first pages; the second waits for that process.
    for options in ("mode=ro&immutable=1", "mode=ro"):
        with suppress(sqlite3.DatabaseError), closing(connect(path, timeout=timeout, options=options)) as db:
            application_id, version = identity(db)
            break
    else:
        raise FileRefused(f"it is no {form.name}, or it is damaged")
    if application_id != form.application_id:
        raise FileRefused(f"it is no {form.name} but another program's database")
    if version != form.version:
        raise FileRefused(f"it has version {version} of an {form.name}, this pushsdk has version {form.version}")
