"""Blocking work on one thing: by threads that nobody waits for without an end, and the last of them closes it."""

from __future__ import annotations

import asyncio
import os
import threading
import weakref
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from pushsdk._core.errors import ConfigurationError
from pushsdk._io.threads import DaemonThreads

__all__ = ["Blocking", "uncancelled"]


class _Closable(Protocol):
    def close(self) -> None: ...


T = TypeVar("T", bound=_Closable)
R = TypeVar("R")


class _Order(NamedTuple):
    """What a thread is to do, and who is told."""

    work: Callable[[Any], Any]
    told: Future[Any]


class Blocking(Generic[T]):
    """Work on what ``make`` makes, up to ``most`` at a time. It is made by the first that can, in its thread.

    What is ordered is done: also where its caller has gone, and after the end of the main thread. So is what hangs,
    on a mount whose server is away, once that is back; meanwhile it keeps open what it works on, as the number of a
    closed file would soon be that of another one.
    """

    def __init__(self, make: Callable[[], T], *, most: int) -> None:
        self._make = make
        self._most = most
        # Held for what takes no time, in the event loop too. It guards all but the thing.
        self._lock = threading.Lock()
        self._orders: deque[_Order] = deque()
        # Orders that have not ended, and one more for this until ``aclose``. Whoever makes it 0 closes the thing.
        self._out = 1
        self._closed = False
        # Of the process that used it first.
        self._threads: DaemonThreads | None = None
        self._process = 0
        # Held while it is made, by the threads alone.
        self._making = threading.Lock()
        self._made: T | None = None
        # Set when it is closed.
        self._gone = uncancelled()

    @property
    def is_used(self) -> bool:
        """Whether there ever was an order, or this is closed."""
        return self._threads is not None or self._closed

    async def do(self, work: Callable[[T], R]) -> R:
        """What the work returns or raises. A call that is cancelled leaves its work to be done.

        Raises ConfigurationError after ``aclose``, and on the other side of a fork.
        """
        told = uncancelled()
        self._order(_Order(work, told))
        done: R = await asyncio.wrap_future(told)
        return done

    async def aclose(self, timeout: float) -> None:
        """Take no more, and close the thing after what was ordered; wait for that so many seconds at most."""
        if self._is_inherited():
            return
        with self._lock:
            threads = self._threads
            if threads is not None and not self._closed:
                threads.submit(self._let_go)
                threads.shutdown()
            self._closed = True
        if threads is not None:
            with suppress(TimeoutError):
                async with asyncio.timeout(timeout):
                    await asyncio.wrap_future(self._gone)

    def _is_inherited(self) -> bool:
        # To be asked before the lock is taken: a thread of the parent may have had it.
        return self._process not in (0, os.getpid())

    def _order(self, order: _Order) -> None:
        if self._is_inherited():
            raise ConfigurationError("the claim store was used before a fork: make one in each process")
        with self._lock:
            if self._closed:
                raise ConfigurationError("the claim store is closed: close the client before it")
            self._process = os.getpid()
            threads = self._threads or DaemonThreads(self._most, name="pushsdk-claims")
            threads.submit(self._work)
            if self._threads is None:
                self._threads = threads
                # Where nobody closes it, the threads do not stay for ever.
                weakref.finalize(self, threads.shutdown).atexit = False
            # After what may raise: what is told to have failed must not be done.
            self._orders.append(order)
            self._out += 1

    # -- in the threads -----------------------------------------------------------------------------------------

    def _work(self) -> None:
        with self._lock:
            if not self._orders:  # no thread could be started for it, and now there is one
                return
            order = self._orders.popleft()
        try:
            order.told.set_result(order.work(self._thing()))
        except BaseException as error:  # noqa: BLE001 - raised where it is awaited
            order.told.set_exception(error)
        # What it raised leads back to here.
        del order
        self._let_go()

    def _thing(self) -> T:
        with self._making:
            if self._made is None:
                self._made = self._make()
            return self._made

    def _let_go(self) -> None:
        with self._lock:
            self._out -= 1
            if self._out:
                return
        made, self._made = self._made, None
        if made is not None:
            # Nothing is lost by that: what was written has been told.
            with suppress(OSError):
                made.close()
        self._gone.set_result(None)


def uncancelled() -> Future[Any]:
    """Who waits for it by asyncio may be cancelled, and it is not."""
    future: Future[Any] = Future()
    future.set_running_or_notify_cancel()
    return future
