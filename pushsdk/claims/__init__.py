"""Claim stores: records of what ``send(..., idempotency_key=)`` sent, so that a job delivered twice is pushed once.

No module here imports the client library of a server at import time, so every store can be imported without extras.
"""

from collections.abc import Callable
from typing import Any

from pushsdk._core.address import redacted
from pushsdk._core.errors import ConfigurationError
from pushsdk._public import set_public_module
from pushsdk.claims._operators import count_claimed
from pushsdk.claims.directory import DirectoryClaims
from pushsdk.claims.memory import MemoryClaims
from pushsdk.claims.postgres import PostgresClaims
from pushsdk.claims.redis import RedisClaims
from pushsdk.claims.sqlite import SqliteClaims
from pushsdk.claims.store import Claim, ClaimStore, Put

__all__ = [
    "Claim",
    "ClaimStore",
    "DirectoryClaims",
    "MemoryClaims",
    "PostgresClaims",
    "Put",
    "RedisClaims",
    "SqliteClaims",
    "count_claimed",
]

#: The stores whose location is a path, and the stores whose location is a URL.
FILES: dict[str, Callable[..., ClaimStore]] = {"sqlite": SqliteClaims, "directory": DirectoryClaims}
SERVERS: dict[str, Callable[..., ClaimStore]] = dict.fromkeys(("redis", "rediss", "unix"), RedisClaims)
SERVERS |= dict.fromkeys(("postgres", "postgresql"), PostgresClaims)


def store_at(location: str, **options: Any) -> ClaimStore:
    """Return the store at a location, made with these options. Nothing is opened yet.

    Raises ConfigurationError, without quoting the location: it may hold a password.
    """
    location = redacted(location)
    kind, _, path = location.partition(":")
    if kind in FILES and path:
        return FILES[kind](str(path), **options)
    if kind in SERVERS:
        return SERVERS[kind](location, **options)
    if location == "memory:":
        return MemoryClaims(**options)
    raise ConfigurationError(
        "claims must be a claim store, or its location: sqlite:PATH, directory:PATH, redis://HOST, "
        "postgresql://HOST/DATABASE or memory:"
    )


set_public_module(__name__, __name__)
