"""Shared claim stores by kind, at places that any process can open."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pushsdk.claims import ClaimStore, PostgresClaims, RedisClaims, SqliteClaims
from pushsdk.spark import DirectoryClaims

if TYPE_CHECKING:  # it doubles the start of a process
    import pytest

__all__ = ["SHARED", "place_of", "store_at_place"]

SHARED: dict[str, type[ClaimStore]] = {
    "sqlite": SqliteClaims,
    "directory": DirectoryClaims,
    "redis": RedisClaims,
    "postgres": PostgresClaims,
}
_numbers = itertools.count()


def place_of(kind: str, request: pytest.FixtureRequest) -> dict[str, Any]:
    """Return the arguments of a store at a new place."""
    if kind == "redis":
        return {"server": request.getfixturevalue("redis_url"), "prefix": f"test-{next(_numbers)}:"}
    if kind == "postgres":
        return {"server": request.getfixturevalue("postgres_url"), "table": f"test_{next(_numbers)}"}
    folder: Path = request.getfixturevalue("tmp_path")
    options = {"durable": False} if kind == "directory" else {}
    return {"path": str(folder / f"{next(_numbers)}.claims"), **options}


def store_at_place(kind: str, place: dict[str, Any]) -> ClaimStore:
    return SHARED[kind](**place)
