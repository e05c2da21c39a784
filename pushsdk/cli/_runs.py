"""What ``broadcast`` and ``resume`` share: send a run, show how far it is, say how it ended and what to do then."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Group, Parameter
from cyclopts.validators import Number

from pushsdk import AsyncPushClient, Brake, BroadcastReport, RunFileError, read_report
from pushsdk.cli._exit import CommandError, Exit
from pushsdk.cli._interrupt import Interrupt
from pushsdk.cli._options import Flag
from pushsdk.cli._progress import Mode, progress
from pushsdk.cli._summary import hints, print_summary, report_code
from pushsdk.cli._terminal import warn
from pushsdk.cli.settings import Settings

__all__ = ["Course", "Start", "left", "send_run"]

Share = Annotated[float, Parameter(validator=Number(gt=0, lte=1))]
_COURSE = Group("Course", sort_key=5)

Start = Callable[[AsyncPushClient, dict[str, Any]], Awaitable[BroadcastReport]]
"""What begins the run, with the options that every run takes."""


@Parameter(name="*", group=_COURSE)
@dataclass(frozen=True, kw_only=True)
class Course:
    """How a run is sent, when it stops by itself, and how it shows."""

    limit: Annotated[int | None, Parameter(validator=Number(gte=1))] = None
    """Stop after so many users; a resume goes on from there."""
    max_rejected: Share = 0.5
    """Stop where so large a share of the users settled last was rejected: 0.5 is half of them."""
    max_unknown: Share = 0.25
    """Stop where of so large a share nobody knows."""
    max_outage: Annotated[float, Parameter(validator=Number(gt=0, lt=1e9))] = 600.0
    """Stop after so many seconds without an acceptance."""
    no_brake: Flag = False
    """Stop by itself only where the key is refused."""
    durable: Flag = False
    """Sync every claim to the disk, against a loss of power."""
    progress: Mode = "auto"
    """How far it is, on stderr: drawn on a terminal and lines elsewhere; or always plain lines, JSON lines, none."""
    json: Flag = False
    """Print the result as one JSON object."""

    def options(self) -> dict[str, Any]:
        """As the client takes them."""
        brake = Brake(rejected=self.max_rejected, unknown=self.max_unknown, max_outage=self.max_outage)
        return {"limit": self.limit, "brake": Brake.off() if self.no_brake else brake, "durable": self.durable}


def left(report: BroadcastReport, unknown: str) -> int:
    """Return the number of users that a run is still to be sent to."""
    return report.not_sent + (report.unknown if unknown == "resend" else 0)


def send_run(settings: Settings, start: Start, *, course: Course, run: Path, resume: str, users: int | None) -> int:
    """Send a run to its end, or until Ctrl-C; print how it ended, and on stderr what is left to do.

    ``users`` is how many users are left, None if that is not known.
    """
    options = course.options()
    client = AsyncPushClient(**settings.client_options())
    report, interrupted = asyncio.run(_send(client, start, options, "none" if users == 0 else course.progress, resume))
    if report is None:  # ended at once: the file knows what there is to know
        try:
            report = read_report(run)
        except RunFileError as error:
            raise CommandError(str(error), Exit.INTERRUPTED) from None
    print_summary(report, json=course.json)
    hints(report, resume)
    if report.planned and users == 0:
        warn("nothing was sent now: an earlier call finished this run; to push again, give a new --run")
    return report_code(report, interrupted=interrupted)


async def _send(
    client: AsyncPushClient, start: Start, options: dict[str, Any], mode: Mode, resume: str
) -> tuple[BroadcastReport | None, bool]:
    interrupt = Interrupt(f"ended; take it up with the same command, or:  {resume}")
    with interrupt.listening(), progress(mode) as tell:
        try:
            report = await start(client, {**options, "on_progress": tell, "stop": interrupt.stop})
        except asyncio.CancelledError:  # by the second signal: nothing else cancels this
            return None, True
        finally:
            await client.aclose(drain=0)
    return report, interrupt.signals > 0
