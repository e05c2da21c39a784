"""What the client's ``broadcast``, ``send_each`` and ``resume`` do: open or plan the run, send it, report."""

from __future__ import annotations

import asyncio
import math
import os
import shutil
import tempfile
import threading
import time
import weakref
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, Literal

from pushsdk._audience.chunks import ChunkSource, RequestSource
from pushsdk._audience.source import printable
from pushsdk._core import wire
from pushsdk._core.errors import ConfigurationError, RunFileError
from pushsdk._core.outcome import Outcome
from pushsdk._core.policy import RetryPolicy
from pushsdk._io.engine import Engine
from pushsdk._io.forks import ProcessGuard
from pushsdk._io.threads import settled
from pushsdk._runs.options import RunSettings
from pushsdk._runs.pipeline import Pipeline
from pushsdk._runs.plan import Header
from pushsdk._runs.planner import Planner, PlanningStoppedError
from pushsdk._runs.progress import Progress
from pushsdk._runs.report import BroadcastReport, report_of
from pushsdk._runs.run_file.file import run_file_error
from pushsdk._runs.run_file.journal import Journal
from pushsdk._version import __version__

__all__ = ["broadcast", "resume", "send_each"]

Plan = Callable[[Planner], Awaitable[None]]


async def broadcast(
    engine: Engine,
    settings: RunSettings,
    user_ids: object,
    *,
    message: Any,
    custom_fields: Mapping[str, Any] | None,
    dedupe: bool,
) -> BroadcastReport:
    """See ``AsyncPushClient.broadcast``."""
    header = _header(
        engine,
        "broadcast",
        settings.policy,
        message=wire.encode_message(message),
        custom_fields=None if custom_fields is None else wire.encode_custom_fields(custom_fields),
        source=user_ids.source if isinstance(user_ids, ChunkSource) else "",
        dedupe=dedupe,
    )
    return await _run(engine, settings, header, lambda planner: planner.broadcast(user_ids))


async def send_each(engine: Engine, settings: RunSettings, requests: object) -> BroadcastReport:
    """See ``AsyncPushClient.send_each``."""
    source = requests.source if isinstance(requests, RequestSource) else ""
    header = _header(engine, "each", settings.policy, source=source, dedupe=False)
    return await _run(engine, settings, header, lambda planner: planner.each(requests))


async def resume(engine: Engine, settings: RunSettings) -> BroadcastReport:
    """See ``AsyncPushClient.resume``."""
    settings.check()
    path = settings.path
    if path is None:
        raise ConfigurationError("run is the path of a run file")
    journal = await _opened(engine, lambda: Journal.open(path, write=True, durable=settings.durable))
    try:
        journal.check_planned()
        _check_base_url(engine, journal.header, path)
        return await _send(engine, settings, journal)
    finally:
        journal.close()


# -- the parts ------------------------------------------------------------------------------------------------------


async def _run(engine: Engine, settings: RunSettings, header: Header, plan: Plan) -> BroadcastReport:
    settings.check()
    path = settings.path
    if path is None:
        return await _run_without_file(engine, settings, header, plan)
    journal = await _opened(engine, lambda: _open_or_create(engine, path, header, settings.durable))
    try:
        return await _plan_and_send(engine, settings, journal, plan)
    finally:
        journal.close()


async def _run_without_file(engine: Engine, settings: RunSettings, header: Header, plan: Plan) -> BroadcastReport:
    """The same in a temporary file, so that memory does not grow with the audience; it goes with the report."""
    try:
        folder = tempfile.mkdtemp(prefix="pushsdk-")
    except OSError as error:
        raise run_file_error(
            None, f"no folder for it can be made ({error.strerror}): set TMPDIR, or pass run="
        ) from None
    try:
        journal = Journal.create(Path(folder, "run"), header)
        try:
            report = await _plan_and_send(engine, settings, journal, plan)
        finally:
            journal.close()
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    weakref.finalize(report, _remove, folder, ProcessGuard())
    return report


def _remove(folder: str, guard: ProcessGuard) -> None:
    if not guard.is_inherited:  # a child drops its copy of the report
        shutil.rmtree(folder, ignore_errors=True)


async def _opened(engine: Engine, opening: Callable[[], Journal]) -> Journal:
    """The journal that is opened away from the event loop; closed again where the caller is cancelled meanwhile."""
    task = asyncio.ensure_future(engine.offload(opening))
    try:
        journal: Journal = await asyncio.shield(task)
    except asyncio.CancelledError:
        if await settled(task):
            task.result().close()
        raise
    return journal


