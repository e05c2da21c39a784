"""Claim stores of every kind, each in a separate place for each test."""

from contextlib import AsyncExitStack

import asyncpg
import pytest
from obstore.store import MemoryStore
from redis.asyncio import Redis
from support.claim_stores import SHARED, place_of, store_at_place

from pushsdk.claims import MemoryClaims, ObjectClaims


@pytest.fixture(params=["memory", *SHARED, "redis client", "postgres pool"])
async def another(request):
    """Return a function that makes another store of the same place, as another process would."""
    kind, _, mine = request.param.partition(" ")
    memory, objects = MemoryClaims(), MemoryStore()  # an S3 server's clock has whole seconds
    local = {"memory": lambda: memory, "objects": lambda: ObjectClaims(objects)}
    place = {} if kind in local else place_of(kind, request)
    async with AsyncExitStack() as stack:
        if mine == "client":
            client = Redis.from_url(place["server"], decode_responses=True)
            place["server"] = await stack.enter_async_context(client)
        elif mine == "pool":
            place["server"] = await stack.enter_async_context(asyncpg.create_pool(place["server"], min_size=0))

        def another():
            store = local[kind]() if kind in local else store_at_place(kind, place)
            stack.push_async_callback(store.aclose)
            return store

        yield another


@pytest.fixture
def store(another):
    return another()
