"""A claim that is made when a plan is sealed. Where it is not found any more, or not seen, neither are the others."""

from __future__ import annotations

import secrets
from collections.abc import Callable

from pushsdk._core.idempotency import digest_of
from pushsdk.claims.store import Claim, ClaimStore, Put
from pushsdk.spark._asking import asked

__all__ = ["is_there", "plant"]


def plant(make: Callable[[], ClaimStore], run: str) -> None:
    """Claim the run itself. Raises ClaimStoreError."""
    claim = Claim(secrets.token_hex(16), b"{}")
    with asked(make) as ask:
        # No chunk's key: those go on behind the run's name.
        ask(lambda store: store.put([Put(digest_of(run), claim)], store.claim_ttl))


def is_there(make: Callable[[], ClaimStore], run: str) -> bool:
    """Whether the store that this makes is the one with the claims of the run. Raises ClaimStoreError."""
    with asked(make) as ask:
        return ask(lambda store: store.get([digest_of(run)])) != [None]
