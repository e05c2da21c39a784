"""The run commands: ``plan``, ``broadcast``, ``resume``, ``status`` and ``report``."""

import asyncio
import io
import itertools
import os
import sys
import time
import warnings
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from operator import attrgetter
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any, Literal, NamedTuple

import msgspec
from cyclopts import Group, Parameter
from cyclopts.validators import Number
from msgspec.structs import replace

from pushsdk import (
    AsyncPushClient,
    Batching,
    BroadcastReport,
    Limits,
    MessageWarning,
    Outcome,
    Personalized,
    PushError,
    RetryPolicy,
    Row,
    RunFileError,
    RunPlanError,
    StopPolicy,
    read_report,
)
from pushsdk._audience.audience import EXCLUDING, Audience
from pushsdk._core import wire
from pushsdk._core.body import encode_user_ids, push_body
from pushsdk._core.operations import PUSH
from pushsdk._core.outcome import Failure
from pushsdk._core.words import count
from pushsdk._io.files import folder_objection
from pushsdk._io.threads import in_thread
from pushsdk._runs.api import broadcast_content
from pushsdk._runs.folder import PLAN, check_plan, planned_files
from pushsdk._runs.plan import Chunk, Header
from pushsdk._runs.planner import Planner
from pushsdk._runs.report import rows_of, write_rows
from pushsdk._runs.run_file.file import ask_to_stop, filled_in, run_path
from pushsdk._runs.run_file.journal import Journal
from pushsdk.cli.commands.message import draw, previews
from pushsdk.cli.exit import CommandError, Exit, text_of, usage_error
from pushsdk.cli.files import DryRun, MessageOptions, has_users, open_users, print_request, utf8
from pushsdk.cli.interrupt import interruptible
from pushsdk.cli.options import Json, JsonLines, ServiceOptions, Yes, command_line, confirm, quoted, title_of
from pushsdk.cli.output import Figure, ProgressMode, drawing, print_figures, progress
from pushsdk.cli.processes import Children, send_folder, waiting_processes
from pushsdk.cli.settings import ClientSettings, allowed
from pushsdk.cli.terminal import duration, print_json, say, warn


def _dated(name: str) -> str:
    """Return the name with today's date, which is local, as cron's times are. Raises a usage error if it is empty."""
    # The empty path would be the working folder.
    if not name:
        raise usage_error("the name of a file is empty: is a variable of the shell not set?")
    return name.replace("{date}", time.strftime("%Y-%m-%d"))


RunPath = Annotated[Path, Parameter(converter=lambda _, given: Path(_dated(given[0].value)))]
RunFile = Annotated[RunPath, Parameter(help="The file of the run.")]
UserSource = Annotated[
    str | None,
    Parameter(
        help="A .txt (one id per line), .csv, .jsonl or .parquet file with the users; - is ids on standard input."
    ),
]
Share = Annotated[float, Parameter(validator=Number(gt=0, lte=1))]
_POSITIVE = Parameter(validator=Number(gt=0, lt=1e9))
Speed = Annotated[float | None, _POSITIVE]
# cyclopts would round 2.7.
Whole = Annotated[int | None, Parameter(converter=lambda _, given: int(given[0].value), validator=Number(gte=1))]
Format = Annotated[Literal["table", "csv", "json"], Parameter(name="--format")]
_FILES_PER_PROCESS = 4  # so that no process waits long for the last
_WATCH_INTERVAL = 1.0  # seconds
_WIDTH_SAMPLE = 1000  # rows that decide how wide the user id column is


class Job(NamedTuple):
    """A run's input; ``requests`` if each user has one."""

    audience: Audience
    message: Mapping[str, Any]
    fields: Any
    requests: Personalized | None
    dedupe: bool


