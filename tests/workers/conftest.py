"""Tests of services and workers; a test is skipped if its framework is not installed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.servers import Server, redis_server


@pytest.fixture(scope="session")
def _redis() -> Iterator[Server]:
    with redis_server(tcp=True, durable=True) as server:
        yield server


@pytest.fixture
def redis_url(_redis: Server) -> str:
    """The URL of an empty Redis on loopback."""
    from redis import Redis

    with Redis.from_url(_redis.url) as redis:
        redis.flushall()
    return _redis.url
