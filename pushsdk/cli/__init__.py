"""The entry point of the command line. Imports a command only to run it, and names a missing extra."""

import errno
import inspect
import io
import itertools
import os
import re
import sys
import warnings
from collections.abc import Callable, Sequence

from pushsdk._core.words import near_word
from pushsdk.cli.exit import CommandError, Exit, command_error, for_shell, usage_error
from pushsdk.cli.terminal import warn

__all__ = ["main"]

_EXTRA = frozenset({"cyclopts", "duckdb", "rich"})
_TYPOGRAPHIC = frozenset("\u2013\u2014\u2018\u2019\u201c\u201d\u201e")  # dashes and quotation marks
_FLAGS = frozenset({"--yes", "--json", "--force", "--dry-run"})
_SIGPIPE = 141  # the exit code that a shell reports for SIGPIPE


def main(arguments: Sequence[str] | None = None, *, before_command: Callable[[], object] = lambda: None) -> int:
    """Run the command line, by default that of this process, and return the exit code.

    ``before_command`` is called when the command's modules have been imported.
    """
    words = sys.argv[1:] if arguments is None else list(arguments)
    warnings.formatwarning = lambda message, *_: f"advice: {for_shell(str(message))}\n"
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:  # closed by the caller: the next file opened would get its number
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115 - open until the process ends
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # escape letters that the locale lacks instead of failing
            stream.reconfigure(errors="backslashreplace")
    try:
        from cyclopts import CycloptsError, UnusedCliTokensError

        from pushsdk.cli.app import app

        words = _checked(words)
        try:
            command, bound, _ = app.parse_args(words, exit_on_error=False, print_error=False)
            before_command()
            code = command(*bound.args, **bound.kwargs) or 0
            if inspect.iscoroutine(code):
                import asyncio

                code = asyncio.run(code)
        except UnusedCliTokensError as error:
            unused = (error.unused_tokens or [""])[0]
            raise usage_error(f"{' '.join(error.command_chain or ())}: unexpected argument {unused!r}") from None
        except CycloptsError as error:
            advice = " Write -- before the command to run." if words[:2] == ["emulator", "exec"] else ""
            raise usage_error(f"{_without_far_hint(str(error))}{advice}") from None
        except Exception as error:
            if (known := command_error(error)) is None:
                raise
            raise known from None
        sys.stdout.flush()
    except CommandError as error:
        for line in for_shell(str(error)).splitlines():
            warn(f"pushsdk: {line}")
        return error.code
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in _EXTRA:
            raise
        warn(f"pushsdk: the command line needs {error.name} (the extra 'cli'): pip install cyclopts duckdb rich")
        return Exit.CANNOT_RUN
    except KeyboardInterrupt:  # while modules load; a running command handles signals itself
        return Exit.INTERRUPTED
    except BrokenPipeError:
        _discard_output()
        return _SIGPIPE
    except SystemExit:  # rich exits if the pipe is closed; the commands return their code
        return _SIGPIPE
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        _discard_output()
        warn("pushsdk: can't write the output: the disk is full (a run file keeps its results)")
        return Exit.UNKNOWN if words[:1] in (["send"], ["broadcast"], ["resume"], ["campaign"]) else Exit.CANNOT_RUN
    return code


def _without_far_hint(text: str) -> str:
    """Return the error without the option that it suggests, if that is not nearly the one that was given."""
    hint = re.search(r"Unknown option: (--[\w-]+)\.( Did you mean (--[\w-]+)\?)", text)
    # An option that sends despite a problem, or without a question, is never a guess.
    near = hint and hint[3] not in ("--force", "--yes") and near_word(hint[1], [hint[3]], 0.7)
    return text if hint is None or near else text.replace(hint[2], "")


def _discard_output() -> None:
    """Redirect stdout to the null device, or Python fails once more when it flushes at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _checked(words: Sequence[str]) -> list[str]:
    """Return the words with ``@-`` for a lone dash before ``--``, which cyclopts would take for an option.

    Raises a usage error for an Api-Key, without its value, for a typographic dash or quotation mark, and for a word
    that is left of a text without quotation marks.
    """
    options = list(itertools.takewhile(lambda word: word != "--", words))
    for previous, word, following in zip(["", *options], options, [*options[1:], "-"], strict=False):
        if previous in ("--title", "--body") and re.fullmatch("--[a-z][a-z-]+", word):
            raise usage_error(f"{previous} has no text before {word}: is a variable of the shell not set?")
        if previous in _FLAGS and word.lower() in ("yes", "no", "true", "false", "on", "off"):
            raise usage_error(f"{word} follows {previous}, which takes no value: put all users before the options")
        if not word and previous[:2] == "--" and previous not in ("--title", "--body"):
            raise usage_error(f"{previous} is empty: is a variable of the shell not set?")
        if word[:1] in _TYPOGRAPHIC and previous[:1] != "-":
            raise usage_error(f'{word} begins with a dash or quotation mark of a text processor: type - or " instead')
        # After a text, where users stand before the options: there is no user World in `send ann --title Hello World`.
        if previous in ("--title", "--body") and options[1][:1] != "-" and following[:1] != "-":
            raise usage_error(
                f"{following} follows the text of {previous}: put a text with spaces in quotation marks, and all users "
                "before the options"
            )
    if words[:1] == ["send"] and (
        after := [word for word in words[len(options) :] if re.fullmatch("--(title|body|lang|message)", word)]
    ):
        raise usage_error(f"{after[0]} stands after --, where all words are users: write options before it")
    if options.count("-") > 1:
        raise usage_error("standard input can't be both the users and the message: read one of them from a file")
    if any(word.partition("=")[0] == "--api-key" for word in options):
        raise usage_error("--api-key is not an option, others can read it: set PUSHSDK_API_KEY or pass --api-key-file")
    return ["@-" if word == "-" else word for word in options] + list(words[len(options) :])
