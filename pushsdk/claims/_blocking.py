"""Blocking store operations in daemon threads. Neither the event loop nor the process exit waits for them.

A network mount whose server is away blocks a thread until the mount is back.
"""

import asyncio
import threading
import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any, ParamSpec, TypeVar

from pushsdk._core.errors import ConfigurationError
from pushsdk._io.forks import ProcessGuard
from pushsdk._io.threads import DaemonThreads
from pushsdk.claims.store import CLOSED

R = TypeVar("R")
T = TypeVar("T")
P = ParamSpec("P")


class StoreThreads:
    """Up to ``count`` threads for store operations."""

    def __init__(self, count: int) -> None:
        self._threads = DaemonThreads(count, name="pushsdk-claims")
        # Ends the threads if a store is never closed.
        weakref.finalize(self, self._threads.shutdown).atexit = False
        # Guards the others. Never held during an operation, as the event loop takes the lock too.
        self._lock = threading.Lock()
        # Set by the first operation.
        self._guard: ProcessGuard | None = None
        # Unfinished operations.
        self._pending: set[Future[Any]] = set()
        # Set by ``aclose``.
        self._is_closed = False

    def run(self, operation: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> asyncio.Future[R]:
        """Start an operation. Once a thread runs it, it completes even if the future is cancelled.

        Raises ConfigurationError after ``aclose`` or a fork.
        """
        if self._guard is not None:
            # Before taking the lock: at the fork, a thread in the parent may have held it.
            self._guard.check("the claim store was used")
        with self._lock:
            if self._is_closed:
                raise ConfigurationError(CLOSED)
            result = self._threads.submit(operation, *args, **kwargs)
            self._guard = self._guard or ProcessGuard()
            self._pending.add(result)
        result.add_done_callback(self._pending.discard)
        return asyncio.wrap_future(result)

    async def map(self, operation: Callable[[T], R], items: Sequence[T]) -> list[R]:
        """Return the results of the operation for all items, which the threads share."""
        return await asyncio.gather(*[self.run(operation, item) for item in items])

    async def aclose(self, timeout: float, close: Callable[[], object] = lambda: None) -> None:
        """Refuse further operations, and wait for the others up to ``timeout`` seconds.

        A single thread calls ``close`` after all of them.
        """
        if self._guard is not None and self._guard.is_inherited:
            return
        with self._lock:
            if self._guard is not None and not self._is_closed:
                self._pending.add(self._threads.submit(close))
                self._threads.shutdown()
            self._is_closed = True
        # All operation results are known, so an error here loses nothing.
        ends = asyncio.gather(*map(asyncio.wrap_future, tuple(self._pending)), return_exceptions=True)
        await asyncio.wait([ends], timeout=timeout)
