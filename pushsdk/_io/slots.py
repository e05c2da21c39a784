"""The places on the wire: who has one, who is next, and when the rate limiter lets the next one go."""

from __future__ import annotations

import asyncio
import math
from collections import deque
from typing import Protocol

from pushsdk._core.outcome import Failure
from pushsdk._core.pacing import RateLimiter

__all__ = ["Slots", "Ticket", "Waiting"]


class Waiting(Protocol):
    """What waits for a place."""

    @property
    def users(self) -> int:
        """How many users its request has."""
        ...

    def grant(self) -> bool:
        """Take the place; False where it is not wanted any more."""
        ...

    def give_up(self, reason: Failure, *, before: float) -> None:
        """End what has its deadline before this time."""
        ...


class Slots:
    """``Limits.in_flight`` places, first come first served, held per attempt and not while waiting between them."""

    __slots__ = ("_free", "_limit", "_loop", "_queue", "_timer", "rate_limiter")

    def __init__(self, loop: asyncio.AbstractEventLoop, limit: int, rate_limiter: RateLimiter) -> None:
        self._loop = loop
        #: Says when the next may start.
        self.rate_limiter = rate_limiter
        self._limit = limit
        self._free = limit
        self._queue: deque[Waiting] = deque()
        # Set while the rate limiter holds the queue back.
        self._timer: asyncio.TimerHandle | None = None

    @property
    def in_flight(self) -> int:
        """How many places are taken."""
        return self._limit - self._free

    @property
    def paused_until(self) -> float:
        """Nothing starts before this time."""
        return self.rate_limiter.paused_until

    def try_take(self, users: int) -> bool:
        """Take a place now, where one is free and nobody is before us."""
        if not self._free or self._queue:
            return False
        now = self._loop.time()
        if self.rate_limiter.delay(now) > 0:
            return False
        self._free -= 1
        self.rate_limiter.charge(now, users)
        return True

    def enqueue(self, waiting: Waiting) -> None:
        """Be granted a place in turn; perhaps before this returns."""
        self._queue.append(waiting)
        self._pump()

    def release(self) -> None:
        """Give a place back."""
        self._free += 1
        if self._queue:
            self._pump()

    def return_unused(self, users: int) -> None:
        """Give a place back that no request of so many users was sent from."""
        self.rate_limiter.refund(users)
        self.release()

    def pause(self, until: float) -> None:
        """Start nothing before ``until``; who can't wait so long ends at once."""
        self.rate_limiter.pause(until)
        self.give_up(Failure.PAUSED, before=until)

    def throttled(self, started: float) -> None:
        """A request that started then was answered with a throttle."""
        self.rate_limiter.throttled(started, self._loop.time())

    def give_up(self, reason: Failure, *, before: float = math.inf) -> None:
        """End what waits and has its deadline before this time."""
        for waiting in tuple(self._queue):
            waiting.give_up(reason, before=before)

    def close(self) -> None:
        """Stop the timer."""
        if self._timer is not None:
            self._timer.cancel()

    def _pump(self) -> None:
        while self._free and self._queue:
            now = self._loop.time()
            delay = self.rate_limiter.delay(now)
            if delay > 0:
                self._hold(now + delay)
                return
            waiting = self._queue.popleft()
            users = waiting.users
            self._free -= 1
            if waiting.grant():
                self.rate_limiter.charge(now, users)
            else:
                self._free += 1

    def _hold(self, until: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_at(until, self._pump)


class Ticket:
    """A place waited for by one coroutine."""

    __slots__ = ("_deadline", "_future", "users")

    def __init__(self, loop: asyncio.AbstractEventLoop, users: int, deadline: float) -> None:
        self.users = users
        self._deadline = deadline
        self._future: asyncio.Future[Failure | None] = loop.create_future()

    async def take(self, slots: Slots) -> Failure | None:
        """Wait for the place. None when it is ours, else why there is none."""
        slots.enqueue(self)
        try:
            return await self._future
        except asyncio.CancelledError:
            if self._future.done() and not self._future.cancelled() and self._future.result() is None:
                slots.release()
            raise

    def grant(self) -> bool:
        """See ``Waiting.grant``."""
        if self._future.done():
            return False
        self._future.set_result(None)
        return True

    def give_up(self, reason: Failure, *, before: float) -> None:
        """See ``Waiting.give_up``."""
        if self._deadline < before and not self._future.done():
            self._future.set_result(reason)
