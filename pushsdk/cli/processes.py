"""Child processes that send a folder's run files: each takes the next file that is not locked, until all are sent.

A child reads its job on stdin, and stops when another line follows. If its parent dies, stdin ends, and so does the
child. It writes its progress to stdout.
"""

import asyncio
import os
import pickle
import signal
import sys
import threading
import time
from asyncio.subprocess import PIPE, Process
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

import pushsdk
from pushsdk._core.policy import shared
from pushsdk._core.secret import Secret
from pushsdk._runs.progress import TICK, Progress
from pushsdk._runs.run_file.journal import completed_at
from pushsdk.cli.exit import Exit
from pushsdk.cli.interrupt import GRACE, HANGUP, not_ignored, signal_handlers
from pushsdk.cli.output import Show
from pushsdk.cli.settings import ClientSettings
from pushsdk.cli.terminal import print_json, warn

_POLL = 0.1  # seconds until a locked file is tried again
_COUNTS = ("planned", "accepted", "rejected", "unknown", "not_sent")
_decode = msgspec.json.Decoder(tuple[str, Progress]).decode


async def send_folder(
    reports: Sequence[pushsdk.BroadcastReport],
    settings: ClientSettings,
    options: Mapping[str, Any],
    processes: int,
    show: Show,
    asked: Callable[[], object],
) -> int:
    """Send until all files are complete, one of them was stopped, or ``asked``. Return the highest exit code.

    The processes divide the rate and the requests in flight. If one of them is killed, the others send its files.
    """
    files = dict(_files(reports, options))
    options = {name: options[name] for name in ("on_unknown", "stop_policy", "not_after", "durable")}
    limits = settings.get("limits")
    of = min(processes, len(files), (limits and limits.in_flight) or processes)
    states = {report.file: _state_of(report) for report in reports}
    children = [await _start((_share(settings, index, of), files, options)) for index in range(of)]
    now = asyncio.get_running_loop().time
    started, before, code = now(), _total(states.values()).not_sent, 0
    try:
        async with asyncio.TaskGroup() as group:
            left = {group.create_task(_follow(child, states)) for child in children}
            while left:
                ended, left = await asyncio.wait(left, timeout=TICK)
                code = max([code, *(task.result() for task in ended)])
                total, seconds = _total(states.values()), now() - started
                rate = (before - total.not_sent) / seconds
                eta = total.not_sent / rate if rate else None
                show(msgspec.structs.replace(total, seconds=seconds, rate=rate, eta=eta))
                for child in children if code or asked() else ():
                    _tell(child)
    finally:
        for child in children:
            with suppress(ProcessLookupError):
                child.kill()
    return code


def _files(
    reports: Sequence[pushsdk.BroadcastReport], options: Mapping[str, Any]
) -> Iterator[tuple[str, tuple[float | None, int | None]]]:
    """Yield each file with users left, when it was last completed, and its part of the limit."""
    limit = options["limit"]
    for report in reports:
        users = report.not_sent + (report.unknown if options["on_unknown"] == "resend" else 0)
        if limit is not None:
            users = min(users, limit)
            limit -= users
        if users:
            yield report.file, (completed_at(Path(report.file)), None if limit is None else users)


def _share(settings: ClientSettings, index: int, of: int) -> dict[str, Any]:
    """Return the settings for one of several processes. Secrets are not pickled."""
    share: dict[str, Any] = {**settings, "rate": shared(settings.get("rate") or pushsdk.Rate(), of)}
    if (limits := settings.get("limits")) and limits.in_flight:
        share["limits"] = pushsdk.Limits(in_flight=(limits.in_flight + index) // of)
    return {name: value.reveal() if isinstance(value, Secret) else value for name, value in share.items()}


async def _start(job: object) -> Process:
    command = (sys.executable, "-uPm", "pushsdk", "send-files")
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    child = await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE, env=environ)
    _tell(child, pickle.dumps(job).hex())
    return child


def _tell(child: Process, line: str = "") -> None:
    child.stdin.write(line.encode() + b"\n")  # type: ignore[union-attr]


async def _follow(child: Process, states: dict[str, Progress]) -> int:
    """Update the state of each file. Return the exit code; 0 if the process was killed."""
    async for line in child.stdout:  # type: ignore[union-attr]
        file, state = _decode(line)
        states[file] = state
    code = await child.wait()
    if code == -signal.SIGTERM:  # while it started
        return Exit.INCOMPLETE
    if code < 0:
        warn(f"a process was killed by signal {-code}: the others send its users")
    return max(0, code)


def _state_of(report: pushsdk.BroadcastReport) -> Progress:
    return Progress(stage="sending", **{name: getattr(report, name) for name in _COUNTS})


def _total(states: Collection[Progress]) -> Progress:
    """Return the sum. Its stage is ``waiting`` if a process is waiting."""
    worst = max(states, key=lambda state: state.stage == "waiting")
    sums = {name: sum([getattr(state, name) for state in states]) for name in (*_COUNTS, "in_flight")}
    return msgspec.structs.replace(worst, **sums, limit=0)


def _say(file: str, state: Progress) -> None:
    print_json((file, state))


async def send_files() -> int:
    """Send the files that the parent names."""
    # Not buffered: a thread that waits for a buffer would keep the process from ending.
    stdin = open(0, "rb", buffering=0, closefd=False)  # noqa: ASYNC230, SIM115 - stays open
    settings, files, options = pickle.loads(bytes.fromhex(stdin.readline().decode()))  # noqa: S301 - from the parent
    loop, stop, left = asyncio.get_running_loop(), asyncio.Event(), deque(files)

    def listen() -> None:
        stdin.readline()
        loop.call_soon_threadsafe(stop.set)
        stdin.read()
        time.sleep(GRACE)
        os._exit(Exit.INTERRUPTED)

    threading.Thread(target=listen, daemon=True).start()
    with signal_handlers([signal.SIGINT, signal.SIGTERM, *not_ignored(HANGUP)], lambda _: stop.set()):
        async with pushsdk.AsyncPushClient(**settings) as client:
            while left and not stop.is_set():
                file = left.popleft()
                options["seen"], options["limit"] = files[file]
                try:
                    if completed_at(Path(file)) in (None, options["seen"]):  # else another process has sent it
                        report = await client.resume(file, stop=stop, on_progress=partial(_say, file), **options)
                        if report.stopped_by not in (None, "limit"):
                            return Exit.INCOMPLETE
                except pushsdk.RunInUseError:
                    left.append(file)
                    await asyncio.sleep(_POLL)
    return Exit.DONE
