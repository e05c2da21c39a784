"""Tests of services and workers; a test is skipped if its framework is not installed."""

import pytest
from support.servers import redis_server


@pytest.fixture(scope="session")
def _redis():
    with redis_server(tcp=True, durable=True) as server:
        yield server


@pytest.fixture
def redis_url(_redis):
    """The URL of an empty Redis on loopback."""
    from redis import Redis

    with Redis.from_url(_redis.url) as redis:
        redis.flushall()
    return _redis.url
