"""Run progress: a reading twice a second, its rate over the last readings, and the caller's callback."""

import asyncio
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Literal

import msgspec

TICK = 0.5  # seconds between two readings
RATE_OVER = 10  # readings that the rate is measured over


class Progress(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Run progress: users by outcome, and how fast they are settled."""

    stage: Literal["planning", "sending", "stopping", "waiting"]
    """``waiting`` while nothing may be sent: during a pause that the service asked for, or after a failure.

    ``stopping`` while the last requests are in flight, after Ctrl-C, ``stop=`` or a stop policy.
    """
    planned: int = 0
    accepted: int = 0
    rejected: int = 0
    unknown: int = 0
    not_sent: int = 0
    """Users still to be sent to."""
    in_flight: int = 0
    """Users in flight."""
    requests: int = 0
    """Requests in flight."""
    limit: int = 0
    """Most requests in flight that the client finds good for the service now."""
    seconds: float = 0.0
    """Seconds since this process started or resumed the run."""
    rate: float = 0.0
    """Users settled per second, over the last seconds."""
    eta: float | None = None
    """Seconds until the end at this rate; None if the rate is 0, or if the run is stopping."""
    trouble: str = ""
    """The last failure, in words; empty once a request has been accepted since."""
    paused: float = 0.0
    """Seconds until the service's pause ends."""


OnProgress = Callable[[Progress], object]


class Pace:
    """Readings: how many users are left. Times are seconds on the caller's clock."""

    def __init__(self, now: float, left: int) -> None:
        self._readings: deque[tuple[float, int]] = deque([(now, left)], maxlen=RATE_OVER)
        self._started = now

    def progress(self, now: float, **counts: Any) -> Progress:
        """Take a reading, and return the progress with these fields and its times, by the last readings."""
        left = counts["not_sent"] + counts.get("in_flight", 0)
        self._readings.append((now, left))
        first, before = self._readings[0]
        rate = max(0, before - left) / (now - first or 1.0)
        has_end = rate and counts["stage"] != "stopping"
        counts.update(seconds=now - self._started, rate=rate, eta=left / rate if has_end else None)
        return Progress(**counts)


def planning_reporter(on_progress: OnProgress | None, loop: asyncio.AbstractEventLoop) -> Callable[[int], None]:
    """Return a function that reports the number of planned users, at most twice a second, from any thread."""
    if on_progress is None:
        return lambda users: None
    due = started = time.monotonic()

    def report(users: int) -> None:
        nonlocal due
        now = time.monotonic()
        if now >= due:
            due = now + TICK
            progress = Progress(stage="planning", planned=users, not_sent=users, seconds=now - started)
            loop.call_soon_threadsafe(on_progress, progress)

    return report