Start = Callable[[AsyncPushClient, dict[str, Any]], Awaitable[BroadcastReport]]
"""A function that starts the run with a client and the options for every run."""


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class BroadcastOptions(MessageOptions):
    """The broadcast message, and how its users are read."""

    query: str | None = None
    """Read the users with this DuckDB SELECT, for example "SELECT user_id FROM 'users.parquet'"."""
    primary_key: str = "user_id"
    """Read the user id from this column or key."""
    exclude: tuple[str, ...] = ()
    """Leave out the users in this file, or those that an earlier run pushed to; {date} is today's date. Repeatable."""
    no_dedupe: bool = False
    """Keep duplicates: push to an id as often as it occurs."""
    personalize: Literal["custom-fields", "text", "both"] | None = None
    """Use each row's other columns as custom fields, in the text's placeholders, or both."""

    def users(self, source: str | None) -> Audience:
        """Return the users from a file, standard input or a query. Raises a usage error or a ValidationError."""
        if (source is None) is (self.query is None):
            raise usage_error("pass exactly one source of users: a file, - for standard input, or --query SQL")
        if self.query is not None:
            audience = Audience.query(utf8(self.query), primary_key=self.primary_key)
        else:
            audience = open_users(str(source), self.primary_key)
        excluded = [name if has_users(name) else read_report(name).pushed() for name in map(_dated, self.exclude)]
        return audience.exclude(*excluded, primary_key=self.primary_key)

    def job(self, source: str | None) -> Job:
        """Return a run's input. Warn about placeholders that nothing fills."""
        message, fields = self.read()
        users, dedupe = self.users(source), not self.no_dedupe
        if self.personalize is None:
            broadcast_content(users, message, fields)
            return Job(users, message, fields, None, dedupe)
        into: Any = self.personalize.replace("-", "_")
        requests = users.personalize(message, into=into, custom_fields=fields, distinct=dedupe)
        return Job(users, message, fields, requests, dedupe)


@Parameter(name="*", group=Group("Run", sort_key=5))
@dataclass(frozen=True, kw_only=True)
class ResumeOptions:
    """Options for ``broadcast`` and ``resume``: retries, stopping and printing."""

    on_unknown: Literal["skip", "resend"] = "skip"
    """Skip or resend users with an unknown outcome; resend may push to them twice."""
    limit: Whole = None
    """Stop after this many users; resume continues there. [default: no limit]"""
    not_after: str | None = None
    """Begin no request after this time: 18:00 today, or 2026-11-29T18:00+01:00. A resume keeps it."""
    max_rejected: Share = 0.5
    """Stop if more than this share of the last settled users was rejected."""
    max_unknown: Share = 0.25
    """Stop if more than this share of the last settled users has an unknown outcome."""
    max_outage: Annotated[float, _POSITIVE] = 600.0
    """Stop after this many seconds without an accepted user."""
    no_stop_policy: bool = False
    """Don't stop early, unless the Api-Key is refused."""
    processes: Whole = None
    """Send with this many processes; --run is then a folder of run files."""
    durable: bool = False
    """Sync each claim to the disk, so that the run survives a power loss."""
    progress: ProgressMode = "auto"
    """Show progress on stderr; auto draws on a terminal and prints plain lines elsewhere."""
    yes: Yes = False
    json: Json = False

    def run_options(self) -> dict[str, Any]:
        """Return the run options, for the client."""
        policy = StopPolicy(rejected=self.max_rejected, unknown=self.max_unknown, max_outage=self.max_outage)
        if self.no_stop_policy:
            if policy != StopPolicy():
                raise usage_error("--no-stop-policy can't be used with --max-rejected, --max-unknown or --max-outage")
            policy = StopPolicy.off()
        return {
            "on_unknown": self.on_unknown,
            "limit": self.limit,
            "not_after": self.not_after and _moment(self.not_after),
            "stop_policy": policy,
            "durable": self.durable,
        }

    def limited(self, users: int) -> int:
        """Return how many of these users the command sends to."""
        return min(users, self.limit or users)

    def users_left(self, result: BroadcastReport) -> int:
        """Return how many users the command still sends to."""
        return self.limited(result.not_sent + (result.unknown if self.on_unknown == "resend" else 0))


def _moment(text: str) -> datetime:
    """Return the time that a text names, in the local zone unless it names another.

    Raises a usage error for another text, and for a time that is past.
    """
    day = "" if "-" in text else time.strftime("%Y-%m-%dT")
    # Not a day alone, which would mean its first moment.
    moment = None
    with suppress(ValueError):
        if ":" in text:
            moment = datetime.fromisoformat(day + text).astimezone()
    if moment is None:
        raise usage_error("--not-after must be a time such as 18:00 or 2026-11-29T18:00+01:00")
    if moment <= datetime.now(UTC):
        raise usage_error(f"--not-after must be in the future; got {moment:%Y-%m-%d %H:%M:%S %z}")
    return moment


