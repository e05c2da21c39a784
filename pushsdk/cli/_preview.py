"""How a message looks to a person: its texts with the placeholders filled, per language, drawn or as lines."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct
from rich import box
from rich.columns import Columns
from rich.console import Console, Group
from rich.panel import Panel
from rich.text import Text

from pushsdk._core.placeholders import render
from pushsdk.cli._terminal import visible

__all__ = ["Shown", "draw", "lines", "shown"]

_WIDTH = 46  # of a notification: about what a phone shows
_TEXTS = ("title", "subtitle", "body")


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
    """The message in each of its languages, as a user with these fields sees it."""
    texts = {name: message.get(name) or {} for name in _TEXTS}
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


def draw(notifications: Sequence[Shown], console: Console) -> None:
    """As boxes, beside each other where they fit."""
    console.print(Columns([_panel(each) for each in notifications], padding=(0, 1)))


def _panel(each: Shown) -> Panel:
    return Panel(
        Group(*(Text(visible(line), style=style) for line, style in _rows(each))),
        title=Text(visible(each.language), style="bold"),
        title_align="left",
        subtitle=Text(each.platforms, style="dim"),
        subtitle_align="right",
        box=box.ROUNDED,
        border_style="cyan",
        padding=(0, 1),
        width=_WIDTH,
    )


def lines(notifications: Sequence[Shown]) -> Iterator[str]:
    """As lines of text."""
    for number, each in enumerate(notifications):
        if number:
            yield ""
        yield f"[{each.language}] {each.platforms}"
        yield from (line for line, _ in _rows(each))


def _rows(each: Shown) -> Iterator[tuple[str, str]]:
    """The lines, each with its style."""
    texts = ((each.title, "bold"), (each.subtitle, ""), (each.body, ""))
    yield from [(line, style) for text, style in texts for line in text.splitlines()] or [("(no text)", "dim")]
    if each.image:
        yield f"image: {each.image}", "dim"
    if each.buttons:
        yield f"buttons: {', '.join(each.buttons)}", "bold cyan"
    if each.opens:
        yield f"opens: {each.opens}", "dim"
