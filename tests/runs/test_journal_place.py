"""Paths, permissions and locks of run files."""

import os
import stat
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from support.run_files import ACCEPTED, BROADCAST, CLAIMED, event, leave_half_done, make_run, record, seen

from pushsdk._core.errors import RunFileError
from pushsdk._core.outcome import Outcome
from pushsdk._io.files import lock
from pushsdk._runs.run_file import file as place
from pushsdk._runs.run_file import file as runfile
from pushsdk._runs.run_file.journal import Journal

USES: dict[str, Callable[[Path], Journal]] = {
    "create": lambda path: Journal.open_or_create(path, BROADCAST),
    "open to write": lambda path: Journal.open(path, write=True),
    "open to read": lambda path: Journal.open(path, write=False),
}
EVERY_OPEN = pytest.mark.parametrize("write", [False, True])


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that an unprivileged user can reach."""
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)
        os.chmod(name, 0o700)


@contextmanager
def nobody(folder: Path) -> Iterator[None]:
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


def test_a_run_file_is_private_from_its_first_byte(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    modes = []
    plain = runfile.os.open

    def watched(path: str | Path, flags: int, mode: int = 0o777) -> int:
        file = plain(path, flags, mode)
        if flags & os.O_EXCL:
            modes.append(stat.S_IMODE(os.fstat(file).st_mode))
        return file

    monkeypatch.setattr(runfile.os, "open", watched)
    make_run(tmp_path / "a.run").close()
    assert modes == [0o600]


@pytest.mark.parametrize("name", ["with space.run", "q?mode=memory.run", "#x%41.run", "ünï.run", "\udcff.run", "..run"])
def test_any_other_file_name_works(tmp_path: Path, name: str) -> None:
    make_run(tmp_path / name).close()
    assert os.listdir(tmp_path) == [name]
    journal = Journal.open(tmp_path / name, write=True)
    assert journal.users == 5
    journal.close()


def test_a_path_that_is_too_long_for_sqlite_is_refused(tmp_path: Path) -> None:
    path = tmp_path.joinpath(*["x" * 200] * 3, "a.run")
    path.parent.mkdir(parents=True)
    with pytest.raises(RunFileError, match="it can't be opened"):
        Journal.open_or_create(path, BROADCAST)


def test_a_folder_that_may_not_be_written_to_can_be_read_from(folder: Path) -> None:
    make_run(folder / "a.run").close()
    folder.chmod(0o500)
    with nobody(folder):
        with pytest.raises(RunFileError, match=r"b\.run: its folder can't be used: Permission denied"):
            Journal.open_or_create(folder / "b.run", BROADCAST)
        with pytest.raises(RunFileError, match=r"a\.run: its folder can't be used: Permission denied"):
            Journal.open(folder / "a.run", write=True)
        journal = Journal.open(folder / "a.run", write=False)
        assert journal.users == 5
        journal.close()


def test_a_file_that_may_not_be_written_to_can_be_read(folder: Path) -> None:
    make_run(folder / "a.run").close()
    (folder / "a.run").chmod(0o400)
    with nobody(folder):
        with pytest.raises(RunFileError, match="it may not be written: check the permissions"):
            Journal.open(folder / "a.run", write=True)
        journal = Journal.open(folder / "a.run", write=False)
        assert journal.users == 5
        journal.close()
    assert os.listdir(folder) == ["a.run"]


@EVERY_OPEN
def test_a_file_without_read_access_is_named(folder: Path, write: bool) -> None:
    make_run(folder / "a.run").close()
    (folder / "a.run").chmod(0)
    with nobody(folder), pytest.raises(RunFileError, match="it can't be opened: check the permissions"):
        Journal.open(folder / "a.run", write=write)


def test_a_rollback_without_write_access_is_named(folder: Path) -> None:
    content = leave_half_done(folder / "a.run")
    (folder / "a.run").chmod(0o400)
    with nobody(folder):
        with pytest.raises(RunFileError, match="its writer was killed: open it once with write access"):
            Journal.open(folder / "a.run", write=False)
        (folder / "a.run").chmod(0o600)
        journal = Journal.open(folder / "a.run", write=False)
        assert seen(journal) == content
        journal.close()


@pytest.mark.parametrize(
    ("entries", "words"),
    [([], "it can't be created"), (["a.run"], "plan can't be removed")],
    ids=["no file", "empty"],
)
def test_a_folder_that_can_be_locked_and_not_written_to_is_named(folder: Path, entries: list[str], words: str) -> None:
    for name in ("a.run-lock", *entries):
        (folder / name).touch()
    folder.chmod(0o500)
    with nobody(folder), pytest.raises(RunFileError, match=f"{words}: Permission denied"):
        Journal.open_or_create(folder / "a.run", BROADCAST)


def test_a_file_that_appears_while_planning_begins_is_not_overwritten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.run"
    path.touch()
    plain = runfile.RunFilePath.clear

    def clear(place: runfile.RunFilePath) -> None:
        plain(place)
        path.write_text("somebody's")

    monkeypatch.setattr(runfile.RunFilePath, "clear", clear)
    with pytest.raises(RunFileError, match="not a run file"):
        Journal.open_or_create(path, BROADCAST)
    assert path.read_text() == "somebody's"


@pytest.mark.parametrize("flock", [None, False], ids=["lock of this system", "lock where there is no flock"])
@pytest.mark.parametrize("use", [USES["create"], USES["open to write"]], ids=["create", "open"])
def test_one_journal_writes_and_any_number_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flock: bool | None, use: Callable[[Path], Journal]
) -> None:
    if flock is not None:
        monkeypatch.setattr(place, "lock", lambda path: lock(path, flock=flock))
    path = tmp_path / "a.run"
    journal = make_run(path)
    for _ in range(2):
        with pytest.raises(RunFileError, match=r"a\.run: it is in use by another call or process: wait for it"):
            use(path)
    readers = [Journal.open(path, write=False) for _ in range(2)]
    record(journal, [event(CLAIMED, 0, 3)])
    for reader in readers:
        assert [reader.load(n) for n in (0, 1)] == [journal.load(n) for n in (0, 1)]
        reader.close()
    # Closed readers and refused writers have not released the lock.
    with pytest.raises(RunFileError, match="in use"):
        use(path)
    record(journal, [event(ACCEPTED, 0, 3, 204)])
    journal.close()
    journal = Journal.open(path, write=True)
    assert journal.outcomes()[Outcome.ACCEPTED] == 3
    journal.close()
    assert os.listdir(tmp_path) == ["a.run"]


def test_two_paths_to_one_folder_share_one_lock(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "folder")
    journal = make_run(tmp_path / "folder" / "a.run")
    with pytest.raises(RunFileError, match="in use"):
        Journal.open(tmp_path / "link" / "a.run", write=True)
    journal.close()


def test_a_lock_file_that_was_left_behind_is_no_lock(tmp_path: Path) -> None:
    (tmp_path / "a.run-lock").touch()
    make_run(tmp_path / "a.run").close()
    assert os.listdir(tmp_path) == ["a.run"]


def test_a_lock_file_that_is_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "a.run-lock").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(RunFileError, match="its folder can't be used"):
        Journal.open_or_create(tmp_path / "a.run", BROADCAST)
    assert os.listdir(tmp_path) == ["a.run-lock"]


def test_the_lock_of_a_removed_lock_file_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import fcntl

    path = tmp_path / "lock"
    holder = lock(path)
    plain = fcntl.flock
    others = []

    def late(file: int, operation: int) -> None:
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


def test_a_lock_without_flock_says_what_is_wrong_with_the_folder(tmp_path: Path) -> None:
    (tmp_path / "lock").write_text("not SQLite's" * 100)
    with pytest.raises(OSError, match="not a database"):
        lock(tmp_path / "lock", flock=False)
    with pytest.raises(OSError, match="unable to open"):
        lock(tmp_path / "none" / "lock", flock=False)


def test_a_forked_child_drops_the_locks_of_its_parent(tmp_path: Path) -> None:
    release = lock(tmp_path / "lock")
    for _ in range(2):
        release.__self__._close()  # type: ignore[attr-defined]  # as in a child; here it was the only copy
    second = lock(tmp_path / "lock")
    release()
    assert os.listdir(tmp_path) == ["lock"]
    second()


def test_a_forked_child_leaves_the_connection_of_its_parent_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = make_run(tmp_path / "a.run")
    with monkeypatch.context() as patch:
        patch.setattr(os, "getpid", lambda: -1)
        with pytest.raises(RunFileError, match="before this process was forked: open it here"):
            record(journal, [event(CLAIMED, 0, 3)])
        journal.close()
    connection = journal._file._db
    assert connection.execute("PRAGMA application_id").fetchone() == (runfile.APPLICATION,)
    connection.close()
    journal._run_path.release()
