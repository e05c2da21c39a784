"""Signal handlers in an event loop, and two-step Ctrl-C for runs: the first signal stops, the second cancels."""

import asyncio
import os
import signal
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from pushsdk.cli.exit import Exit
from pushsdk.cli.terminal import warn

_GRACE = 3.0  # seconds for a cancelled run to settle its users in the run file


HANGUP = [number for number in signal.Signals if number.name == "SIGHUP"]  # not on Windows


def not_ignored(numbers: Sequence[int]) -> list[int]:
    """Return the signals that are not ignored. An ignored signal, as under nohup, stays ignored."""
    return [number for number in numbers if signal.getsignal(number) != signal.SIG_IGN]


def signal_handlers(numbers: Iterable[int], callback: Callable[[int], None]) -> AbstractContextManager[None]:
    """Call ``callback`` in the event loop on these signals. Works on Windows, unlike ``add_signal_handler``."""
    loop = asyncio.get_running_loop()
    return handled(numbers, lambda number, _: loop.call_soon_threadsafe(callback, number))


@contextmanager
def handled(numbers: Iterable[int], handler: Any) -> Iterator[None]:
    """Handle these signals by ``handler``, and as before at the end."""
    previous = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield
    finally:
        for number, earlier in previous.items():
            signal.signal(number, earlier)


@contextmanager
def interruptible(last_words: str) -> Iterator[asyncio.Event]:
    """Yield an event that the first SIGINT, SIGTERM or SIGHUP sets, to stop the run. The second cancels the task.

    A thread may still wait for a standard input line then, so the process exits ``_GRACE`` seconds later, with these
    last words. A run file survives that as it survives kill -9.
    """
    loop, stop = asyncio.get_running_loop(), asyncio.Event()
    task: asyncio.Task[Any] = asyncio.current_task()  # type: ignore[assignment] # always called in a task
    timers: list[asyncio.TimerHandle] = []

    def end() -> None:
        warn(last_words)
        os._exit(Exit.INTERRUPTED)

    def on_signal(_number: int) -> None:
        if stop.is_set():
            task.cancel()
            timers.append(loop.call_later(_GRACE, end))
        else:
            stop.set()  # first: nobody may be left to read the text
            warn("stopping after the requests in flight; press Ctrl-C again to stop at once")

    try:
        with signal_handlers([signal.SIGINT, signal.SIGTERM, *not_ignored(HANGUP)], on_signal):
            yield stop
    finally:
        for timer in timers:
            timer.cancel()
