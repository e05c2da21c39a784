"""Paths, permissions, locks and events of run files."""

import fcntl
import os
import tempfile
from contextlib import contextmanager
from pathlib import Path

import pytest
from support.run_files import ACCEPTED, BROADCAST, CLAIMED, event, make_run, record

from pushsdk._core.errors import RunFileError
from pushsdk._core.outcome import Outcome
from pushsdk._io import files
from pushsdk._io.files import lock
from pushsdk._runs.run_file import file as runfile
from pushsdk._runs.run_file.journal import Journal


@pytest.fixture
def folder():
    """A folder that an unprivileged user can reach."""
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)
        os.chmod(name, 0o700)


@contextmanager
def nobody(folder):
    """Run the block as the unprivileged owner of the folder: root may do everything."""
    root = os.geteuid() == 0
    if root:
        for path in (folder, *folder.iterdir()):
            os.chown(path, 65534, 65534)
        os.seteuid(65534)
    try:
        yield
    finally:
        if root:
            os.seteuid(0)


# -- paths and permissions --------------------------------------------------------------------------------------------


def test_a_path_that_is_too_long_for_sqlite_is_refused(tmp_path):
    path = tmp_path.joinpath(*["x" * 200] * 3, "a.run")
    path.parent.mkdir(parents=True)
    with pytest.raises(RunFileError, match="it can't be opened"):
        Journal.open_or_create(path, BROADCAST)


@pytest.mark.parametrize(
    ("rights", "use", "words"),
    [
        ({".": 0o500}, lambda path: Journal.open_or_create(path, BROADCAST), "its folder can't be used: Permission"),
        ({"a.run": 0o400}, lambda path: Journal.open(path, write=True), "it may not be written: check the permissions"),
        ({"a.run": 0}, lambda path: Journal.open(path, write=False), "it can't be opened: check the permissions"),
    ],
)
def test_a_missing_right_is_named_and_what_can_be_read_is_read(folder, rights, use, words):
    make_run(folder / "a.run").close()
    for name, mode in rights.items():
        (folder / name).chmod(mode)
    with nobody(folder):
        with pytest.raises(RunFileError, match=rf"a\.run: {words}"):
            use(folder / "a.run")
        if 0 not in rights.values():
            journal = Journal.open(folder / "a.run", write=False)
            assert journal.users == 5
            journal.close()
    assert os.listdir(folder) == ["a.run"]


@pytest.mark.parametrize(("entries", "words"), [([], "it can't be created"), (["a.run"], "plan can't be removed")])
def test_a_folder_that_can_be_locked_and_not_written_to_is_named(folder, entries, words):
    for name in ("a.run-lock", *entries):
        (folder / name).touch()
    folder.chmod(0o500)
    with nobody(folder), pytest.raises(RunFileError, match=f"{words}: Permission denied"):
        Journal.open_or_create(folder / "a.run", BROADCAST)


# -- locks ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("flock", [True, False])
def test_one_journal_writes_and_any_number_read(tmp_path, monkeypatch, flock):
    monkeypatch.setattr(runfile, "lock", lambda path: lock(path, flock=flock))
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to("folder")
    path = tmp_path / "folder" / "a.run"
    same = tmp_path / "link" / "a.run"
    path.with_name("a.run-lock").touch()  # left behind by a killed process
    journal = make_run(path)
    for use in (lambda: Journal.open_or_create(path, BROADCAST), lambda: Journal.open(same, write=True)):
        with pytest.raises(RunFileError, match=r"folder/a\.run: it is in use by another call or process: wait for it"):
            use()
    readers = [Journal.open(path, write=False) for _ in range(2)]
    record(journal, [event(CLAIMED, 0, 3)])
    for reader in readers:
        assert reader.load(1) == journal.load(1)
        reader.close()
    # Closed readers and refused writers have not released the lock.
    with pytest.raises(RunFileError, match="in use"):
        Journal.open(path, write=True)
    record(journal, [event(ACCEPTED, 0, 3, 204)])
    journal.close()
    journal = Journal.open(path, write=True)
    assert journal.outcomes()[Outcome.ACCEPTED] == 3
    journal.close()
    assert os.listdir(path.parent) == ["a.run"]


def test_the_lock_of_a_removed_lock_file_is_not_used(tmp_path, monkeypatch):
    path = tmp_path / "lock"
    plain = fcntl.flock
    others = []
    holder = lock(path)

    def late(file, operation):
        # The holder releases the lock between open and flock; the first time another process takes it.
        monkeypatch.setattr(fcntl, "flock", plain if others else late)
        if not others:
            holder()
            others.append(file)
        else:
            path.unlink()
            path.touch()
        plain(file, operation)

    monkeypatch.setattr(fcntl, "flock", late)
    release = lock(path)
    with pytest.raises(BlockingIOError):
        lock(path)
    release()
    release()
    assert os.listdir(tmp_path) == []


def test_a_lock_without_flock_says_what_is_wrong_with_the_folder(tmp_path):
    (tmp_path / "lock").write_text("not SQLite's" * 100)
    with pytest.raises(OSError, match="not a database"):
        lock(tmp_path / "lock", flock=False)
    with pytest.raises(OSError, match="unable to open"):
        lock(tmp_path / "none" / "lock", flock=False)


def test_a_forked_child_drops_the_locks_of_its_parent(tmp_path, monkeypatch):
    forks = []

    def in_child(owner, action):
        forks.append(lambda: action(owner))

    monkeypatch.setattr(files, "in_child", in_child)
    release = lock(tmp_path / "lock")
    for _ in range(2):
        forks[0]()  # here it was the only copy
    second = lock(tmp_path / "lock")
    release()
    assert os.listdir(tmp_path) == ["lock"]
    second()


# -- what is written --------------------------------------------------------------------------------------------------


@pytest.fixture
def path(tmp_path):
    return tmp_path / "a.run"
