"""Concurrency limiter: slots for requests in flight, and the waiters for slots."""

import asyncio
import heapq
import math
import time
from collections import Counter
from collections.abc import Callable
from itertools import count
from typing import Protocol

from pushsdk._core.attempt_times import AttemptTimes
from pushsdk._core.concurrency import AdaptiveLimit
from pushsdk._core.outcome import Failure
from pushsdk._core.rate_limit import RateLimiter

# Needed for each request that waits; on Python 3.11 an enum member takes 0.2 us to look up.
_NO_SLOT, _NO_TIME = Failure.NO_SLOT, Failure.NO_TIME
# First come, first served, if the deadlines are equal.
_numbers = count()
# Seconds of lateness that paced starts make up for: timers have a resolution of a millisecond.
SLACK = 0.01
# A request without a deadline takes its turn as if it had so many seconds, the default for a call.
PATIENCE = 30.0


def clock_of(loop: asyncio.AbstractEventLoop) -> Callable[[], float]:
    """Return the system's clock, whose time is the loop's: uvloop counts whole milliseconds, and asyncio needs a frame.

    A loop with another clock, such as virtual time, derives from asyncio's and has a ``time`` in its class.
    """
    is_usual = not isinstance(loop, asyncio.BaseEventLoop) or type(loop).time is asyncio.BaseEventLoop.time
    return time.monotonic if is_usual else loop.time


class SlotWaiter(Protocol):
    """Something that waits for a slot."""

    @property
    def deadline(self) -> float:
        """The request's earliest call deadline; infinite if there is none."""

    @property
    def is_urgent(self) -> bool:
        """True if the request goes before all that are not urgent."""

    @property
    def is_waiting(self) -> bool:
        """True while the slot is wanted."""

    @property
    def tenant(self) -> object:
        """The request's Api-Key; None for a run or a retry."""

    @property
    def is_merged(self) -> bool:
        """True for several calls that wait as one request: they need no other slot."""

    def acquire(self, *, is_probe: bool) -> int | None:
        """Take the slot. Return the number of users in the request; None if the slot is no longer wanted.

        A probe carries one of several merged calls, and the others wait on.
        """


