"""The entry point of the command line. Imports a command only to run it, and names a missing extra."""

import errno
import inspect
import io
import os
import re
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import is_dataclass, replace
from functools import partial
from itertools import takewhile
from typing import TYPE_CHECKING, Any

from pushsdk.cli.exit import CommandError, Exit, command_error, text_of, usage_error
from pushsdk.cli.terminal import warn

if TYPE_CHECKING:
    from cyclopts import MissingArgumentError, UnknownCommandError, UnknownOptionError, UnusedCliTokensError

__all__ = ["main"]

_EXTRA = frozenset({"cyclopts", "rich"})
# Options that send despite a problem, or without a question, are never a guess.
_UNGUESSED = frozenset({"--force", "--yes"})
# Names that an Api-Key is given by, without dashes.
_KEYS = frozenset({"apikey", "key", "token"})
_SENDING = frozenset({"send", "broadcast", "resume", "campaign"})
_DASH = "\0"  # no argument of a process has it
_SIGPIPE = 141  # the exit code that a shell reports for SIGPIPE


def main(arguments: Sequence[str] | None = None, *, before_command: Callable[[], object] = lambda: None) -> int:
    """Run the command line, by default ``sys.argv``, and return the exit code.

    ``before_command`` is called when the command's modules have been imported.
    """
    words = sys.argv[1:] if arguments is None else list(arguments)
    _prepare_streams()
    warnings.formatwarning = lambda message, *_: f"advice: {text_of(message)}\n"
    return exit_code_of(lambda: _run(words, before_command), words)


def exit_code_of(command: Callable[[], int], words: Sequence[str] = ()) -> int:
    """Return the exit code of the command, which was called with these words. Print the error that ends it."""
    try:
        return command()
    except BaseException as error:  # noqa: BLE001 - those that it does not know it raises
        return _end(error, words)


def _prepare_streams() -> None:
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:  # closed by the caller: the next file opened would get its number
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115 - open until the process ends
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # escape letters that the locale lacks instead of failing
            stream.reconfigure(errors="backslashreplace")


def _run(words: Sequence[str], before_command: Callable[[], object]) -> int:
    command = _command_of(words)
    before_command()
    code = command() or 0
    if inspect.iscoroutine(code):
        import asyncio

        code = asyncio.run(code)
    sys.stdout.flush()
    return int(code)


def _command_of(words: Sequence[str]) -> Callable[[], Any]:
    """Return the command with its arguments. Raises a usage error."""
    from cyclopts import CycloptsError

    from pushsdk.cli.app import app

    end = words.index("--") if "--" in words else len(words)
    # cyclopts takes a lone dash for an option.
    options = [_DASH if word == "-" else word for word in words[:end]]
    try:
        command, bound, _ = app.parse_args([*options, *words[end:]], exit_on_error=False, print_error=False)
    except CycloptsError as error:
        text = _USAGE_TEXTS.get(type(error).__name__, str)(error)
        raise usage_error(text.replace(_DASH, "-")) from None
    if words[:1] == ["send"] and "users" in bound.arguments:  # not --help
        bound.arguments["users"] = _checked_users(bound.arguments["users"], options[1:], words[end + 1 :])
    bound.arguments.update({name: _with_dashes(value) for name, value in bound.arguments.items()})
    return partial(command, *bound.args, **bound.kwargs)


def _with_dashes(value: Any) -> Any:
    """Return an argument as it was typed."""
    if isinstance(value, (list, tuple)):
        return type(value)(map(_with_dashes, value))
    if is_dataclass(value):
        return replace(value, **{name: _with_dashes(each) for name, each in vars(value).items()})  # type: ignore[type-var]
    return type(value)("-") if str(value) == _DASH else value


def _checked_users(users: Sequence[str], options: Sequence[str], last: Sequence[str]) -> Sequence[str]:
    """Return the users with ``@-`` for a lone dash, which is an id only after ``--``.

    Raises a usage error for a user id after an option: it may be the rest of a text, which would get a push.
    """
    first = [*takewhile(lambda word: not word.startswith("-"), options)]
    if len(users) > len(first) + len(last):
        raise usage_error(
            f"send: {_with_dashes(users[len(first)])!r} follows an option: write user ids before the options, or after "
            "--; and a text with spaces in quotation marks"
        )
    return ["@-" if user == _DASH else user for user in users]


