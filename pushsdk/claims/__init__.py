"""Claim stores: records of what ``send(..., idempotency_key=)`` sent, so that a job delivered twice is pushed once.

No module here imports the client library of a server at import time, so every store can be imported without extras.
"""

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

set_public_module(__name__, __name__)