def plan(
    source: UserSource = None,
    /,
    *,
    content: BroadcastOptions = BroadcastOptions(),
    rate: Annotated[Speed, Parameter(name=["--rate", "--users-per-second"], env_var="PUSHSDK_RATE")] = None,
    requests_per_second: Annotated[Speed, Parameter(env_var="PUSHSDK_REQUESTS_PER_SECOND")] = None,
    json: Json = False,
) -> int:
    """Estimate the users, requests, bytes and time for a broadcast.

    Args:
        rate: Estimate the time at this many users per second.
        requests_per_second: Estimate the time at this many requests per second.
    """
    job = content.job(source)
    totals = _counted(job, {}).totals
    seconds = {
        f"{speed:,g} {noun}{'s' * (speed != 1)} per second": totals[f"{noun}s"] / speed
        for noun, speed in (("user", rate), ("request", requests_per_second))
        if speed is not None
    }
    if json:
        print_json({**totals, "seconds": max(seconds.values(), default=None)})
    else:
        print_figures(_plan_figures(totals, job.audience.source, seconds))
    if not totals["users"]:
        raise _no_users(job.audience.summary.excluded)
    return Exit.DONE


def _no_users(excluded: int) -> CommandError:
    return usage_error("the source has no users" + (f" beside the {excluded:,} excluded" if excluded else ""))


class _Counts:
    """Stands in for a journal: counts the requests that a run would send, and keeps the first."""

    def __init__(self, header: Header, settings: Any) -> None:
        self.header = header
        self._settings = settings
        self.users = self.requests = self.bytes = self.largest = 0
        #: Users without a push with these settings.
        self.unlisted = 0
        #: The users, the message and the custom fields. Set by ``add``.
        self.first: tuple[list[str], bytes, bytes | None] | None = None

    def add(self, chunks: Iterable[Chunk]) -> None:
        for chunk in chunks:
            users = allowed(chunk.user_ids(), self._settings)
            self.unlisted += chunk.users - len(users)
            if users:
                content = self.header if chunk.message is None else chunk
                request = users, content.message or b"{}", content.custom_fields
                self.first = self.first or request
                size = len(push_body(encode_user_ids(users), *request[1:]))
                self.users, self.requests = self.users + len(users), self.requests + 1
                self.bytes, self.largest = self.bytes + size, max(self.largest, size)

    def seal(self, **counts: int) -> None:
        #: Counts for people and programs.
        self.totals = {
            "users": self.users,
            **counts,
            "requests": self.requests,
            "bytes": self.bytes,
            "largest": self.largest,
        }


def _counted(job: Job, settings: Any) -> _Counts:
    """Plan a run without a file. Warn about damaged ids, which is an error without --force."""
    batching = Batching()
    encoded, custom_fields = wire.encode_content(job.message, job.fields, warn=False)
    header = Header(
        kind="each" if job.requests else "broadcast",
        base_url="",
        message=encoded,
        custom_fields=custom_fields,
        source=job.audience.source,
        max_users=batching.max_users,
        max_bytes=batching.max_bytes,
        dedupe=job.dedupe,
    )
    counts = _Counts(header, settings)
    journal: Any = counts
    with drawing() as draw:
        planner = Planner(
            journal,
            offload=in_thread,
            report=lambda users: draw([("planning", f"{users:,}", "users", "")]),
        )
        asyncio.run(planner.each(job.requests) if job.requests else planner.broadcast(job.audience))
    return counts


