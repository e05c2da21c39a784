"""Blocking work on one thing: by threads that nobody waits for without an end, and the last of them closes it."""

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

__all__ = ["Blocking"]


class _Closable(Protocol):
    def close(self) -> None: ...


T = TypeVar("T", bound=_Closable)
R = TypeVar("R")


class Blocking(Generic[T]):
    """Work on the thing that ``make`` returns, up to ``most`` at a time. The first thread that needs it makes it.

    Ordered work is done, even if its caller is cancelled or the main thread ends. Work that hangs, on a mount whose
    server is away, ends once the mount is back; until then the thing stays open, as the number of a closed file would
    soon be that of another file.
    """

    def __init__(self, make: Callable[[], T], *, most: int) -> None:
        self._make = make
        self._threads = DaemonThreads(most, name="pushsdk-claims")
        # If nobody closes this, the threads end with it.
        weakref.finalize(self, self._threads.shutdown).atexit = False
        # Guards the next three, and is held for no longer than they take, in the event loop too.
        self._lock = threading.Lock()
        # The process of the first use, None before that.
        self._guard: ProcessGuard | None = None
        self._closed = False
        # Work that has not ended, and 1 more until ``aclose``. Whoever makes it 0 closes the thing.
        self._left = 1
        # Guards the thing while it is made, among the threads.
        self._making = threading.Lock()
        self._thing: T | None = None
        # Set when the thing is closed.
        self._gone = _uncancelled()

    @property
    def is_used(self) -> bool:
        """Return True if there ever was work, or this is closed."""
        return self._guard is not None or self._closed

    async def do(self, work: Callable[[T], R]) -> R:
        """Return or raise what the work does. A cancelled call leaves its work to be done. Raises as ``order``."""
        answer: R = await self.order(work)
        return answer

    def order(self, work: Callable[[T], R]) -> asyncio.Future[R]:
        """Have the work done, and return its future. Raises ConfigurationError after ``aclose`` or a fork."""
        if self._guard is not None:
            # Before the lock is taken: a thread of the parent may have held it.
            self._guard.check("the claim store was used")
        done = _uncancelled()
        with self._lock:
            if self._closed:
                raise ConfigurationError("the claim store is closed: close the client before it")
            self._threads.submit(self._work, work, done)
            self._guard = self._guard or ProcessGuard()
            self._left += 1
        return asyncio.wrap_future(done)

    async def aclose(self, timeout: float) -> None:
        """Take no more work, and close the thing after the last; wait for that at most ``timeout`` seconds."""
        if self._guard is not None and self._guard.is_inherited:
            return
        with self._lock:
            if self._guard is not None and not self._closed:
                self._threads.submit(self._let_go)
                self._threads.shutdown()
            self._closed = True
        if self._guard is not None:
            with suppress(TimeoutError):
                async with asyncio.timeout(timeout):
                    await asyncio.wrap_future(self._gone)

    # -- in the threads -----------------------------------------------------------------------------------------

    def _work(self, work: Callable[[T], Any], done: Future[Any]) -> None:
        try:
            with self._making:
                if self._thing is None:
                    self._thing = self._make()
            done.set_result(work(self._thing))
        except BaseException as error:  # noqa: BLE001 - raised where it is awaited
            done.set_exception(error)
        # The error leads back to here.
        del work, done
        self._let_go()

    def _let_go(self) -> None:
        with self._lock:
            self._left -= 1
            if self._left:
                return
        if self._thing is not None:
            # Nothing is lost by that: what was written has been told.
            with suppress(Exception):
                self._thing.close()
        self._gone.set_result(None)


def _uncancelled() -> Future[Any]:
    """Return a future that stays valid if somebody who waits for it by asyncio is cancelled."""
    future: Future[Any] = Future()
    future.set_running_or_notify_cancel()
    return future
