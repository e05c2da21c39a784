"""The client's ``broadcast``, ``send_each`` and ``resume``: open or plan the run, send it, report."""

import asyncio
import logging
import shutil
import tempfile
import time
import weakref
from collections.abc import AsyncGenerator, AsyncIterable, Awaitable, Callable, Mapping
from contextlib import ExitStack, asynccontextmanager, closing
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from pushsdk._audience.audience import Audience, Personalized
from pushsdk._audience.source import printable
from pushsdk._core import wire
from pushsdk._core.arguments import iterable
from pushsdk._core.errors import Advice, ConfigurationError, RunFileError, RunPlanError, warn_caller
from pushsdk._core.kinds import check
from pushsdk._core.outcome import Outcome
from pushsdk._core.placeholders import placeholder_names
from pushsdk._core.user_states import UserState
from pushsdk._core.words import count, near_word
from pushsdk._io.engine import Engine, EngineSettings
from pushsdk._io.forks import ProcessGuard
from pushsdk._io.lifetime import Lifetime
from pushsdk._public import set_public_module
from pushsdk._runs.folder import split
from pushsdk._runs.pipeline import Pipeline, RunSettings
from pushsdk._runs.plan import Header, StopReason
from pushsdk._runs.planner import Comparison, Planner, PlanningStoppedError
from pushsdk._runs.progress import planning_reporter
from pushsdk._runs.report import BroadcastReport, report_of
from pushsdk._runs.run_file.file import OTHER_MESSAGE, run_file_error
from pushsdk._runs.run_file.journal import Journal
from pushsdk._runs.stopping import asked_by

# A program that has not used any of their names has not loaded them by ``pushsdk``.
for _module in ("run_file.journal", "progress", "report"):
    set_public_module(f"pushsdk._runs.{_module}", "pushsdk")
logger = logging.getLogger("pushsdk")
Plan = Callable[[Planner], Awaitable[None]]


async def broadcast(
    lifetime: Lifetime,
    settings: RunSettings,
    user_ids: object,
    *,
    message: Any,
    custom_fields: Mapping[str, Any] | None,
    dedupe: bool,
) -> BroadcastReport:
    """See ``AsyncPushClient.broadcast``."""
    if not isinstance(user_ids, (Audience, AsyncIterable)):
        iterable("user_ids", user_ids, "a list or other iterable of ids, or for example Audience.read('users.csv')")
    check("dedupe", dedupe, bool)
    encoded, fields = broadcast_content(user_ids, message, custom_fields)
    header = _header(
        lifetime.settings,
        settings,
        kind="broadcast",
        message=encoded,
        custom_fields=fields,
        source=user_ids.source if isinstance(user_ids, Audience) else "",
        dedupe=dedupe,
    )
    is_file = isinstance(user_ids, Audience) and user_ids.is_file
    return await _run(lifetime, settings, header, lambda planner: planner.broadcast(user_ids), is_file=is_file)


def broadcast_content(users: object, message: Any, fields: Mapping[str, Any] | None) -> tuple[bytes, bytes | None]:
    """Encode a broadcast's content. Warns if the message names audience columns, or nearly: they are not sent."""
    content, columns = wire.encode_content(message, fields), getattr(users, "columns", ())
    names = placeholder_names(message).difference(fields or ())
    if any(name in columns or near_word(name, columns) for name in names):
        text = "the message has placeholders, and a broadcast sends no columns of the audience: "
        warn_caller(Advice(text, "{personalize}"))
    return content


async def send_each(lifetime: Lifetime, settings: RunSettings, requests: object) -> BroadcastReport:
    """See ``AsyncPushClient.send_each``."""
    if not isinstance(requests, (Personalized, AsyncIterable)):
        iterable("requests", requests, "an iterable of requests, such as audience.personalize(message)")
    source = requests.source if isinstance(requests, Personalized) else ""
    header = _header(lifetime.settings, settings, kind="each", source=source, dedupe=False)
    return await _run(lifetime, settings, header, lambda planner: planner.each(requests))


