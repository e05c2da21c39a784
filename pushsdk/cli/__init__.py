"""The way in to the command line: nothing is imported before it is needed, and a missing extra is said plainly."""

from __future__ import annotations

import errno
import io
import itertools
import os
import sys
from collections.abc import Sequence

from pushsdk.cli.exit import CommandError, Exit, ends_plainly, in_shell, usage
from pushsdk.cli.terminal import warn

__all__ = ["main"]

_EXTRA = frozenset({"cyclopts", "duckdb", "rich"})
_SIGPIPE = 141  # as a shell shows what a closed pipe ended


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line of this process and return its exit code; a usage error exits with 2."""
    words = sys.argv[1:] if arguments is None else list(arguments)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # rather an escape than a traceback, where the locale lacks a letter
            stream.reconfigure(errors="backslashreplace")
    try:
        from cyclopts import CycloptsError

        from pushsdk.cli.app import app

        _refuse_key(words)
        try:
            with ends_plainly():
                code: int = app(
                    words, result_action="return_int_as_exit_code_else_zero", exit_on_error=False, print_error=False
                )
        except CycloptsError as error:
            raise usage(str(error)) from None
        sys.stdout.flush()
    except CommandError as error:
        warn(f"pushsdk: {in_shell(str(error))}")
        return error.code
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in _EXTRA:
            raise
        warn(f"The command line needs {error.name}: pip install 'pushsdk[cli]'")
        return Exit.CANNOT_RUN
    except BrokenPipeError:
        # Whoever read our output has enough, as `head` does. Python would complain once more when it flushes.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _SIGPIPE
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        # Of what a run came to its file tells: only the telling failed here.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        warn("pushsdk: the output can't be written: its disk is full")
        return Exit.CANNOT_RUN
    return code


def _refuse_key(words: Sequence[str]) -> None:
    """No key as an argument: every process may read those, and shells keep them. Nor is it quoted in an error."""
    options = itertools.takewhile(lambda word: word != "--", words)
    if any(word.partition("=")[0] == "--api-key" for word in options):
        raise usage("a key is no argument, others can read those: set PUSHSDK_API_KEY, or give --api-key-file")
