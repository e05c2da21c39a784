"""Who may ask the claim store now: a crowd of our own calls waits here, where the store's timeout does not run."""

from __future__ import annotations

import asyncio
import math
from collections import deque

__all__ = ["Turns"]


class Turns:
    """At most ``at_a_time`` visits to a store, first come first served.

    Nobody waits behind a store that is silent: when it answered nobody for its whole timeout, all who wait are told.
    """

    __slots__ = ("_heard_at", "_left", "_line")

    def __init__(self, at_a_time: int) -> None:
        self._left = at_a_time
        self._line: deque[asyncio.Future[None]] = deque()
        # When the store answered last, on the loop's clock.
        self._heard_at = -math.inf

    async def take(self, deadline: float | None = None) -> None:
        """Wait for a turn; ``give`` it back. Raises TimeoutError at the deadline, or where the store is silent."""
        if self._left:
            self._left -= 1
            return
        loop = asyncio.get_running_loop()
        turn: asyncio.Future[None] = loop.create_future()
        self._line.append(turn)
        timer = None if deadline is None else loop.call_at(deadline, _give_up, turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled() and turn.exception() is None:
                self.give()
            raise
        finally:
            if timer is not None:
                timer.cancel()

    def give(self) -> None:
        """The turn is the next one's."""
        while self._line:
            turn = self._line.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        self._left += 1

    def heard(self) -> None:
        """The store has answered."""
        self._heard_at = asyncio.get_running_loop().time()

    def silent(self, since: float) -> None:
        """A visit that began then had its time, and no answer."""
        if self._heard_at >= since:
            return
        while self._line:
            _give_up(self._line.popleft())


def _give_up(turn: asyncio.Future[None]) -> None:
    if not turn.done():
        turn.set_exception(TimeoutError())