def _unexpected_argument(error: "UnusedCliTokensError") -> str:
    unused = _with_dashes((error.unused_tokens or [""])[0])
    return f"{' '.join(error.command_chain or ())}: unexpected argument {unused!r}"


def _missing_argument(error: "MissingArgumentError") -> str:
    argument: Any = error.argument
    if argument.tokens or error.keyword:  # given without a value
        choices = argument.get_choices()
        return f"{error} Choose from: {', '.join(choices)}." if choices else str(error)
    text = f"{' '.join(error.command_chain or ())}: {argument.name} is required. {argument.parameter.help or ''}"
    return text.rstrip(". ")


def _unknown_command(error: "UnknownCommandError") -> str:
    (word, *_) = error.unused_tokens or [""]
    if not word.startswith("-"):
        return str(error)
    name = _name_of(word)
    return _no_key(name) or f"{name}: options follow the command: pushsdk send user-1 --title Hello"


def _unknown_option(error: "UnknownOptionError") -> str:
    """Return a text with the nearest option."""
    name = _name_of(error.token.keyword or error.token.value)
    error.token = error.token.evolve(keyword=name)
    known = error.argument_collection
    error.argument_collection = type(known)(option for option in known if _UNGUESSED.isdisjoint(option.names))
    return _no_key(name) or str(error)


# The texts for some of cyclopts' errors, by class name: cyclopts is imported late.
_USAGE_TEXTS: Mapping[str, Callable[[Any], str]] = {
    "MissingArgumentError": _missing_argument,
    "UnknownCommandError": _unknown_command,
    "UnknownOptionError": _unknown_option,
    "UnusedCliTokensError": _unexpected_argument,
}


def _name_of(option: str) -> str:
    """Return the option without its value, which may be an Api-Key."""
    return re.split("[^a-zA-Z-]", option.replace("_", "-"), maxsplit=1)[0]


def _no_key(name: str) -> str:
    """Return a text if the option is probably the Api-Key's, else ``""``."""
    if name.replace("-", "") not in _KEYS:
        return ""
    return f"{name} is not an option, others can read it: set PUSHSDK_API_KEY or pass --api-key-file"


def _end(error: BaseException, words: Sequence[str]) -> int:
    """Print why a command ended, and return its exit code. Raises an error that is not known."""
    match error:
        case CommandError():
            return _print_error(error)
        case ModuleNotFoundError() if str(error.name).partition(".")[0] in _EXTRA:
            warn(f"pushsdk: the command line needs {error.name} (the extra 'cli'): pip install cyclopts rich")
            return Exit.CANNOT_RUN
        case KeyboardInterrupt():  # while modules load; a command handles signals itself
            return Exit.INTERRUPTED
        case BrokenPipeError() | SystemExit():  # rich exits if the pipe is closed; the commands return their code
            _discard_output()
            return _SIGPIPE
        case OSError(errno=errno.ENOSPC):
            return _end_on_full_disk(words)
        case Warning():
            refused = " Nothing was sent: fix it, or pass --force"
            texts = {"sent": f".{refused}", "fallback": refused, "personalize": f"pass --personalize.{refused}"}
            return _print_error(usage_error(text_of(error, **texts)))
    from pushsdk._core.errors import PushError  # imported late: --help does not need it

    if isinstance(error, PushError):
        return _print_error(command_error(error))
    raise error


def _print_error(error: CommandError) -> int:
    for line in str(error).splitlines():
        warn(f"pushsdk: {line}")
    return error.code


def _end_on_full_disk(words: Sequence[str]) -> int:
    _discard_output()
    warn("pushsdk: can't write the output: the disk is full (a run file keeps its results)")
    return Exit.UNKNOWN if _SENDING.intersection(words[:1]) else Exit.CANNOT_RUN


def _discard_output() -> None:
    """Redirect stdout to the null device, or Python fails once more when it flushes at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
