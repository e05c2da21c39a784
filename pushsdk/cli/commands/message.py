"""``pushsdk message lint`` and ``pushsdk message preview``: a message is looked at, and nothing is sent."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct
from rich.console import Console
from rich.text import Text

from pushsdk._core.lint import lint as problems_of
from pushsdk._core.models import MobilePush
from pushsdk._core.placeholders import TEXTS, render
from pushsdk.cli.exit import Exit, usage
from pushsdk.cli.files import read_fields, read_resource
from pushsdk.cli.options import File, Flag
from pushsdk.cli.terminal import print_json, say, visible, warn

__all__ = ["lint", "preview"]


class Shown(Struct, frozen=True, kw_only=True):
    """A message in one language."""

    language: str
    platforms: str
    title: str = ""
    subtitle: str = ""
    body: str = ""
    image: str = ""
    buttons: Sequence[str] = ()
    opens: str = ""


def shown(message: Mapping[str, Any], fields: Mapping[str, Any]) -> list[Shown]:
    """Return the message in each of its languages, as a user with these fields sees it."""
    texts = {name: message.get(name) or {} for name in TEXTS}
    languages = dict.fromkeys(language for each in texts.values() for language in each)
    buttons = [button.get("label", "") for button in message.get("androidActionButtons", ())]
    return [
        Shown(
            language=language,
            platforms=_platforms(message),
            image=message.get("bigImageUrl") or message.get("richMediaUrl") or "",
            buttons=[label for label in buttons if label],
            opens=message.get("iosActionUrl") or message.get("androidActionUrl") or "",
            **{name: render(each.get(language, ""), fields) for name, each in texts.items()},
        )
        for language in languages
    ]


def _platforms(message: Mapping[str, Any]) -> str:
    switches = {"iOS": "iosEnabled", "Android": "androidEnabled"}
    return ", ".join(name for name, switch in switches.items() if message.get(switch)) or "no platform"


def _rows(each: Shown) -> Iterator[tuple[str, str]]:
    """Yield the lines of a notification, each with its style."""
    yield f"[{each.language}] {each.platforms}", "cyan"
    texts = ((each.title, "bold"), (each.subtitle, ""), (each.body, ""))
    yield from [(line, style) for text, style in texts for line in text.splitlines()] or [("(no text)", "dim")]
    if each.image:
        yield f"image: {each.image}", "dim"
    if each.buttons:
        yield f"buttons: {', '.join(each.buttons)}", "bold cyan"
    if each.opens:
        yield f"opens: {each.opens}", "dim"


def lint(file: File, /, *, json: Flag = False) -> int:
    """Check the message or campaign in a file, and advise.

    Parameters
    ----------
    file
        A JSON file that holds a message, a campaign or a push request; - is standard input.
    json
        Print one JSON object per line: path, code, message.
    """
    resource, _ = read_resource(file)
    problems = problems_of(resource)
    for problem in problems:
        if json:
            print_json(msgspec.structs.asdict(problem))
        else:
            say(f"{problem.path}: {problem.message} ({problem.code})")
    if not problems and not json:
        say("nothing to advise")
    return Exit.INCOMPLETE if problems else Exit.DONE


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
    resource, kind = read_resource(file)
    message = resource if kind is MobilePush else resource.get("message", {})
    notifications = shown(message, read_fields("--fields", fields))
    languages = [each.language for each in notifications]
    if lang is not None and lang not in languages:
        raise usage(f"{file}: there is no text in that language; there is {', '.join(languages) or 'none'}")
    if not languages:
        warn("the message has no text: title, subtitle and body name no language")
    notifications = [each for each in notifications if lang in (None, each.language)]
    if json:
        for each in notifications:
            print_json(msgspec.structs.asdict(each))
        return Exit.DONE
    console = Console(highlight=False, soft_wrap=True)
    for number, each in enumerate(notifications):
        rows = [("", "")] * bool(number) + list(_rows(each))
        for line, style in rows:
            console.print(Text(visible(line), style=style))
    return Exit.DONE
