"""Output drawn by rich: run progress on stderr, and figures in columns on stdout."""

import math
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Literal

from rich import progress as bars
from rich.console import Console, Group
from rich.live import Live
from rich.table import Column
from rich.text import Text

from pushsdk._core.words import count
from pushsdk._runs.progress import Progress
from pushsdk.cli.terminal import duration, print_json, visible, warn

ProgressMode = Literal["auto", "plain", "json", "none"]
Show = Callable[[Progress], None]
Figure = tuple[str, str, str, str]
"""A name, a number, a remark and a style."""

_LINE_INTERVAL = 5.0  # seconds between two plain lines
# Stage changes that are printed at once. The end of a wait is not: the counts show the end, and waits may be short.
_STAGE_CHANGES = {("planning", "sending"), ("planning", "waiting"), ("sending", "waiting")}


@contextmanager
def progress(mode: ProgressMode) -> Iterator[Show]:
    """Yield the ``on_progress`` callback. ``auto`` draws on a terminal and prints plain lines elsewhere."""
    console = Console(stderr=True, highlight=False)
    if mode == "auto" and console.is_terminal and not console.is_dumb_terminal:
        columns = (
            bars.TextColumn("{task.description}", style="bold cyan"),
            bars.BarColumn(bar_width=20),
            bars.TextColumn("{task.fields[counts]}", markup=False, table_column=Column(ratio=1, overflow="fold")),
        )
        # Redrawn by each call only: a refresh thread would take time from sending.
        with bars.Progress(*columns, console=console, auto_refresh=False, transient=True, expand=True) as drawn:
            bar = drawn.add_task("", counts="")
            yield lambda state: drawn.update(
                bar,
                description=state.stage,
                total=None if state.stage == "planning" else state.planned,
                completed=_settled(state),
                counts=_describe(state),
                refresh=True,
            )
    elif mode == "json":
        yield lambda state: print_json(state, sys.stderr)
    elif mode == "none":
        yield lambda state: None
    else:
        yield _plain_lines(time.monotonic)


def _plain_lines(clock: Callable[[], float]) -> Show:
    due, stage = -math.inf, ""

    def show(state: Progress) -> None:
        nonlocal due, stage
        complete = state.stage == "sending" and _settled(state) == state.planned
        if clock() >= due or (stage, state.stage) in _STAGE_CHANGES or complete:
            due = clock() + _LINE_INTERVAL
            warn(f"{state.stage}: {_describe(state)}")
        stage = state.stage

    return show


def _describe(state: Progress) -> str:
    if state.stage == "planning":
        return count(state.planned)
    remarks = (
        (True, f"{_settled(state):,} of {count(state.planned)}"),
        (True, f"{state.accepted:,} accepted"),
        (state.rejected, f"{state.rejected:,} rejected"),
        (state.unknown, f"{state.unknown:,} unknown"),
        (state.rate, f"{state.rate:,.0f}/s"),
        (state.eta is not None and state.not_sent + state.in_flight, f"{duration(state.eta or 0)} left"),
        (state.limit, f"{state.requests:,} in flight, limit {state.limit:,}"),
        (state.paused, f"throttled for {duration(state.paused)}"),
        (state.stage == "waiting" and state.trouble, visible(state.trouble)),
    )
    return ", ".join([text for applies, text in remarks if applies])


def _settled(state: Progress) -> int:
    return state.planned - state.not_sent - state.in_flight


def print_figures(figures: Iterable[Figure]) -> None:
    """Print names and numbers in columns."""
    console = Console(highlight=False, soft_wrap=True)
    for line in _lines(figures):
        console.print(line)


@contextmanager
def drawing() -> Iterator[Callable[[Iterable[Figure]], None]]:
    """Yield a function that draws figures on the terminal instead of the last ones; elsewhere it draws nothing."""
    with Live(console=Console(stderr=True, highlight=False), auto_refresh=False, transient=True) as live:
        yield lambda figures: live.update(Group(*_lines(figures)), refresh=True)


def _lines(figures: Iterable[Figure]) -> Iterator[Text]:
    rows = list(figures)
    names, numbers = (max(len(row[column]) for row in rows) for column in (0, 1))
    for name, number, remark, style in rows:
        line = Text(f"{name:<{names}}  {number:>{numbers}}", style=style)
        yield line + Text(f"  {remark}", style="dim") if remark else line
