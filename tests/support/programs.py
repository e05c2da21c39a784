"""Small programs that tests run in a process of their own, with the package under test and its warnings on."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import NamedTuple

import pushsdk
from support.service_thread import HANGS


class ProgramResult(NamedTuple):
    """The exit code and the output of a program."""

    code: int
    out: str
    err: str


def run_program(text, *arguments, options=("-W", "default"), measured=True):
    """Run it to its end; a program that hangs fails the test.

    One that forks while threads write to SQLite is not to be ``measured``: coverage has locks, and an SQLite, of its
    own, and in a child that was forked at the wrong moment it waits for them without an end.
    """
    environ = {**os.environ, "PYTHONPATH": str(Path(pushsdk.__file__).parents[1])}
    if not measured:
        environ.pop("COVERAGE_PROCESS_CONFIG", None)
    process = subprocess.run(
        [sys.executable, *options, "-c", textwrap.dedent(text), *arguments],
        capture_output=True,
        text=True,
        timeout=HANGS,
        env=environ,
    )
    return ProgramResult(process.returncode, process.stdout, process.stderr)