async def _plan_and_send(engine: Engine, settings: RunSettings, journal: Journal, plan: Plan) -> BroadcastReport:
    if not journal.sealed:
        planner = Planner(
            journal,
            offload=engine.offload,
            durable=settings.syncs,
            tell=_teller(engine, settings),
            stop=settings.stop,
        )
        engine.plans.add(planner)
        try:
            await plan(planner)
        except PlanningStoppedError:
            return report_of(journal, run=settings.name, ending=planner.stop_reason)
        finally:
            engine.plans.discard(planner)
    return await _send(engine, settings, journal)


def _open_or_create(engine: Engine, path: Path, header: Header, durable: bool) -> Journal:
    """The sealed run at this path, if it is the same one, or a new one to be planned."""
    if not os.path.lexists(path):
        return Journal.create(path, header, durable=durable)
    try:
        journal = Journal.open(path, write=True, durable=durable)
    except RunFileError:
        if not _is_empty(path):
            raise
        # A planner that was killed before its first commit.
        return Journal.create(path, header, durable=durable)
    if not journal.sealed:
        journal.close()
        return Journal.create(path, header, durable=durable)
    try:
        there = journal.header
        _check_base_url(engine, there, path)
        if there.kind != header.kind:
            other, own = _KINDS[there.kind], _KINDS[header.kind]
            raise run_file_error(path, f"it is a run of {other}, not of {own}: give each broadcast a file of its own")
        if (there.message, there.custom_fields) != (header.message, header.custom_fields):
            raise run_file_error(
                path, "it has another message or other custom fields: give each broadcast a file of its own"
            )
        if there.dedupe != header.dedupe:
            raise run_file_error(
                path, f"it was planned with {_DUPLICATES[there.dedupe]}: ask for the same, or resume it"
            )
        if there.source != header.source:
            raise run_file_error(
                path,
                "its users came from somewhere else, or the source has changed since: resume it, or give another path",
            )
    except BaseException:
        journal.close()
        raise
    return journal


def _is_empty(path: Path) -> bool:
    try:
        return os.lstat(path).st_size == 0
    except OSError:
        return False


async def _send(engine: Engine, settings: RunSettings, journal: Journal) -> BroadcastReport:
    loop = engine.enter()
    runner = Pipeline(journal, settings, engine)
    started = loop.time()
    engine.runs.add(runner)
    watched = None if engine.observer is None else engine.observer.run(journal.users, journal.chunks)
    try:
        await runner.run()
    finally:
        engine.runs.discard(runner)
        engine.ended(runner)
        if watched is not None:
            tally = journal.tally()
            watched.end({outcome: getattr(tally, outcome.lower()) for outcome in Outcome})
    return report_of(journal, run=settings.name, seconds=loop.time() - started)


def _header(
    engine: Engine,
    kind: Literal["broadcast", "each"],
    policy: RetryPolicy,
    *,
    message: bytes | None = None,
    custom_fields: bytes | None = None,
    source: str = "",
    dedupe: bool,
) -> Header:
    settings = engine.settings
    return Header(
        kind=kind,
        base_url=settings.base_url,
        message=message,
        custom_fields=custom_fields,
        source=source,
        max_users=settings.batching.max_users,
        max_bytes=settings.batching.max_bytes,
        dedupe=dedupe,
        policy={
            "statuses": {str(status): outcome.value for status, outcome in policy.statuses.items()},
            "retry_on": sorted(policy.retry_on),
            "split_on": sorted(settings.batching.split_on),
        },
        created=time.time(),
        version=__version__,
    )


def _check_base_url(engine: Engine, header: Header, path: Path) -> None:
    if header.base_url != engine.settings.base_url:
        raise run_file_error(
            path, f"it was planned for another base_url, {printable(header.base_url)}: resume it with that one"
        )


_KINDS = {"broadcast": "one message for all users", "each": "a message of its own for each user"}
_DUPLICATES = {True: "duplicates left out", False: "duplicates left in"}


def _teller(engine: Engine, settings: RunSettings) -> Callable[[int], None]:
    """Tells ``on_progress`` how many users are planned, about twice a second; from whichever thread plans."""
    on_progress = settings.tell
    if on_progress is None:
        return lambda users: None
    loop = engine.enter()
    due, ours = -math.inf, threading.get_ident()
    started = time.monotonic()

    def tell(users: int) -> None:
        nonlocal due
        now = time.monotonic()
        if now >= due:
            due = now + 0.5
            progress = Progress(stage="planning", planned=users, not_sent=users, seconds=now - started)
            if threading.get_ident() == ours:
                on_progress(progress)
            else:
                loop.call_soon_threadsafe(on_progress, progress)

    return tell
