"""The caller's iterables and functions, which the loop has used in the thread that waits for the call."""

import asyncio
import functools
import inspect
import itertools
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from concurrent.futures import Future
from typing import Any, TypeVar

from pushsdk._audience.audience import Audience, Personalized
from pushsdk._core.arguments import iterable
from pushsdk._core.errors import ClientClosedError
from pushsdk._core.kinds import is_async
from pushsdk._core.secret import sealed
from pushsdk._runs.planner import next_block
from pushsdk.sync.loop_thread import current

# Values that the loop itself can read without blocking, or rejects.
IN_MEMORY = (str, bytes, bytearray, memoryview, Mapping, list, tuple, set, frozenset, range)

T = TypeVar("T")


def read_ids(user_ids: object, max_users: int) -> Any:
    """Read the ids for one send: at most one more than ``max_users``, enough for the client to reject them."""
    if isinstance(user_ids, IN_MEMORY):
        return user_ids
    return tuple(itertools.islice(iterable("user_ids", user_ids, "a str or an iterable of str"), max_users + 1))


def async_readable(name: str, items: object) -> Any:
    """Return the items in a form that the loop can read. Raises ValidationError unless they are a plain iterable.

    ``name`` is the argument that the error names.
    """
    if isinstance(items, (*IN_MEMORY, Audience, Personalized)):
        return items
    items = iterable(name, items, "a plain iterable, not an async one")
    # Calls iter() at the first item, in the waiting thread.
    source = itertools.chain.from_iterable((items,))
    return in_blocks(iter(lambda: next_block(source), []))


def asked(function: Callable[[], T]) -> asyncio.Future[T]:
    """Return a function's future result. The thread that waits for the current call calls the function."""
    future: Future[T] = Future()

    def work() -> None:
        if future.set_running_or_notify_cancel():
            try:
                future.set_result(function())
            except StopIteration as error:  # which no future takes: as in a generator
                future.set_exception(RuntimeError(repr(error)).with_traceback(error.__traceback__))
            except Exception as error:  # noqa: BLE001 - raised again in the loop
                future.set_exception(error)

    current.get().callbacks.put(work)
    return asyncio.wrap_future(future)


def asked_in_thread(api_key: Any) -> Any:
    """Return the api_key, which, if it is a sync callable, is called in the thread that waits for the call."""
    if not callable(api_key) or is_async(api_key):
        return api_key

    @functools.wraps(api_key, updated=())
    async def ask() -> Any:
        answer = asked(lambda: sealed(api_key()))
        # If the thread no longer waits, the callable fails.
        current.get().task.add_done_callback(lambda _: answer.cancel())
        key = await answer
        return await key if inspect.isawaitable(key) else key

    return ask


async def in_blocks(blocks: Iterator[list[T]]) -> AsyncGenerator[T]:
    """Iterate over the items in blocks, which the thread that waits for the current call reads."""
    while True:
        try:
            values = await asked(lambda: next(blocks, []))
        except asyncio.CancelledError:
            # The thread no longer waits, or the client was closed.
            raise ClientClosedError("the client was closed before the plan was finished: nothing was sent") from None
        if not values:
            return
        for value in values:
            yield value
