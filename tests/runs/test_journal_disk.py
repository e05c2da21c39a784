"""A disk that is full or fails: the run stops at once, and committed outcomes stay correct."""

import json
import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.run_files import BROADCAST, CLAIMED, ENVIRONMENT, PENDING, chunk, event, make_run, record, seen

from pushsdk._core.errors import RunFileError
from pushsdk._core.outcome import Outcome
from pushsdk._runs.run_file import file as runfile
from pushsdk._runs.run_file.journal import Journal

CLAIM = event(CLAIMED, 0, 3)


class Faulty:
    """A connection that fails at one statement."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self.db = db
        self.text_factory = db.text_factory
        self.fault: tuple[str, BaseException] | None = None
        self.executed: list[str] = []

    def execute(self, sql: str, *values: Any) -> sqlite3.Cursor:
        self.executed.append(sql)
        if self.fault is not None and sql.startswith(self.fault[0]):
            raise self.fault[1]
        return self.db.execute(sql, *values)

    def executemany(self, sql: str, rows: Any) -> sqlite3.Cursor:
        return self.db.executemany(sql, rows)

    def close(self) -> None:
        self.db.close()


@pytest.fixture
def faulty(monkeypatch: pytest.MonkeyPatch) -> list[Faulty]:
    """The connections, newest last."""
    connections: list[Faulty] = []
    plain = runfile._connect

    def connect(place: runfile.RunFilePath | None, uri: str) -> Faulty:
        connections.append(Faulty(plain(place, uri)))
        return connections[-1]

    monkeypatch.setattr(runfile, "_connect", connect)
    return connections


def error_of(name: str) -> sqlite3.OperationalError:
    error = sqlite3.OperationalError("what SQLite says")
    error.sqlite_errorname = name
    return error


FAULTS = [
    ("COMMIT", "SQLITE_IOERR_FSYNC", "the disk failed"),
    ("COMMIT", "SQLITE_FULL", "the disk is full: make room, then resume the run"),
    ("INSERT INTO log", "SQLITE_IOERR_WRITE", "the disk failed"),
    ("UPDATE head", "SQLITE_FULL", "the disk is full"),
    ("BEGIN", "SQLITE_BUSY", "another program has locked it"),
    ("BEGIN", "SQLITE_READONLY_DBMOVED", "it may not be written"),
    ("BEGIN", "SQLITE_CANTOPEN", "it can't be opened"),
    ("COMMIT", "", "it is damaged"),
]


@pytest.mark.parametrize(("statement", "name", "words"), FAULTS)
def test_a_failed_write_is_not_retried_and_changes_nothing(
    tmp_path: Path, faulty: list[Faulty], statement: str, name: str, words: str
) -> None:
    journal = make_run(tmp_path / "a.run")
    content = seen(journal)
    faulty[-1].fault = statement, error_of(name)
    with pytest.raises(RunFileError, match=words) as excinfo:
        record(journal, [CLAIM])
    assert (excinfo.value.outcome, excinfo.value.path) == (Outcome.UNKNOWN, str(tmp_path / "a.run"))
    assert not faulty[-1].db.in_transaction
    # The disk works again, but nothing more is written.
    faulty[-1].fault = None
    faulty[-1].executed.clear()
    for _ in range(2):
        with pytest.raises(RunFileError, match=words) as second:
            record(journal, [CLAIM])
        assert second.value is not excinfo.value
    assert faulty[-1].executed == []
    assert seen(journal) == content
    journal.close()
    journal = Journal.open(tmp_path / "a.run", write=True)
    assert seen(journal) == content
    journal.close()


def test_a_failed_rollback_is_left_to_the_next_writer(tmp_path: Path, faulty: list[Faulty]) -> None:
    journal = make_run(tmp_path / "a.run")
    plain = faulty[-1].execute

    def execute(sql: str, *values: Any) -> sqlite3.Cursor:
        if sql in ("COMMIT", "ROLLBACK"):
            raise error_of("SQLITE_IOERR")
        return plain(sql, *values)

    faulty[-1].execute = execute  # type: ignore[method-assign]
    with pytest.raises(RunFileError, match="the disk failed"):
        record(journal, [CLAIM])
    journal.close()
    journal = Journal.open(tmp_path / "a.run", write=True)
    assert journal.states.count(PENDING) == 5
    journal.close()


@pytest.mark.parametrize("interruption", [KeyboardInterrupt(), MemoryError()])
def test_an_interrupted_write_is_the_last(tmp_path: Path, faulty: list[Faulty], interruption: BaseException) -> None:
    journal = make_run(tmp_path / "a.run")
    faulty[-1].fault = "UPDATE head", interruption
    with pytest.raises(type(interruption)):
        record(journal, [CLAIM])
    faulty[-1].fault = None
    with pytest.raises(RunFileError, match="an earlier write was interrupted"):
        record(journal, [CLAIM])
    assert journal.states.count(CLAIMED) == 0
    journal.close()


@pytest.mark.parametrize("step", ["add", "seal"])
def test_a_plan_that_can_not_be_written_is_reported_as_not_sent(
    tmp_path: Path, faulty: list[Faulty], step: str
) -> None:
    journal = Journal.open_or_create(tmp_path / "a.run", BROADCAST)
    journal.add([chunk("a")])
    faulty[-1].fault = "COMMIT", error_of("SQLITE_FULL")
    uses: dict[str, Callable[[], None]] = {
        "add": lambda: journal.add([chunk("b")]),
        "seal": lambda: journal.seal(duplicates=0),
    }
    for _ in range(2):
        with pytest.raises(
            RunFileError, match="start the broadcast again: its plan is incomplete and nothing w"
        ) as excinfo:
            uses[step]()
        assert excinfo.value.outcome is Outcome.NOT_SENT
        assert "resume" not in str(excinfo.value)
    assert (journal.chunks, journal.sealed) == (1, False)
    journal.close()
    make_run(tmp_path / "a.run").close()


@pytest.mark.parametrize("statement", ["PRAGMA synchronous", "COMMIT", "CREATE TABLE log"])
def test_a_failed_creation_leaves_no_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, statement: str) -> None:
    plain = runfile._connect

    def connect(place: runfile.RunFilePath | None, uri: str) -> Faulty:
        connection = Faulty(plain(place, uri))
        connection.fault = statement, error_of("SQLITE_FULL")
        return connection

    with monkeypatch.context() as patch:
        patch.setattr(runfile, "_connect", connect)
        with pytest.raises(RunFileError, match="the disk is full"):
            Journal.open_or_create(tmp_path / "a.run", BROADCAST)
    make_run(tmp_path / "a.run").close()


FULL_DISK = """
import json, subprocess, sys
from pathlib import Path
from pushsdk._core.errors import RunFileError
from pushsdk._runs.run_file.journal import Journal
from support.run_files import CLAIMED, event, make_run, seen, record

