"""Programs that tests run in a process of their own, with the package under test."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import NamedTuple

import pushsdk

ROOT = Path(pushsdk.__file__).parents[1]
# Seconds after which a program is taken to hang.
HANGS = 300


def address_of(service):
    """Return the environment variables by which programs find the service."""
    return {"PUSHSDK_BASE_URL": service.base_url, "PUSHSDK_API_KEY": service.api_key}


class ProgramResult(NamedTuple):
    """The exit code and the output of a program."""

    code: int
    out: str
    err: str


def run_python(*words, stdin="", cwd=None, **environ):
    """Run Python with these arguments to its end; a program that hangs fails the test. A variable of None is unset."""
    environ = {**os.environ, **environ}
    ended = subprocess.run(
        [sys.executable, *map(str, words)],
        input=stdin,
        cwd=cwd,
        env={name: str(value) for name, value in environ.items() if value is not None},
        capture_output=True,
        text=True,
        timeout=HANGS,
    )
    return ProgramResult(ended.returncode, ended.stdout, ended.stderr)


def run_program(text, *arguments, options=("-W", "default"), measured=True):
    """Run a small program with its warnings on.

    One that forks while threads write to SQLite is not to be ``measured``: coverage has locks, and an SQLite, of its
    own, and in a child that was forked at the wrong moment it waits for them without an end.
    """
    environ = {} if measured else {"COVERAGE_PROCESS_CONFIG": None}
    return run_python(*options, "-c", textwrap.dedent(text), *arguments, **environ)


def run_pytest(folder, *words, plugins=(), **environ):
    """Run the tests of a folder, as if the package were installed, with these plugins beside the package's."""
    environ |= {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": 1, "PYTEST_PLUGINS": ",".join(["pushsdk.testing.plugin", *plugins])}
    options = "-p", "no:cacheprovider", "--rootdir", folder
    return run_python("-m", "pytest", *options, *words, cwd=folder, COLUMNS=80, **environ)
