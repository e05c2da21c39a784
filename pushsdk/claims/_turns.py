"""Who may ask the claim store now: a crowd of our own calls waits here, where the store's timeout does not run."""

from __future__ import annotations

import asyncio
import math
from collections import deque

__all__ = ["AT_A_TIME", "Turns"]

# Visits to a store at a time. So many are done within a small part of its timeout, by any store that is well, and fill
# a commit of one that writes what comes together.
AT_A_TIME = 256


class Turns:
    """At most so many visits to a store at a time, first come first served.

    Nobody waits behind a store that is silent: when one was heard of by none for its whole timeout, all who wait are
    told so.
    """

    def __init__(self) -> None:
        self._left = AT_A_TIME
        self._line: deque[asyncio.Future[None]] = deque()
        # When the store answered last, on the loop's clock.
        self._heard_at = -math.inf

    async def take(self, deadline: float | None = None) -> None:
        """Wait for a turn; ``give`` it back. Raises TimeoutError at the deadline, or where the store is silent."""
        if self._left:
            self._left -= 1
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._line.append(turn)
        try:
            async with asyncio.timeout_at(deadline):
                await turn
        except BaseException:
            if turn.done() and not turn.cancelled() and turn.exception() is None:
                self.give()
            raise

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
            turn = self._line.popleft()
            if not turn.done():
                turn.set_exception(TimeoutError())
