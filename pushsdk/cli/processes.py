"""Child processes that send a folder's run files: each takes the next file that is not locked, until all are sent.

A child gets its job from a pipe, tells its progress there, and stops when the pipe ends with its parent.
"""

import asyncio
import gc
import logging
import signal
import sys
import time
import warnings
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from glob import glob
from multiprocessing import get_context
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from threading import Thread
from typing import Any, TypeAlias

import pushsdk
from pushsdk._core.policy import shared
from pushsdk._core.secret import Secret
from pushsdk._io.sender import log_to_stderr
from pushsdk._runs.progress import TICK, Pace, Progress
from pushsdk._runs.run_file.file import ask_to_stop
from pushsdk.cli import exit_code_of
from pushsdk.cli.exit import CommandError, Exit
from pushsdk.cli.interrupt import HANGUP, handled, signal_handlers
from pushsdk.cli.terminal import warn

_POLL = 0.1  # seconds until a locked file is tried again
_PARENTS = (signal.SIGINT, *HANGUP)  # the parent handles these signals: its children are started ignoring them
_STAGES = ("planning", "sending", "waiting", "stopping")  # the sum has the last one of its processes
_COUNTS = ("planned", "accepted", "rejected", "unknown", "not_sent")
Reports: TypeAlias = "Sequence[pushsdk.BroadcastReport]"
Children = dict[Any, BaseProcess]
"""Processes by the parent's end of their pipe."""


@contextmanager
def waiting_processes(number: int) -> Iterator[Children]:
    """Start processes that wait for their job, and ignore signals until then. At the end, those left are killed."""
    import pushsdk._io.retrying  # noqa: F401 - or each process has to at its first request

    # A fork has all modules, which an interpreter takes 0.3 s of CPU time to load. With threads a fork is not safe, and
    # neither is it on other systems than Linux.
    context: Any = get_context("fork" if len(glob("/proc/self/task/*")) == 1 else "spawn")
    children: Children = {}
    try:
        with handled(_PARENTS, signal.SIG_IGN):
            for _ in range(number):
                ours, theirs = context.Pipe()
                process = context.Process(target=_wait_and_send, args=(theirs, [*children, ours]))
                process.start()
                theirs.close()
                children[ours] = process
    except OSError as error:
        why = f"{number} processes can't start: {error.strerror}: give fewer --processes, or raise ulimit -n"
        raise CommandError(why, Exit.CANNOT_RUN) from None
    else:
        yield children
    finally:
        for process in children.values():
            process.kill()
            process.join()


async def send_folder(
    children: Children,
    reports: Reports,
    settings: Mapping[str, Any],
    options: Mapping[str, Any],
    show: Callable[[Progress], None],
    asked: Callable[[], object],
) -> int:
    """Send until all files are complete, one was stopped, or ``asked`` is true. Return the highest exit code.

    The processes divide the rate and the requests in flight. If one is killed, the others send its files.
    """
    states = {
        report.file: Progress(stage="sending", **{name: getattr(report, name) for name in _COUNTS})
        for report in reports
    }
    left = {} if asked() else _begin(children, reports, settings, options)
    totals, code = _totals(states.values()), 0
    while left:
        show(next(totals))
        end = time.monotonic() + TICK
        while left and (seconds := end - time.monotonic()) > 0:
            heard = await asyncio.to_thread(wait, [*left], seconds)
            code = max([code, *_ended(heard, left, states)])
            for process in left.values() if code or asked() else ():
                process.terminate()
    show(next(totals))
    return code


