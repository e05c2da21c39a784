"""Servers of the claim stores, one of each per session, with a separate place for each test."""

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack

import asyncpg
import pytest
from redis.asyncio import Redis
from support.claim_stores import place_of
from support.servers import Server, postgres_server, redis_server

from pushsdk.claims import ClaimStore, MemoryClaims, PostgresClaims, RedisClaims, SqliteClaims
from pushsdk.spark import DirectoryClaims


@pytest.fixture
def own_redis() -> Iterator[Server]:
    """A server that a test may stop."""
    with redis_server() as server:
        yield server


@pytest.fixture
def own_postgres() -> Iterator[Server]:
    """A server that a test may stop."""
    with postgres_server() as server:
        yield server


@pytest.fixture(
    params=[
        "memory",
        "sqlite",
        "sqlite durable",
        "directory",
        "redis",
        "redis client",
        "postgres",
        "postgres pool",
    ]
)
async def another(request: pytest.FixtureRequest) -> AsyncIterator[Callable[[], ClaimStore]]:
    """Return a function that makes another store of the same place, as another process would."""
    kind: str = request.param
    async with AsyncExitStack() as stack:
        if kind == "memory":
            memory = MemoryClaims()
            make: Callable[[], ClaimStore] = lambda: memory  # noqa: E731
        elif kind.startswith("sqlite"):
            place = place_of("sqlite", request)
            make = lambda: SqliteClaims(**place, durable=kind.endswith("durable"))  # noqa: E731
        elif kind == "directory":
            place = place_of("directory", request)
            make = lambda: DirectoryClaims(**place, durable=False)  # noqa: E731
        elif kind == "redis":
            place = place_of("redis", request)
            make = lambda: RedisClaims(**place)  # noqa: E731
        elif kind == "redis client":
            place = place_of("redis", request)
            mine = await stack.enter_async_context(Redis.from_url(place["server"], decode_responses=True))
            make = lambda: RedisClaims(mine, prefix=place["prefix"])  # noqa: E731
        elif kind == "postgres":
            place = place_of("postgres", request)
            make = lambda: PostgresClaims(**place)  # noqa: E731
        else:
            place = place_of("postgres", request)
            pool = await stack.enter_async_context(asyncpg.create_pool(place["server"], min_size=0))
            make = lambda: PostgresClaims(pool, table=place["table"])  # noqa: E731

        def another() -> ClaimStore:
            store = make()
            stack.push_async_callback(store.aclose)
            return store

        yield another


@pytest.fixture
def store(another: Callable[[], ClaimStore]) -> ClaimStore:
    return another()
