"""Stores with blocking operations, in daemon threads. Neither the event loop nor the process exit waits for them.

A network mount whose server is away blocks a thread until the mount is back.
"""

import asyncio
import threading
import weakref
from abc import abstractmethod
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any, TypeVar

from pushsdk._core.errors import ConfigurationError
from pushsdk._io.forks import ProcessGuard
from pushsdk._io.threads import DaemonThreads
from pushsdk.claims.store import CLOSED, Claim, ClaimStore, Put, Stored

R = TypeVar("R")
T = TypeVar("T")

# Claims whose last write is remembered: more than are in flight.
REMEMBERED = 10_000


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

    def run(self, operation: Callable[[], R]) -> asyncio.Future[R]:
        """Start an operation. Once a thread runs it, it completes even if the future is cancelled.

        Raises ConfigurationError after ``aclose`` or a fork.
        """
        if self._guard is not None:
            # Before taking the lock: at the fork, a thread in the parent may have held it.
            self._guard.check("the claim store was used")
        with self._lock:
            if self._is_closed:
                raise ConfigurationError(CLOSED)
            result = self._threads.submit(operation)
            self._guard = self._guard or ProcessGuard()
            self._pending.add(result)
        result.add_done_callback(self._pending.discard)
        return asyncio.wrap_future(result)

    async def map(self, operation: Callable[[T], R], items: Sequence[T]) -> list[R]:
        """Return the results of the operation for all items, which the threads share."""
        return await asyncio.gather(*[self.run(partial(operation, item)) for item in items])

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


class ThreadedClaims(ClaimStore):
    """A store in which only conditional writes change a claim, made one by one in threads.

    A condition is None for a new claim, or stands for the claim that a write replaces.
    """

    # A put may take 0.1 s, and many threads work in parallel.
    at_once: int = 256

    def __init__(self, threads: int, *, claim_ttl: float, timeout: float) -> None:
        super().__init__(claim_ttl=claim_ttl, timeout=timeout)
        self._threads = StoreThreads(threads)
        # Set by the first operation.
        self._is_checked = False
        # By key: the token of our last write, and the condition that the claim is unchanged since. Oldest first.
        self._written = OrderedDict[str, tuple[str, Any]]()

    async def put(self, puts: Sequence[Put], ttl: float) -> Stored:
        await self._ready()
        return await self._threads.map(lambda put: self._put(put, ttl), puts)

    async def get(self, keys: Sequence[str]) -> Stored:
        await self._ready()
        return [claim for claim, _ in await self._threads.map(self._read, keys)]

    async def scan(self) -> AsyncIterator[tuple[str, Claim]]:
        await self._ready()
        pages = self._pages()
        while (keys := await self._threads.run(lambda: next(pages, None))) is not None:
            for key, claim in zip(keys, await self.get(keys), strict=True):
                if claim is not None:
                    yield key, claim

    async def aclose(self) -> None:
        """Refuse further operations, and wait for pending writes up to ``timeout`` seconds."""
        await self._threads.aclose(self.timeout)

    async def _ready(self) -> None:
        if not self._is_checked:
            await self._threads.run(self._check)
            self._is_checked = True

    # -- in the threads -----------------------------------------------------------------------------------------

    def _put(self, put: Put, ttl: float) -> Claim | None:
        token, condition = self._written.pop(put.key, ("", None))
        if token not in put.expected:
            condition = None
        # After a lost response the store has our token, so the next round replaces the claim.
        while not (written := self._write(put, ttl, condition)):
            stored, condition = self._read(put.key)
            if not put.may_replace(stored):
                return stored
        self._written[put.key] = put.claim.token, written
        if len(self._written) > REMEMBERED:
            self._written.popitem(last=False)
        return None

    @abstractmethod
    def _check(self) -> None:
        """Open the store. Raise ConfigurationError if it can't hold claims."""

    @abstractmethod
    def _read(self, key: str) -> tuple[Claim | None, Any]:
        """Return the stored claim, None if absent or expired, and the condition for replacing it."""

    @abstractmethod
    def _write(self, put: Put, ttl: float, condition: Any) -> Any:
        """Return the condition for replacing the new claim; None if ``condition`` is not met."""

    @abstractmethod
    def _pages(self) -> Iterator[list[str]]:
        """Yield all keys."""
