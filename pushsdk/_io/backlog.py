"""The work that waits in a client's queue, and the calls that wait for room in it."""

import asyncio
from collections import OrderedDict
from itertools import islice

from pushsdk._core.outcome import Failure
from pushsdk._core.policy import Limits
from pushsdk._io.timers import DeadlineScope, TimerWheel


class Backlog:
    """The users and bytes that wait for a slot, and the calls that wait until there are fewer.

    A call is let in, and encoded, while the queue is below its limits: they are exceeded by at most one call.
    """

    def __init__(self, limits: Limits) -> None:
        self._max_users = limits.queued_users
        self._max_bytes = limits.queued_bytes
        #: Waiting users and bytes. Counted by ``enter`` and ``leave``.
        self.users = 0
        self.bytes = 0
        #: True if a new call has to wait. An attribute, because each ``send`` reads it.
        self.is_full = False
        # The bytes that entered last: an estimate for the next call.
        self._last = 0
        # The calls that wait for room, first come first served, and what wakes each one.
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
        scope = DeadlineScope(timers, deadline, is_waiting=True)
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
