"""The commands of a run: ``plan``, ``broadcast``, ``resume``, ``status`` and ``report``."""

from __future__ import annotations

import asyncio
import io
import itertools
import shlex
import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Group, Parameter
from cyclopts.validators import Number

from pushsdk import (
    AsyncPushClient,
    Batching,
    BroadcastReport,
    Outcome,
    PushError,
    RunFileError,
    StopPolicy,
    read_report,
)
from pushsdk._audience.audience import Audience
from pushsdk._core import wire
from pushsdk._core.words import count
from pushsdk.cli.exit import CommandError, Exit, code_of
from pushsdk.cli.files import advise, audience_of, read_fields, read_message
from pushsdk.cli.interrupt import Interrupt
from pushsdk.cli.options import File, Flag, Pace, Service, confirm, given, settings_of
from pushsdk.cli.output import Figure, Mode, duration, print_figures, progress
from pushsdk.cli.settings import Settings
from pushsdk.cli.terminal import print_json, say, visible, warn

__all__ = ["broadcast", "plan", "report", "resume", "status"]

Share = Annotated[float, Parameter(validator=Number(gt=0, lte=1))]
Speed = Annotated[float | None, Parameter(validator=Number(gt=0, lt=1e9))]
Form = Annotated[Literal["table", "csv", "jsonl"], Parameter(name="--format")]
Unknown = Literal["skip", "resend"]
_MEASURED = 1000  # rows; the width of a column is that of the widest of them

Start = Callable[[AsyncPushClient, dict[str, Any]], Awaitable[BroadcastReport]]
"""A function that starts the run with a client and the options that every run takes."""


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Content:
    """The message of a run, and how its users are read."""

    message: File
    """A JSON file that holds the message; - is standard input."""
    query: str | None = None
    """Instead of a source, a SELECT in DuckDB's SQL, as "SELECT id FROM 'users.parquet' WHERE active"."""
    primary_key: str = "user_id"
    """The column, or the key, that holds the id."""
    custom_fields: str | None = None
    """A JSON object that goes with the message, or @FILE."""
    no_dedupe: Flag = False
    """Do not look for ids that come again: each is pushed as often as it comes."""

    def read(self, source: str | None) -> tuple[dict[str, Any], dict[str, Any] | None, Audience]:
        """Return the message, the custom fields and the users. Raises a usage error or a ValidationError."""
        message = read_message(self.message)
        fields = None if self.custom_fields is None else read_fields("--custom-fields", self.custom_fields)
        return message, fields, audience_of(source, self.query, self.primary_key, message=self.message)


@Parameter(name="*", group=Group("Course", sort_key=5))
@dataclass(frozen=True, kw_only=True)
class Course:
    """Options of a run: how it is sent, when it stops by itself, and how it shows its progress."""

    limit: Annotated[int | None, Parameter(validator=Number(gte=1))] = None
    """Stop after this many users; a resume continues from there."""
    max_rejected: Share = 0.5
    """Stop if more than this share of the users settled last was rejected: 0.5 is half of them."""
    max_unknown: Share = 0.25
    """Stop if more than this share of users has an unknown outcome."""
    max_outage: Annotated[float, Parameter(validator=Number(gt=0, lt=1e9))] = 600.0
    """Stop after this many seconds without an acceptance."""
    no_stop_policy: Flag = False
    """Stop by itself only if the key is refused."""
    durable: Flag = False
    """Sync every claim to the disk, against a loss of power."""
    progress: Mode = "auto"
    """Progress on stderr: drawn on a terminal and lines elsewhere; or always plain lines, JSON lines, none."""
    json: Flag = False
    """Print the result as one JSON object."""

    def options(self) -> dict[str, Any]:
        """Return the options of a run, for the client."""
        stop_policy = StopPolicy(rejected=self.max_rejected, unknown=self.max_unknown, max_outage=self.max_outage)
        return {
            "limit": self.limit,
            "stop_policy": StopPolicy.off() if self.no_stop_policy else stop_policy,
            "durable": self.durable,
        }


# -- plan ---------------------------------------------------------------------------------------------------------


def plan(
    source: File | None = None,
    /,
    *,
    content: Content,
    rate: Annotated[Speed, Parameter(name=["--rate", "--users-per-second"], env_var="PUSHSDK_RATE")] = None,
    requests_per_second: Annotated[Speed, Parameter(env_var="PUSHSDK_REQUESTS_PER_SECOND")] = None,
    json: Flag = False,
) -> int:
    """Say what a broadcast would come to: users, requests, bytes, time. Nothing is sent.

    Parameters
    ----------
    source
        The users: .txt with one id a line, .csv, .jsonl or .parquet; - is ids by standard input.
    rate
        Users per second, to estimate the time.
    requests_per_second
        Requests per second, to estimate the time.
    json
        Print one JSON object.
    """
    message, fields, audience = content.read(source)
    advise(message)
    totals = _totals(audience, wire.encode_message(message), wire.encode_custom_fields(fields), not content.no_dedupe)
    seconds = {
        f"{speed:,g} {noun}{'s' * (speed != 1)} per second": totals[f"{noun}s"] / speed
        for noun, speed in (("user", rate), ("request", requests_per_second))
        if speed is not None
    }
    if json:
        print_json({**totals, "seconds": max(seconds.values(), default=None)})
    else:
        print_figures(_plan_figures(totals, seconds))
    return Exit.DONE


