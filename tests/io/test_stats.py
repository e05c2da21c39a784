"""``stats()``: the counters add up, and what is held is told as of now."""

import asyncio

import pytest
from support.fake_service import (
    MESSAGE,
    OTHER,
    FakeService,
    answer,
    client_of,
    idle,
    outcome_of,
    refused,
    reset_after,
    stale,
    start,
)
from support.virtual_time import turns, virtual

from pushsdk import AsyncPushClient, ClientStats, Limits, RetryPolicy


@virtual
async def test_stats_show_what_is_in_flight_queued_and_paused_now():
    service = FakeService(answer(429, {"Retry-After": "10"}, after=1.0))
    async with client_of(service, limits=Limits(in_flight=1)) as client:
        first = start(client.send("a", MESSAGE, retry=RetryPolicy.none()))
        await turns()
        second = start(client.send(["b", "c"], MESSAGE))
        await turns()
        stats = client.stats()
        assert stats.in_flight == 1
        assert stats.queued_users == 2
        assert stats.paused == 0.0
        assert stats.queued_bytes > len(b'"b","c"')
        await outcome_of(first)
        await asyncio.sleep(4.0)
        assert client.stats().paused == pytest.approx(6.0)
        assert (await outcome_of(client.send("d", OTHER, timeout=1.0))).retry_after == pytest.approx(6.0)
        await second
        assert client.stats().paused == 0.0


def test_a_client_that_was_never_used_has_done_nothing():
    assert AsyncPushClient("https://push.example", "key").stats() == ClientStats()


@virtual
async def test_users_are_counted_by_outcome_and_requests_attempts_and_retries_apart():
    service = FakeService(answer(), answer(401), reset_after(), refused(), refused(), stale())
    async with client_of(service) as client:
        for users in (["a", "b"], "c", ["d", "e", "f"]):
            await outcome_of(client.send(users, MESSAGE))
        await outcome_of(client.send("g", MESSAGE, retry=RetryPolicy.none()))
        await outcome_of(client.send("h", MESSAGE))
        stats = client.stats()
        assert idle(client)
    assert stats.accepted == 3
    assert stats.rejected == 1
    assert stats.unknown == 3
    assert stats.not_sent == 1
    assert stats.requests == 5
    assert stats.attempts == 6
    assert stats.retries == 1
    assert stats.stale_connections == 1
    assert stats.retry_tokens == 500, "the retry succeeded, so its cost came back"
