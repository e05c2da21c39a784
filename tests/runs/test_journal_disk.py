"""A disk that is full or fails: the run stops at once, and committed outcomes stay correct."""

import errno
import os
import sqlite3

import pytest
from support.run_files import BROADCAST, CLAIMED, chunk, event, make_run, record, seen

from pushsdk import _sqlite
from pushsdk._core.errors import RunFileError
from pushsdk._core.outcome import Outcome
from pushsdk._runs.run_file import file as runfile
from pushsdk._runs.run_file.journal import Journal

CLAIM = event(CLAIMED, 0, 3)


class Disk:
    """Connections that fail at statements with these beginnings."""

    def __init__(self):
        self.statements = ()
        self.error = MemoryError()
        self.executed = []
        self.connections = []

    def fail(self, *statements, error):
        self.statements = statements
        self.error = error if isinstance(error, BaseException) else error_of(error)

    def connect(self, path, **options):
        disk = self
        plain = sqlite3.connect

        class Connection(sqlite3.Connection):
            def execute(self, sql, *values):
                disk.executed.append(sql)
                if disk.statements and sql.startswith(disk.statements):
                    raise disk.error
                return super().execute(sql, *values)

            def close(self):
                disk.executed.append("close")
                super().close()

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(sqlite3, "connect", lambda *names, **named: plain(*names, factory=Connection, **named))
            self.connections.append(_sqlite.connect(path, **options))
        return self.connections[-1]


@pytest.fixture
def disk(monkeypatch):
    disk = Disk()
    monkeypatch.setattr(runfile, "connect", disk.connect)
    yield disk
    for connection in disk.connections:
        connection.close()


def error_of(name):
    error = sqlite3.OperationalError("what SQLite says")
    error.sqlite_errorname = name
    return error


FAULTS = [
    ("COMMIT", "SQLITE_IOERR_FSYNC", "the disk failed"),
    ("COMMIT", "SQLITE_IOERR_FSTAT", "it was moved"),
    ("COMMIT", "SQLITE_READONLY_DBMOVED", "it was moved"),
    ("UPDATE head", "SQLITE_FULL", "the disk is full: make room, then resume the run"),
    ("BEGIN", "SQLITE_BUSY", "another program has locked it"),
    ("COMMIT", "", "it is damaged"),
]


@pytest.mark.parametrize(("statement", "name", "words"), FAULTS)
def test_a_failed_write_is_not_retried_and_changes_nothing(tmp_path, disk, statement, name, words):
    journal = make_run(tmp_path / "a.run")
    content = seen(journal)
    disk.fail(statement, error=name)
    with pytest.raises(RunFileError, match=words) as excinfo:
        record(journal, [CLAIM])
    assert excinfo.value.outcome == Outcome.UNKNOWN
    assert excinfo.value.path == str(tmp_path / "a.run")
    # The disk works again, but nothing more is written.
    disk.fail(error=name)
    disk.executed.clear()
    for _ in range(2):
        with pytest.raises(RunFileError, match=words) as second:
            record(journal, [CLAIM])
        assert second.value is not excinfo.value
    assert disk.executed == []
    journal.close()
    journal = Journal.open(tmp_path / "a.run", write=True)
    assert seen(journal) == content
    journal.close()


def test_an_interrupted_write_is_the_last(tmp_path, disk):
    journal = make_run(tmp_path / "a.run")
    disk.fail("UPDATE head", error=KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        record(journal, [CLAIM])
    disk.fail(error="")
    with pytest.raises(RunFileError, match="an earlier write was interrupted"):
        record(journal, [CLAIM])
    journal.close()


def test_a_read_at_once_does_not_wait_for_a_write(tmp_path, disk):
    journal = make_run(tmp_path / "a.run")

    class DuringTheWrite(KeyboardInterrupt):
        def __init__(self):
            journal.load(0, at_once=True)

    disk.statements, disk.error = "UPDATE head", DuringTheWrite
    with pytest.raises(BlockingIOError):
        record(journal, [CLAIM])


@pytest.mark.parametrize("use", [lambda journal: journal.add([chunk("b")]), lambda journal: journal.seal(duplicates=0)])
def test_a_plan_that_can_not_be_written_is_reported_as_not_sent(tmp_path, disk, use):
    journal = Journal.open_or_create(tmp_path / "a.run", BROADCAST)
    journal.add([chunk("a")])
    disk.fail("COMMIT", error="SQLITE_FULL")
    for _ in range(2):
        with pytest.raises(RunFileError, match="start the broadcast again: its plan is incomplete and") as excinfo:
            use(journal)
        assert excinfo.value.outcome is Outcome.NOT_SENT
        assert "resume" not in str(excinfo.value)
    assert journal.chunks == 1
    assert not journal.sealed
    journal.close()


@pytest.mark.parametrize("statement", ["PRAGMA synchronous", "COMMIT"])
def test_a_failed_creation_leaves_no_file_and_no_lock(tmp_path, disk, statement):
    disk.fail(statement, error="SQLITE_FULL")
    with pytest.raises(RunFileError, match="the disk is full"):
        Journal.open_or_create(tmp_path / "a.run", BROADCAST)
    assert os.listdir(tmp_path) == []


def test_a_durable_run_syncs_each_commit_and_the_folder_that_names_it(tmp_path, disk, monkeypatch):
    folders, error = [], OSError("not on this file system")

    def fsync(file):
        folders.append(file)
        raise error

    monkeypatch.setattr(os, "fsync", fsync)
    for durable, level, synced in ((False, "OFF", 0), (True, "EXTRA", 1)):
        path = tmp_path / f"{durable}.run"
        make_run(path, durable=durable).close()
        assert len(folders) == synced
        Journal.open(path, write=True, durable=durable).close()
        levels = [sql for sql in disk.executed if sql.startswith("PRAGMA synchronous")]
        assert levels == [f"PRAGMA synchronous = {level}"] * 2
        disk.executed.clear()
    error.errno = errno.EIO
    with pytest.raises(RunFileError, match="its folder can't be synced"):
        make_run(tmp_path / "a.run", durable=True)


@pytest.mark.parametrize("write", [False, True])
def test_a_write_ahead_log_beside_the_file_is_not_applied(tmp_path, write):
    path = tmp_path / "a.run"
    make_run(path).close()
    before = path.read_bytes()
    path.with_name("a.run-wal").touch()
    with pytest.raises(RunFileError, match=r"a -wal file is beside it"):
        Journal.open(path, write=write)
    assert path.read_bytes() == before
