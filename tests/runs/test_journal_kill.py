"""kill -9 at any moment: every committed event is in the file, and no other event."""

import json
import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from support import run_killer
from support.run_files import (
    ACCEPTED,
    BROADCAST,
    CLAIMED,
    ENVIRONMENT,
    PENDING,
    event,
    kill_within_a_commit,
    leave_half_done,
    make_run,
    record,
    run,
    seen,
)
from support.run_killer import HEADER, events_of, plan

from pushsdk._core.errors import RunFileError
from pushsdk._core.outcome import Outcome
from pushsdk._runs.run_file.journal import Journal

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")

KILLS = 28


class Expected:
    """The content of a run by number of commits."""

    def __init__(self, folder: Path) -> None:
        self.journal = plan(folder / "expected.run", durable=False)
        self.contents = [seen(self.journal)]

    def after(self, commits: int) -> object:
        while len(self.contents) <= commits:
            record(self.journal, events_of(len(self.contents) - 1))
            self.contents.append(seen(self.journal))
        return self.contents[commits]


def commits_in(journal: Journal) -> int:
    return journal._seq


def test_committed_events_survive_a_killed_writer(tmp_path: Path) -> None:
    reports = json.loads(run(run_killer.__file__, tmp_path, KILLS, 4711))
    expected = Expected(tmp_path)
    killed_sending = 0
    for number, commits in enumerate(reports):
        path = tmp_path / f"{number}.run"
        alone = tmp_path / "alone.run"
        if path.exists():
            assert stat.S_IMODE(path.stat().st_mode) == 0o600
            shutil.copyfile(path, alone)
        try:
            # A reader may be the first to open the file.
            journal = Journal.open(path, write=number % 2 == 0)
        except RunFileError:
            sealed = False
        else:
            sealed = journal.sealed
            if sealed:
                assert commits <= commits_in(journal) <= commits + 1
                assert seen(journal) == expected.after(commits_in(journal))
            journal.close()
        if sealed:
            killed_sending += 1
            judge_alone(alone, expected, commits)
        else:
            # Killed during planning: nothing was sent, and the same call plans again.
            assert commits == 0
            Journal.open_or_create(path, HEADER).close()
    expected.journal.close()
    assert killed_sending >= 20


def judge_alone(path: Path, expected: Expected, commits: int) -> None:
    """Move the file without its rollback journal, which only a half-done commit needs."""
    try:
        journal = Journal.open(path, write=True)
    except RunFileError:
        return
    assert commits <= commits_in(journal) <= commits + 1
    assert seen(journal) == expected.after(commits_in(journal))
    journal.close()


@pytest.mark.parametrize("write", [False, True])
def test_a_half_done_commit_is_rolled_back(tmp_path: Path, write: bool) -> None:
    content = leave_half_done(tmp_path / "a.run")
    journal = Journal.open(tmp_path / "a.run", write=write)
    assert seen(journal) == content
    journal.close()


def test_a_half_done_commit_that_can_not_be_rolled_back_is_refused(tmp_path: Path) -> None:
    leave_half_done(tmp_path / "a.run")
    alone = tmp_path / "alone.run"
    shutil.copyfile(tmp_path / "a.run", alone)
    with pytest.raises(RunFileError, match="damaged"):
        Journal.open(alone, write=False)


@pytest.mark.parametrize("write", [False, True])
def test_a_half_done_first_commit_is_planned_again(tmp_path: Path, write: bool) -> None:
    path = tmp_path / "a.run"
    kill_within_a_commit(path, "first")
    make_run(path).close()
    path.unlink()
    kill_within_a_commit(path, "first")
    for _ in range(2):
        with pytest.raises(RunFileError, match="it is empty, nothing was planned in it"):
            Journal.open(path, write=write)
    make_run(path).close()


def test_a_rollback_journal_without_its_run_is_harmless(tmp_path: Path) -> None:
    leave_half_done(tmp_path / "a.run")
    (tmp_path / "a.run").unlink()
    journal = make_run(tmp_path / "a.run")
    before = seen(journal)
    journal.close()
    journal = Journal.open(tmp_path / "a.run", write=True)
    assert seen(journal) == before
    journal.close()


def test_an_empty_file_is_planned_again(tmp_path: Path) -> None:
    path = tmp_path / "a.run"
    path.touch(mode=0o644)
    with pytest.raises(RunFileError, match="it is empty, nothing was planned in it"):
        Journal.open(path, write=True)
    make_run(path).close()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


WRITER = """
import sys
from pathlib import Path
from support.run_files import record
from support.run_killer import events_of, plan

journal = plan(Path(sys.argv[1]), durable=False)
print("planned", flush=True)
for number in range(400):
    record(journal, events_of(number))
print("written", flush=True)
sys.stdin.read()
"""


def test_a_reader_sees_whole_commits_while_another_process_writes(tmp_path: Path) -> None:
    path = tmp_path / "a.run"
    expected = Expected(tmp_path)
    writer = subprocess.Popen(
        [sys.executable, "-c", WRITER, path], env=ENVIRONMENT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert writer.stdin is not None
    assert writer.stdout is not None
    with writer, writer.stdin, writer.stdout:
        assert writer.stdout.readline() == "planned\n"
        counts = []
        while len(counts) < 10 or counts[-1] < 400:
            assert writer.poll() is None, "the writer has ended"
            journal = Journal.open(path, write=False)
            counts.append(commits_in(journal))
            assert seen(journal) == expected.after(counts[-1])
            journal.close()
        assert counts == sorted(counts)
        assert writer.stdout.readline() == "written\n"
        with pytest.raises(RunFileError, match=r"a\.run: it is in use by another call or process"):
            Journal.open(path, write=True)
        with pytest.raises(RunFileError, match=r"a\.run: it is in use by another call or process"):
            Journal.open_or_create(path, BROADCAST)
        writer.kill()
    journal = Journal.open(path, write=True)
    assert commits_in(journal) == 400
    journal.close()
    expected.journal.close()


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
    os.read(ready, 0)
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
        "it was opened before this process was forked: open it here",
        "it was opened before this process was forked: open it here",
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
    assert (commits_in(journal), journal.outcomes()[Outcome.ACCEPTED]) == (2, 3)
    journal.close()
