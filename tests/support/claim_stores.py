"""Shared claim stores by kind, at places that any process can open."""

import itertools

from pushsdk.claims import ObjectClaims, PostgresClaims, RedisClaims, SqliteClaims
from pushsdk.spark import DirectoryClaims
from support.object_server import KEYS


def object_claims(endpoint, prefix):
    """Return the store of a prefix in an S3 server's bucket."""
    from obstore.store import S3Store  # not for processes that use other stores

    config = {"client_options": {"allow_http": True}, "retry_config": {"max_retries": 0}, **KEYS}
    return ObjectClaims(S3Store("claims", prefix=prefix, endpoint=endpoint, **config))


SHARED = {
    "sqlite": SqliteClaims,
    "directory": DirectoryClaims,
    "redis": RedisClaims,
    "postgres": PostgresClaims,
    "objects": object_claims,
}
_numbers = itertools.count()


def place_of(kind, request):
    """Return the arguments of a store at a new place."""
    if kind == "redis":
        return {"server": request.getfixturevalue("redis_url"), "prefix": f"test-{next(_numbers)}:"}
    if kind == "postgres":
        return {"server": request.getfixturevalue("postgres_url"), "table": f"test_{next(_numbers)}"}
    if kind == "objects":
        return {"endpoint": request.getfixturevalue("objects").url, "prefix": f"test-{next(_numbers)}"}
    folder = request.getfixturevalue("tmp_path")
    options = {"durable": False} if kind == "directory" else {}
    return {"path": str(folder / f"{next(_numbers)}.claims"), **options}


def store_at_place(kind, place):
    return SHARED[kind](**place)
