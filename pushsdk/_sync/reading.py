"""A caller's iterable, read in the caller's own thread while that waits for the loop.

It may belong to that thread, as a database connection does; and where it is slow, or calls the client itself, the loop
goes on.
"""

from __future__ import annotations

import asyncio
import functools
import itertools
import time
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from typing import Any

from pushsdk._broadcast.chunks import ChunkSource, RequestSource
from pushsdk._core.errors import ClientClosedError, ValidationError

__all__ = ["Reader", "read", "readable"]

# What is handed over at a time: so many items, or what comes in so many seconds, looked at after some.
BLOCK = 10_000
SOME = 50
PATIENCE = 0.02
# In memory, or read in a thread of its own anyway; texts and mappings are for others to refuse.
IN_MEMORY = (str, bytes, bytearray, memoryview, Mapping, list, tuple, set, frozenset, range)

Callback = Callable[[], object]


def read(user_ids: object, most: int) -> Any:
    """The ids of one send, read here and now."""
    if isinstance(user_ids, IN_MEMORY) or not isinstance(user_ids, Iterable):
        return user_ids
    return tuple(itertools.islice(user_ids, most + 1))


def readable(name: str, items: object, ask: Callable[[Callback], None]) -> Any:
    """The users or requests of a broadcast as the loop may read them. Raises ValidationError for an async iterable."""
    if isinstance(items, AsyncIterable):
        raise ValidationError(
            f"{name} is an async iterable, which belongs to an event loop: pass a plain one, or use AsyncPushClient"
        )
    if isinstance(items, (*IN_MEMORY, ChunkSource, RequestSource)) or not isinstance(items, Iterable):
        return items
    return Reader(items, ask)


class Reader:
    """An async iterable for the loop; each block of it is read by the thread that waits, which ``ask`` reaches."""

    def __init__(
        self, items: Iterable[Any], ask: Callable[[Callback], None], *, block: int = BLOCK, some: int = SOME
    ) -> None:
        self._items = items
        self._ask = ask
        self._block = block
        self._some = some
        # Made in the thread that reads, at the first block.
        self._iterator: Iterator[Any] | None = None
        self._ended = False

    async def __aiter__(self) -> AsyncGenerator[Any]:
        while not self._ended:
            block: Future[list[Any]] = Future()
            self._ask(functools.partial(self._hand_over, block))
            try:
                items = await asyncio.wrap_future(block)
            except asyncio.CancelledError:
                # The thread no longer waits, or the client was closed over it.
                raise ClientClosedError(
                    "the client was closed before the plan was finished: nothing was sent"
                ) from None
            for item in items:
                yield item

    def _hand_over(self, block: Future[list[Any]]) -> None:
        """In the thread that waits: read a block. An exception of the iterable's is raised where the loop reads."""
        if not block.set_running_or_notify_cancel():
            return
        try:
            items = self._read_on()
        except Exception as error:  # noqa: BLE001 - it comes back to the caller with the call
            block.set_exception(error)
        else:
            block.set_result(items)

    def _read_on(self) -> list[Any]:
        if self._iterator is None:
            self._iterator = iter(self._items)
        block: list[Any] = []
        due = time.monotonic() + PATIENCE
        while some := list(itertools.islice(self._iterator, self._some)):
            block += some
            if len(block) >= self._block or time.monotonic() >= due:
                return block
        self._ended = True
        return block
