"""Time in the shell: a timer wheel for all deadlines, and the scope that ends an await at its deadline.

A timer per call costs 3-4 us, a wheel entry 0.3. A deadline is kept to one tick and a few loop turns.
"""

import asyncio
import math
from collections.abc import Callable
from heapq import heappop, heappush
from types import TracebackType
from typing import Any, Protocol, Self

import msgspec

from pushsdk._core.outcome import Failure

Respond = Callable[[bool], None]
"""Called as a request's response is there: with True for a plain 204."""

TICKS_PER_SECOND = 250
# One turn reads the sockets, and up to four take in the data: TLS hands it on, a task is made, starts, and reads.
TURNS_TO_READ = 5
# Ticks between two that drop all empty ticks. A prime number: no steady rate misses them.
DROP_EVERY = 1021
# The tick for an entry without a deadline.
NEVER = -1


async def let_read() -> None:
    """Let the loop read its sockets, and take in the data."""
    for _ in range(TURNS_TO_READ):
        await asyncio.sleep(0)


class TimerEntry(Protocol):
    """A timer wheel entry."""

    def expire(self, reason: Failure) -> None:
        """End the entry: its deadline has come."""

    def fail(self, reason: Failure, *, until: float) -> None:
        """End the entry if it waits and has its deadline by this time; if that is infinite, in any case."""


class TimerWheel:
    """Calls ``expire`` on each entry whose deadline has passed. One timer, for the earliest tick in use."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        # The entries by their deadlines, rounded up to a tick (a dict as an ordered set).
        self._buckets: dict[int, dict[TimerEntry, None]] = {}
        self._order: list[int] = []
        # The timer for the earliest tick, or the sweep that it has begun.
        self._handle: asyncio.Handle | None = None

    def add(self, entry: TimerEntry, deadline: float) -> Any:
        """Keep the entry until it expires. Returns its tick's entries, for an entry that leaves before.

        An empty tick goes when its time comes, before the next is armed, or at one tick in ``DROP_EVERY``.
        """
        tick = math.floor(deadline * TICKS_PER_SECOND) + 1 if deadline < math.inf else NEVER
        bucket = self._buckets.get(tick)
        if bucket is None:
            if tick % DROP_EVERY == 0:
                self._buckets = {each: entries for each, entries in self._buckets.items() if entries}
                self._order = sorted(self._buckets.keys() - {NEVER})
            bucket = self._buckets[tick] = {}
            if tick != NEVER:
                order = self._order
                heappush(order, tick)
                if tick == order[0]:
                    self._arm()
        bucket[entry] = None
        return bucket

    def fail(self, reason: Failure, *, until: float = math.inf) -> None:
        """End waiting entries with a deadline by this time. Without a time, also end those in flight."""
        for bucket in tuple(self._buckets.values()):
            for entry in tuple(bucket):
                entry.fail(reason, until=until)

    def close(self) -> None:
        """Stop the timer."""
        if self._handle is not None:
            self._handle.cancel()
        self._buckets.clear()
        self._order.clear()

    def _arm(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
        self._handle = self.loop.call_at(self._order[0] / TICKS_PER_SECOND, self._let_read)

    def _let_read(self) -> None:
        """Let the loop read its sockets, then sweep the entries due now: no deadline is put off twice.

        If a loop was blocked, or a process was stopped, its timers come before the answers that arrived
        meanwhile. An answer that has arrived counts.
        """
        self._sweep(self.loop.time() * TICKS_PER_SECOND, TURNS_TO_READ)

    def _sweep(self, now: float, turns: int) -> None:
        if turns:
            self._handle = self.loop.call_soon(self._sweep, now, turns - 1)
            return
        try:
            while self._order:
                bucket = self._buckets[self._order[0]]
                if not bucket:
                    del self._buckets[heappop(self._order)]
                # call_at may come a clock resolution early: an entry due within a tenth of a tick is due.
                elif self._order[0] <= now + 0.1:
                    bucket.popitem()[0].expire(Failure.DEADLINE)
                else:
                    break
        finally:  # a log handler may raise
            if self._order:
                self._arm()


class DeadlineScope(msgspec.Struct, eq=False, gc=False):
    """``with scope:`` around awaits in the current task; past the deadline they are cancelled.

    ``expired`` then says why, and the CancelledError does not leave the block, unless the task was cancelled from
    outside as well: that always propagates.
    """

    _timers: TimerWheel
    deadline: float
    """On the loop's clock; infinite if there is none."""
    expired: Failure | None = None
    """The reason why the block was ended, or None. Set by ``expire``."""
    is_waiting: bool = False
    """True if nothing is in flight during the block: then a pause ends it, too."""
    respond: Any = None
    """Called with False if the deadline expires before a task enters the block. Set by who adds it to the wheel."""
    _task: Any = None
    _cancelling: int = 0
    tick: Any = None
    """The entries of its tick in the wheel."""

    def __enter__(self) -> Self:
        task = asyncio.current_task(self._timers.loop)
        if task is None:  # pragma: no cover - only a coroutine driven by hand
            raise RuntimeError("a send is awaited inside a task")
        self._task = task
        self._cancelling = task.cancelling()
        if self.respond is None:
            self.tick = self._timers.add(self, self.deadline)
        elif self.expired:
            task.cancel()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        self.tick.pop(self, None)
        # The task keeps the exception that it raises, which keeps its frames, and the callback keeps its request: a way
        # back from here would be a cycle.
        task, self._task, self.respond = self._task, None, None
        if self.expired is None:
            return False
        return task.uncancel() <= self._cancelling and kind is asyncio.CancelledError

    def fail(self, reason: Failure, *, until: float) -> None:
        if until == math.inf or (self.is_waiting and self.deadline <= until):
            self.expire(reason)

    def expire(self, reason: Failure) -> None:
        """End the block from outside."""
        if self.expired is None:
            self.expired = reason
            if self._task is None:
                self.respond(False)
            else:
                self._task.cancel()
