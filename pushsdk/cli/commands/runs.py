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
from pushsdk.cli.exit import CommandError, Exit, exit_code
from pushsdk.cli.files import open_audience, print_advice, read_fields, read_message
from pushsdk.cli.interrupt import Interrupt
from pushsdk.cli.options import File, Flag, Json, ServiceOptions, Yes, confirm
from pushsdk.cli.output import Figure, ProgressMode, print_figures, progress
from pushsdk.cli.terminal import duration, print_json, say, visible, warn

RunFile = Annotated[Path, Parameter(help="The file of the run.")]
UserSource = Annotated[
    File | None,
    Parameter(
        help="A .txt (one id per line), .csv, .jsonl or .parquet file with the users; - is ids on standard input."
    ),
]
Share = Annotated[float, Parameter(validator=Number(gt=0, lte=1))]
Speed = Annotated[float | None, Parameter(validator=Number(gt=0, lt=1e9))]
Format = Annotated[Literal["table", "csv", "jsonl"], Parameter(name="--format")]
_WIDTH_SAMPLE = 1000  # rows that decide how wide the column of user ids is

Start = Callable[[AsyncPushClient, dict[str, Any]], Awaitable[BroadcastReport]]
"""A function that starts the run with a client and the options of every run."""


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class BroadcastOptions:
    """The message of a broadcast, and how its users are read."""

    message: File
    """Read the message from this JSON file; - is standard input."""
    query: str | None = None
    """Read the users with this SELECT of DuckDB, for example "SELECT id FROM 'users.parquet'"."""
    primary_key: str = "user_id"
    """Read the user id from this column or key."""
    custom_fields: str | None = None
    """Set the custom fields: a JSON object, or @FILE."""
    no_dedupe: Flag = False
    """Keep duplicates: push to an id as often as it occurs."""

    def read(self, source: str | None) -> tuple[dict[str, Any], dict[str, Any] | None, Audience]:
        """Return the message, the custom fields and the users. Raises a usage error or a ValidationError."""
        message = read_message(self.message)
        fields = None if self.custom_fields is None else read_fields("--custom-fields", self.custom_fields)
        return message, fields, open_audience(source, self.query, self.primary_key, message=self.message)


@Parameter(name="*", group=Group("Run", sort_key=5))
@dataclass(frozen=True, kw_only=True)
class ResumeOptions:
    """Options of ``broadcast`` and ``resume``: what is sent, when the run stops, and what is printed."""

    on_unknown: Literal["skip", "resend"] = "skip"
    """Skip or resend users with an unknown outcome; resend may push to them twice."""
    limit: Annotated[int | None, Parameter(validator=Number(gte=1))] = None
    """Stop after this many users; resume continues there. [default: no limit]"""
    max_rejected: Share = 0.5
    """Stop if more than this share of the last settled users was rejected."""
    max_unknown: Share = 0.25
    """Stop if more than this share of the last settled users has an unknown outcome."""
    max_outage: Annotated[float, Parameter(validator=Number(gt=0, lt=1e9))] = 600.0
    """Stop after this many seconds without an accepted user."""
    no_stop_policy: Flag = False
    """Don't stop early, unless the Api-Key is refused."""
    durable: Flag = False
    """Sync each claim to the disk, so that the run survives a power loss."""
    progress: ProgressMode = "auto"
    """Show progress on stderr; auto draws on a terminal and prints plain lines elsewhere."""
    yes: Yes = False
    json: Json = False

    def run_options(self) -> dict[str, Any]:
        """Return the options of a run, for the client."""
        stop_policy = StopPolicy(rejected=self.max_rejected, unknown=self.max_unknown, max_outage=self.max_outage)
        return {
            "on_unknown": self.on_unknown,
            "limit": self.limit,
            "stop_policy": StopPolicy.off() if self.no_stop_policy else stop_policy,
            "durable": self.durable,
        }

    def users_left(self, run: Path) -> int:
        """Return the number of users that the run in this file still sends to."""
        result = read_report(run)
        return result.not_sent + (result.unknown if self.on_unknown == "resend" else 0)


