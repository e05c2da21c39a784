"""Run ``pushsdk`` in this process, or in a separate process if the test is about the process."""

from __future__ import annotations

import subprocess
import sys
from typing import NamedTuple

import pytest

from pushsdk import cli

COMMAND = [sys.executable, "-P", "-m", "pushsdk.cli"]


class Ended(NamedTuple):
    """The result of a command."""

    code: int
    out: str
    err: str


def run_here(capsys: pytest.CaptureFixture[str], *words: object) -> Ended:
    """Run a command line in this process."""
    capsys.readouterr()
    return Ended(cli.main([str(word) for word in words]), *capsys.readouterr())


def run_apart(*words: object, stdin: str | None = None) -> Ended:
    """Run a command line in a separate process without a terminal."""
    ended = subprocess.run(
        [*COMMAND, *map(str, words)], input=stdin or "", capture_output=True, text=True, timeout=60, check=False
    )
    return Ended(ended.returncode, ended.stdout, ended.stderr)
