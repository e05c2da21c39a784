"""Claims in the memory of this process: for tests, and for one process that is never restarted."""

from __future__ import annotations

import asyncio
import threading
from collections import OrderedDict
from collections.abc import AsyncIterator, Sequence
from itertools import islice

from pushsdk._public import set_public_module
from pushsdk.claims.store import Claim, ClaimStore, Put

__all__ = ["MemoryClaims"]

# Expired claims looked for at each put: more than come in, so that they do not pile up.
SWEPT = 4


class MemoryClaims(ClaimStore):
    """Claims that end with the process. Several clients may share it, from any thread and loop.

    What a process knew dies with it: a job that is delivered again after a crash is pushed again. Use another store
    where that matters.
    """

    def __init__(self, *, claim_ttl: float = 7 * 86400.0) -> None:
        """See ``ClaimStore``."""
        super().__init__(claim_ttl=claim_ttl)
        self._lock = threading.Lock()
        # By the time of the last change, which is by when they expire as long as all have the same ttl.
        self._claims: OrderedDict[str, tuple[Claim, float]] = OrderedDict()

    def __repr__(self) -> str:
        return f"MemoryClaims(claims={len(self._claims)})"

    async def put(self, puts: Sequence[Put], ttl: float) -> list[Claim | None]:
        # The loop's clock: on virtual time claims expire with it.
        now = asyncio.get_running_loop().time()
        with self._lock:
            return [self._put(put, ttl, now) for put in puts]

    async def get(self, keys: Sequence[str]) -> list[Claim | None]:
        now = asyncio.get_running_loop().time()
        with self._lock:
            return [self._find(key, now) for key in keys]

    async def scan(self) -> AsyncIterator[tuple[str, Claim]]:
        with self._lock:
            keys = list(self._claims)
        for key in keys:
            (claim,) = await self.get([key])
            if claim is not None:
                yield key, claim

    def _find(self, key: str, now: float) -> Claim | None:
        claim, expires = self._claims.get(key, (None, 0.0))
        return claim if expires > now else None

    def _put(self, put: Put, ttl: float, now: float) -> Claim | None:
        stored = self._find(put.key, now)
        if stored is not None and not put.may_replace(stored):
            return stored
        for key in list(islice(self._claims, SWEPT)):
            if self._claims[key][1] <= now:
                del self._claims[key]
        self._claims[put.key] = put.claim, now + ttl
        self._claims.move_to_end(put.key)
        return None


set_public_module(__name__, "pushsdk.claims")
