"""One call of a thread: what it asks of the loop, and what the loop has to say to it."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Coroutine
from queue import SimpleQueue
from typing import Any

__all__ = ["Call"]


class Call:
    """Made and waited for by one thread, performed by the loop in another."""

    __slots__ = ("begun", "box", "context", "ended", "error", "result", "task", "work")

    #: Makes what the loop awaits; called there. Set by the thread.
    work: Callable[[], Coroutine[Any, Any, Any]]

    def __init__(self) -> None:
        #: The caller's: spans and the like.
        self.context: contextvars.Context = contextvars.copy_context()
        #: What the waiting thread is to do for the loop, and None when the call has ended.
        self.box: SimpleQueue[Callable[[], object] | None] = SimpleQueue()
        #: Set by the loop when it takes the call in, when the work begins, and when it has ended.
        self.task: asyncio.Task[None] | None = None
        self.begun: bool = False
        self.ended: bool = False
        self.result: Any = None
        self.error: BaseException | None = None

    async def perform(self, calls: set[Call]) -> None:
        """The work, in a task of its own. Whatever it raises is the thread's."""
        self.begun = True
        error = None
        try:
            self.result = await self.work()
        except BaseException as raised:  # noqa: BLE001 - raised again, in the thread that called
            error = raised
        calls.discard(self)
        self.end(error)

    def end(self, error: BaseException | None = None) -> None:
        """It has ended: tell the thread."""
        self.error = error
        self.ended = True
        self.box.put(None)
