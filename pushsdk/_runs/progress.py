"""Run progress: a reading twice a second, its rate over the last readings, and the caller's callback."""

import asyncio
import math
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Literal

import msgspec

from pushsdk._core.user_states import UserState
from pushsdk._io.limiter import ConcurrencyLimiter
from pushsdk._runs.run_file.journal import Journal

TICK = 0.5  # seconds between two readings
RATE_OVER = 10  # readings that the rate is measured over


class Progress(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Run progress: users by outcome, and how fast they are settled."""

    stage: Literal["planning", "sending", "waiting"]
    """``waiting`` while nothing may be sent: during a pause that the service asked for, or after a failure."""
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
    """Seconds until the end at this rate; None if the rate is 0."""
    trouble: str = ""
    """The last failure, in words; empty once a request has been accepted since."""
    paused: float = 0.0
    """Seconds until the service's pause ends."""


OnProgress = Callable[[Progress], object]


class Pace:
    """Readings: how many users are settled. Times are seconds on the caller's clock."""

    def __init__(self, now: float, settled: int) -> None:
        self._readings: deque[tuple[float, int]] = deque([(now, settled)], maxlen=RATE_OVER)

    def rate(self, now: float, settled: int) -> float:
        """Take a reading, and return the users settled per second over the last readings."""
        self._readings.append((now, settled))
        first_time, first_settled = self._readings[0]
        return (settled - first_settled) / (now - first_time) if now > first_time else 0.0


class ProgressReporter:
    """Reads the states in a journal and calls ``on_progress``. Times are seconds on the caller's clock."""

    def __init__(self, journal: Journal, on_progress: OnProgress | None, *, now: float) -> None:
        self._journal = journal
        self._on_progress = on_progress
        self._started = now
        self._pace = Pace(now, self._settled())

    def _settled(self) -> int:
        states = self._journal.states
        return states.users - states.count(UserState.PENDING) - states.count(UserState.CLAIMED)

    def report(self, now: float, limiter: ConcurrencyLimiter, *, waiting: bool, trouble: str) -> None:
        """Take a reading and report it."""
        if self._on_progress is None:
            return
        count, rate = self._journal.states.count, self._pace.rate(now, self._settled())
        in_flight, not_sent = count(UserState.CLAIMED), count(UserState.PENDING)
        paused = limiter.rate_limiter.pause_left(now)
        progress = Progress(
            stage="waiting" if paused or waiting else "sending",
            planned=self._journal.users,
            accepted=count(UserState.ACCEPTED),
            rejected=count(UserState.REJECTED),
            unknown=count(UserState.UNKNOWN),
            in_flight=in_flight,
            requests=limiter.in_flight,
            limit=limiter.limit,
            not_sent=not_sent,
            seconds=now - self._started,
            rate=rate,
            eta=(not_sent + in_flight) / rate if rate else None,
            trouble=trouble,
            paused=paused,
        )
        self._on_progress(progress)


def planning_reporter(on_progress: OnProgress | None, loop: asyncio.AbstractEventLoop) -> Callable[[int], None]:
    """Return a function that reports the number of planned users, at most twice a second, from any thread."""
    if on_progress is None:
        return lambda users: None
    due, loop_thread = -math.inf, threading.get_ident()
    started = time.monotonic()

    def report(users: int) -> None:
        nonlocal due
        now = time.monotonic()
        if now >= due:
            due = now + TICK
            progress = Progress(stage="planning", planned=users, not_sent=users, seconds=now - started)
            if threading.get_ident() == loop_thread:
                on_progress(progress)
            else:
                loop.call_soon_threadsafe(on_progress, progress)

    return report
