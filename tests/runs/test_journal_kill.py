"""Files that a killed writer leaves behind, and two writers of one file. Kills at any moment are in ``kills``."""

import os
import shutil
import stat

import pytest
from support.run_files import (
    ACCEPTED,
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


# -- a commit that was interrupted ----------------------------------------------------------------------------------


@pytest.mark.parametrize("write", [False, True])
def test_a_half_done_commit_is_rolled_back(tmp_path, write):
    content = leave_half_done(tmp_path / "a.run")
    shutil.copyfile(tmp_path / "a.run", tmp_path / "alone.run")
    journal = Journal.open(tmp_path / "a.run", write=write)
    assert seen(journal) == content
    journal.close()
    with pytest.raises(RunFileError, match="damaged"):
        Journal.open(tmp_path / "alone.run", write=False)


def test_a_run_without_a_whole_first_commit_is_planned_again(tmp_path):
    half = tmp_path / "half.run"
    at_once = tmp_path / "at_once.run"
    empty = tmp_path / "empty.run"
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


def test_a_forked_child_neither_uses_the_file_nor_holds_its_lock(tmp_path):
    path = tmp_path / "a.run"
    make_run(path).close()
    lines = run("-c", FORKED, path, tmp_path / "go").splitlines()
    assert [line.removeprefix(f"{path}: ") for line in lines] == [
        *["it was opened before this process was forked: open it here"] * 2,
        "end",
        "it is in use by another call or process: wait for it, or end it",
        "3",
    ]


def test_two_writers_without_a_lock_do_not_mix(tmp_path):
    path = tmp_path / "a.run"
    other_name = tmp_path / "b.run"
    make_run(path).close()
    os.link(path, other_name)
    first = Journal.open(path, write=True)
    second = Journal.open(other_name, write=True)
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
