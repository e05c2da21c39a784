"""The end of a run: by its caller, or by the stop policy, which counts the time while something is sent."""

import asyncio
import logging
import math
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

from pushsdk._core.outcome import ACCEPTED, Failure, Outcome
from pushsdk._core.rate_limit import RateLimiter
from pushsdk._core.stop_policy import StopMonitor, StopPolicy
from pushsdk._core.user_states import UserStatus
from pushsdk._io.timers import DeadlineScope, TimerWheel
from pushsdk._runs.plan import StopCause, StopReason
from pushsdk._runs.progress import TICK

logger = logging.getLogger("pushsdk")
#: Asked whether it is set, never awaited: so it may belong to any thread.
StopEvent = asyncio.Event | threading.Event


def too_late(end: datetime | None) -> StopReason | None:
    """Return the reason to begin no request any more, if there is such a time and it is over."""
    # The wall clock: the loop's stands still while the machine sleeps.
    if end is None or datetime.now(UTC) < end:
        return None
    return StopReason("not_after", f"not to be sent after {end.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC")


def asked_by(event: StopEvent | None) -> StopReason | None:
    """Return the reason to stop if the caller's event is set."""
    return StopReason("asked", "Ctrl-C, a signal or stop= ended it") if event and event.is_set() else None


class Stopping:
    """Stops one run. Made inside the event loop."""

    def __init__(
        self,
        timers: TimerWheel,
        rate_limiter: RateLimiter,
        policy: StopPolicy | None,
        *,
        not_after: datetime | None = None,
        event: StopEvent | None = None,
    ) -> None:
        """No request is begun after the time ``not_after``, or once ``event`` is set."""
        self._timers = timers
        self._rate_limiter = rate_limiter
        # Seconds spent sending, and those at the end of the last pause. Counted in ticks, so a stopped process or a
        # blocked loop adds one at most. Of the tick in which it happens, an acceptance or the end of a pause has the
        # end, and a failure the begin: so no time without an acceptance is counted longer than it is.
        self._seconds, self._paused_until = 0.0, 0.0
        self._monitor = StopMonitor(policy or StopPolicy(), self._seconds)
        # Requests that wait for a slot or after a failure: ``stop`` wakes them.
        self._waiting: set[DeadlineScope] = set()
        self._not_after = not_after
        self._event = event
        #: The reason for an early end; None so far. Set by ``stop``, and to None by the pipeline if all was sent.
        self.reason: StopReason | None = None

    def may_begin(self) -> bool:
        """Return True if a request may be begun now. Stop if it is too late, or if the caller's event is set."""
        if end := asked_by(self._event) or too_late(self._not_after):
            self.stop(end.by, end.reason)
        return self.reason is None

    async def tick(self, is_sending: Callable[[], object]) -> None:
        """Check the stop policy twice a second until cancelled, even if no request completes.

        The time counts only if ``is_sending`` returns something true.
        """
        while True:
            await asyncio.sleep(TICK)
            if is_sending():
                self._seconds += TICK
            if self._rate_limiter.pause_left(self._timers.loop.time()):
                self._paused_until = self._seconds + TICK
            self.check()
            self.may_begin()

    def stop(self, by: StopCause, reason: str) -> None:
        """Start nothing more; requests in flight complete. The first reason stays."""
        if self.reason is None:
            self.reason = StopReason(by, reason)
            logger.info("the run stops: %s", reason)
        for scope in tuple(self._waiting):
            scope.expire(Failure.CLOSED)

    @contextmanager
    def until_stopped(self) -> Iterator[DeadlineScope]:
        """Run the block until it ends, or until ``stop`` is called."""
        scope = DeadlineScope(self._timers, math.inf)
        self._waiting.add(scope)
        try:
            with scope:
                yield scope
        finally:
            self._waiting.discard(scope)

    def settled(self, outcome: Outcome, users: int, status: UserStatus) -> None:
        """Record the final outcome for a request and its users."""
        now = self._seconds
        if outcome is ACCEPTED:
            now += TICK
        self._monitor.settled(outcome, users, status.status, now, status.reason)
        if outcome is not ACCEPTED:
            self.check()

    def released(self, status: UserStatus) -> None:
        """Record a request whose users stay pending, and why."""
        self._monitor.released(status.status, self._seconds, status.reason)
        self.check()

    def check(self) -> None:
        """Stop if the stop policy says so."""
        reason = self._monitor.stop_reason(self._seconds, paused_until=self._paused_until)
        if reason is not None:
            self.stop("stop_policy", reason)
