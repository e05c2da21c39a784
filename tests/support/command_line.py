"""Run ``pushsdk`` in this process, or in a separate process if the test is about the process.

A command line is words, the first of which are split as by a shell: ``"send ann --title", text``.
"""

import shlex
import subprocess
import sys

from pushsdk import cli
from support.programs import ProgramResult, run_python

COMMAND = [sys.executable, "-P", "-m", "pushsdk"]


def split(line="", *words):
    return [*shlex.split(line), *map(str, words)]


def run_here(capsys, *words):
    """Run a command line in this process."""
    capsys.readouterr()
    return ProgramResult(cli.main(split(*words)), *capsys.readouterr())


def run_apart(*words, **options):
    """Run a command line in a separate process without a terminal."""
    return run_python(*COMMAND[1:], *split(*words), **options)


def started(*words, **options):
    """Start a command line in a separate process, by default with pipes for its output."""
    streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen([*COMMAND, *split(*words)], **streams | options)
