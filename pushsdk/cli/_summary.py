"""How a run ended or stands, for people and for programs; and the exit code that goes with it."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
from rich.console import Console
from rich.text import Text

from pushsdk import BroadcastReport
from pushsdk._core.words import count
from pushsdk.cli._exit import Exit, code_of
from pushsdk.cli._progress import duration
from pushsdk.cli._terminal import print_json, visible, warn

__all__ = ["Figure", "again", "hints", "print_figures", "print_summary", "report_code"]

Figure = tuple[str, str, str, str]  # a name, a number, a remark, a style


def report_code(report: BroadcastReport, *, interrupted: bool = False) -> Exit:
    """The exit code of a run."""
    return code_of(
        interrupted=interrupted or report.stopped_by in ("asked", "closed"),
        refused=report.stopped_by in ("refused", "failure"),
        stopped=report.stopped_by == "brake",
        unknown=report.unknown,
        missing=report.rejected + report.not_sent,
    )


def print_summary(report: BroadcastReport, *, json: bool) -> None:
    """The counts, on stdout."""
    if json:
        told = msgspec.structs.asdict(report)
        print_json({name: value for name, value in told.items() if name != "file"})
    else:
        print_figures(_figures(report))


def _figures(report: BroadcastReport) -> Iterable[Figure]:
    yield "accepted", f"{report.accepted:,}", "", "green"
    yield "rejected", f"{report.rejected:,}", "", "red" if report.rejected else ""
    unknown = "may have been pushed; held" if report.unknown else ""
    yield "unknown", f"{report.unknown:,}", unknown, "yellow" if report.unknown else ""
    yield "not sent", f"{report.not_sent:,}", "", "yellow" if report.not_sent else ""
    remarks = []
    if report.seconds:
        remarks.append(f"in {duration(report.seconds)}")
    if report.repeated:
        remarks.append(f"{count(report.repeated, 'repeated id')} left out")
    if report.resent:
        remarks.append(f"{report.resent:,} sent again after an unknown")
    yield "users", f"{report.planned:,}", ", ".join(remarks), "bold"


def print_figures(figures: Iterable[Figure]) -> None:
    """Names and numbers in columns."""
    rows = list(figures)
    names, numbers = (max(len(row[column]) for row in rows) for column in (0, 1))
    console = Console(highlight=False, soft_wrap=True)
    for name, number, remark, style in rows:
        line = Text(f"{name:<{names}}  {number:>{numbers}}", style=style)
        console.print(line + Text(f"  {remark}", style="dim") if remark else line)


def hints(report: BroadcastReport, resume: str, *, remark: str = "") -> None:
    """What is left to do, on stderr; ``resume`` is the command that takes the run up, ``remark`` goes with it."""
    if report.in_use:
        warn("another process is sending it now: whoever is on the way counts as unknown until the answer is there")
        return
    if not report.planned and not report.stopped:
        warn("there was nobody to push to: no user is in the plan")
    if report.stopped:
        warn(f"stopped: {report.stopped}")
    if report.not_sent:
        warn(f"send the rest:  {resume}{remark}")
    if report.unknown:
        warn(f"send to the unknown again, who may be pushed twice:  {resume} --unknown resend{remark}")


def again(run: object, given: Mapping[str, Any]) -> str:
    """The command that takes a run up, quoted for a shell, with the service's options of this one.

    A proxy with a password in it is left out.
    """
    words = ["pushsdk", "resume", str(run)]
    for name, value in given.items():
        option = f"--{name.replace('_', '-')}"
        if value is True:
            words.append(option)
        elif value is not False and not (name == "proxy" and "@" in str(value)):
            words += [option, f"{value:.15g}" if isinstance(value, float) else str(value)]
    return visible(shlex.join(words))