async def resume(lifetime: Lifetime, settings: RunSettings) -> BroadcastReport:
    """See ``AsyncPushClient.resume``."""
    path = settings.path
    if path is None:
        raise ConfigurationError("run must be the path of a run file, for example 'spring.run'")
    opening = partial(Journal.open, path, write=True, durable=settings.durable)
    async with _opened(lifetime.enter(), opening) as journal:
        journal.check_planned()
        asked = msgspec.structs.replace(journal.header, base_url=lifetime.settings.base_url, parts=settings.parts)
        _check_header(journal.header, asked, path)
        if settings.seen is not msgspec.UNSET and journal.notes.ended not in (None, settings.seen):
            return report_of(journal, run=path)
        return await _send(lifetime.enter(), settings, journal, logger.info)


async def _run(
    lifetime: Lifetime, settings: RunSettings, header: Header, plan: Plan, *, is_file: bool = False
) -> BroadcastReport:
    path = settings.path
    if path is None:
        return await _run_without_file(lifetime, settings, header, plan)
    opening = partial(Journal.open_or_create, path, header, durable=settings.durable)
    async with _opened(lifetime.enter(), opening) as journal:
        is_same = is_file and journal.sealed and journal.header.source == header.source
        if journal.sealed:
            _check_header(journal.header, header, path)
        return await _plan_and_send(lifetime, settings, journal, None if is_same else plan)


async def _run_without_file(lifetime: Lifetime, settings: RunSettings, header: Header, plan: Plan) -> BroadcastReport:
    """Use a temporary file, so memory does not grow with the audience. Deleted when the report is.

    It stays if the run fails because of it after something was sent: it is the only record of that.
    """
    try:
        folder = tempfile.mkdtemp(prefix="pushsdk-")
    except OSError as error:
        why = f"its folder can't be created ({error.strerror}): set TMPDIR, or pass run="
        raise run_file_error(None, why) from None
    try:
        with closing(Journal.open_or_create(Path(folder, "run"), header)) as journal:
            report = await _plan_and_send(lifetime, settings, journal, plan)
    except BaseException as error:
        if not isinstance(error, RunFileError) or error.outcome is Outcome.NOT_SENT:
            shutil.rmtree(folder, ignore_errors=True)
        raise
    weakref.finalize(report, _remove, folder, ProcessGuard())
    return report


def _remove(folder: str, guard: ProcessGuard) -> None:
    if not guard.is_inherited:  # a forked child drops only its report copy
        shutil.rmtree(folder, ignore_errors=True)


@asynccontextmanager
async def _opened(engine: Engine, opening: Callable[[], Journal]) -> AsyncGenerator[Journal]:
    """Open a journal in a thread, and close it in the end, also if the caller is cancelled meanwhile."""
    with ExitStack() as opened:
        yield await engine.offload(lambda: opened.enter_context(closing(opening())))


async def _plan_and_send(
    lifetime: Lifetime, settings: RunSettings, journal: Journal, plan: Plan | None
) -> BroadcastReport:
    if plan and (stopped := await _plan(lifetime.enter(), settings, journal, plan)):
        return report_of(journal, run=settings.path, stop_reason=stopped)
    if not journal.users:
        warn_caller("nothing was sent: the source has no users")
    return await _send(lifetime.enter(), settings, journal, warn_caller)