def plan(
    source: UserSource = None,
    /,
    *,
    content: BroadcastOptions,
    rate: Annotated[Speed, Parameter(name=["--rate", "--users-per-second"], env_var="PUSHSDK_RATE")] = None,
    requests_per_second: Annotated[Speed, Parameter(env_var="PUSHSDK_REQUESTS_PER_SECOND")] = None,
    json: Json = False,
) -> int:
    """Estimate the users, requests, bytes and time of a broadcast.

    Parameters
    ----------
    rate
        Estimate the time at this many users per second.
    requests_per_second
        Estimate the time at this many requests per second.
    """
    message, fields, audience = content.read(source)
    print_advice(message)
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
    envelope = len(wire.push_body(b"[]", message, fields))
    fixed, bounds = len(message) + len(fields or b""), Batching()
    users, sizes = 0, [0]
    for chunks in audience.chunks(
        fixed=fixed, max_users=bounds.max_users, max_bytes=bounds.max_bytes, distinct=distinct
    ):
        users += sum(chunk.users for chunk in chunks)
        sizes += [envelope + len(chunk.ids) for chunk in chunks]
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
        yield "time", "?", "as fast as the service accepts them; pass --rate for an estimate", ""


def broadcast(
    source: UserSource = None,
    /,
    *,
    content: BroadcastOptions,
    run: Path,
    personalize: Literal["custom-fields", "text", "both"] | None = None,
    options: ResumeOptions = ResumeOptions(),
    service: ServiceOptions = ServiceOptions(),
) -> int:
    """Push a message to many users, in a run that survives a crash.

    Parameters
    ----------
    run
        Record the run in this file, which holds user ids and is readable by you only.
    personalize
        Use each row's other columns as custom fields, in the text's placeholders, or both.
    """
    message, fields, audience = content.read(source)
    distinct = not content.no_dedupe
    print_advice(message)
    users = None
    try:
        users = options.users_left(run)
        target = f"the {count(users)} left of {run}"
    except PushError:  # a new run
        rows = audience.count()
        target = "the users of the source" if rows is None else f"at most {count(rows)}"

    async def start(client: AsyncPushClient, run_options: dict[str, Any]) -> BroadcastReport:
        run_options["run"] = run
        if personalize is None:
            return await client.broadcast(audience, message, custom_fields=fields, dedupe=distinct, **run_options)
        into: Any = personalize.replace("-", "_")
        requests = audience.personalize(message, into=into, custom_fields=fields, distinct=distinct)
        return await client.send_each(requests, **run_options)

    return _send_run(start, run, options, service, users, target)


def resume(
    run: RunFile, /, *, options: ResumeOptions = ResumeOptions(), service: ServiceOptions = ServiceOptions()
) -> int:
    """Continue a run."""
    users = options.users_left(run)

    async def start(client: AsyncPushClient, run_options: dict[str, Any]) -> BroadcastReport:
        return await client.resume(run, **run_options)

    return _send_run(start, run, options, service, users, count(users))


def _send_run(
    start: Start, run: Path, options: ResumeOptions, service: ServiceOptions, users: int | None, target: str
) -> int:
    """Ask, send a run until it ends or Ctrl-C, print the counts, and on stderr what is left to do.

    ``users`` is the number of users left, None if it is unknown; ``target`` names them in the question.
    """
    settings = service.settings()
    if users != 0:
        confirm(f"Push to {target} at {settings['base_url']}?", settings, yes=options.yes)
    command = resume_command(run, service.given())
    mode: ProgressMode = "none" if users == 0 else options.progress
    result, interrupted = asyncio.run(_send(AsyncPushClient(**settings), start, options.run_options(), mode, command))
    if result is None:  # cancelled: the file holds the counts
        try:
            result = read_report(run)
        except RunFileError as error:
            raise CommandError(str(error), Exit.INTERRUPTED) from None
    _print_counts(result, json=options.json)
    _print_next_steps(result, command)
    if result.planned and users == 0:
        warn("nothing was sent: an earlier command completed this run; to push again, pass a new --run")
    return _exit_code(result, interrupted=interrupted)


async def _send(
    client: AsyncPushClient, start: Start, run_options: dict[str, Any], mode: ProgressMode, command: str
) -> tuple[BroadcastReport | None, bool]:
    interrupt = Interrupt(f"ended; to continue, run the same command again, or:  {command}")
    with interrupt.listening(), progress(mode) as show:
        try:
            result = await start(client, {**run_options, "on_progress": show, "stop": interrupt.stop})
        except asyncio.CancelledError:  # only the second signal cancels
            return None, True
        finally:
            await client.aclose(drain=0)
    return result, interrupt.signals > 0