def _plan_figures(totals: Mapping[str, int], source: str, seconds: Mapping[str, float]) -> Iterator[Figure]:
    yield (
        "users",
        f"{totals['users']:,}",
        ", ".join(_left_out(totals["duplicates"], totals["excluded"], source)),
        "bold",
    )
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
    content: BroadcastOptions = BroadcastOptions(),
    run: RunPath,
    dry_run: DryRun = False,
    options: ResumeOptions = ResumeOptions(),
    service: ServiceOptions = ServiceOptions(),
) -> int:
    """Push a message to many users, in a run that survives a crash.

    Args:
        run: Record the run in this file, which holds user ids and is readable by you only; {date} is today's date.
    """
    filled_in(run_path(run))  # before the question, and before a folder is made
    settings = service.settings(dry_run=dry_run)
    job = content.job(source)
    audience, message, fields, requests, dedupe = job
    if dry_run:
        _print_dry_run(_counted(job, settings), audience, settings["base_url"], json=options.json)
        return Exit.DONE
    try:
        users = options.users_left(read_report(run))
    except PushError:  # a new run
        users = None

    def target() -> str:
        if users is not None:
            return f"{count(users, 'more user')} of {run}{_in_requests(users, each=bool(requests))}"
        if content.query is None and source in ("-", "@-"):
            return "the users on standard input"
        number = options.limited(_counted(job._replace(requests=None), settings).users)
        return f"{count(number)}{_in_requests(number, each=bool(requests))}"

    async def start(client: AsyncPushClient, run_options: dict[str, Any]) -> BroadcastReport:
        run_options["run"] = run / PLAN if "parts" in run_options else run
        if requests:
            return await client.send_each(requests, **run_options)
        return await client.broadcast(audience, message, custom_fields=fields, dedupe=dedupe, **run_options)

    title = quoted(title_of(message))
    return _send_run(start, run, options, settings, service.given(), users, lambda: f"Push{title} to {target()}")


def _print_dry_run(counts: _Counts, audience: Audience, base_url: str, *, json: bool) -> None:
    """Print the counts, the text that the first user sees, and the first request, with three users at most."""
    _tell_unlisted(counts.unlisted)
    if counts.first is None:
        raise usage_error("no user is left") if counts.unlisted else _no_users(audience.summary.excluded)
    users, message, fields = counts.first
    texts = previews(msgspec.json.decode(message), msgspec.json.decode(fields or b"{}"))
    if not json:
        print_figures(itertools.islice(_plan_figures(counts.totals, audience.source, {}), 2))
        draw(texts)
    body = push_body(encode_user_ids(users[:3]), message, fields)
    print_request(base_url, PUSH, body, json=json, more={**counts.totals, "texts": texts})
    warn(f"nothing was sent: this is the first request, with {len(users[:3])} of its {count(len(users))}")


def _tell_unlisted(users: int) -> None:
    if users:
        warn(f"{count(users)} left out: --only-users does not name them")


def _in_requests(users: int, *, each: bool = False) -> str:
    """Return the request count for these users: full ones, or one for each user."""
    return f" in {count(users if each else -(-users // Batching().max_users), 'request')}"


def resume(
    run: RunFile, /, *, options: ResumeOptions = ResumeOptions(), service: ServiceOptions = ServiceOptions()
) -> int:
    result = read_report(run)
    users = options.users_left(result)

    async def start(client: AsyncPushClient, run_options: dict[str, Any]) -> BroadcastReport:
        return await client.resume(_plan_of(run), **run_options)

    action = f"Push{quoted(result.title)} to {count(users, 'more user')} of {run}{_in_requests(users)}"
    return _send_run(start, run, options, service.settings(), service.given(), users, lambda: action)


def _send_run(
    start: Start,
    run: Path,
    options: ResumeOptions,
    settings: ClientSettings,
    given: Mapping[str, Any],
    users: int | None,
    action: Callable[[], str],
) -> int:
    """Ask, send a run until it ends or Ctrl-C, print the counts, and on stderr what is left to do.

    ``users`` is the number of users left, None if unknown; ``action`` begins the question.
    """
    # The first is named below, and the others were told before the question.
    warnings.filterwarnings("ignore", "nothing was sent|the (message|audience) has", MessageWarning)
    command = command_line(["resume", run], {"processes": options.processes or False, **given})
    settings = _without_retry(settings)
    with _in_processes(start, run, options, settings, users) as begin:
        mode: ProgressMode = "none"
        if users != 0:
            confirm(action, settings, yes=options.yes)
            mode = options.progress
        sending = _send(AsyncPushClient(**settings), begin, options.run_options(), mode, command)
        try:
            result, interrupted = asyncio.run(sending) or (_report_of_cancelled(run), True)
        except RunPlanError as error:
            excluded = f", unless you --exclude {run}"
            raise usage_error(text_of(error, resume=command, earlier_run=excluded)) from None
    _print_counts(result, json=options.json, left=users)
    if not interrupted:
        _remove_empty(result, run)
    unlisted = result.reasons.get(Failure.NOT_LISTED, 0) if settings["only_users"] else 0
    _print_next_steps(result, run, command, unlisted=unlisted)
    if users == 0:
        _tell_complete(result)
    return _exit_code(result, interrupted=interrupted)


