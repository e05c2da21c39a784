"""What changed in an inbox, for those who wait for it: a bounded list of events with marks of their own."""

from __future__ import annotations

import asyncio
import secrets
import threading
from collections import deque
from collections.abc import Sequence
from typing import Literal, TypeAlias

from msgspec import Struct

__all__ = ["Event", "Kind", "Live"]

Kind: TypeAlias = Literal["request", "campaign", "deleted", "faults", "limits", "reset"]
_KEPT = 1000  # events; who is further behind reads the lists anew


class Event(Struct, frozen=True):
    """A change. ``first`` and ``last`` are the ids of the requests that came, ``name`` a campaign's uuid."""

    mark: int
    kind: Kind
    first: int = 0
    last: int = 0
    name: str = ""


class Live:
    """The events of one inbox, and who waits for the next. Marks hold for this process: see ``boot``.

    Any thread may publish: faults are set, and inboxes reset, by tests in theirs.
    """

    def __init__(self) -> None:
        self.boot: str = secrets.token_hex(4)
        self.mark: int = 0  # of the newest event, 0 before the first; set by publish
        self._lock = threading.Lock()  # for the three that change together
        self._events: deque[Event] = deque(maxlen=_KEPT)
        self._waiting: set[asyncio.Future[None]] = set()

    def publish(self, kind: Kind, *, first: int = 0, last: int = 0, name: str = "") -> None:
        """Add an event and wake who waits."""
        with self._lock:
            self.mark += 1
            self._events.append(Event(self.mark, kind, first, last, name))
            waiting, self._waiting = self._waiting, set()
        for each in waiting:
            each.get_loop().call_soon_threadsafe(_wake, each)

    def since(self, mark: int) -> Sequence[Event] | None:
        """The events after this mark, oldest first; None where some of them are gone or it is not one of ours."""
        with self._lock:
            if not self.mark - len(self._events) <= mark <= self.mark:
                return None
            return [event for event in self._events if event.mark > mark]

    async def changed(self, mark: int) -> None:
        """Wait until there is an event after this mark."""
        while True:
            with self._lock:
                if self.mark > mark:
                    return
                waiting = asyncio.get_running_loop().create_future()
                self._waiting.add(waiting)
            try:
                await waiting
            finally:
                with self._lock:
                    self._waiting.discard(waiting)


def _wake(waiting: asyncio.Future[None]) -> None:
    if not waiting.done():
        waiting.set_result(None)