def resume_command(run: object, options: Mapping[str, Any]) -> str:
    """Return the command that resumes a run with these options, quoted for a shell.

    A proxy with a password is left out.
    """
    words = ["pushsdk", "resume", str(run)]
    for name, value in options.items():
        option = f"--{name.replace('_', '-')}"
        if value is True:
            words.append(option)
        elif value is not False and not (name == "proxy" and "@" in str(value)):
            words += [option, f"{value:.15g}" if isinstance(value, float) else str(value)]
    return visible(shlex.join(words))


def status(run: RunFile, /, *, json: Json = False) -> int:
    """Show the counts of a run, which another process may be sending."""
    result = read_report(run)
    _print_counts(result, json=json)
    # The file does not hold the options of the run, and without its --rate a resume may send too fast.
    _print_next_steps(result, resume_command(run, {}), comment="  # with the options of the run, for example --rate")
    return _exit_code(result)


def report(run: RunFile, /, *, form: Format = "table", outcome: Outcome | None = None) -> int:
    """Print one row per user of a run: id, outcome, HTTP status and reason.

    Parameters
    ----------
    form
        Print this format; jsonl is exact, csv is safe to open in a spreadsheet.
    outcome
        Print only the users with this outcome.
    """
    if isinstance(sys.stdout, io.TextIOWrapper):  # a file of ids is UTF-8 with plain line ends in every locale
        sys.stdout.reconfigure(encoding="utf-8", newline="\n")
    result = read_report(run)
    if form == "jsonl":
        for row in result.rows(outcome):
            print_json(row)
    elif form == "csv":
        changed = result.write_csv(sys.stdout, outcome)
        if changed:
            warn(f"put a ' before {count(changed, 'id')}, so that no spreadsheet runs it as a formula; jsonl is exact")
    else:
        for line in _table(result, outcome):
            say(line)
    return Exit.DONE


def _table(result: BroadcastReport, outcome: Outcome | None) -> Iterator[str]:
    """Yield the rows in columns. The first rows decide how wide the ids are, so no row waits for the last."""
    rows = result.rows(outcome)
    first = list(itertools.islice(rows, _WIDTH_SAMPLE))
    width = max([len("user_id"), *(len(row.user_id) for row in first)])
    yield f"{'user_id':<{width}}  {'outcome':<8}  status  reason"
    for row in itertools.chain(first, rows):
        number = "" if row.status is None else row.status
        yield f"{row.user_id:<{width}}  {row.outcome.value:<8}  {number:>6}  {row.reason}".rstrip()


def _exit_code(result: BroadcastReport, *, interrupted: bool = False) -> Exit:
    return exit_code(
        interrupted=interrupted or result.stopped_by in ("asked", "closed"),
        refused=result.stopped_by in ("refused", "failure"),
        stopped=result.stopped_by == "stop_policy",
        unknown=result.unknown,
        missing=result.rejected + result.not_sent,
    )


def _print_counts(result: BroadcastReport, *, json: bool) -> None:
    if json:
        print_json({name: getattr(result, name) for name in result.__struct_fields__ if name != "file"})
    else:
        print_figures(_run_figures(result))


def _run_figures(result: BroadcastReport) -> Iterator[Figure]:
    yield "accepted", f"{result.accepted:,}", "", "green"
    yield "rejected", f"{result.rejected:,}", "", "red" if result.rejected else ""
    unknown = "may have been pushed; skipped" if result.unknown else ""
    yield "unknown", f"{result.unknown:,}", unknown, "yellow" if result.unknown else ""
    yield "not sent", f"{result.not_sent:,}", "", "yellow" if result.not_sent else ""
    remarks = []
    if result.seconds:
        remarks.append(f"in {duration(result.seconds)}")
    if result.duplicates:
        remarks.append(f"{count(result.duplicates, 'duplicate')} left out")
    if result.resent:
        remarks.append(f"{result.resent:,} resent after an unknown outcome")
    yield "users", f"{result.planned:,}", ", ".join(remarks), "bold"


def _print_next_steps(result: BroadcastReport, command: str, *, comment: str = "") -> None:
    """Print to stderr what is left to do; ``command`` resumes the run."""
    if result.in_use:
        warn("another process is sending this run: users in flight count as unknown until their response is received")
        return
    if not result.planned and not result.stopped:
        warn("nothing to send: the source has no users")
    if result.stopped:
        warn(f"stopped: {result.stopped}")
    if result.not_sent:
        warn(f"to send the rest:  {command}{comment}")
    if result.unknown:
        warn(f"to resend to unknown users, who may be pushed twice:  {command} --on-unknown resend{comment}")
