"""Child processes that send a folder's run files: each takes the next file that is not locked, until all are sent.

A child reads its job from stdin, and writes its progress to stdout twice a second: so it notices its parent's end.
"""

from __future__ import annotations

import asyncio
import logging
import os
import pickle
import signal
import sys
import time
import warnings
from asyncio.subprocess import PIPE, Process
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

import pushsdk
from pushsdk._core.policy import shared
from pushsdk._core.secret import Secret
from pushsdk._runs.progress import TICK, Pace, Progress
from pushsdk.cli.exit import Exit
from pushsdk.cli.interrupt import HANGUP, not_ignored, signal_handlers
from pushsdk.cli.terminal import print_json, warn

if TYPE_CHECKING:
    from pushsdk.cli.output import Show
    from pushsdk.cli.settings import ClientSettings

_STOPPING = [signal.SIGINT, signal.SIGTERM, *HANGUP]
_POLL = 0.1  # seconds until a locked file is tried again
_COUNTS = ("planned", "accepted", "rejected", "unknown", "not_sent")
Reports: TypeAlias = "Sequence[pushsdk.BroadcastReport]"
_decode = msgspec.json.Decoder(tuple[str, Progress]).decode


async def send_folder(
    reports: Reports,
    settings: ClientSettings,
    options: Mapping[str, Any],
    processes: int,
    show: Show,
    asked: Callable[[], object],
) -> int:
    """Send until all files are complete, one was stopped, or ``asked`` is true. Return the highest exit code.

    The processes divide the rate and the requests in flight. If one is killed, the others send its files.
    """
    states = {
        report.file: Progress(stage="sending", **{name: getattr(report, name) for name in _COUNTS})
        for report in reports
    }
    children = await _start(reports, settings, options, processes)
    try:
        return await _watch(children, states, show, asked)
    finally:
        for child in children:
            _end(child.kill)


async def _watch(
    children: Sequence[Process], states: dict[str, Progress], show: Show, asked: Callable[[], object]
) -> int:
    totals, code = _totals(states.values()), 0
    left = {asyncio.ensure_future(_follow(child, states)) for child in children}
    while left:
        show(next(totals))
        ended, left = await asyncio.wait(left, timeout=TICK)
        code = max([code, *(task.result() for task in ended)])
        for child in children if code or asked() else ():
            _end(child.terminate)
    show(next(totals))
    return code


def _share(settings: ClientSettings, index: int, of: int) -> dict[str, Any]:
    """Return one process's settings, with secrets as plain texts: a ``Secret`` refuses to be pickled for the pipe."""
    share: dict[str, Any] = {**settings, "rate": shared(settings.get("rate") or pushsdk.Rate(), of)}
    if (limits := settings.get("limits")) and limits.in_flight:
        share["limits"] = pushsdk.Limits(in_flight=(limits.in_flight + index) // of)
    return {name: value.reveal() if isinstance(value, Secret) else value for name, value in share.items()}


async def _start(
    reports: Reports, settings: ClientSettings, options: Mapping[str, Any], processes: int
) -> list[Process]:
    limits, resends = settings.get("limits"), options["on_unknown"] == "resend"
    left = [report for report in reports if report.not_sent or (resends and report.unknown)]
    options = {name: options[name] for name in ("on_unknown", "stop_policy", "not_after", "durable", "limit")}
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    if level := logging.getLogger("pushsdk").level:  # by -v
        environ["PUSHSDK_LOG"] = logging.getLevelName(level)
    command = (sys.executable, "-uPm", "pushsdk", "send-files")
    # One process counts a limit exactly, and does not go on if it is killed.
    most = 1 if options["limit"] else processes
    of = min(most, len(left), (limits and limits.in_flight) or most)
    children = []
    for index in range(of):
        child = await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE, env=environ)
        stdin: Any = child.stdin
        stdin.write(pickle.dumps((_share(settings, index, of), left, options)))
        stdin.close()
        children.append(child)
    return children


async def _follow(child: Process, states: dict[str, Progress]) -> int:
    """Update each file's state. Return the exit code; 0 if the process was killed."""
    async for line in child.stdout:  # type: ignore[union-attr]
        file, state = _decode(line)
        states[file] = state
    code = await child.wait()
    if code >= 0:
        return code
    if -code in _STOPPING:  # while it started
        return Exit.INCOMPLETE
    warn(f"a process was killed by signal {-code}: the other processes, or the same command again, send its users")
    return Exit.DONE


def _end(end: Callable[[], None]) -> None:
    with suppress(ProcessLookupError):
        end()


def _totals(states: Collection[Progress]) -> Iterator[Progress]:
    """Yield the sum, again and again. Its stage is ``waiting`` if a process is waiting."""
    pace = Pace(time.monotonic(), sum([state.not_sent for state in states]))
    while True:
        worst = max(states, key=lambda state: state.stage == "waiting")
        sums = {name: sum([getattr(state, name) for state in states]) for name in (*_COUNTS, "in_flight")}
        state = {**msgspec.structs.asdict(worst), **sums, "limit": 0}
        yield pace.progress(time.monotonic(), **state)


async def send_files() -> int:
    """Send the files that the parent names."""
    warnings.simplefilter("ignore")  # the parent has shown them
    settings, reports, options = pickle.load(sys.stdin.buffer)  # noqa: S301 - from the parent
    stop, left, limit = asyncio.Event(), deque(reports), options["limit"] or sys.maxsize

    def say(state: Progress) -> None:
        try:
            print_json((before.file, state))
        except OSError:  # the parent has ended
            stop.set()

    with signal_handlers([signal.SIGINT, signal.SIGTERM, *not_ignored(HANGUP)], lambda _: stop.set()):
        logging.disable()  # as above
        client = pushsdk.AsyncPushClient(**settings)
        logging.disable(logging.NOTSET)
        async with client:
            while left and not stop.is_set() and limit > 0:
                before = left.popleft()
                options["seen"] = before.ended if before.stopped_by in (None, "limit") else None
                options["limit"] = limit
                try:
                    report = await client.resume(before.file, stop=stop, on_progress=say, **options)
                    limit -= before.not_sent - report.not_sent + report.resent - before.resent
                    if report.stopped_by not in (None, "limit"):
                        return Exit.INCOMPLETE
                except pushsdk.RunInUseError:
                    left.append(before)
                    await asyncio.sleep(_POLL)
    return Exit(bool(left))  # INCOMPLETE if it was stopped between two files