def _tell_complete(result: BroadcastReport) -> None:
    """Say that the run was complete before."""
    again = "" if result.unknown else "; to push again, pass a new --run"
    warn(f"nothing was sent: an earlier command completed this run{again}")


def _remove_empty(result: BroadcastReport, run: Path) -> None:
    """Remove a run that has no user, and raise a usage error: the file would only refuse the next try."""
    if result.planned or result.stopped:
        return
    _plan_of(run).unlink()
    with suppress(OSError):
        run.rmdir()
    raise _no_users(result.excluded)


def _plan_of(run: Path) -> Path:
    return run / PLAN if run.is_dir() else run


@contextmanager
def _in_processes(
    start: Start, run: Path, options: ResumeOptions, settings: ClientSettings, users: int | None
) -> Iterator[Start]:
    """Yield a function that plans a folder, and has child processes send it; ``start`` itself for one run file."""
    if options.processes is None and not run.is_dir():
        yield start
        return
    _check_folder(run, options.processes)
    processes = options.processes or 1
    limits = settings["limits"] or Limits()
    # One process counts a limit exactly, and does not go on if it is killed.
    most = 1 if options.limit else min(processes, limits.in_flight or processes)
    with waiting_processes(0 if users == 0 else most) as children:

        async def begin(client: AsyncPushClient, given: dict[str, Any]) -> BroadcastReport:
            with suppress(OSError):  # the error of the file in it says more
                run.mkdir(0o700)  # noqa: ASYNC240 - before anything is sent
            send = partial(_send_parts, run, settings, children, **given)
            result = await start(client, {**given, "parts": _FILES_PER_PROCESS * processes, "send_parts": send})
            if not result.seconds:  # the planning was stopped
                with suppress(RunFileError):  # the plan is incomplete
                    return replace(read_report(run), stopped=result.stopped, stopped_by=result.stopped_by)
            return result

        yield begin


def _check_folder(run: Path, processes: int | None) -> None:
    """Raise a usage error if the path is one run file, or a folder that can't or should not take the run files."""
    if run.is_file():
        raise usage_error(
            f"{run} is one run file, for one process: leave out --processes; another --run pushes to all again"
        )
    check_plan(run)
    if processes is None and not _plan_of(run).exists():  # such as the working folder
        raise usage_error(
            f"{run} is a folder without a run: name a file in it, or pass --processes for run files in it"
        )
    if run.is_dir() and (why := folder_objection(run)):
        raise usage_error(f"{run}: {why}")


async def _send_parts(
    run: Path,
    settings: ClientSettings,
    children: Children,
    plan: Journal,
    *,
    on_progress: Any,
    stop: Any,
    **given: Any,
) -> BroadcastReport:
    """Have the run files sent by child processes, in which the plan was split."""
    started = time.monotonic()
    files = [*map(read_report, planned_files(run, plan.users and plan.header.parts))]
    code = (
        await send_folder(children, files, settings, given, on_progress, lambda: stop.is_set() or plan.stop_asked())
        if files
        else 0
    )
    if code > Exit.INCOMPLETE and not stop.is_set():
        raise CommandError("a process failed: see its error above", Exit(code))
    result = read_report(run)
    if asked := plan.stop_asked():
        result = replace(result, stopped=asked.reason, stopped_by=asked.by)
    return replace(
        result,
        in_use=False,
        accepted_now=result.accepted - sum(file.accepted for file in files),
        seconds=time.monotonic() - started,
    )


def _without_retry(settings: ClientSettings) -> ClientSettings:
    """Return the settings for a run, with advice if a retry policy is ignored."""
    if settings["retry"] != RetryPolicy.safe():
        warn(
            "advice: a run does not use the setting retry: it retries throttled and unsent requests until "
            "--max-outage ends it"
        )
    return {**settings, "retry": None}


def _report_of_cancelled(run: Path) -> BroadcastReport:
    """Return the report on a cancelled run: its file holds the counts."""
    try:
        return read_report(run)
    except RunFileError as error:
        raise CommandError(text_of(error), Exit.INTERRUPTED) from None