def _share(settings: Mapping[str, Any], index: int, of: int) -> dict[str, Any]:
    """Return one process's settings, with secrets as plain texts: a ``Secret`` refuses to be pickled for the pipe."""
    share: dict[str, Any] = {**settings, "rate": shared(settings["rate"], of)}
    if in_flight := settings["limits"].in_flight:
        share["limits"] = pushsdk.Limits(in_flight=(in_flight + index) // of)
    return {name: value.reveal() if isinstance(value, Secret) else value for name, value in share.items()}


def _begin(children: Children, reports: Reports, settings: Mapping[str, Any], options: Mapping[str, Any]) -> Children:
    """Give the processes their jobs, and return those that have one."""
    resends = options["on_unknown"] == "resend"
    files = [report for report in reports if report.not_sent or (resends and report.unknown)]
    senders, level = dict([*children.items()][: len(files)]), logging.getLogger("pushsdk").level
    for index, pipe in enumerate(senders):
        with suppress(OSError):  # it was killed
            pipe.send((_share(settings, index, len(senders)), files, options, level))
    return senders


def _ended(heard: Iterable[Any], left: Children, states: dict[str, Progress]) -> Iterator[int]:
    """Update the states. Yield the exit code of each process that has ended; 0 if it was killed."""
    for pipe in heard:
        try:
            file, states[file] = pipe.recv()
        except (EOFError, OSError):
            process = left.pop(pipe)
            process.join()
            yield _exit_code(process.exitcode or 0)


def _exit_code(code: int) -> int:
    if code >= 0:
        return code
    if code == -signal.SIGTERM:  # before it had its job
        return Exit.INCOMPLETE
    warn(f"a process was killed by signal {-code}: the other processes, or the same command again, send its users")
    return Exit.DONE


def _totals(states: Collection[Progress]) -> Iterator[Progress]:
    """Yield the sum, again and again, with the trouble of one process that has any."""
    pace = Pace(time.monotonic(), sum(state.not_sent for state in states))
    while True:
        stage = max([state.stage for state in states], key=_STAGES.index)
        trouble = max([state.trouble for state in states], key=bool)
        paused = max(state.paused for state in states)
        sums = {name: sum(getattr(state, name) for state in states) for name in (*_COUNTS, "in_flight", "requests")}
        yield pace.progress(time.monotonic(), stage=stage, trouble=trouble, paused=paused, **sums)


def _wait_and_send(pipe: Any, others: Iterable[Any]) -> None:
    """Wait for a job from the parent, and send its files."""
    gc.freeze()  # a collection would copy the pages that the parent shares
    for other in others:  # with a copy of these, no child would notice its parent's end
        other.close()
    with suppress(EOFError):  # without a job
        job = pipe.recv()
        sys.exit(exit_code_of(lambda: asyncio.run(_send_files(pipe, *job))))


async def _send_files(
    pipe: Any, settings: dict[str, Any], reports: Reports, options: dict[str, Any], level: int
) -> int:
    warnings.simplefilter("ignore")  # the parent has shown them
    log_to_stderr(logging.getLevelName(level))  # by -v
    stop, left, limit = asyncio.Event(), deque(reports), options["limit"] or sys.maxsize
    loop, sending = asyncio.get_running_loop(), ""

    def tell(state: Progress) -> None:
        nonlocal sending
        sending = before.file
        with suppress(OSError):  # the parent has ended
            pipe.send((sending, state))

    def stop_with_parent() -> None:
        with suppress(EOFError, OSError):
            pipe.recv()
        with suppress(pushsdk.RunFileError):  # between two files
            ask_to_stop(Path(sending), "the end of its command")
        with suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(stop.set)

    Thread(target=stop_with_parent, daemon=True).start()
    with signal_handlers([signal.SIGINT, signal.SIGTERM], lambda _: stop.set()):
        logging.disable()  # as above
        client = pushsdk.AsyncPushClient(**settings)
        logging.disable(logging.NOTSET)
        async with client:
            while left and not stop.is_set() and limit > 0:
                sending, before = "", left.popleft()
                options["seen"] = before.ended
                options["limit"] = limit
                try:
                    report = await client.resume(before.file, stop=stop, on_progress=tell, **options)
                    limit -= before.not_sent - report.not_sent + report.resent - before.resent
                    if report.stopped_by not in (None, "limit"):
                        return Exit.INCOMPLETE
                except pushsdk.RunInUseError:
                    left.append(before)
                    await asyncio.sleep(_POLL)
    return Exit(bool(left))  # INCOMPLETE if it was stopped between two files
