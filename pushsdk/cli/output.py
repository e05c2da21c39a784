"""Output drawn by rich: run progress on stderr, and figures in columns on stdout."""

import logging
import math
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Literal

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Column, Table
from rich.text import Text

from pushsdk._core.words import count
from pushsdk._runs.progress import Progress
from pushsdk.cli.terminal import duration, print_json, visible, warn

ProgressMode = Literal["auto", "plain", "json", "none"]
Show = Callable[[Progress], None]
Figure = tuple[str, str, str, str]
"""A name, a number, a remark and a style."""

logger: logging.Logger = logging.getLogger("pushsdk")
_SHORTEST_BAR = 8  # cells; if the figures leave less, some of them go
_LINE_INTERVAL = 5.0  # seconds between two plain lines
# Stage changes that are printed at once. The end of a wait is not: the counts show the end, and waits may be short.
_STAGE_CHANGES = {("planning", "sending"), ("planning", "waiting"), ("sending", "waiting")}


@contextmanager
def progress(mode: ProgressMode) -> Iterator[Show]:
    """Yield the ``on_progress`` callback. ``auto`` draws on a terminal and prints plain lines elsewhere."""
    console = Console(stderr=True, highlight=False)
    if mode == "auto" and console.is_terminal and not console.is_dumb_terminal:
        # Redrawn by each call only: a refresh thread would take time from sending.
        with Live(console=console, auto_refresh=False, transient=True) as live:
            yield lambda state: live.update(_display(state, console.width), refresh=True)
    elif mode == "json":
        yield lambda state: print_json(state, sys.stderr)
    elif mode == "none":
        yield lambda state: None
    else:
        yield _plain_lines()


def _display(state: Progress, width: int) -> Group:
    """Return two lines on a run, as wide as the terminal: how far it is, and how it goes. Below is the last failure.

    The cursor is on an empty line, where a terminal writes the ^C that is pressed.
    """
    planning = state.stage == "planning"
    figures = _extent(state, width - len(state.stage) - _SHORTEST_BAR - 2)
    line = Table.grid(Column(), Column(ratio=1), Column(), padding=(0, 1), pad_edge=False, expand=True)
    bar = ProgressBar(total=None if planning else state.planned or 1, completed=_settled(state), pulse=planning)
    line.add_row(Text(state.stage, "bold cyan"), bar, figures)
    course = Text(", ".join(_course(state)), no_wrap=True, overflow="ellipsis")
    return Group(line, *filter(None, (course, Text(visible(state.trouble)))), "")


def _plain_lines() -> Show:
    due, stage = -math.inf, ""

    def show(state: Progress) -> None:
        nonlocal due, stage
        complete = state.stage == "sending" and _settled(state) == state.planned
        if time.monotonic() >= due or (stage, state.stage) in _STAGE_CHANGES or complete:
            due = time.monotonic() + _LINE_INTERVAL
            warn(f"{state.stage}: {_describe(state)}")
        stage = state.stage

    return show


def _describe(state: Progress) -> str:
    if state.stage == "planning":
        return count(state.planned)
    return ", ".join(filter(None, [_done(state), *_course(state), *_time_left(state), state.trouble]))


def _extent(state: Progress, width: int) -> str:
    """Return how far a run is, in at most so many characters if that is possible."""
    if state.stage == "planning":
        return count(state.planned)
    percent = 100 * _settled(state) // state.planned if state.planned else 100
    share, left = f"{percent}%", _time_left(state)
    whole = "  ".join([share, _done(state), *left])
    return whole if len(whole) <= width else "  ".join([share, *left])


def _time_left(state: Progress) -> list[str]:
    return [f"{duration(state.eta)} left"] if state.eta is not None and state.not_sent + state.in_flight else []


def _done(state: Progress) -> str:
    return f"{_settled(state):,} of {count(state.planned)}"


def _course(state: Progress) -> list[str]:
    """Return how a run goes: most important first."""
    remarks = (
        (state.stage != "planning", f"{state.accepted:,} accepted"),
        (state.rejected, f"{state.rejected:,} rejected"),
        (state.unknown, f"{state.unknown:,} unknown"),
        (state.paused, f"throttled for {duration(state.paused)}"),
        (state.stage == "stopping", f"{count(state.requests, 'request')} in flight"),
        (state.rate, f"{state.rate:,.0f}/s"),
        (state.limit and logger.isEnabledFor(logging.INFO), f"{state.requests:,} in flight, limit {state.limit:,}"),
    )
    return [text for applies, text in remarks if applies]


def _settled(state: Progress) -> int:
    return state.planned - state.not_sent - state.in_flight


def print_figures(figures: Iterable[Figure]) -> None:
    """Print names and numbers in columns."""
    console = Console(highlight=False, soft_wrap=True)
    for line in _lines(figures):
        console.print(line)


@contextmanager
def drawing() -> Iterator[Callable[[Iterable[Figure]], None]]:
    """Yield a function that draws figures on the terminal instead of the last ones, at most four times a second.

    Elsewhere it draws nothing.
    """
    with Live(console=Console(stderr=True, highlight=False), transient=True) as live:
        yield lambda figures: live.update(Group(*_lines(figures)))


def _lines(figures: Iterable[Figure]) -> Iterator[Text]:
    rows = list(figures)
    names, numbers = (max(len(row[column]) for row in rows) for column in (0, 1))
    for name, number, remark, style in rows:
        line = Text(f"{name:<{names}}  {number:>{numbers}}", style=style)
        yield line + Text(f"  {visible(remark)}", style="dim") if remark else line
