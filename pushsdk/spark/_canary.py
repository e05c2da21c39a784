"""A claim that is made when a plan is sealed. Where it is not found any more, or not seen, neither are the others."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from pushsdk._core.dedupe import digest_of
from pushsdk._core.errors import ClaimStoreError, PushError
from pushsdk.claims.store import Claim, ClaimStore

__all__ = ["is_there", "plant"]


def plant(make: Callable[[], ClaimStore], run: str) -> None:
    """Claim the run itself. Raises ClaimStoreError."""
    _ask(make, run, write=True)


def is_there(make: Callable[[], ClaimStore], run: str) -> bool:
    """Whether the store that this makes is the one with the claims of the run. Raises ClaimStoreError."""
    return _ask(make, run, write=False)


def _ask(make: Callable[[], ClaimStore], run: str, *, write: bool) -> bool:
    async def ask() -> bool:
        async with make() as store, asyncio.timeout(store.timeout):
            # No chunk's key: those go on behind the run's name.
            key = digest_of(run)
            if write:
                await store.add(key, Claim(secrets.token_hex(16), b"{}"), store.claim_ttl)
            return await store.get(key) is not None

    # In a thread of its own: a notebook's has an event loop.
    with ThreadPoolExecutor(1) as thread:
        try:
            return thread.submit(asyncio.run, ask()).result()
        except PushError:
            raise
        except Exception as error:
            raise ClaimStoreError(f"not sent: the claim store failed ({type(error).__name__})") from error