async def _plan(engine: Engine, settings: RunSettings, journal: Journal, plan: Plan) -> StopReason | None:
    """Plan the run, or raise RunPlanError if its plan has other users. Return why the planning was stopped, if so."""
    show = planning_reporter(settings.on_progress, engine.loop)

    def report(users: int) -> None:
        show(users)
        if (asked := asked_by(settings.stop) or journal.stop_asked()) is not None:
            planner.stop(asked.by, asked.reason)

    planner = Planner(
        Comparison(journal) if journal.sealed else journal,
        offload=engine.offload,
        report=report,
        read=settings.read,
    )
    engine.work.runs.add(planner)
    logger.info("the run reads its users")
    try:
        await plan(planner)
    except PlanningStoppedError:
        return planner.stop_reason
    except RunFileError:
        journal.drop_incomplete()  # on a full disk it would keep the disk full
        raise
    finally:
        engine.work.runs.discard(planner)
    return None


def _check_header(planned: Header, asked: Header, path: Path) -> None:
    """Raise RunPlanError if a call asks for another plan than the run has. Its users are compared later."""
    fix = ""
    if planned.base_url != asked.base_url:
        why = f"it was planned for another base_url, {printable(planned.base_url)}: resume it with that one"
    elif planned.kind != asked.kind:
        why = f"it is a run of {_KINDS[planned.kind]}, not of {_KINDS[asked.kind]}"
        fix = OTHER_MESSAGE
    elif planned.message != asked.message:
        why, fix = "it has another message", OTHER_MESSAGE
    elif planned.custom_fields != asked.custom_fields:
        why, fix = "it has other custom_fields", OTHER_MESSAGE
    elif planned.dedupe != asked.dedupe:
        why = f"it was planned with dedupe={planned.dedupe}: pass the same, or resume it"
    elif planned.parts and not asked.parts:
        why = "it is the plan of a folder, whose other run files are sent: pass one of these"
    else:
        return
    raise run_file_error(path, why, fix, kind=RunPlanError)


async def _send(
    engine: Engine, settings: RunSettings, journal: Journal, tell: Callable[[str], object]
) -> BroadcastReport:
    if settings.parts:
        await engine.offload(partial(split, journal, durable=settings.durable))
        sent: BroadcastReport = await settings.send_parts(journal)
        return sent
    pipeline = Pipeline(journal, settings, engine)
    if pipeline.ended is not None:
        tell(f"nothing was sent: {_why_nothing(journal.outcomes()[Outcome.UNKNOWN])}")
    started, observer = engine.loop.time(), engine.sender.observer
    accepted = journal.states.count(UserState.ACCEPTED)
    engine.work.runs.add(pipeline.stopping)
    watched = None if observer is None else observer.run(journal.users, journal.chunks)
    try:
        with engine.work.including(pipeline):
            await pipeline.run()
    except asyncio.CancelledError as error:
        users = ", ".join(f"{number:,} {outcome}" for outcome, number in journal.outcomes().items() if number)
        error.add_note(f"pushsdk: the users of the cancelled run are {users}; {_how_to_continue(settings.path)}")
        raise
    finally:
        engine.work.runs.discard(pipeline.stopping)
        if watched is not None:
            watched.end(journal.outcomes())
    report, shows = report_of(journal, run=settings.path), engine.settings.show_answers
    now, seconds = report.accepted - accepted, engine.loop.time() - started
    return msgspec.structs.replace(report, accepted_now=now, seconds=seconds, show_answers=shows)


def _how_to_continue(path: Path | None) -> str:
    if path is None:
        return "a run can be continued if it has a file: pass run="
    return f"to continue the run: await client.resume({str(path)!r})"


def _why_nothing(unknown: int) -> str:
    if unknown:
        return f"{count(unknown, 'user')} UNKNOWN; on_unknown='resend' pushes to these again, perhaps a second time"
    return "an earlier call completed this run; to push again, pass a new run"


def _header(settings: EngineSettings, run: RunSettings, **fields: Any) -> Header:
    return Header(
        not_after=run.not_after,
        parts=run.parts,
        base_url=settings.base_url,
        max_users=settings.batching.max_users,
        max_bytes=settings.batching.max_bytes,
        created=time.time(),
        **fields,
    )


_KINDS = {"broadcast": "one message for all users", "each": "one message per user"}
