"""Concurrency limiter: slots for requests in flight, the waiters for slots, and the bounds of the queue."""

from __future__ import annotations

import asyncio
import math
from collections import OrderedDict, deque
from itertools import islice
from typing import Protocol

from pushsdk._core.outcome import Failure
from pushsdk._core.policy import Limits
from pushsdk._core.rate_limit import RateLimiter
from pushsdk._io.timers import DeadlineScope, TimerWheel


class SlotWaiter(Protocol):
    """Something that waits for a slot."""

    @property
    def users(self) -> int:
        """Number of users of the request."""
        ...

    def acquire(self) -> bool:
        """Take the slot. Return False if the slot is no longer wanted."""
        ...

    def fail(self, reason: Failure, *, before: float) -> None:
        """End everything with a deadline before this time."""
        ...


class ConcurrencyLimiter:
    """``Limits.in_flight`` slots, first come first served. Held by attempts, not by waits between them."""

    __slots__ = ("_free", "_limit", "_loop", "_queue", "_timer", "rate_limiter")

    def __init__(self, loop: asyncio.AbstractEventLoop, limit: int, rate_limiter: RateLimiter) -> None:
        self._loop = loop
        #: Decides when the next request may start.
        self.rate_limiter = rate_limiter
        self._limit = limit
        self._free = limit
        self._queue: deque[SlotWaiter] = deque()
        # Set while the rate limiter holds the queue back.
        self._timer: asyncio.TimerHandle | None = None

    @property
    def in_flight(self) -> int:
        """Number of slots in use."""
        return self._limit - self._free

    @property
    def paused_until(self) -> float:
        """No request starts before this time."""
        return self.rate_limiter.paused_until

    def try_acquire(self, users: int) -> bool:
        """Take a slot now, if one is free and nothing waits for slots. Return True if taken."""
        if not self._free or self._queue:
            return False
        now = self._loop.time()
        if self.rate_limiter.delay(now) > 0:
            return False
        self._free -= 1
        self.rate_limiter.charge(now, users)
        return True

    async def acquire(self, users: int, deadline: float) -> Failure | None:
        """Wait for a slot. Return None once it is acquired, else the reason why not."""
        waiter = _SlotFuture(self._loop, users, deadline)
        self.enqueue(waiter)
        try:
            return await waiter.future
        except asyncio.CancelledError:
            if waiter.future.done() and not waiter.future.cancelled() and waiter.future.result() is None:
                self.release()
            raise

    def enqueue(self, waiting: SlotWaiter) -> None:
        """Queue for a slot. ``acquire`` of the waiter may be called before this returns."""
        self._queue.append(waiting)
        self._assign_slots()

    def release(self) -> None:
        """Return a slot."""
        self._free += 1
        if self._queue:
            self._assign_slots()

    def return_unused(self, users: int) -> None:
        """Return a slot that was not used, and refund the rate limiter for this number of users."""
        self.rate_limiter.refund(users)
        self.release()

    def pause(self, until: float) -> None:
        """Start nothing before ``until``. Waiters that can't wait that long fail now."""
        self.rate_limiter.pause(until)
        self.fail(Failure.PAUSED, before=until)

    def throttled(self, started: float) -> None:
        """Tell the rate limiter that a request started at this time was throttled."""
        self.rate_limiter.throttled(started, self._loop.time())

    def fail(self, reason: Failure, *, before: float = math.inf) -> None:
        """Fail the waiters with a deadline before this time."""
        for waiting in tuple(self._queue):
            waiting.fail(reason, before=before)

    def close(self) -> None:
        """Stop the timer."""
        if self._timer is not None:
            self._timer.cancel()

    def _assign_slots(self) -> None:
        """Restore the invariant: nothing waits while a slot is free and the rate limiter allows a start."""
        while self._free and self._queue:
            now = self._loop.time()
            delay = self.rate_limiter.delay(now)
            if delay > 0:
                self._hold(now + delay)
                return
            waiting = self._queue.popleft()
            users = waiting.users
            self._free -= 1
            if waiting.acquire():
                self.rate_limiter.charge(now, users)
            else:
                self._free += 1

    def _hold(self, until: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_at(until, self._assign_slots)


class _SlotFuture:
    """A coroutine that waits for a slot."""

    __slots__ = ("_deadline", "future", "users")

    def __init__(self, loop: asyncio.AbstractEventLoop, users: int, deadline: float) -> None:
        self.users = users
        self._deadline = deadline
        self.future: asyncio.Future[Failure | None] = loop.create_future()

    def acquire(self) -> bool:
        """See ``SlotWaiter.acquire``."""
        if self.future.done():
            return False
        self.future.set_result(None)
        return True

    def fail(self, reason: Failure, *, before: float) -> None:
        """See ``SlotWaiter.fail``."""
        if self._deadline < before and not self.future.done():
            self.future.set_result(reason)


class Backlog:
    """The users and bytes that wait for a slot, and the calls that wait until there are fewer of them.

    A call is let in, and encoded, while the queue is below its limits: they are exceeded by at most one call.
    """

    __slots__ = ("_last", "_max_bytes", "_max_users", "_waiting", "bytes", "is_full", "users")

    def __init__(self, limits: Limits) -> None:
        self._max_users = limits.queued_users
        self._max_bytes = limits.queued_bytes
        #: Waiting users and bytes. Counted by ``enter`` and ``leave``.
        self.users = 0
        self.bytes = 0
        #: True if a new call has to wait. An attribute, because each ``send`` reads it.
        self.is_full = False
        # The bytes that entered last: an estimate of the next call.
        self._last = 0
        # The calls that wait for room, first come first served, and what wakes each of them.
        self._waiting: OrderedDict[DeadlineScope, asyncio.Future[None]] = OrderedDict()

    def enter(self, users: int, size: int) -> None:
        """Count users and bytes that start to wait for a slot."""
        self.users += users
        self.bytes += size
        self._last = size
        if self.users >= self._max_users or self.bytes >= self._max_bytes:
            self.is_full = True

    def leave(self, users: int, size: int) -> None:
        """Count users and bytes that no longer wait for a slot."""
        self.users -= users
        self.bytes -= size
        if self.is_full:
            self._wake()

    async def wait_for_room(self, timers: TimerWheel, deadline: float) -> Failure | None:
        """Wait in turn until the queue is below its limits. Return the failure if the wait ends before."""
        scope = DeadlineScope(timers, deadline)
        self._waiting[scope] = timers.loop.create_future()
        try:
            with scope:
                while self._is_over() or next(iter(self._waiting)) is not scope:
                    await self._waiting[scope]
                    self._waiting[scope] = timers.loop.create_future()
        finally:
            del self._waiting[scope]
            self._wake()
        return scope.expired

    def fail(self, reason: Failure, *, before: float) -> None:
        """Fail the calls that wait for room and have a deadline before this time."""
        for scope in self._waiting:
            if scope.deadline < before:
                scope.expire(reason)

    def _is_over(self) -> bool:
        return self.users >= self._max_users or self.bytes >= self._max_bytes

    def _wake(self) -> None:
        """Wake as many calls as there may be room for: they run in one loop turn, and equal messages are merged."""
        self.is_full = self._is_over() or bool(self._waiting)
        if self._waiting and not self._is_over():
            room = min(self._max_users - self.users, (self._max_bytes - self.bytes) // max(1, self._last) + 1)
            for future in islice(self._waiting.values(), room):
                if not future.done():
                    future.set_result(None)
