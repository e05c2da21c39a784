"""Claims in the memory of this process: for tests, and for a single process that never restarts."""

import asyncio
import threading
from collections import OrderedDict
from collections.abc import AsyncIterator, Sequence
from itertools import islice

from pushsdk.claims.store import WEEK, Claim, ClaimStore, Put, Stored


class MemoryClaims(ClaimStore):
    """Claims in this process's memory. Clients in any thread and loop may share the store.

    The claims end with the process: a job redelivered after a crash is pushed again. If jobs may be redelivered to
    another process, use another store.
    """

    def __init__(self, *, claim_ttl: float = WEEK) -> None:
        """``claim_ttl`` is in seconds, see ``ClaimStore``."""
        super().__init__(claim_ttl=claim_ttl)
        self._lock = threading.Lock()
        # Claim and expiry, in last change order, which is the expiry order if all have the same ttl.
        self._claims = OrderedDict[str, tuple[Claim, float]]()

    def __repr__(self) -> str:
        return f"MemoryClaims(claims={len(self._claims)})"

    async def put(self, puts: Sequence[Put], ttl: float) -> Stored:
        # The loop's clock, so that claims expire on virtual time too.
        now = asyncio.get_running_loop().time()
        answers = Stored()
        with self._lock:
            for put in puts:
                stored = self._find(put.key, now)
                if put.may_replace(stored):
                    self._claims[put.key] = put.claim, now + ttl
                    self._claims.move_to_end(put.key)
                    stored = None
                answers.append(stored)
            # More than were added, so expired claims never pile up.
            for key in list(islice(self._claims, 4 * len(puts))):
                if self._claims[key][1] <= now:
                    del self._claims[key]
        return answers

    async def get(self, keys: Sequence[str]) -> Stored:
        now = asyncio.get_running_loop().time()
        with self._lock:
            return [self._find(key, now) for key in keys]

    async def scan(self) -> AsyncIterator[tuple[str, Claim]]:
        now = asyncio.get_running_loop().time()
        with self._lock:
            pairs = list(self._claims.items())
        for key, (claim, expires) in pairs:
            if expires > now:
                yield key, claim

    def _find(self, key: str, now: float) -> Claim | None:
        claim, expires = self._claims.get(key, (None, 0.0))
        return claim if expires > now else None
