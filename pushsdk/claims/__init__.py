"""Claim stores: records of sends with an ``idempotency_key``, so that a job delivered twice is pushed once.

No module here imports a server client library at import time, so every store can be imported without extras.
"""

import re
from typing import TYPE_CHECKING, Any

import pushsdk._public
from pushsdk._core.errors import ConfigurationError
from pushsdk._core.secret import Secret

if TYPE_CHECKING:
    from pushsdk.claims._operators import count_claimed
    from pushsdk.claims.memory import MemoryClaims
    from pushsdk.claims.objects import ObjectClaims
    from pushsdk.claims.postgres import PostgresClaims
    from pushsdk.claims.redis import RedisClaims
    from pushsdk.claims.sqlite import SqliteClaims
    from pushsdk.claims.store import Claim, ClaimStore, Put

else:  # a type checker would accept any name from a visible __getattr__
    _NAMES = ("store", "_operators", "memory", "sqlite", "redis", "postgres", "objects")
    __getattr__, __dir__ = pushsdk._public.lazy_names(__name__, [f"{__name__}.{name}" for name in _NAMES])

__all__ = ["Claim", "ClaimStore", "MemoryClaims", "ObjectClaims", "PostgresClaims", "Put"]
__all__ += ["RedisClaims", "SqliteClaims", "count_claimed"]

#: The stores whose location is a URL.
SERVERS = {
    "redis": "RedisClaims",
    "rediss": "RedisClaims",
    "unix": "RedisClaims",
    "postgres": "PostgresClaims",
    "postgresql": "PostgresClaims",
    "s3": "ObjectClaims",
    "az": "ObjectClaims",
}
_LOCATION = re.compile(rf"memory:|sqlite:(?!//|:*(memory)?:*$).+|({'|'.join(SERVERS)})://.*", re.DOTALL)


def store_at(location: str | Secret, **options: Any) -> "ClaimStore":
    """Return the store at a location, made with these options. Nothing is opened yet.

    Raises ConfigurationError, without quoting the location: it may hold a password.
    """
    location = Secret.of(location)
    if error := _location_error(str(location.reveal())):
        raise error
    kind = location.reveal().partition(":")[0]
    if kind == "memory":
        return pushsdk.claims.MemoryClaims(**options)
    if kind == "sqlite":
        return pushsdk.claims.SqliteClaims(location.reveal().removeprefix("sqlite:"), **options)
    store: ClaimStore = getattr(pushsdk.claims, SERVERS[kind])(location, **options)
    return store


def _location_error(location: str) -> ConfigurationError | None:
    # Returned, not raised: a traceback may show the locals in this frame.
    if _LOCATION.fullmatch(location):
        return None
    if location.startswith("sqlite://") or location.endswith((".db", ".sqlite")):
        return ConfigurationError(
            "claims must be a claim store, or its location: for a file, sqlite:claims.db or sqlite:/var/lib/claims.db, "
            "without //"
        )
    return ConfigurationError(
        "claims must be a claim store, or its location: memory:, sqlite:PATH, redis://HOST, "
        "postgresql://HOST/DATABASE or s3://BUCKET/PREFIX"
    )
