"""Claims in the memory of this process: for tests, and for a single process that never restarts."""

from __future__ import annotations

import asyncio
import threading
from collections import OrderedDict
from collections.abc import AsyncIterator, Sequence
from itertools import islice

from pushsdk.claims.store import WEEK, Claim, ClaimStore, Put

# Claims checked for expiry at each put: more than a put adds, so expired claims never pile up.
SWEEP_CLAIMS = 4


class MemoryClaims(ClaimStore):
    """Claims in this process's memory. Clients in any thread and loop may share the store.

    The claims end with the process: a job redelivered after a crash is pushed again. If jobs may be redelivered to
    another process, use another store.
    """

    def __init__(self, *, claim_ttl: float = WEEK) -> None:
        """``claim_ttl`` is in seconds, see ``ClaimStore``."""
        super().__init__(claim_ttl=claim_ttl)
        self._lock = threading.Lock()
        # Claim and expiry, in the order of the last change, which is the order of expiry if all have the same ttl.
        self._claims: OrderedDict[str, tuple[Claim, float]] = OrderedDict()

    def __repr__(self) -> str:
        return f"MemoryClaims(claims={len(self._claims)})"

    async def put(self, puts: Sequence[Put], ttl: float) -> list[Claim | None]:
        # The loop's clock, so that claims expire on virtual time too.
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
        for key in list(islice(self._claims, SWEEP_CLAIMS)):
            if self._claims[key][1] <= now:
                del self._claims[key]
        self._claims[put.key] = put.claim, now + ttl
        self._claims.move_to_end(put.key)
        return None
