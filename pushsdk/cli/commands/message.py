"""``pushsdk message`` and ``pushsdk openapi``: check or show a message, or show the interface; nothing is sent."""

import itertools
from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Any

import msgspec
from cyclopts import Parameter
from rich.console import Console
from rich.text import Text

from pushsdk._core.lint import lint as lint_resource
from pushsdk._core.models import MobilePush
from pushsdk._core.openapi import service_document
from pushsdk._core.placeholders import TEXTS, render
from pushsdk.cli.exit import Exit, usage_error
from pushsdk.cli.files import problem_text, read_object, read_resource
from pushsdk.cli.options import JsonLines
from pushsdk.cli.terminal import print_json, say, visible, warn

ResourceFile = Annotated[str, Parameter(help="The JSON file of a message, campaign or push request; - is stdin.")]


def previews(message: Mapping[str, Any], fields: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the message in each of its languages, as a user with these fields sees it."""
    texts = {name: message.get(name) or {} for name in TEXTS}
    others = {name: value for name, value in message.items() if name not in TEXTS}
    shown = []
    for language in dict.fromkeys(itertools.chain(*texts.values())):
        rendered = {name: render(translations.get(language, ""), fields) for name, translations in texts.items()}
        shown.append({"language": language, **rendered, **others})
    return shown


def _rows(shown: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield a notification's lines, each with its style."""
    switches = {"iosEnabled": "iOS", "androidEnabled": "Android"}
    platforms = ", ".join(platform for name, platform in switches.items() if shown.get(name)) or "no platform"
    yield f"[{shown['language']}] {platforms}", "cyan"
    texts = ((shown["title"], "bold"), (shown["subtitle"], ""), (shown["body"], ""))
    yield from [(line, style) for text, style in texts for line in text.splitlines()] or [("(no text)", "dim")]
    for name in sorted(shown.keys() - {"language", "type", *TEXTS, *switches}):
        yield f"{name}: {msgspec.json.encode(shown[name]).decode()}", "dim"


def lint(file: ResourceFile, /, *, json: JsonLines = False) -> int:
    _, resource, _ = read_resource(file)
    problems = lint_resource(resource)
    for problem in problems:
        if json:
            print_json(problem)
        else:
            say(problem_text(problem))
    if not problems and not json:
        say("no advice")
    return Exit.INCOMPLETE if problems else Exit.DONE


def preview(file: ResourceFile, /, *, fields: str = "{}", lang: str | None = None, json: JsonLines = False) -> int:
    """Show the message in a file as a user sees it, once in each language.

    Args:
        fields: Fill the placeholders from '{"first_name": "Ann"}' or @FILE; missing fields get their fallback.
        lang: Show only this language.
    """
    name, resource, kind = read_resource(file)
    message = resource if kind is MobilePush else resource.get("message", {})
    notifications = {shown["language"]: shown for shown in previews(message, read_object("--fields", fields))}
    if lang is not None:
        if lang not in notifications:
            raise usage_error(f"{name}: --lang must be a language of the message: {', '.join(notifications) or 'none'}")
        notifications = {lang: notifications[lang]}
    if not notifications:
        warn("the message has no text: title, subtitle and body name no language")
    if json:
        for notification in notifications.values():
            print_json(notification)
    else:
        draw(notifications.values())
    return Exit.DONE


def draw(notifications: Iterable[Mapping[str, Any]]) -> None:
    """Print ``previews``."""
    console = Console(highlight=False, soft_wrap=True)
    for number, notification in enumerate(notifications):
        if number:
            console.print()
        for line, style in _rows(notification):
            console.print(Text(visible(line), style=style))


def openapi(*, base_url: str = "https://push.example/external/api") -> int:
    """Print the service's two operations as an OpenAPI document, for generators and gateways.

    Args:
        base_url: Name this address in the document.
    """
    print_json(service_document(base_url))
    return Exit.DONE