folder = Path(sys.argv[1])
subprocess.run(["mount", "-t", "tmpfs", "-o", "size=400k", "tmpfs", folder], check=True)
try:
    journal = make_run(folder / "a.run", (3,) * 100, durable=sys.argv[2] == "durable")
    written, errors = 0, []
    while len(errors) < 2:
        try:
            record(journal, [event(CLAIMED, 3 * n, 3 * n + 3, None, f"some words, number {n}") for n in range(100)])
            written += 1
        except RunFileError as error:
            errors.append(str(error))
    content = seen(journal)
    journal.close()
    journal = Journal.open(folder / "a.run", write=False)
    assert journal._seq == written and seen(journal) == content
    journal.close()
    try:
        Journal.open_or_create(folder / "b.run", journal.header)
    except RunFileError as error:
        errors.append(str(error))
finally:
    subprocess.run(["umount", folder], check=True)
print(json.dumps([written, errors]))
"""


@pytest.mark.skipif(
    not shutil.which("unshare") or subprocess.run(["unshare", "--mount", "true"], capture_output=True).returncode != 0,
    reason="needs to mount a small disk",
)
@pytest.mark.parametrize("durable", ["durable", "not durable"])
def test_a_disk_that_is_really_full(tmp_path: Path, durable: str) -> None:
    result = subprocess.run(
        ["unshare", "--mount", sys.executable, "-c", FULL_DISK, str(tmp_path), durable],
        env=ENVIRONMENT,
        check=True,
        capture_output=True,
        timeout=60,
    )
    written, errors = json.loads(result.stdout)
    assert written > 10
    assert [error.removeprefix(str(tmp_path)) for error in errors] == [
        "/a.run: the disk is full: make room, then resume the run (SQLITE_FULL)",
        "/a.run: the disk is full: make room, then resume the run (SQLITE_FULL)",
        f"/b.run: the disk is full: make room, then {runfile._NEXT_STEP[Outcome.NOT_SENT]} (SQLITE_FULL)",
    ]


def syncs(path: Path, monkeypatch: pytest.MonkeyPatch, *, durable: bool) -> tuple[int, int]:
    folders = 0
    plain = os.fsync

    def fsync(file: int) -> None:
        nonlocal folders
        folders += 1
        plain(file)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fsync)
        journal = make_run(path, durable=durable)
        record(journal, [CLAIM])
        ((level,),) = journal._file.read("PRAGMA synchronous")
        journal.close()
    return folders, level


def test_a_durable_run_syncs_each_commit_and_the_folder_that_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # SQLite's numbers for OFF and EXTRA.
    assert syncs(tmp_path / "a.run", monkeypatch, durable=False) == (0, 0)
    assert syncs(tmp_path / "b.run", monkeypatch, durable=True) == (1, 3)
    journal = Journal.open(tmp_path / "b.run", write=True, durable=True)
    assert journal._file.read("PRAGMA synchronous") == [(3,)]
    journal.close()


def test_a_folder_that_can_not_be_synced_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fsync(file: int) -> None:
        raise OSError("not on this file system")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fsync)
        make_run(tmp_path / "a.run", durable=True).close()


@pytest.mark.parametrize("write", [False, True])
def test_a_write_ahead_log_beside_the_file_is_not_applied(tmp_path: Path, write: bool) -> None:
    path = tmp_path / "a.run"
    make_run(path).close()
    before = path.read_bytes()
    with sqlite3.connect(tmp_path / "other") as other:
        other.execute("PRAGMA journal_mode = WAL")
        other.execute("CREATE TABLE theirs (id INTEGER)")
        path.with_name("a.run-wal").write_bytes((tmp_path / "other-wal").read_bytes())
    other.close()
    with pytest.raises(RunFileError, match=r"a -wal file is beside it"):
        Journal.open(path, write=write)
    assert path.read_bytes() == before


def test_a_failed_connect_is_a_run_file_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def connect(*_: object, **__: object) -> sqlite3.Connection:
        raise error_of("SQLITE_CANTOPEN")

    monkeypatch.setattr(sqlite3, "connect", connect)
    with pytest.raises(RunFileError, match="it can't be opened: check the permissions of file and folder"):
        Journal.open_or_create(tmp_path / "a.run", BROADCAST)
