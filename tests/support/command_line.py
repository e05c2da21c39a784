"""Run ``pushsdk`` in this process, or in a separate process if the test is about the process."""

import sys

from pushsdk import cli
from support.programs import ProgramResult, run_python

COMMAND = [sys.executable, "-P", "-m", "pushsdk"]


def run_here(capsys, *words):
    """Run a command line in this process."""
    capsys.readouterr()
    return ProgramResult(cli.main([str(word) for word in words]), *capsys.readouterr())


def run_apart(*words, **options):
    """Run a command line in a separate process without a terminal."""
    return run_python(*COMMAND[1:], *words, **options)