async def _send(
    client: AsyncPushClient, start: Start, run_options: dict[str, Any], mode: ProgressMode, command: str
) -> tuple[BroadcastReport, bool] | None:
    """Return the report on the run, and if a signal stopped it; None if a second signal cancelled it."""
    last_words = f"ended; to continue, run the same command again, or:  {command}"
    with interruptible(last_words) as stop, progress(mode) as show:
        try:
            try:
                result = await start(client, {**run_options, "on_progress": show, "stop": stop})
            finally:
                await client.aclose(drain=0)
        except asyncio.CancelledError:
            return None
    return result, stop.is_set()


def stop(run: RunFile, /) -> int:
    # Shells and cron set the variable, some containers don't.
    ask_to_stop(_plan_of(run), os.environ.get("LOGNAME", ""))
    say(f"{run} stops after the requests in flight")
    return Exit.DONE


def status(
    run: RunFile,
    /,
    *,
    watch: bool = False,
    json: Json = False,
) -> int:
    """Show a run and its counts.

    Args:
        watch: Update the counts every second, as long as the run is sent.
    """
    result = read_report(run)
    if watch:
        with drawing() as draw:
            while result.in_use:
                draw(_run_figures(result))
                time.sleep(_WATCH_INTERVAL)
                result = read_report(run)
    if not json:
        _print_facts(result)
    _print_counts(result, json=json)
    command = command_line(["resume", run], {"base_url": result.base_url})
    # The file does not hold the other options, and without the run's --rate a resume may send too fast.
    _print_next_steps(result, run, command, comment="  # with the options of the run, for example --rate")
    return _exit_code(result)


def _print_facts(result: BroadcastReport) -> None:
    texts = {
        "title": result.title or "(none, or each user has a message)",
        "address": result.base_url,
        "source": result.source,
    }
    for name in ("begun", "ended"):
        if at := getattr(result, name):
            texts[name] = f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M:%S} UTC"
    for name, text in texts.items():
        if text:
            say(f"{name:<8}  {text}")


def report(
    run: RunFile,
    /,
    *,
    form: Format = "table",
    json: JsonLines = False,
    outcome: Sequence[Outcome] = (),
    user: Sequence[str] = (),
) -> int:
    """Print one row per user of a run: id, outcome, HTTP status and reason.

    Args:
        form: Print this format; csv is safe to open in a spreadsheet, and json, like --json, is exact.
        outcome: Print only the users with this outcome. Repeatable.
        user: Print only this user's row. Repeatable.
    """
    if json and form == "csv":
        raise usage_error("pass either --format csv or --json")
    if isinstance(sys.stdout, io.TextIOWrapper):  # an id file is UTF-8 with plain line ends in every locale
        sys.stdout.reconfigure(encoding="utf-8", newline="\n")
    result, users = read_report(run), [*map(utf8, user)]
    encode_user_ids(users, "--user")  # checks them
    rows, missing = _rows_of(result, outcome, {*users})
    if json or form == "json":
        for row in rows:
            print_json(row)
    else:
        (_print_csv if form == "csv" else _print_table)(rows)
    return Exit(bool(missing))  # INCOMPLETE, as for a job that is not claimed


def _rows_of(result: BroadcastReport, outcomes: Sequence[Outcome], users: set[str]) -> tuple[Iterator[Row], set[str]]:
    """Return the rows with these outcomes, with ``users`` only theirs; and the users without a row.

    Prints the service's answers first, or warns about those users.
    """
    if not users:
        _print_answers(result)
        return rows_of(result, outcomes), users
    rows = [*rows_of(result, users=users)]
    missing = users.difference(map(attrgetter("user_id"), rows))
    for user in sorted(missing):
        warn(f"{user!r} is not in this run")
    return iter([row for row in rows if not outcomes or row.outcome in outcomes]), missing


def _print_csv(rows: Iterator[Row]) -> None:
    on_terminal: Any = SimpleNamespace(write=lambda row: say(row.removesuffix("\n")))
    if changed := write_rows(on_terminal if sys.stdout.isatty() else sys.stdout, rows):
        warn(f"put a ' before {count(changed, 'id')}, so that no spreadsheet runs it as a formula; --json is exact")


