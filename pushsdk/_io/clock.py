"""Time in the shell: now, deadlines kept by one sweep, and the scope that ends an await at its deadline.

A timer per call costs 3-4 us, a place in the sweep 0.3. A deadline is kept to one tick and a few loop turns.
"""

from __future__ import annotations

import asyncio
import heapq
import math
from collections.abc import Iterable
from types import TracebackType
from typing import Any, Protocol, Self

import msgspec

from pushsdk._core.outcome import Failure

__all__ = ["TURNS_TO_READ", "Company", "Deadlines", "Expirable", "Scope"]

TICKS_PER_SECOND = 250
# One turn reads the sockets, the next runs the tasks that the answers wake, the third takes in the rest of an answer.
TURNS_TO_READ = 3
# The bucket of what has no deadline.
NEVER = -1


class Expirable(Protocol):
    """What can be kept in the sweep."""

    def expire(self, reason: Failure) -> None:
        """Its deadline has come (DEADLINE), or the client ends it (CLOSED)."""
        ...


class Deadlines:
    """Calls ``expire`` on what is still in it when its deadline passes. One timer, for the earliest bucket in use."""

    __slots__ = ("_armed", "_buckets", "_handle", "_order", "loop")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        # Deadlines rounded up to a tick, and what expires then (a dict as an ordered set).
        self._buckets: dict[int, dict[Expirable, None]] = {}
        self._order: list[int] = []
        self._handle: asyncio.Handle | None = None
        self._armed = math.inf

    def add(self, item: Expirable, deadline: float) -> int:
        """Keep the item until it is removed with the bucket that this returns, or expires."""
        tick = int(deadline * TICKS_PER_SECOND) + 1 if deadline < math.inf else NEVER
        bucket = self._buckets.get(tick)
        if bucket is None:
            bucket = self._buckets[tick] = {}
            if tick != NEVER:
                heapq.heappush(self._order, tick)
                if tick < self._armed:
                    self._arm(tick)
        bucket[item] = None
        return tick

    def remove(self, item: Expirable, tick: int) -> None:
        """The item is through. A bucket left empty goes when its time comes, or before the next is armed."""
        bucket = self._buckets.get(tick)
        if bucket is not None:
            bucket.pop(item, None)

    def end_scopes(self, reason: Failure) -> None:
        """Expire every scope of now, whatever its deadline."""
        for bucket in tuple(self._buckets.values()):
            for item in tuple(bucket):
                if isinstance(item, Scope):
                    item.expire(reason)

    def close(self) -> None:
        """Stop the timer."""
        if self._handle is not None:
            self._handle.cancel()
        self._buckets.clear()
        self._order.clear()

    def _arm(self, tick: int) -> None:
        if self._handle is not None:
            self._handle.cancel()
        self._armed = tick
        self._handle = self.loop.call_at(tick / TICKS_PER_SECOND, self._let_read)

    def _let_read(self) -> None:
        """Let the loop read its sockets, then sweep what is due now: no deadline is put off twice.

        The timers of a loop that was blocked, or of a process that was stopped, come before the answers that arrived
        meanwhile. An answer that has arrived counts.
        """
        self._sweep(self.loop.time() * TICKS_PER_SECOND, TURNS_TO_READ)

    def _sweep(self, now: float, turns: int) -> None:
        if turns:
            self._handle = self.loop.call_soon(self._sweep, now, turns - 1)
            return
        self._handle, self._armed = None, math.inf
        # call_at may come a clock resolution early: what is due within a tenth of a tick is due.
        while self._order and (self._order[0] <= now + 0.1 or not self._buckets[self._order[0]]):
            for item in self._buckets.pop(heapq.heappop(self._order)):
                item.expire(Failure.DEADLINE)
        if self._order:
            self._arm(self._order[0])


class Member(Expirable, Protocol):
    """An item of a ``Company``. If it expires twice, the first time counts."""

    deadline: float


class Company:
    """One place in the sweep for many that wait together: for the earliest of their deadlines."""

    __slots__ = ("_keeper", "_members", "_tick", "deadline")

    def __init__(self, keeper: Deadlines, members: Iterable[Member]) -> None:
        self._keeper = keeper
        # Looked through when a deadline comes: may change in the meantime.
        self._members = members
        #: The earliest deadline; infinite where there is none. Set by ``include``.
        self.deadline = math.inf
        self._tick = NEVER

    def include(self, deadline: float) -> None:
        """One of the members has this deadline."""
        if deadline < self.deadline:
            self._keeper.remove(self, self._tick)
            self.deadline = deadline
            self._tick = self._keeper.add(self, deadline)

    def expire(self, reason: Failure) -> None:
        """Tell those whose deadline has come, and wait for the next."""
        # Rounding may put a deadline at the very end of its tick.
        due = self._tick / TICKS_PER_SECOND
        rest = math.inf
        for member in self._members:
            if member.deadline <= due:
                member.expire(reason)
            elif member.deadline < rest:
                rest = member.deadline
        self.deadline = math.inf
        self.include(rest)

    def close(self) -> None:
        """Nobody waits any more."""
        self._keeper.remove(self, self._tick)
        self.deadline = -math.inf


class Scope(msgspec.Struct, eq=False, gc=False):
    """``with scope:`` around awaits of the current task; past the deadline they are cancelled.

    ``expired`` then says why, and the CancelledError does not leave the block, unless the task was cancelled from
    outside as well: that always propagates.
    """

    _keeper: Deadlines
    _deadline: float
    expired: Failure | None = None
    """Why the block was ended, None where it was not. Set by ``expire``."""
    _task: Any = None
    _cancelling: int = 0
    _tick: int = NEVER

    def __enter__(self) -> Self:
        task = asyncio.current_task(self._keeper.loop)
        if task is None:  # pragma: no cover - only a coroutine driven by hand
            raise RuntimeError("a send is awaited inside a task")
        self._task = task
        self._cancelling = task.cancelling()
        self._tick = self._keeper.add(self, self._deadline)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        self._keeper.remove(self, self._tick)
        # The task keeps what it raises, and that its frames: a way back from here would be a cycle.
        task, self._task = self._task, None
        if self.expired is None:
            return False
        return task.uncancel() <= self._cancelling and kind is asyncio.CancelledError

    def expire(self, reason: Failure) -> None:
        """End the block from outside."""
        if self.expired is None:
            self.expired = reason
            self._task.cancel()
