"""Signals in an event loop; and Ctrl-C while a run is being sent: once ends it in order, twice at once."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any

from pushsdk.cli.exit import Exit
from pushsdk.cli.terminal import warn

__all__ = ["Interrupt", "heard"]

_GRACE = 3.0  # seconds for what was cancelled to write down what is known


@contextmanager
def heard(numbers: Sequence[int], told: Callable[[int], None]) -> Iterator[None]:
    """Have these signals told in the loop. Not add_signal_handler: Windows has none."""
    loop = asyncio.get_running_loop()

    def on_signal(number: int, _frame: FrameType | None) -> None:
        loop.call_soon_threadsafe(told, number)

    former = {number: signal.signal(number, on_signal) for number in numbers}
    try:
        yield
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)


class Interrupt:
    """Listens to SIGINT and SIGTERM while it is entered. ``last_words`` are said where it has to end the process."""

    def __init__(self, last_words: str) -> None:
        self._last_words = last_words
        #: What the run looks at: set by the first signal.
        self.stop = asyncio.Event()
        #: How many signals came.
        self.signals = 0

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Have the first signal set ``stop``, and the second cancel the task that is in here.

        Where that does not end it, as a thread may wait for a line that never comes, the process is ended: a run file
        stands that as it stands kill -9.
        """
        loop = asyncio.get_running_loop()
        task: asyncio.Task[Any] = asyncio.current_task()  # type: ignore[assignment] # no listening without a task
        timers: list[asyncio.TimerHandle] = []

        def tell(_number: int) -> None:
            self.signals += 1
            if self.signals == 1:
                warn("stopping after what is on its way; once more to stop at once")
                self.stop.set()
            else:
                task.cancel()
                timers.append(loop.call_later(_GRACE, self._end))

        try:
            with heard((signal.SIGINT, signal.SIGTERM), tell):
                yield
        finally:
            for timer in timers:
                timer.cancel()

    def _end(self) -> None:
        warn(self._last_words)
        os._exit(Exit.INTERRUPTED)
