"""How a command ends: the exit codes, and which of them holds. Loads nothing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntEnum

__all__ = ["CommandError", "Exit", "code_of", "ends_plainly", "in_shell", "usage"]

# What the package's errors advise a program to do, and what that is on a command line.
_SPELLINGS = (
    ("primary_key=", "--primary-key "),
    ("set allow_insecure", "give --allow-insecure"),
    (" (Batching.max_users): send them in parts, or as a broadcast", ": send them by pushsdk broadcast"),
    ("; see .outcomes", ""),
)


class Exit(IntEnum):
    """The exit codes, all of them."""

    DONE = 0
    """All users accepted; or the command did what it was asked."""
    INCOMPLETE = 1
    """Some were rejected or never sent; or something was found wrong, where finding it is the point."""
    USAGE = 2
    """The command line, or a file named on it, can't be used. Nothing was sent."""
    UNKNOWN = 3
    """Of some nobody knows: they may have been pushed."""
    CANNOT_RUN = 4
    """The key was refused, or what the command needs is not there: a setting, an extra, a port."""
    STOPPED = 5
    """The stop_policy stopped it."""
    INTERRUPTED = 130
    """By Ctrl-C."""


def code_of(
    *, interrupted: bool = False, refused: bool = False, stopped: bool = False, unknown: int = 0, missing: int = 0
) -> Exit:
    """The first that holds; ``missing`` counts the users that were rejected or never sent."""
    rules = (
        (interrupted, Exit.INTERRUPTED),
        (refused, Exit.CANNOT_RUN),
        (stopped, Exit.STOPPED),
        (unknown, Exit.UNKNOWN),
        (missing, Exit.INCOMPLETE),
    )
    return next((code for holds, code in rules if holds), Exit.DONE)


class CommandError(Exception):
    """Ends the command: the text goes to stderr, ``code`` is the exit code."""

    def __init__(self, text: str, code: Exit) -> None:
        super().__init__(text)
        self.code = code


def in_shell(text: str) -> str:
    """Return an error's text with its advice spelled for a command line."""
    for program, shell in _SPELLINGS:
        text = text.replace(program, shell)
    return text.rstrip()


def usage(text: str) -> CommandError:
    """What is wrong with the command line or a file named on it."""
    return CommandError(text, Exit.USAGE)


@contextmanager
def ends_plainly() -> Iterator[None]:
    """Have an error of the package end the command with its text and its exit code, without a traceback."""
    try:
        yield
    except Exception as error:
        # Not before: help needs none of this.
        from pushsdk._core import errors
        from pushsdk._core.outcome import Outcome

        if not isinstance(error, errors.PushError):
            raise
        refused = isinstance(error, (errors.AuthenticationError, errors.ConfigurationError))
        # A campaign without a readable uuid is as good as unknown: nobody should create it again unseen.
        unknown = error.outcome is Outcome.UNKNOWN or isinstance(error, errors.UnexpectedResponseError)
        code = code_of(refused=refused, unknown=unknown, missing=1)
        # A run file is unfit from the start, or while it was written: then what was on its way is unknown.
        if not unknown and isinstance(error, (errors.ValidationError, errors.RunFileError)):
            code = Exit.USAGE
        raise CommandError(str(error), code) from None