def _print_table(rows: Iterator[Row]) -> None:
    """Print the rows in columns. The first rows decide how wide the ids are, so no row waits for the last."""
    first = list(itertools.islice(rows, _WIDTH_SAMPLE))
    width = max([len("user_id"), *(len(row.user_id) for row in first)])
    say(f"{'user_id':<{width}}  {'outcome':<8}  status  reason")
    for row in itertools.chain(first, rows):
        number = "" if row.status is None else row.status
        say(f"{row.user_id:<{width}}  {row.outcome.value:<8}  {number:>6}  {row.reason}".rstrip())


def _exit_code(result: BroadcastReport, *, interrupted: bool = False) -> Exit:
    rules = (
        (interrupted or result.stopped_by in ("asked", "closed"), Exit.INTERRUPTED),
        (result.stopped_by in ("refused", "failure"), Exit.CANNOT_RUN),
        (result.stopped_by == "stop_policy", Exit.STOPPED),
        (result.unknown, Exit.UNKNOWN),
        (result.rejected + result.not_sent, Exit.INCOMPLETE),
        (not result.planned, Exit.USAGE),
    )
    return next((code for applies, code in rules if applies), Exit.DONE)


def _print_counts(result: BroadcastReport, *, json: bool, left: int | None = None) -> None:
    if json:
        print_json({name: getattr(result, name) for name in result.__struct_fields__ if name != "file"})
    else:
        print_figures(_run_figures(result, left))


def _run_figures(result: BroadcastReport, left: int | None = None) -> Iterator[Figure]:
    """Yield the counts. ``left`` is the number of users that the command had to send to, None if unknown."""
    earlier = result.accepted - result.accepted_now if result.seconds else 0
    yield "accepted", f"{result.accepted:,}", f"{earlier:,} by earlier commands" if earlier else "", "green"
    yield "rejected", f"{result.rejected:,}", "", "red" if result.rejected else ""
    unknown = "may have been pushed; skipped" if result.unknown else ""
    yield "unknown", f"{result.unknown:,}", unknown, "yellow" if result.unknown else ""
    yield "not sent", f"{result.not_sent:,}", "", "yellow" if result.not_sent else ""
    yield "users", f"{result.planned:,}", ", ".join(_remarks(result, left)), "bold"


def _remarks(result: BroadcastReport, left: int | None) -> Iterator[str]:
    if left == 0:
        yield "nothing was left to send"
    elif result.seconds:
        yield f"in {duration(result.seconds)}"
    yield from _left_out(result.duplicates, result.excluded, result.source)
    if result.resent:
        yield f"{result.resent:,} resent after an unknown outcome"


def _left_out(duplicates: int, excluded: int, source: str) -> Iterator[str]:
    if duplicates:
        yield f"{count(duplicates, 'duplicate')} left out"
    if excluded or EXCLUDING in source:
        yield f"{excluded:,} excluded"


def _print_answers(result: BroadcastReport) -> None:
    for answer, number in result.answers.items():
        warn(f"answers: {number:,} x {answer}")
    for reason, users in result.reasons.items():
        if not reason.startswith(("HTTP", Failure.NOT_LISTED)):  # an answer, or told below
            warn(f"reasons: {count(users)}: {reason}")


def _print_next_steps(
    result: BroadcastReport, run: Path, command: str, *, comment: str = "", unlisted: int = 0
) -> None:
    """Print to stderr what is left to do; ``command`` resumes the run, without the ``unlisted`` users."""
    if result.in_use:
        warn("another process is sending this run: users in flight count as unknown until their response is received")
        return
    if result.stopped:
        warn(f"stopped: {result.stopped}")
    _print_answers(result)
    _tell_unlisted(unlisted)
    if result.stopped_by == "not_after":
        warn("to push to the rest, --exclude this run and pass another --run: pushsdk docs nightly-job#a-late-run")
        return
    if result.not_sent > unlisted and not _is_plan(result):
        warn(f"to send the rest, also if they opted out, and twice if a later run had them:  {command}{comment}")
    if result.unknown:
        listing = command_line(["report", run], {"outcome": "unknown"})
        warn(f"to list the unknown users, who may have the push:  {listing}")
        warn(f"only if a second push is better than none:  {command} --on-unknown resend{comment}")


def _is_plan(result: BroadcastReport) -> bool:
    """Return True for a plan that was stopped: it can't be resumed, never ended, and sent nothing."""
    return bool(result.stopped) and not (result.ended or Path(result.file).is_dir() or result.not_sent < result.planned)
