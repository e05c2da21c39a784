"""``pushsdk message lint`` and ``pushsdk message preview``: check or show a message without sending it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any

import msgspec
from cyclopts import Parameter
from msgspec import Struct
from rich.console import Console
from rich.text import Text

from pushsdk._core.lint import lint as lint_resource
from pushsdk._core.models import MobilePush
from pushsdk._core.placeholders import TEXTS, render
from pushsdk.cli.exit import Exit, usage_error
from pushsdk.cli.files import read_fields, read_resource
from pushsdk.cli.options import File, JsonLines
from pushsdk.cli.terminal import print_json, say, visible, warn

ResourceFile = Annotated[File, Parameter(help="The JSON file of a message, campaign or push request; - is stdin.")]


class LocalizedMessage(Struct, frozen=True, kw_only=True):
    """A message in one language."""

    language: str
    platforms: str
    title: str = ""
    subtitle: str = ""
    body: str = ""
    image: str = ""
    buttons: Sequence[str] = ()
    opens: str = ""


def previews(message: Mapping[str, Any], fields: Mapping[str, Any]) -> list[LocalizedMessage]:
    """Return the message in each of its languages, as a user with these fields sees it."""
    texts = {name: message.get(name) or {} for name in TEXTS}
    languages = dict.fromkeys(language for translations in texts.values() for language in translations)
    switches = {"iOS": "iosEnabled", "Android": "androidEnabled"}
    platforms = [name for name, switch in switches.items() if message.get(switch)]
    buttons = [button.get("label", "") for button in message.get("androidActionButtons", ())]
    return [
        LocalizedMessage(
            language=language,
            platforms=", ".join(platforms) or "no platform",
            image=message.get("bigImageUrl") or message.get("richMediaUrl") or "",
            buttons=[label for label in buttons if label],
            opens=message.get("iosActionUrl") or message.get("androidActionUrl") or "",
            **{name: render(translations.get(language, ""), fields) for name, translations in texts.items()},
        )
        for language in languages
    ]


def _rows(notification: LocalizedMessage) -> Iterator[tuple[str, str]]:
    """Yield the lines of a notification, each with its style."""
    yield f"[{notification.language}] {notification.platforms}", "cyan"
    texts = ((notification.title, "bold"), (notification.subtitle, ""), (notification.body, ""))
    yield from [(line, style) for text, style in texts for line in text.splitlines()] or [("(no text)", "dim")]
    if notification.image:
        yield f"image: {notification.image}", "dim"
    if notification.buttons:
        yield f"buttons: {', '.join(notification.buttons)}", "bold cyan"
    if notification.opens:
        yield f"opens: {notification.opens}", "dim"


def lint(file: ResourceFile, /, *, json: JsonLines = False) -> int:
    """Check the message or campaign in a file."""
    resource, _ = read_resource(file)
    problems = lint_resource(resource)
    for problem in problems:
        if json:
            print_json(msgspec.structs.asdict(problem))
        else:
            say(f"{problem.path}: {problem.message} ({problem.code})")
    if not problems and not json:
        say("no advice")
    return Exit.INCOMPLETE if problems else Exit.DONE


def preview(file: ResourceFile, /, *, fields: str = "{}", lang: str | None = None, json: JsonLines = False) -> int:
    """Show the message in a file as a user sees it, once in each language.

    Parameters
    ----------
    fields
        Fill the placeholders from '{"first_name": "Ann"}' or @FILE; missing fields get their fallback.
    lang
        Show only this language.
    """
    resource, kind = read_resource(file)
    message = resource if kind is MobilePush else resource.get("message", {})
    notifications = previews(message, read_fields("--fields", fields))
    languages = [notification.language for notification in notifications]
    if lang is not None and lang not in languages:
        raise usage_error(f"{file}: --lang must be a language of the message: {', '.join(languages) or 'none'}")
    if not languages:
        warn("the message has no text: title, subtitle and body name no language")
    notifications = [shown for shown in notifications if lang in (None, shown.language)]
    if json:
        for notification in notifications:
            print_json(msgspec.structs.asdict(notification))
        return Exit.DONE
    console = Console(highlight=False, soft_wrap=True)
    for number, notification in enumerate(notifications):
        rows = [("", "")] * bool(number) + list(_rows(notification))
        for line, style in rows:
            console.print(Text(visible(line), style=style))
    return Exit.DONE