class ConcurrencyLimiter:
    """The slots that ``AdaptiveLimit`` finds. Held by attempts, not by waits between them.

    Urgent requests come first, then the earliest deadline: with equal timeouts that is first come, first served.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, cap: int, rate_limiter: RateLimiter) -> None:
        self._loop = loop
        self._cap = cap
        #: Decides when the next request may start.
        self.rate_limiter = rate_limiter
        #: Tells which calls can be answered in time. Told about each attempt by ``RequestSender``.
        self.times = AttemptTimes()
        #: The requests that runs have in work: as many as the limit only while they have more. Set by runs.
        self.run_requests = 0
        #: The clock for latencies.
        self.clock = clock_of(loop)
        now = self.clock()
        # Virtual time is the time of day, too: events in it do not depend on when they happen.
        self._adaptive = AdaptiveLimit(now, cap=cap, wall=time.time() if self.clock is time.monotonic else now)
        # Slots that hanging requests hold, beside those that ``AdaptiveLimit`` counts. Set by ``set_apart``.
        self._hanging = 0
        # The next request's earliest start while starts are paced.
        self._next_start = -math.inf
        # A heap: not urgent, deadline, number, waiter.
        self._queue: list[tuple[bool, float, int, SlotWaiter]] = []
        # The probes of each tenant in this silence.
        self._probes: Counter[object] = Counter()
        # Set while a rate, a pause or a silent service holds the queue back.
        self._timer: asyncio.TimerHandle | None = None
        # The reason why the queue waits; None if nothing does. Set by ``_assign_slots``.
        self._obstacle: Failure | None = None
        # Why starts are paced: the service asked for it, or can't be reached. Set by ``refused`` and ``pause``.
        self._paced_by = _NO_TIME

    @property
    def in_flight(self) -> int:
        """Slots in use."""
        return self._adaptive.in_flight + self._hanging

    @property
    def limit(self) -> int:
        """Slots in all."""
        return min(self._adaptive.limit + self._hanging, self._cap)

    @property
    def rate(self) -> float | None:
        """Requests per second while starts are paced, else None."""
        return 1.0 / self._adaptive.gap if self._adaptive.gap else None

    def try_acquire(self, users: int) -> bool:
        """Take a slot now, if one is free and nothing waits for slots. Return True if taken."""
        if self._queue or self._hanging or self._adaptive.in_flight >= self._adaptive.limit:
            return False
        now = self.clock()
        if self._earliest(now) > now:
            return False
        self._start(now, users)
        return True

    async def acquire(self, users: int, *, deadline: float = math.inf, is_urgent: bool = False) -> None:
        """Wait for a slot."""
        waiter = _SlotFuture(self._loop, users, deadline, is_urgent)
        self.enqueue(waiter)
        try:
            await waiter.future
        except asyncio.CancelledError:
            if waiter.future.done() and not waiter.future.cancelled():
                self.give_back(users)
            raise

    def give_back(self, users: int) -> None:
        """Return a slot whose request was not sent: the fixed rates don't count it."""
        self.rate_limiter.refund(users)
        self.release()

    def likely_end(self, attempt: float | None) -> float:
        """Return the time by which an attempt that begins now has likely ended; infinite if it usually takes too long.

        ``attempt`` is the attempt's timeout. A call whose deadline is not later is not begun.
        """
        if attempt is not None and self.times.needed(False) > attempt:
            return math.inf
        return self.clock() + self.times.needed(bool(self._queue))

    def reason_for(self, failure: Failure) -> Failure:
        """Return why a call waited for its slot until its time was short; for other failures these."""
        if failure not in (Failure.DEADLINE, _NO_TIME):
            return failure
        # The pace is the cause if the service answers, and if the slots, which are rounded down, would let more start.
        adaptive, times = self._adaptive, self.times
        is_paced = adaptive.gap * (adaptive.limit + 1) > times.usual and not times.is_silent(self.clock())
        return self._paced_by if is_paced and self._obstacle is not Failure.RATE else self._obstacle or failure

    def enqueue(self, waiting: SlotWaiter) -> None:
        """Queue for a slot. The waiter's ``acquire`` may be called before this returns."""
        self._push(waiting)
        self._assign_slots()

    def _push(self, waiting: SlotWaiter) -> None:
        turn = min(waiting.deadline, self.clock() + PATIENCE)
        heapq.heappush(self._queue, (not waiting.is_urgent, turn, next(_numbers), waiting))

    def release(self, seconds: float | None = None, ok: bool = False, now: float | None = None) -> None:
        """Return a slot.

        ``seconds``: the time that it was in use, by ``clock``, wherever the time went; None if that says nothing. Not
        ``ok``: the service did not do the work.
        """
        now = self.clock() if now is None else now
        queue, adaptive = self._queue, self._adaptive
        starved = bool(queue and (len(queue) > 1 or not queue[0][-1].is_merged)) or self.run_requests >= adaptive.limit
        # A fixed rate that is above the paced one holds nothing back, nor does it in a pause.
        starved = starved and self.rate_limiter.not_before <= max(now, self._next_start)
        adaptive.ended(now, seconds, ok, starved)
        if queue:
            self._assign_slots()

    def pause(self, until: float) -> None:
        """Start nothing before ``until``."""
        self.rate_limiter.pause(until)
        self._next_start = max(self._next_start, until)
        self._paced_by = Failure.THROTTLED

    def refused(self, *, pause: float = 0.0, answered: bool = True) -> None:
        """Count a refused request; its ``release`` follows. See ``AdaptiveLimit.refused``."""
        self._adaptive.refused(self.clock(), pause=pause, answered=answered)
        self._paced_by = Failure.THROTTLED if answered else _NO_TIME

    def close(self) -> None:
        """Stop the timer."""
        if self._timer is not None:
            self._timer.cancel()

    def set_apart(self, now: float) -> None:
        """Count the requests that hang apart from the others."""
        hanging = self.times.hanging(now)
        self._adaptive.in_flight += self._hanging - hanging
        self._hanging = hanging

    def _assign_slots(self) -> None:
        """Restore the invariant: nothing waits while a slot is free and the rates allow a start."""
        self.set_apart(self.clock())
        while self._queue:
            if self.in_flight >= self.limit:
                self._obstacle = _NO_SLOT if self.limit >= self._cap else _NO_TIME
                return
            now = self.clock()
            earliest = self._earliest(now)
            if earliest > now:
                self._wait_until(earliest)
                return
            if self.times.is_stalled:
                self._probe(now)
            else:
                self._probes.clear()
                self._offer(heapq.heappop(self._queue)[-1], now)
        self._obstacle = None

    def _offer(self, waiting: SlotWaiter, now: float) -> bool:
        """Offer a slot to a waiter that was removed from the queue. Return True if it is taken."""
        users = waiting.acquire(is_probe=self.times.is_silent(now))
        if users is not None:
            self._start(now, users)
        if waiting.is_waiting:
            self._push(waiting)
        return users is not None

    def _wait_until(self, earliest: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_at(earliest, self._assign_slots)
        # A pause is in both times.
        reasons = {self.rate_limiter.not_before: Failure.RATE, self._next_start: self._paced_by}
        self._obstacle = reasons.get(earliest, _NO_TIME)

    def _probe(self, now: float) -> None:
        """Offer the slot to one waiter after the other, until one takes it.

        The first is the one with the most time: the more it has, the slower a service it can find to be up. Each second
        probe is of the tenant with the fewest so far, as the requests of one tenant alone may find no response. Waiters
        that have left the queue go, as a stall may last.
        """
        probes = self._probes
        in_turn = probes.total() % 2
        waiters = [entry for entry in self._queue if entry[-1].is_waiting]
        waiters.sort(key=lambda entry: (-in_turn * probes[entry[-1].tenant], entry[1]))
        # Each is out of the queue while it decides. An observer may queue others meanwhile, and so begin another pass.
        self._queue = waiters
        while waiters and self._queue is waiters:
            waiting = waiters.pop()[-1]
            if self._offer(waiting, now):
                probes[waiting.tenant] += 1
                break
        heapq.heapify(self._queue)

    def _earliest(self, now: float) -> float:
        """Return the time before which no request starts."""
        earliest, rate, times = self._next_start, self.rate_limiter.not_before, self.times
        # ``max`` takes five times as long.
        if rate > earliest:
            earliest = rate
        return max(earliest, times.not_before(now, self._adaptive.in_flight)) if times.is_silent(now) else earliest

    def _start(self, now: float, users: int) -> None:
        self.times.started_at = now
        self._adaptive.started(now)
        self.rate_limiter.charge(now, users)
        gap = self._adaptive.gap
        if gap:
            # After an idle time, all slots may start at once.
            self._next_start = max(self._next_start, now - SLACK - gap * (self._adaptive.limit - 1)) + gap


class _SlotFuture:
    """A coroutine that waits for a slot."""

    is_merged, tenant = False, None

    def __init__(self, loop: asyncio.AbstractEventLoop, users: int, deadline: float, is_urgent: bool) -> None:
        self.deadline, self.is_urgent = deadline, is_urgent
        self._users = users
        self.future: asyncio.Future[None] = loop.create_future()

    @property
    def is_waiting(self) -> bool:
        return not self.future.done()

    def acquire(self, *, is_probe: bool) -> int | None:
        if self.future.done():
            return None
        self.future.set_result(None)
        return self._users
