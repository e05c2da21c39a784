"""Claim stores: where ``send(..., idempotency_key=)`` notes what was sent, so that a job delivered twice pushes once.

The public names, each imported when it is first asked for: no store needs what another is made of.
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pushsdk.claims._operators import count_claimed
    from pushsdk.claims.directory import DirectoryClaims
    from pushsdk.claims.memory import MemoryClaims
    from pushsdk.claims.postgres import PostgresClaims
    from pushsdk.claims.redis import RedisClaims
    from pushsdk.claims.sqlite import SqliteClaims
    from pushsdk.claims.store import Claim, ClaimStore, Put

else:  # a type checker would take any name for one that this finds

    def __getattr__(name):
        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        globals()[name] = each = getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
        return each

    def __dir__():
        return __all__


_MODULES = {
    "Claim": "store",
    "ClaimStore": "store",
    "DirectoryClaims": "directory",
    "MemoryClaims": "memory",
    "PostgresClaims": "postgres",
    "Put": "store",
    "RedisClaims": "redis",
    "SqliteClaims": "sqlite",
    "count_claimed": "_operators",
}

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
