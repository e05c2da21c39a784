"""Command exit codes and errors. Every command loads this module, so it imports nothing large."""

from enum import IntEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pushsdk._core.errors import PushError

# How error texts name options, with the keys of ``errors.LIBRARY``.
SHELL = {
    "timeout": "--timeout",
    "attempt_timeout": "--attempt-timeout",
    "rate": "--rate",
    "in_flight": "--in-flight",
    "cafile": "set SSL_CERT_FILE to a file with its certificate",
    "proxy": "--proxy",
    "emulator": "pushsdk emulator, and pass --profile emulator",
    "lint": "pushsdk message lint",
    "outcomes": "",
    "primary_key": "--primary-key ",
    "query": "--query",
    "sent": ". Such ids are used as they are",
    "fallback": " It is sent with the fallback",
    "earlier_run": "; to exclude an earlier run: --exclude RUN",
    "dedupe": "leave out --no-dedupe",
    "personalize": "pass --personalize",
    "only_users": "--only-users",
    "resume": "pushsdk resume",
    "new_run": "--run daily-{date}.run",
}


class Exit(IntEnum):
    """A command's exit code."""

    DONE = 0
    """All users were accepted, or the command did its work."""
    INCOMPLETE = 1
    """Some users were rejected or not sent, or a check found problems."""
    USAGE = 2
    """The command line, or a file named on it, is wrong, or there are no users. Nothing was sent."""
    UNKNOWN = 3
    """Some users may have been pushed: their outcome is unknown, or could not be printed."""
    CANNOT_RUN = 4
    """The Api-Key was refused, or a requirement is missing: a setting, an extra, a port."""
    STOPPED = 5
    """The stop policy stopped the run."""
    IN_USE = 6
    """Another command or program uses the run. Nothing was sent."""
    INTERRUPTED = 130
    """A signal interrupted the command."""


class CommandError(Exception):
    """Ends the command: the text goes to stderr, ``code`` is the exit code."""

    def __init__(self, text: str, code: Exit) -> None:
        super().__init__(text)
        self.code = code


def text_of(error: Exception, **others: str) -> str:
    """Return a package error's or warning's text, with command line options, or ``others``."""
    from pushsdk._core.errors import Wording  # imported late: --help does not need it

    text = error.args[0] if error.args else ""
    return text.render({**SHELL, **others}).rstrip() if isinstance(text, Wording) else str(error)


def usage_error(text: str) -> CommandError:
    """Return an error in the command line, or in a file named on it."""
    return CommandError(text, Exit.USAGE)


def command_error(error: "PushError") -> CommandError:
    """Return a CommandError with a package error's text."""
    # Imported late: --help needs neither.
    from pushsdk._core import errors
    from pushsdk._core.outcome import Outcome

    # A campaign without a readable uuid may exist, so creating it again may double it.
    unknown = error.outcome is Outcome.UNKNOWN or isinstance(error, errors.UnexpectedResponseError)
    rules = (
        (isinstance(error, errors.RunInUseError), Exit.IN_USE),
        # A run file that fails while requests are in flight leaves their users UNKNOWN: no usage error then.
        (not unknown and isinstance(error, (errors.ValidationError, errors.RunFileError)), Exit.USAGE),
        (isinstance(error, (errors.AuthenticationError, errors.ConfigurationError)), Exit.CANNOT_RUN),
        (unknown, Exit.UNKNOWN),
    )
    return CommandError(text_of(error), next((code for applies, code in rules if applies), Exit.INCOMPLETE))
