"""``with_options`` and ``flush``: views on the same client."""

import asyncio

import pytest
from support.fake_service import MESSAGE, FakeService, answer, client_of, idle, refused, start
from support.virtual_time import now, turns, virtual

from pushsdk import AsyncPushClient, Batching, NotSentError, RetryPolicy


@virtual
async def test_a_view_has_its_own_policy_and_timeout_and_shares_the_budget():
    service = FakeService(then=refused())
    async with client_of(service) as client:
        view = client.with_options(retry=RetryPolicy.none())
        with pytest.raises(NotSentError):
            await view.send("a", MESSAGE)
        assert len(service.requests) == 1
        with pytest.raises(NotSentError):
            await client.send("a", MESSAGE)
        assert view.stats() == client.stats()
        assert len(service.requests) == 5


@virtual
async def test_flush_does_not_wait_for_calls_that_come_after_it_and_its_cancellation_leaves_the_sends_alone():
    service = FakeService(answer(after=1.0), answer(after=9.0))
    async with client_of(service) as client:
        before, first = now(), start(client.send("a", MESSAGE))
        await turns()
        flush, cancelled = start(client.flush()), start(client.flush())
        await turns()
        cancelled.cancel()
        later = start(client.send("b", MESSAGE))
        await flush
        assert now() == pytest.approx(before + 1.0)
        await asyncio.gather(first, later)
        assert cancelled.cancelled()
        await client.flush()
        assert now() == pytest.approx(before + 9.0)
        assert idle(client)
    await AsyncPushClient("https://push.example", "key").flush()


@virtual
async def test_flush_sends_what_lingers_and_waits_for_its_end():
    service = FakeService()
    async with client_of(service, batching=Batching(linger=9.0)) as client:
        before = now()
        tasks = [start(client.send(user, MESSAGE)) for user in "ab"]
        await turns()
        await client.flush()
        assert service.users() == {"a": 1, "b": 1}
        assert all(task.done() for task in tasks)
        assert now() < before + 1.0
