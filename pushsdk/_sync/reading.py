"""A caller's iterable, read in the caller's own thread while that waits for the loop.

It may belong to that thread, as a database connection does; and where it is slow, or calls the client itself, the loop
goes on.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import itertools
import time
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Iterable, Iterator, Mapping
from typing import Any

from pushsdk._broadcast.plan import ChunkSource, RequestSource
from pushsdk._core.errors import ClientClosedError, ValidationError

__all__ = ["Reader", "read", "readable"]

# What is handed over at a time: so many items, or what comes in so many seconds, looked at after some.
BLOCK = 10_000
SOME = 50
PATIENCE = 0.02
# In memory, or read in a thread of its own anyway; texts and mappings are for others to refuse.
AT_HAND = (str, bytes, bytearray, memoryview, Mapping, list, tuple, set, frozenset, range)

Errand = Callable[[], object]


def read(user_ids: object, most: int) -> Any:
    """The ids of one send, read here and now."""
    if isinstance(user_ids, AT_HAND) or not isinstance(user_ids, Iterable):
        return user_ids
    return tuple(itertools.islice(user_ids, most + 1))


def readable(name: str, items: object, ask: Callable[[Errand], None]) -> Any:
    """The users or requests of a broadcast as the loop may read them. Raises ValidationError for an async iterable."""
    if isinstance(items, AsyncIterable):
        raise ValidationError(
            f"{name} is an async iterable, which belongs to an event loop: pass a plain one, or use AsyncPushClient"
        )
    if isinstance(items, (*AT_HAND, ChunkSource, RequestSource)) or not isinstance(items, Iterable):
        return items
    return Reader(items, ask)


class Reader:
    """An async iterable for the loop; each block of it is read by the thread that waits, which ``ask`` reaches."""

    def __init__(
        self, items: Iterable[Any], ask: Callable[[Errand], None], *, block: int = BLOCK, some: int = SOME
    ) -> None:
        self._items = items
        self._ask = ask
        self._block = block
        self._some = some
        # Made in the thread that reads, at the first block.
        self._iterator: Iterator[Any] | None = None
        self._ended = False

    async def __aiter__(self) -> AsyncGenerator[Any]:
        loop = asyncio.get_running_loop()
        while not self._ended:
            waiter: asyncio.Future[list[Any]] = loop.create_future()
            self._ask(functools.partial(self._hand_over, loop, waiter))
            try:
                block = await waiter
            except asyncio.CancelledError:
                # The thread has left, or the client was closed over it.
                raise ClientClosedError(
                    "the client was closed before the plan was finished: nothing was sent"
                ) from None
            for item in block:
                yield item

    def _hand_over(self, loop: asyncio.AbstractEventLoop, waiter: asyncio.Future[list[Any]]) -> None:
        """In the thread that waits: read a block. An exception of the iterable's is raised where the loop reads."""
        block: list[Any] = []
        failure: Exception | None = None
        try:
            self._read_on(block)
        except Exception as error:  # noqa: BLE001 - it comes back to the caller with the call
            failure = error
        with contextlib.suppress(RuntimeError):  # the loop has come to its end
            loop.call_soon_threadsafe(_settle, waiter, block, failure)

    def _read_on(self, block: list[Any]) -> None:
        if self._iterator is None:
            self._iterator = iter(self._items)
        due = time.monotonic() + PATIENCE
        while some := list(itertools.islice(self._iterator, self._some)):
            block += some
            if len(block) >= self._block or time.monotonic() >= due:
                return
        self._ended = True


def _settle(waiter: asyncio.Future[list[Any]], block: list[Any], failure: Exception | None) -> None:
    if waiter.done():
        return
    if failure is None:
        waiter.set_result(block)
    else:
        waiter.set_exception(failure)
