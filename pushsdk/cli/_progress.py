"""How far a broadcast is, on stderr: drawn on a terminal, lines elsewhere, JSON lines where asked."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Literal

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from pushsdk._broadcast.report import Progress
from pushsdk._core.words import count
from pushsdk.cli._terminal import print_json, visible, warn

__all__ = ["Mode", "duration", "progress"]

Mode = Literal["auto", "plain", "json", "none"]
Tell = Callable[[Progress], None]

_EVERY = 5.0  # seconds between two plain lines
# What is said at once. The end of a wait is not: it shows in the counts, and may be short.
_NEWS = {("planning", "sending"), ("planning", "waiting"), ("sending", "waiting")}
_COLOURS = {"accepted": "green", "rejected": "red", "unknown": "yellow"}


@contextmanager
def progress(mode: Mode) -> Iterator[Tell]:
    """What ``on_progress`` is to call."""
    console = Console(stderr=True, highlight=False)
    if mode == "auto" and console.is_terminal and not console.is_dumb_terminal:
        # Redrawn when there is something new: no thread of its own that competes with the sending.
        with Live(console=console, auto_refresh=False, transient=True) as live:
            yield lambda told: live.update(_drawn(told), refresh=True)
    elif mode == "json":
        yield lambda told: print_json(told, sys.stderr)
    elif mode == "none":
        yield lambda told: None
    else:
        yield _in_lines(time.monotonic)


def _in_lines(clock: Callable[[], float]) -> Tell:
    due, stage = -math.inf, ""

    def tell(told: Progress) -> None:
        nonlocal due, stage
        at_the_end = told.stage == "sending" and _done(told) == told.planned
        if clock() >= due or (stage, told.stage) in _NEWS or at_the_end:
            due = clock() + _EVERY
            warn(_in_words(told))
        stage = told.stage

    return tell


def _in_words(told: Progress) -> str:
    if told.stage == "planning":
        return f"planning: {count(told.planned)}"
    parts = [f"{told.stage}: {_done(told):,} of {count(told.planned)}", *_counts(told), *_speed(told)]
    return ", ".join(parts)


def _done(told: Progress) -> int:
    return told.planned - told.not_sent - told.in_flight


def _counts(told: Progress) -> list[str]:
    """Accepted always, the others where there are any."""
    return [f"{count:,} {name}" for name in _COLOURS if (count := getattr(told, name)) or name == "accepted"]


def _speed(told: Progress) -> list[str]:
    parts = []
    if told.rate:
        parts.append(f"{told.rate:,.0f}/s")
    if told.eta is not None and told.not_sent + told.in_flight:
        parts.append(f"{duration(told.eta)} left")
    if told.paused:
        parts.append(f"throttled for {duration(told.paused)}")
    if told.stage == "waiting" and told.trouble:
        parts.append(visible(told.trouble))
    return parts


def duration(seconds: float) -> str:
    """As ``0:05``, ``12:34`` or ``1:02:03``."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


# -- on a terminal --------------------------------------------------------------------------------------------------


def _drawn(told: Progress) -> RenderableType:
    if told.stage == "planning":
        return Text.assemble(("planning  ", "bold cyan"), f"{count(told.planned)} so far, ", duration(told.seconds))
    share = _done(told) / told.planned if told.planned else 1.0
    first = Table.grid(padding=(0, 1), expand=True)
    first.add_column(no_wrap=True)
    first.add_column(ratio=1)
    first.add_column(no_wrap=True, justify="right")
    first.add_row(
        Text(told.stage, style="bold yellow" if told.stage == "waiting" else "bold cyan"),
        ProgressBar(total=1.0, completed=share, complete_style="cyan", finished_style="green"),
        f"{int(share * 100):>3} %  {_done(told):,} of {told.planned:,}",
    )
    second = Text("  ").join([*(Text(text, style=_colour(text)) for text in _counts(told)), *map(Text, _speed(told))])
    return Group(first, second)


def _colour(text: str) -> str:
    return _COLOURS[text.rpartition(" ")[2]]
