"""Run ``pushsdk`` in this process, or in a separate process if the test is about the process."""

import subprocess
import sys
from typing import NamedTuple

from pushsdk import cli

COMMAND = [sys.executable, "-P", "-m", "pushsdk"]


class CommandResult(NamedTuple):
    """The result of a command."""

    code: int
    out: str
    err: str


def run_here(capsys, *words):
    """Run a command line in this process."""
    capsys.readouterr()
    return CommandResult(cli.main([str(word) for word in words]), *capsys.readouterr())


def run_apart(*words, stdin=None):
    """Run a command line in a separate process without a terminal."""
    result = subprocess.run(
        [*COMMAND, *map(str, words)], input=stdin or "", capture_output=True, text=True, timeout=60, check=False
    )
    return CommandResult(result.returncode, result.stdout, result.stderr)
