"""The caller's iterables and functions, which the loop has used in the thread that waits for the call."""

import asyncio
import functools
import inspect
from collections.abc import AsyncGenerator, AsyncIterable, Callable
from concurrent.futures import Future
from typing import Any, TypeVar

from pushsdk._core.errors import ClientClosedError, ValidationError
from pushsdk._core.kinds import is_async, must_be
from pushsdk._core.secret import sealed
from pushsdk.sync.loop_thread import current

T = TypeVar("T")


def check_plain(name: str, items: object) -> None:
    """Raise ValidationError for an async iterable. ``name`` is the argument that the error names."""
    if isinstance(items, AsyncIterable):
        raise must_be(name, "a plain iterable, not an async one", items, ValidationError)


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


async def in_caller(work: Callable[[], T]) -> T:
    """Return a function's result, called by the thread that waits for the current call: it reads a caller's items."""
    try:
        return await asked(work)
    except asyncio.CancelledError:
        # The thread no longer waits, or the client was closed.
        raise ClientClosedError("the client was closed before the plan was finished: nothing was sent") from None


async def in_blocks(read: Callable[[], list[T]]) -> AsyncGenerator[T]:
    """Iterate over the items in blocks, which the thread that waits for the current call reads; none at the end."""
    while values := await in_caller(read):
        for value in values:
            yield value
