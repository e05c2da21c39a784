"""How far a broadcast is, on stderr: drawn on a terminal, lines elsewhere, JSON lines where asked."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Literal

from rich import progress as bars
from rich.console import Console
from rich.table import Column

from pushsdk._core.words import count
from pushsdk._runs.progress import Progress
from pushsdk.cli._terminal import print_json, visible, warn

__all__ = ["Mode", "duration", "progress"]

Mode = Literal["auto", "plain", "json", "none"]
Tell = Callable[[Progress], None]

_EVERY = 5.0  # seconds between two plain lines
# What is said at once. The end of a wait is not: it shows in the counts, and may be short.
_NEWS = {("planning", "sending"), ("planning", "waiting"), ("sending", "waiting")}


@contextmanager
def progress(mode: Mode) -> Iterator[Tell]:
    """What ``on_progress`` is to call."""
    console = Console(stderr=True, highlight=False)
    if mode == "auto" and console.is_terminal and not console.is_dumb_terminal:
        columns = (
            bars.TextColumn("{task.description}", style="bold cyan"),
            bars.BarColumn(bar_width=20),
            bars.TextColumn("{task.fields[words]}", markup=False, table_column=Column(ratio=1, overflow="fold")),
        )
        # Redrawn when there is something new: no thread of its own that competes with the sending.
        with bars.Progress(*columns, console=console, auto_refresh=False, transient=True, expand=True) as drawn:
            bar = drawn.add_task("", words="")
            yield lambda told: drawn.update(
                bar,
                description=told.stage,
                total=None if told.stage == "planning" else told.planned,
                completed=_done(told),
                words=_in_words(told),
                refresh=True,
            )
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
            warn(f"{told.stage}: {_in_words(told)}")
        stage = told.stage

    return tell


def _in_words(told: Progress) -> str:
    if told.stage == "planning":
        return count(told.planned)
    parts = [f"{_done(told):,} of {count(told.planned)}", f"{told.accepted:,} accepted"]
    parts += [f"{number:,} {name}" for name in ("rejected", "unknown") if (number := getattr(told, name))]
    if told.rate:
        parts.append(f"{told.rate:,.0f}/s")
    if told.eta is not None and told.not_sent + told.in_flight:
        parts.append(f"{duration(told.eta)} left")
    if told.paused:
        parts.append(f"throttled for {duration(told.paused)}")
    if told.stage == "waiting" and told.trouble:
        parts.append(visible(told.trouble))
    return ", ".join(parts)


def _done(told: Progress) -> int:
    return told.planned - told.not_sent - told.in_flight


def duration(seconds: float) -> str:
    """As ``0:05``, ``12:34`` or ``1:02:03``."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
