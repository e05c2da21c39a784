"""Shared claim stores by kind, at places that any process can open."""

import itertools

from pushsdk.claims import PostgresClaims, RedisClaims, SqliteClaims
from pushsdk.spark import DirectoryClaims

SHARED = {
    "sqlite": SqliteClaims,
    "directory": DirectoryClaims,
    "redis": RedisClaims,
    "postgres": PostgresClaims,
}
_numbers = itertools.count()


def place_of(kind, request):
    """Return the arguments of a store at a new place."""
    if kind == "redis":
        return {"server": request.getfixturevalue("redis_url"), "prefix": f"test-{next(_numbers)}:"}
    if kind == "postgres":
        return {"server": request.getfixturevalue("postgres_url"), "table": f"test_{next(_numbers)}"}
    folder = request.getfixturevalue("tmp_path")
    options = {"durable": False} if kind == "directory" else {}
    return {"path": str(folder / f"{next(_numbers)}.claims"), **options}


def store_at_place(kind, place):
    return SHARED[kind](**place)
