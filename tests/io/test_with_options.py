"""``with_options`` and ``flush``: views on the same client."""

import asyncio

import pytest
from support.fake_service import MESSAGE, FakeService, answer, client_of, idle, start
from support.virtual_time import now, turns, virtual

from pushsdk import AsyncPushClient


@virtual
async def test_flush_does_not_wait_for_calls_that_come_after_it_and_its_cancellation_leaves_the_sends_alone():
    service = FakeService(answer(after=1.0), answer(after=9.0))
    async with client_of(service) as client:
        before = now()
        first = start(client.send("a", MESSAGE))
        await turns()
        flush = start(client.flush())
        cancelled = start(client.flush())
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