def _totals(audience: Audience, message: bytes, fields: bytes | None, distinct: bool) -> dict[str, int]:
    around = len(wire.push_body(b"[]", message, fields))
    fixed, bounds = len(message) + len(fields or b""), Batching()
    users, sizes = 0, [0]
    for chunks in audience.chunks(
        fixed=fixed, max_users=bounds.max_users, max_bytes=bounds.max_bytes, distinct=distinct
    ):
        users += sum(chunk.users for chunk in chunks)
        sizes += [around + len(chunk.ids) for chunk in chunks]
    duplicates = audience.summary.duplicates
    requests = {"requests": len(sizes) - 1, "bytes": sum(sizes), "largest": max(sizes)}
    return {"users": users, "duplicates": duplicates, **requests}


def _plan_figures(totals: Mapping[str, int], seconds: Mapping[str, float]) -> Iterator[Figure]:
    duplicates = f"{count(totals['duplicates'], 'duplicate')} left out" if totals["duplicates"] else ""
    yield "users", f"{totals['users']:,}", duplicates, "bold"
    yield "requests", f"{totals['requests']:,}", "", ""
    yield "bytes", f"{totals['bytes']:,}", f"{totals['largest']:,} in the largest request", ""
    if seconds:
        yield "time", duration(max(seconds.values())), f"at {' and '.join(seconds)}", ""
    else:
        yield "time", "?", "as fast as the service takes them; say --rate", ""


# -- broadcast and resume -----------------------------------------------------------------------------------------


def broadcast(
    source: File | None = None,
    /,
    *,
    content: Content,
    run: Path,
    personalize: Literal["custom-fields", "text", "both"] | None = None,
    unknown: Unknown = "skip",
    yes: Flag = False,
    course: Course | None = None,
    service: Service | None = None,
    pace: Pace | None = None,
) -> int:
    """Push one message to any number of users, and keep in a file what happened to each.

    Parameters
    ----------
    source
        The users: .txt with one id a line, .csv, .jsonl or .parquet; - is ids by standard input.
    run
        The file of the run. It holds user ids; only you can read it.
    personalize
        A request of its own for each user: the other columns of the row become its custom fields, or fill the
        placeholders in the text, or both. A value that is missing takes the placeholder's fallback.
    unknown
        What a resumed run does with users whose outcome is unknown: resend may push them twice.
    yes
        Do not ask before sending to another machine.
    """
    message, fields, audience = content.read(source)
    distinct = not content.no_dedupe
    settings = settings_of(service, pace)
    advise(message)
    try:
        users = _left(read_report(run), unknown)
    except PushError:  # no run yet
        users = None
    if users is not None:
        whom = f"the {count(users)} left of {run}"
    else:
        rows = audience.count()
        whom = "the users of the source" if rows is None else f"at most {count(rows)}"
    if users != 0:
        confirm(f"Push to {whom} at {settings['base_url']}?", settings, yes=yes)

    async def start(client: AsyncPushClient, options: dict[str, Any]) -> BroadcastReport:
        options |= {"run": run, "on_unknown": unknown}
        if personalize is None:
            return await client.broadcast(audience, message, custom_fields=fields, dedupe=distinct, **options)
        into: Any = personalize.replace("-", "_")
        requests = audience.personalize(message, into=into, custom_fields=fields, distinct=distinct)
        return await client.send_each(requests, **options)

    command = resume_command(run, given(service, pace))
    return _send_run(settings, start, course=course or Course(), run=run, command=command, users=users)


def resume(
    run: Path,
    /,
    *,
    unknown: Unknown = "skip",
    yes: Flag = False,
    course: Course | None = None,
    service: Service | None = None,
    pace: Pace | None = None,
) -> int:
    """Resume a run where it ended. The source of its users is not needed.

    Parameters
    ----------
    run
        The file of the run.
    unknown
        What to do with users whose outcome is unknown: hold them, or resend, which may push them twice.
    yes
        Do not ask before sending to another machine.
    """
    users = _left(read_report(run), unknown)
    settings = settings_of(service, pace)
    if users:
        confirm(f"Push to {count(users)} at {settings['base_url']}?", settings, yes=yes)

    async def start(client: AsyncPushClient, options: dict[str, Any]) -> BroadcastReport:
        return await client.resume(run, on_unknown=unknown, **options)

    command = resume_command(run, given(service, pace))
    return _send_run(settings, start, course=course or Course(), run=run, command=command, users=users)


def _left(report: BroadcastReport, unknown: Unknown) -> int:
    """Return the number of users that a run is still to be sent to."""
    return report.not_sent + (report.unknown if unknown == "resend" else 0)


