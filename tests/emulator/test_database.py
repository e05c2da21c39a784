"""The store's file: private, for one process, recognized before it is opened, removed if temporary."""

import gc
import sqlite3
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from pushsdk.emulator.store.database import Database, StoreError

COUNT = "SELECT count(*) FROM inboxes"
ADD = "INSERT INTO inboxes(id, name, label) VALUES (2, 2, '')"


@pytest.fixture
def temporary(tmp_path, monkeypatch):
    """The folder of temporary stores, also in other processes."""
    folder = tmp_path / "tmp"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    monkeypatch.setenv("TMPDIR", str(folder))
    return folder


@pytest.fixture
def opened(tmp_path):
    db = Database(tmp_path / "kept")
    yield db
    db.close()


def read(db, query=COUNT):
    with db.reading() as connection:
        return connection.execute(query).fetchone()[0]


def add_inbox(db):
    with db.writing() as connection:
        connection.execute(ADD)


def python(code, *arguments):
    """Run code in another process."""
    command = [sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)


# Files


def test_files_are_private_also_if_the_store_was_an_empty_file(tmp_path):
    (tmp_path / "kept").touch(0o644)
    db = Database(tmp_path / "kept")
    add_inbox(db)
    modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in tmp_path.iterdir()}
    assert modes == dict.fromkeys(["kept", "kept-wal", "kept-shm", "kept.lock"], 0o600)
    db.close()


def sqlite(path, script):
    db = sqlite3.connect(path)
    db.executescript(script)
    db.close()


def newer(path):
    Database(path).close()
    sqlite(path, "PRAGMA user_version = 9")


def damaged(path):
    Database(path).close()
    whole = path.read_bytes()
    path.write_bytes(whole[:100] + b"\xff" * (len(whole) - 100))


OURS = "PRAGMA application_id = 1885695349; PRAGMA user_version = 8;"


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (lambda path: path.write_bytes(b"x" * 5000), "it is no emulator store, or it is damaged"),
        (lambda path: path.write_bytes(b"SQLite format 3\0"), "no emulator store, or it is damaged"),
        (lambda path: sqlite(path, "CREATE TABLE theirs(x)"), "no emulator store but another program's database"),
        (newer, "it has version 9 of an emulator store, this pushsdk has version 8"),
        (
            lambda path: sqlite(path, f"{OURS} PRAGMA journal_mode = WAL; CREATE TABLE theirs(x)"),
            "no such table: store",
        ),
        (damaged, "can't be used as a store: "),
    ],
)
def test_a_file_that_is_not_a_store_of_this_version_is_left_unchanged(tmp_path, spoil, reason):
    path = tmp_path / "kept"
    spoil(path)
    before = path.read_bytes()
    with pytest.raises(StoreError, match=f"{reason}.*; name another file$") as excinfo:
        Database(path)
    assert str(path) in str(excinfo.value)
    assert path.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == ["kept"]


def test_a_half_created_store_is_completed(tmp_path):
    """A kill during the creation leaves our head and no tables."""
    sqlite(tmp_path / "kept", OURS)
    db = Database(tmp_path / "kept")
    assert read(db) == 0
    db.close()


@pytest.mark.parametrize(
    ("make", "path", "reason"),
    [
        (Path.mkdir, "kept", "it is a folder, a link or a device"),
        (lambda path: path.symlink_to("theirs"), "kept", "it is a folder, a link or a device"),
        (Path.touch, "kept/store", "Not a directory"),
    ],
)
def test_a_path_that_is_not_a_file_is_an_error(tmp_path, make, path, reason):
    make(tmp_path / "kept")
    with pytest.raises(StoreError, match=f"{reason}; name another file"):
        Database(tmp_path / path)
    assert [file.name for file in tmp_path.iterdir()] == ["kept"]


def test_one_emulator_of_one_process_can_use_a_store(tmp_path):
    hold = """
import sys
from pathlib import Path
from pushsdk.emulator.store.database import Database
database = Database(Path(sys.argv[1]))
print(flush=True)
sys.stdin.read()
"""
    with python(hold, tmp_path / "kept") as other:
        other.stdout.readline()
        with pytest.raises(StoreError, match="in use by another emulator: end that one, or name another file"):
            Database(tmp_path / "kept")
        other.kill()
    db = Database(tmp_path / "kept")  # the lock ended with the process, the lock file remains
    with pytest.raises(StoreError, match="in use by another emulator"):
        Database(tmp_path / "kept")
    assert read(db) == 0
    db.close()


# Temporary stores


def test_a_temporary_store_is_private_and_is_removed_with_its_object(temporary):
    db = Database(None)
    (folder,) = temporary.iterdir()
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    db.close()
    add_inbox(db)  # no other emulator can use the file
    assert read(db) == 1
    del db
    gc.collect()
    assert list(temporary.iterdir()) == []
    temporary.rmdir()
    with pytest.raises(StoreError, match="No such file or directory; name a file, or set TMPDIR"):
        Database(None)


def test_a_forked_child_touches_nothing_and_the_parent_removes_its_store(temporary):
    code = """
import os, sys
from pushsdk.emulator.store.database import Database, StoreError
database = Database(None)
with database.reading() as db:
    pass
if not (child := os.fork()):
    for use in (database.reading, database.writing):
        try:
            with use():
                sys.exit(1)
        except StoreError as error:
            assert "forked" in str(error)
    del database, db
    sys.exit(7)
_, status = os.waitpid(child, 0)
with database.writing() as db:
    db.execute("INSERT INTO inboxes(id, name, label) VALUES (2, 2, '')")
with database.reading() as db:
    count = db.execute("SELECT count(*) FROM inboxes").fetchone()[0]
print(os.waitstatus_to_exitcode(status), count, len(os.listdir(os.environ["TMPDIR"])), flush=True)
"""
    with python(code) as parent:
        assert parent.stdout.read().split() == [b"7", b"1", b"1"]
    assert list(temporary.iterdir()) == []


# Transactions


def test_what_sqlite_refuses_is_a_store_error(opened):
    add_inbox(opened)
    with pytest.raises(StoreError, match="can't be written: UNIQUE"):
        add_inbox(opened)
    with pytest.raises(StoreError, match="can't be read: no such table"):
        read(opened, "SELECT 1 FROM missing")
    with pytest.raises(StoreError, match="readonly"):
        read(opened, f"{ADD} RETURNING 1")
    assert read(opened) == 1


def test_an_error_rolls_the_transaction_back(opened):
    with pytest.raises(ZeroDivisionError), opened.writing() as connection:
        connection.execute(ADD)
        _ = 1 // 0
    assert read(opened) == 0


# The end


def test_after_close_a_store_can_be_read_and_nothing_stays_open(tmp_path):
    db = Database(tmp_path / "kept")
    with db.reading() as connection:
        db.close()
        assert connection.execute(COUNT).fetchone()[0] == 0
    with pytest.raises(StoreError, match="has ended: its store can only be read"):
        add_inbox(db)
    db.close()
    other = Database(tmp_path / "kept")
    add_inbox(other)
    assert read(db) == 1
    del other
    gc.collect()  # closes it
    assert [file.name for file in tmp_path.iterdir()] == ["kept"]
    (tmp_path / "kept").unlink()
    with pytest.raises(StoreError, match="can't be read: unable to open"):
        read(db)
    assert list(tmp_path.iterdir()) == []
