"""Small programs that tests run in a process of their own, with the package under test and its warnings on."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import NamedTuple

import pushsdk
from support.service_thread import HANGS

__all__ = ["Ended", "run_program"]


class Ended(NamedTuple):
    """How a program ended, and what it wrote."""

    code: int
    out: str
    err: str


def run_program(text: str, *arguments: str, options: tuple[str, ...] = ("-W", "default")) -> Ended:
    """Run it to its end; a program that hangs fails the test."""
    process = subprocess.run(
        [sys.executable, *options, "-c", textwrap.dedent(text), *arguments],
        capture_output=True,
        text=True,
        timeout=HANGS,
        env={**os.environ, "PYTHONPATH": str(Path(pushsdk.__file__).parents[1])},
    )
    return Ended(process.returncode, process.stdout, process.stderr)
