"""``pushsdk message lint`` and ``pushsdk message preview``: a message is looked at, and nothing is sent."""

from __future__ import annotations

import msgspec
from rich.console import Console

from pushsdk._core.lint import lint as problems_of
from pushsdk.cli._exit import Exit, usage
from pushsdk.cli._files import message_in, read_fields, read_resource
from pushsdk.cli._options import File, Flag
from pushsdk.cli._preview import draw, lines, shown
from pushsdk.cli._terminal import print_json, say, warn

__all__ = ["lint", "preview"]


def lint(file: File, /, *, json: Flag = False) -> int:
    """Check the message or campaign in a file, and advise.

    Parameters
    ----------
    file
        A JSON file that holds a message, a campaign or a push request; - is standard input.
    json
        Print one JSON object per line: path, code, message.
    """
    told, _ = read_resource(file)
    found = problems_of(told)
    for problem in found:
        if json:
            print_json(msgspec.structs.asdict(problem))
        else:
            say(f"{problem.path}: {problem.message} ({problem.code})")
    if not found and not json:
        say("nothing to advise")
    return Exit.INCOMPLETE if found else Exit.DONE


def preview(file: File, /, *, fields: str = "{}", lang: str | None = None, json: Flag = False) -> int:
    """Show the message in a file as a person would see it, once in each language.

    Parameters
    ----------
    file
        A JSON file that holds a message, a campaign or a push request; - is standard input.
    fields
        What is known of the person, as '{"first_name": "Ann"}' or @FILE; what is missing gets its fallback.
    lang
        Only this language.
    json
        Print one JSON object per language.
    """
    told, kind = read_resource(file)
    notifications = shown(message_in(told, kind), read_fields("--fields", fields))
    languages = [each.language for each in notifications]
    if lang is not None and lang not in languages:
        raise usage(f"{file}: there is no text in that language; there is {', '.join(languages) or 'none'}")
    if not languages:
        warn("the message has no text: title, subtitle and body name no language")
    notifications = [each for each in notifications if lang in (None, each.language)]
    console = Console(highlight=False)
    if json:
        for each in notifications:
            print_json(msgspec.structs.asdict(each))
    elif console.is_terminal:
        draw(notifications, console)
    else:
        for line in lines(notifications):
            say(line)
    return Exit.DONE
