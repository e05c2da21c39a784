"""A claim store that is asked from where no event loop runs, or another's: it has one, in a thread of its own."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

from pushsdk._core.errors import ClaimStoreError, PushError
from pushsdk.claims.store import ClaimStore

__all__ = ["Asked", "asked"]

logger: logging.Logger = logging.getLogger("pushsdk")

T = TypeVar("T")


class Asked:
    """Takes questions to the store."""

    def __init__(self, make: Callable[[], ClaimStore], thread: ThreadPoolExecutor) -> None:
        self._make = make
        self._thread = thread
        self._runner = asyncio.Runner()
        # Made in the loop, at the first question.
        self._store: ClaimStore | None = None

    def __call__(self, question: Callable[[ClaimStore], Coroutine[Any, Any, T]]) -> T:
        """The store's answer. Raises ClaimStoreError where there is none within its timeout."""

        async def answer() -> T:
            if self._store is None:
                self._store = self._make()
            async with asyncio.timeout(self._store.timeout):
                return await question(self._store)

        try:
            return self._thread.submit(lambda: self._runner.run(answer())).result()
        except PushError:
            raise
        except Exception as error:
            raise ClaimStoreError(f"the claim store failed ({type(error).__name__})") from error

    def close(self) -> None:
        """Close the store, and its loop. What the store raises then is logged: what it answered stands."""
        # At the end of the interpreter the thread takes nothing any more.
        with suppress(RuntimeError):
            self._thread.submit(self._end).result()

    def _end(self) -> None:
        try:
            if self._store is not None:
                self._runner.run(self._close(self._store))
        except Exception as error:  # noqa: BLE001 - a store's text may hold its address
            logger.warning("the claim store could not be closed (%s)", type(error).__name__)
        finally:
            self._runner.close()

    async def _close(self, store: ClaimStore) -> None:
        async with asyncio.timeout(store.timeout):
            await store.aclose()


@contextmanager
def asked(make: Callable[[], ClaimStore]) -> Iterator[Asked]:
    """The store that this makes, for as long as the block lasts."""
    with ThreadPoolExecutor(1, "pushsdk-asking") as thread:
        ask = Asked(make, thread)
        try:
            yield ask
        finally:
            ask.close()