def _send_run(settings: Settings, start: Start, *, course: Course, run: Path, command: str, users: int | None) -> int:
    """Send a run until it ends or Ctrl-C; print the result, and on stderr what is left to do.

    ``users`` is how many users are left, None if that is not known; ``command`` resumes the run.
    """
    options = course.options()
    client = AsyncPushClient(**settings)
    mode: Mode = "none" if users == 0 else course.progress
    found, interrupted = asyncio.run(_send(client, start, options, mode, command))
    if found is None:  # ended at once: the file holds the result
        try:
            found = read_report(run)
        except RunFileError as error:
            raise CommandError(str(error), Exit.INTERRUPTED) from None
    _print_summary(found, json=course.json)
    _advise_next(found, command)
    if found.planned and users == 0:
        warn("nothing was sent now: an earlier call finished this run; to push again, give a new --run")
    return _code(found, interrupted=interrupted)


async def _send(
    client: AsyncPushClient, start: Start, options: dict[str, Any], mode: Mode, command: str
) -> tuple[BroadcastReport | None, bool]:
    interrupt = Interrupt(f"ended; take it up with the same command, or:  {command}")
    with interrupt.listening(), progress(mode) as show:
        try:
            found = await start(client, {**options, "on_progress": show, "stop": interrupt.stop})
        except asyncio.CancelledError:  # by the second signal: nothing else cancels this
            return None, True
        finally:
            await client.aclose(drain=0)
    return found, interrupt.signals > 0


def resume_command(run: object, options: Mapping[str, Any]) -> str:
    """Return the command that resumes a run, quoted for a shell, with these options of the service.

    A proxy with a password in it is left out.
    """
    words = ["pushsdk", "resume", str(run)]
    for name, value in options.items():
        option = f"--{name.replace('_', '-')}"
        if value is True:
            words.append(option)
        elif value is not False and not (name == "proxy" and "@" in str(value)):
            words += [option, f"{value:.15g}" if isinstance(value, float) else str(value)]
    return visible(shlex.join(words))


# -- status and report --------------------------------------------------------------------------------------------


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
    _print_summary(found, json=json)
    # The file does not hold the options of the run, and sending without its --rate may be too fast.
    _advise_next(found, resume_command(run, {}), remark="  # with the options it had, as --rate")
    return _code(found)


def report(run: Path, /, *, form: Form = "table", outcome: Outcome | None = None) -> int:
    """Print one row for every user of a run: id, outcome, HTTP status, reason.

    Parameters
    ----------
    run
        The file of the run.
    form
        jsonl is exact; csv is made safe to open in a spreadsheet, and says what that changes.
    outcome
        Only the users with this outcome.
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
    first = list(itertools.islice(rows, _MEASURED))
    width = max([len("user_id"), *(len(row.user_id) for row in first)])
    yield f"{'user_id':<{width}}  {'outcome':<8}  status  reason"
    for row in itertools.chain(first, rows):
        number = "" if row.status is None else row.status
        yield f"{row.user_id:<{width}}  {row.outcome.value:<8}  {number:>6}  {row.reason}".rstrip()


def _code(found: BroadcastReport, *, interrupted: bool = False) -> Exit:
    """Return the exit code of a run."""
    return code_of(
        interrupted=interrupted or found.stopped_by in ("asked", "closed"),
        refused=found.stopped_by in ("refused", "failure"),
        stopped=found.stopped_by == "stop_policy",
        unknown=found.unknown,
        missing=found.rejected + found.not_sent,
    )


def _print_summary(found: BroadcastReport, *, json: bool) -> None:
    """Print the counts to stdout."""
    if json:
        print_json({name: getattr(found, name) for name in found.__struct_fields__ if name != "file"})
    else:
        print_figures(_run_figures(found))


def _run_figures(found: BroadcastReport) -> Iterator[Figure]:
    yield "accepted", f"{found.accepted:,}", "", "green"
    yield "rejected", f"{found.rejected:,}", "", "red" if found.rejected else ""
    unknown = "may have been pushed; held" if found.unknown else ""
    yield "unknown", f"{found.unknown:,}", unknown, "yellow" if found.unknown else ""
    yield "not sent", f"{found.not_sent:,}", "", "yellow" if found.not_sent else ""
    remarks = []
    if found.seconds:
        remarks.append(f"in {duration(found.seconds)}")
    if found.duplicates:
        remarks.append(f"{count(found.duplicates, 'duplicate')} left out")
    if found.resent:
        remarks.append(f"{found.resent:,} sent again after an unknown")
    yield "users", f"{found.planned:,}", ", ".join(remarks), "bold"


def _advise_next(found: BroadcastReport, command: str, *, remark: str = "") -> None:
    """Say on stderr what is left to do; ``command`` resumes the run, ``remark`` follows it."""
    if found.in_use:
        warn("another process is sending it now: users in flight count as unknown until their response is received")
        return
    if not found.planned and not found.stopped:
        warn("there was nobody to push to: no user is in the plan")
    if found.stopped:
        warn(f"stopped: {found.stopped}")
    if found.not_sent:
        warn(f"send the rest:  {command}{remark}")
    if found.unknown:
        warn(f"send to the unknown again, who may be pushed twice:  {command} --unknown resend{remark}")
