"""Blocking operations of a store in daemon threads. Neither the event loop nor the end of the process waits for them.

A network mount whose server is away blocks a thread until the mount is back. Until then the resource stays open: the
number of a closed file descriptor would soon belong to another file.
"""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, Generic, Protocol, TypeVar

from pushsdk._core.errors import ConfigurationError
from pushsdk._io.forks import ProcessGuard
from pushsdk._io.threads import DaemonThreads
from pushsdk.claims.store import CLOSED


class _Closable(Protocol):
    def close(self) -> None: ...


T = TypeVar("T", bound=_Closable)
R = TypeVar("R")


class BlockingResource(Generic[T]):
    """A resource opened by the first operation, used by up to ``threads`` threads, closed after the last operation."""

    def __init__(self, open_resource: Callable[[], T], *, threads: int) -> None:
        self._open_resource = open_resource
        self._threads = DaemonThreads(threads, name="pushsdk-claims")
        # Ends the threads of a store that is never closed.
        weakref.finalize(self, self._threads.shutdown).atexit = False
        # Guards the next three. Never held during an operation, as the event loop takes the lock too.
        self._lock = threading.Lock()
        # Set by the first operation.
        self._guard: ProcessGuard | None = None
        self._is_closed = False
        # Unfinished operations, plus 1 until ``aclose``. The thread that counts down to 0 closes the resource.
        self._users = 1
        # Guards the resource while a thread opens it.
        self._opening = threading.Lock()
        self._resource: T | None = None
        # Resolved when the resource is closed.
        self._ended = _running_future()

    @property
    def is_used(self) -> bool:
        """Return True after the first operation, or after ``aclose``."""
        return self._guard is not None or self._is_closed

    def run(self, operation: Callable[[T], R]) -> asyncio.Future[R]:
        """Start the operation and return its future. The operation completes even if the future is cancelled.

        Raises ConfigurationError after ``aclose`` or a fork.
        """
        if self._guard is not None:
            # Before taking the lock: at the fork, a thread of the parent may have held it.
            self._guard.check("the claim store was used")
        result = _running_future()
        with self._lock:
            if self._is_closed:
                raise ConfigurationError(CLOSED)
            self._threads.submit(self._run, operation, result)
            self._guard = self._guard or ProcessGuard()
            self._users += 1
        return asyncio.wrap_future(result)

    async def aclose(self, timeout: float) -> None:
        """Refuse further operations, and wait up to ``timeout`` seconds until the last has closed the resource."""
        if self._guard is not None and self._guard.is_inherited:
            return
        with self._lock:
            if self._guard is not None and not self._is_closed:
                self._threads.submit(self._release)
                self._threads.shutdown()
            self._is_closed = True
        if self._guard is not None:
            with suppress(TimeoutError):
                async with asyncio.timeout(timeout):
                    await asyncio.wrap_future(self._ended)

    # -- in the threads -----------------------------------------------------------------------------------------

    def _run(self, operation: Callable[[T], Any], result: Future[Any]) -> None:
        try:
            with self._opening:
                if self._resource is None:
                    self._resource = self._open_resource()
            result.set_result(operation(self._resource))
        except BaseException as error:  # noqa: BLE001 - raised to the caller of ``run``
            result.set_exception(error)
        # The error's traceback refers to this frame: break the cycle.
        del operation, result
        self._release()

    def _release(self) -> None:
        with self._lock:
            self._users -= 1
            if self._users:
                return
        if self._resource is not None:
            # The results of all operations are known, so an error here loses nothing.
            with suppress(Exception):
                self._resource.close()
        self._ended.set_result(None)


def _running_future() -> Future[Any]:
    """Return a future that stays pending when an asyncio future that wraps it is cancelled."""
    future: Future[Any] = Future()
    future.set_running_or_notify_cancel()
    return future
