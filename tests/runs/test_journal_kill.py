"""kill -9 at any moment: every committed event is in the run file, and no other event."""

import os
import random
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.kill_child import events_of, planned
from support.kill_nursery import Nursery
from support.run_files import (
    ACCEPTED,
    BROADCAST,
    CLAIMED,
    PENDING,
    event,
    kill_within_a_commit,
    leave_half_done,
    make_run,
    record,
    run,
    seen,
)

from pushsdk._core.errors import RunFileError
from pushsdk._core.outcome import Outcome
from pushsdk._runs.run_file.journal import Journal

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")


class Expected:
    """The content of a run by number of commits."""

    def __init__(self, folder: Path) -> None:
        self.journal = planned(folder / "expected.run")
        self._contents = [seen(self.journal)]

    def commits_in(self, journal: Journal, *, least: int = 0) -> int:
        """Return the number of commits in a run, which has at least this number."""
        content = seen(journal)
        for number in range(least, 201):
            if content == self._after(number):
                return number
        raise AssertionError("no number of commits leads to this content")

    def _after(self, commits: int) -> object:
        while len(self._contents) <= commits:
            record(self.journal, events_of(len(self._contents) - 1))
            self._contents.append(seen(self.journal))
        return self._contents[commits]


@pytest.fixture
def expected(tmp_path: Path) -> Iterator[Expected]:
    expected = Expected(tmp_path)
    yield expected
    expected.journal.close()


async def test_committed_events_survive_a_killed_writer(nursery: Nursery, expected: Expected, tmp_path: Path) -> None:
    draw, killed_writing = random.Random(4711), 0
    for number in range(16):
        path, alone = tmp_path / f"{number}.run", tmp_path / "alone.run"
        job = {"driver": "run file", "run": str(path), "durable": number % 2 == 0, "commits": 200}
        life = await nursery.start(job)
        # One in four is killed while it plans, or before its first byte.
        await life.hear(draw.randint(60, 100) if number % 4 else draw.randint(0, 50))
        life.kill()
        assert (await life.end()).killed
        commits = life.said.count("committed")
        if path.exists():
            assert stat.S_IMODE(path.stat().st_mode) == 0o600
            shutil.copyfile(path, alone)
        # A reader may be the first to open the file.
        journal = with_a_plan(path, write=number % 2 == 0)
        if journal is None:
            # Nothing was sent, and the same call plans again.
            assert commits == 0
            planned(path).close()
            continue
        killed_writing += 1
        # The copy lacks the rollback journal, which only a half-done commit needs.
        for found in (journal, with_a_plan(alone, write=True)):
            if found is not None:
                assert expected.commits_in(found, least=commits) <= commits + 1
                found.close()
    assert killed_writing >= 10


def with_a_plan(path: Path, *, write: bool) -> Journal | None:
    """Open a run, unless it can't be opened or its plan was not finished."""
    try:
        journal = Journal.open(path, write=write)
    except RunFileError:
        return None
    if journal.sealed:
        return journal
    journal.close()
    return None


async def test_a_reader_sees_whole_commits_while_another_process_writes(
    nursery: Nursery, expected: Expected, tmp_path: Path
) -> None:
    path, commits = tmp_path / "a.run", 0
    job = {"driver": "run file", "run": str(path), "durable": False, "commits": 150}
    life = await nursery.start(job)
    await life.hear(51)
    while commits < 150:
        assert life.is_alive, "the writer has ended"
        journal = Journal.open(path, write=False)
        commits = expected.commits_in(journal, least=commits)
        journal.close()
    for refused in (lambda: Journal.open(path, write=True), lambda: Journal.open_or_create(path, BROADCAST)):
        with pytest.raises(RunFileError, match=r"a\.run: it is in use by another call or process"):
            refused()
    life.kill()
    assert (await life.end()).killed
    journal = Journal.open(path, write=True)
    assert expected.commits_in(journal, least=150) == 150
    journal.close()


# -- a commit that was interrupted ----------------------------------------------------------------------------------


