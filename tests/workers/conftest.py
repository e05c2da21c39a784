"""The frameworks that services and workers are made of: who has none of them runs none of these tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.servers import Server, redis_server


@pytest.fixture(scope="session")
def _redis() -> Iterator[Server]:
    with redis_server(tcp=True) as server:
        yield server


@pytest.fixture
def redis_url(_redis: Server) -> str:
    """An empty Redis of its own on loopback."""
    from redis import Redis

    with Redis.from_url(_redis.url) as redis:
        redis.flushall()
    return _redis.url
