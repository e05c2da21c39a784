"""The tests themselves leave nothing behind when they are stopped."""

import os
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest
from support.programs import HANGS, ROOT

TEST = """
import subprocess, sys
import pytest

@pytest.fixture
def server():
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]) as process:
        yield process

@pytest.mark.parametrize("number", range(2))
def test_it_takes_long(server, tmp_path_factory, number):
    open(f"{number}.pid", "w").close()
    server.wait()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere, the kernel tells no child that its parent has ended")
@pytest.mark.parametrize("workers", [0, 2])
def test_nothing_survives_sigterm(workers, tmp_path):
    (tmp_path / "test_long.py").write_text(TEST)
    command = [sys.executable, "-m", "pytest", "-p", "conftest", "-p", "no:cacheprovider", f"-n{workers}", "."]
    environ = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}"}
    with subprocess.Popen(command, cwd=tmp_path, env=environ, start_new_session=True, stdout=subprocess.DEVNULL) as run:
        until(lambda: len([*tmp_path.glob("*.pid")]) == max(workers, 1))
        run.terminate()
    until(lambda: not alive_in_session(run.pid))


def alive_in_session(session):
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has just ended
            state, _, _, member, *_ = path.read_text().rpartition(")")[2].split()
            found += [path] if state != "Z" and int(member) == session else []
    return found


def until(condition):
    end = time.monotonic() + HANGS
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)
