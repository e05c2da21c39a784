"""The work that has not ended: calls and all else, whoever waits for the end, and how far the client's end has come."""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from pushsdk._core.batching import Call
from pushsdk._io.timers import let_read


class Work:
    """One client's work that has not ended. Tells waiters when it has."""

    def __init__(self) -> None:
        #: The calls. Added by the queue.
        self.calls: set[Call] = set()
        #: Campaigns, sends with idempotency keys, and runs.
        self.others: set[object] = set()
        #: Runs that are planned or sent: the client's end stops them.
        self.runs: set[Any] = set()
        #: Writes to a claim store that outlive their calls: only the client's end waits for them.
        self.late: set[object] = set()
        #: The calls that ended since the client is being closed; None before. Set by ``Lifetime``.
        self.drained: list[Call] | None = None
        #: True once no request may start any more. Set by ``Lifetime``.
        self.closed = False
        # Each waiter's future, and the items that it still waits for.
        self._waiters: dict[asyncio.Future[None], set[object]] = {}

    @contextmanager
    def including(self, item: object) -> Iterator[None]:
        """Count an item other than a call as work during the block."""
        self.others.add(item)
        try:
            yield
        finally:
            self.others.discard(item)
            self.ended(item)

    def end(self, units: Sequence[Any]) -> None:
        """Remove calls that are complete. Does nothing for a call that never began, and for a call's part."""
        if self.drained is not None:
            self.drained += [unit for unit in units if unit in self.calls]
        for unit in units:  # ``difference_update`` would make the set's table anew each second time
            self.calls.discard(unit)
        if self._waiters:
            self.ended(*units)

    def ended(self, *ended: object) -> None:
        """Tell the waiters that calls, or other items that they wait for, have ended."""
        for future, items in self._waiters.items():
            items.difference_update(ended)
            if not items and not future.done():
                future.set_result(None)

    async def idle(self, seconds: float | None = None) -> None:
        """Wait until all current calls and all other work have ended, but no longer than ``seconds``."""
        try:
            async with asyncio.timeout(seconds):
                await self._end_of({*self.calls, *self.others})
                if self.drained is not None:
                    # Last: calls that have ended may have left some.
                    await self._end_of({*self.late})
        except TimeoutError:
            await let_read()  # if the loop is late, the answers come after its timers

    async def _end_of(self, items: set[object]) -> None:
        future = asyncio.get_running_loop().create_future()
        self._waiters[future] = items
        try:
            if items:
                await future
        finally:
            del self._waiters[future]
