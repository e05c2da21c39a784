"""``pushsdk resume``, ``status`` and ``report``: what a run file is for after its broadcast."""

from __future__ import annotations

import io
import itertools
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter

from pushsdk import AsyncPushClient, BroadcastReport, Outcome, read_report
from pushsdk._core.words import count
from pushsdk.cli._confirm import confirm
from pushsdk.cli._exit import Exit
from pushsdk.cli._options import Flag, Pace, Service, given, settings_of
from pushsdk.cli._runs import Course, left, send_run
from pushsdk.cli._summary import again, hints, print_summary, report_code
from pushsdk.cli._terminal import print_json, say, warn

__all__ = ["report", "resume", "status"]

Form = Annotated[Literal["table", "csv", "jsonl"], Parameter(name="--format")]
_LOOKED_AT = 1000  # rows that the width of a column is found from


def resume(
    run: Path,
    /,
    *,
    unknown: Literal["hold", "resend"] = "hold",
    yes: Flag = False,
    course: Course | None = None,
    service: Service | None = None,
    pace: Pace | None = None,
) -> int:
    """Take up a run where it ended. The source of its users is not needed.

    Parameters
    ----------
    run
        The file of the run.
    unknown
        What to do with users of whom nobody knows: hold them, or resend, which may push them twice.
    yes
        Do not ask before sending to another machine.
    """
    users = left(read_report(run), unknown)
    settings = settings_of(service, pace)
    if users:
        confirm(f"Push to {count(users)} at {settings.base_url}?", settings, yes=yes)

    async def start(client: AsyncPushClient, options: dict[str, Any]) -> BroadcastReport:
        return await client.resume(run, on_unknown=unknown, **options)

    command = again(run, given(service, pace))
    return send_run(settings, start, course=course or Course(), run=run, resume=command, users=users)


def status(run: Path, /, *, json: Flag = False) -> int:
    """Say how a run stands, and exit as the run would. Nothing is sent.

    Parameters
    ----------
    run
        The file of the run; another process may be sending it.
    json
        Print one JSON object.
    """
    found = read_report(run)
    print_summary(found, json=json)
    # How it was sent is not in the file, and to send it faster may be too fast.
    hints(found, again(run, {}), remark="  # with the options it had, as --rate")
    return report_code(found)


def report(run: Path, /, *, form: Form = "table", outcome: Outcome | None = None) -> int:
    """Print one row for every user of a run: id, outcome, HTTP status, reason.

    Parameters
    ----------
    run
        The file of the run.
    form
        jsonl is exact; csv is made safe to open in a spreadsheet, and says what that changes.
    outcome
        Only the users that ended so.
    """
    if isinstance(sys.stdout, io.TextIOWrapper):  # whatever the locale is: a file of ids is UTF-8, with plain line ends
        sys.stdout.reconfigure(encoding="utf-8", newline="\n")
    found = read_report(run)
    if form == "jsonl":
        for row in found.rows(outcome):
            print_json(row)
    elif form == "csv":
        changed = found.write_csv(sys.stdout, outcome)
        if changed:
            warn(f"{count(changed, 'id')} got a ' in front, so that no spreadsheet runs them: jsonl is exact")
    else:
        for line in _table(found, outcome):
            say(line)
    return Exit.DONE


def _table(found: BroadcastReport, outcome: Outcome | None) -> Iterator[str]:
    """The rows in columns, written while they are read: the width of the ids is that of the first of them."""
    rows = found.rows(outcome)
    first = list(itertools.islice(rows, _LOOKED_AT))
    width = max((len(row.user_id) for row in first), default=0)
    width = max(width, len("user_id"))
    yield f"{'user_id':<{width}}  {'outcome':<8}  status  reason"
    for row in itertools.chain(first, rows):
        status = "" if row.status is None else row.status
        yield f"{row.user_id:<{width}}  {row.outcome.value:<8}  {status:>6}  {row.reason}".rstrip()