@pytest.mark.parametrize("write", [False, True])
def test_a_half_done_commit_is_rolled_back(tmp_path: Path, write: bool) -> None:
    content = leave_half_done(tmp_path / "a.run")
    shutil.copyfile(tmp_path / "a.run", tmp_path / "alone.run")
    journal = Journal.open(tmp_path / "a.run", write=write)
    assert seen(journal) == content
    journal.close()
    with pytest.raises(RunFileError, match="damaged"):
        Journal.open(tmp_path / "alone.run", write=False)


def test_a_rollback_journal_without_its_run_is_harmless(tmp_path: Path) -> None:
    leave_half_done(tmp_path / "a.run")
    (tmp_path / "a.run").unlink()
    journal = make_run(tmp_path / "a.run")
    before = seen(journal)
    journal.close()
    journal = Journal.open(tmp_path / "a.run", write=True)
    assert seen(journal) == before
    journal.close()


def test_a_run_without_a_whole_first_commit_is_planned_again(tmp_path: Path) -> None:
    half, at_once, empty = tmp_path / "half.run", tmp_path / "at_once.run", tmp_path / "empty.run"
    for path in (half, at_once):
        kill_within_a_commit(path, "first")
    make_run(at_once).close()
    empty.touch(mode=0o644)
    for path in (half, empty):
        for write in (False, True):
            with pytest.raises(RunFileError, match="it is empty, nothing was planned in it"):
                Journal.open(path, write=write)
        make_run(path).close()
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


# -- two users of one file --------------------------------------------------------------------------------------------

FORKED = """
import os, signal, sys
from pathlib import Path
from pushsdk._core.errors import RunFileError
from pushsdk._runs.run_file.journal import Journal
from support.run_files import ACCEPTED, CLAIMED, event, record

path = Path(sys.argv[1])
ready, tell_ready = os.pipe()
wait, go_on = os.pipe()
parent = os.fork()
if parent == 0:
    journal = Journal.open(path, write=True)
    child = os.fork()
    if child == 0:
        for use in (lambda: record(journal, [event(CLAIMED, 3, 5)]), lambda: journal.load(0)):
            try:
                use()
            except RunFileError as error:
                os.write(tell_ready, str(error).encode() + b"\\n")
        journal.close()
        os.write(tell_ready, b"end")
        os.read(wait, 1)
        os._exit(0)
    os.close(wait)
    while not os.path.exists(sys.argv[2]):
        pass
    record(journal, [event(ACCEPTED, 0, 3, 204)])
    os.kill(os.getpid(), signal.SIGKILL)
said = b""
while not said.endswith(b"end"):
    said += os.read(ready, 1000)
try:
    Journal.open(path, write=True)
except RunFileError as error:
    said += b"\\n" + str(error).encode()
Path(sys.argv[2]).touch()
os.waitpid(parent, 0)
# The child of the one that was killed is still there.
journal = Journal.open(path, write=True)
print(said.decode())
print(journal.outcomes()['ACCEPTED'])
journal.close()
os.write(go_on, b"x")
"""


def test_a_forked_child_neither_uses_the_file_nor_holds_its_lock(tmp_path: Path) -> None:
    path = tmp_path / "a.run"
    make_run(path).close()
    lines = run("-c", FORKED, path, tmp_path / "go").splitlines()
    assert [line.removeprefix(f"{path}: ") for line in lines] == [
        *["it was opened before this process was forked: open it here"] * 2,
        "end",
        "it is in use by another call or process: wait for it, or end it",
        "3",
    ]


def test_two_writers_without_a_lock_do_not_mix(tmp_path: Path) -> None:
    path, other_name = tmp_path / "a.run", tmp_path / "b.run"
    make_run(path).close()
    os.link(path, other_name)
    first, second = Journal.open(path, write=True), Journal.open(other_name, write=True)
    record(first, [event(CLAIMED, 0, 3)])
    for _ in range(2):
        with pytest.raises(RunFileError, match="another process has written to it"):
            record(second, [event(CLAIMED, 0, 3)])
    assert second.states.count(PENDING) == 5
    record(first, [event(ACCEPTED, 0, 3, 204)])
    first.close()
    second.close()
    journal = Journal.open(path, write=False)
    assert journal.outcomes()[Outcome.ACCEPTED] == 3
    journal.close()
