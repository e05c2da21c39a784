"""An asyncio event loop whose clock runs only while nothing happens: a machine that is slow makes no timeout strike.

Client and server of a test live in one loop. Where the machine stands still for a second (the processor is somebody
else's, a disk syncs, a collection of garbage), both stand still, and so does this clock: it counts the time that the
loop waited in vain, and a little of each turn in which it had something to do. Every async test runs on it that does
not run on virtual time; it is for sockets, threads and processes, whose time can't be made up.
"""

from __future__ import annotations

import asyncio
import math
import selectors
import time
from typing import Any

__all__ = ["SLICE", "TURN", "PatientLoop"]

#: Seconds that a turn counts at most, whatever it took. Not 0: what is never idle has to reach its timeout too.
TURN = 0.0005
#: Seconds that are waited at a time, and what a stall in the middle of a wait counts at most.
SLICE = 0.01


class _Selector(selectors.DefaultSelector):
    """Keeps the clock: only it knows when the loop waits, and for how long in vain."""

    def __init__(self) -> None:
        super().__init__()
        #: What the clock said when the last wait ended; set by ``select``.
        self._told = self._woken = time.monotonic()

    def time(self) -> float:
        """What the clock says now, in the middle of a turn."""
        return self._told + min(time.monotonic() - self._woken, TURN)

    def jump(self, seconds: float) -> None:
        """Let this time pass in the middle of a turn."""
        self._told += seconds

    def select(self, timeout: float | None = None) -> list[Any]:
        """Wait in slices. Time is up only once there was a last look and nothing had come."""
        self._told = self.time()
        left = math.inf if timeout is None else max(0.0, timeout)
        while True:
            share, began = min(left, SLICE), time.monotonic()
            events = super().select(share)
            if not events and share == left:
                events = super().select(0)
            self._woken = time.monotonic()
            self._told += min(self._woken - began, share) if events else share
            left -= share
            if events or left <= 0:
                return events


class PatientLoop(asyncio.SelectorEventLoop):
    """An event loop on which only idle seconds count."""

    def __init__(self) -> None:
        self._patient = _Selector()
        super().__init__(self._patient)

    def time(self) -> float:
        return self._patient.time()

    def jump(self, seconds: float) -> None:
        """Let time pass at once, as for a process that was stopped."""
        self._patient.jump(seconds)
