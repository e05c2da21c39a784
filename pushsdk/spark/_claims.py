"""The claim store seen from the driver: blocking calls, and the sentinel, a claim of the run itself.

The sentinel is in the store that has the claims of the run: a store without it is another store.
"""

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

logger: logging.Logger = logging.getLogger("pushsdk")

T = TypeVar("T")


def call_store(make: Callable[[], ClaimStore], operation: Callable[[ClaimStore], Awaitable[T]]) -> T:
    """Return the result of an operation on a new store, in a thread with its own event loop.

    Raises ClaimStoreError if the operation fails or exceeds the store's timeout. A failure to close is logged.
    """

    async def run() -> T:
        store = make()
        try:
            async with asyncio.timeout(store.timeout):
                return await operation(store)
        finally:
            try:
                async with asyncio.timeout(store.timeout):
                    await store.aclose()
            except Exception as error:  # noqa: BLE001 - the result is known; a store's text may hold its address
                logger.warning("the claim store could not be closed (%s)", type(error).__name__)

    try:
        with ThreadPoolExecutor(1, "pushsdk-claims") as thread:
            return thread.submit(lambda: asyncio.run(run())).result()
    except PushError:
        raise
    except Exception as error:
        raise ClaimStoreError(f"the claim store failed ({type(error).__name__})") from error


def plant_sentinel(make: Callable[[], ClaimStore], run: str) -> None:
    """Claim the run itself, before its plan is sealed. Raises ClaimStoreError."""
    claim = Claim(secrets.token_hex(16), b"{}")
    # No chunk has this key: the keys of chunks continue after the name of the run.
    call_store(make, lambda store: store.put([Put(digest_of(run), claim)], store.claim_ttl))


def has_sentinel(make: Callable[[], ClaimStore], run: str) -> bool:
    """Return True if the store has the sentinel of the run. Raises ClaimStoreError."""
    return call_store(make, lambda store: store.get([digest_of(run)])) != [None]
