"""Blocking questions to a claim store, and the sentinel: a claim of the run itself, which names the store of a run."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from pushsdk._core.errors import ClaimStoreError, PushError
from pushsdk._core.idempotency import digest_of
from pushsdk.claims.store import Claim, ClaimStore, Put

__all__ = ["call_store", "has_sentinel", "plant_sentinel"]

logger: logging.Logger = logging.getLogger("pushsdk")

T = TypeVar("T")


def call_store(make: Callable[[], ClaimStore], question: Callable[[ClaimStore], Awaitable[T]]) -> T:
    """Return the answer of a store that is made for this question, in a thread with its own event loop.

    Raises ClaimStoreError if there is no answer within the store's timeout. A store that does not close is logged.
    """

    async def answer() -> T:
        store = make()
        try:
            async with asyncio.timeout(store.timeout):
                return await question(store)
        finally:
            await _close(store)

    try:
        with ThreadPoolExecutor(1, "pushsdk-claims") as thread:
            return thread.submit(lambda: asyncio.run(answer())).result()
    except PushError:
        raise
    except Exception as error:
        raise ClaimStoreError(f"the claim store failed ({type(error).__name__})") from error


def plant_sentinel(make: Callable[[], ClaimStore], run: str) -> None:
    """Claim the run itself, when its plan is sealed. Raises ClaimStoreError."""
    claim = Claim(secrets.token_hex(16), b"{}")
    # The key of no chunk: their keys go on behind the name of the run.
    call_store(make, lambda store: store.put([Put(digest_of(run), claim)], store.claim_ttl))


def has_sentinel(make: Callable[[], ClaimStore], run: str) -> bool:
    """Return True if the store has the sentinel, so has the claims of the run too. Raises ClaimStoreError."""
    return call_store(make, lambda store: store.get([digest_of(run)])) != [None]


async def _close(store: ClaimStore) -> None:
    try:
        async with asyncio.timeout(store.timeout):
            await store.aclose()
    except Exception as error:  # noqa: BLE001 - the answer is known; a store's text may hold its address
        logger.warning("the claim store could not be closed (%s)", type(error).__name__)
