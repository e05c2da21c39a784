"""Claims in the memory of this process: for tests, and for one process that is never restarted."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections import OrderedDict
from itertools import islice

from pushsdk.claims.store import Claim, ClaimStore

__all__ = ["MemoryClaims"]

# Expired claims looked for at each new one: more than come in, so that they do not pile up.
SWEPT = 4


class MemoryClaims(ClaimStore):
    """Claims that end with the process. Several clients may share it, from any thread and loop.

    What a process knew dies with it: a job that is delivered again after a crash is pushed again. Use another store
    where that matters.
    """

    at_a_time: int = sys.maxsize

    def __init__(self, *, claim_ttl: float = 7 * 86400.0) -> None:
        """See ``ClaimStore``."""
        super().__init__(claim_ttl=claim_ttl)
        self._lock = threading.Lock()
        # By the time of the last change, which is by when they expire as long as all have the same ttl.
        self._claims: OrderedDict[str, tuple[Claim, float]] = OrderedDict()

    def __repr__(self) -> str:
        return f"MemoryClaims(claims={len(self._claims)})"

    async def add(self, key: str, claim: Claim, ttl: float) -> Claim | None:
        with self._lock:
            self._sweep()
            found = self._find(key)
            if found is None:
                self._put(key, claim, ttl)
            return found

    async def get(self, key: str) -> Claim | None:
        with self._lock:
            return self._find(key)

    async def swap(self, key: str, token: str, claim: Claim, ttl: float) -> bool:
        with self._lock:
            found = self._find(key)
            if found is None or found.token != token:
                return False
            self._put(key, claim, ttl)
            return True

    def _find(self, key: str) -> Claim | None:
        claim, expires = self._claims.get(key, (None, 0.0))
        return claim if expires > self._now() else None

    def _put(self, key: str, claim: Claim, ttl: float) -> None:
        self._claims[key] = claim, self._now() + ttl
        self._claims.move_to_end(key)

    def _sweep(self) -> None:
        now = self._now()
        for key in list(islice(self._claims, SWEPT)):
            if self._claims[key][1] <= now:
                del self._claims[key]

    @staticmethod
    def _now() -> float:
        # The loop's clock: on virtual time claims expire with it.
        return asyncio.get_running_loop().time()
