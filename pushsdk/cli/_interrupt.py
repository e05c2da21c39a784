"""Ctrl-C while a run is being sent: once ends it in order, twice at once."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from pushsdk.cli._exit import warn

__all__ = ["Interrupt"]


class Interrupt:
    """Listens to SIGINT and SIGTERM while it is entered."""

    def __init__(self) -> None:
        #: What the run looks at: set by the first signal.
        self.stop = asyncio.Event()
        #: How many signals came.
        self.signals = 0

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Have the first signal set ``stop``, and the second cancel the task that is in here."""
        loop = asyncio.get_running_loop()
        task: asyncio.Task[Any] = asyncio.current_task()  # type: ignore[assignment] # no listening without a task

        def heard() -> None:
            self.signals += 1
            if self.signals == 1:
                warn("stopping after what is on its way; once more to stop at once")
                self.stop.set()
            else:
                task.cancel()

        # Not add_signal_handler: Windows has none.
        def on_signal(_number: int, _frame: FrameType | None) -> None:
            loop.call_soon_threadsafe(heard)

        former = {number: signal.signal(number, on_signal) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in former.items():
                signal.signal(number, handler)
