"""An asyncio event loop with a clock that runs only while the loop is idle, so that a slow machine triggers no timeout.

Client and server of a test share one loop. If the machine stalls for a second (busy processor, disk sync, garbage
collection), both stall, and so does this clock: it counts the time that the loop spent waiting, and a little of each
turn with work. All async tests run on this loop unless they run on virtual time: sockets, threads and processes need
real time.
"""

import asyncio
import math
import selectors
import time

#: Maximum seconds counted per turn. Not 0, as a loop that is never idle must reach timeouts too.
TURN = 0.0005
#: Maximum seconds per wait, which also limit the effect of a stall during a wait.
SLICE = 0.01


class _Selector(selectors.DefaultSelector):
    """Keeps the clock: only it knows when the loop waits, and for how long in vain."""

    def __init__(self):
        super().__init__()
        #: The time at the end of the last wait; set by ``select``.
        self._told = self._woken = time.monotonic()

    def time(self):
        """Return the time of the clock within a turn."""
        return self._told + min(time.monotonic() - self._woken, TURN)

    def jump(self, seconds):
        """Let this time pass in the middle of a turn."""
        self._told += seconds

    def select(self, timeout=None):
        """Wait in slices. Time is up only once there was a last look and nothing had come."""
        self._told = self.time()
        remaining = math.inf if timeout is None else max(0.0, timeout)
        while True:
            share = min(remaining, SLICE)
            start = time.monotonic()
            events = super().select(share)
            if not events and share == remaining:
                events = super().select(0)
            self._woken = time.monotonic()
            self._told += min(self._woken - start, share) if events else share
            remaining -= share
            if events or remaining <= 0:
                return events


class PatientLoop(asyncio.SelectorEventLoop):
    """An event loop on which only idle seconds count."""

    def __init__(self):
        self._patient = _Selector()
        super().__init__(self._patient)

    def time(self):
        return self._patient.time()

    def jump(self, seconds):
        """Let time pass at once, as for a process that was stopped."""
        self._patient.jump(seconds)
