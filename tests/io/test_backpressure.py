"""Bounds on what waits: a call beyond the limits waits its turn, or is refused; nothing is dropped."""

import asyncio

import pytest
from support.fake_service import (
    LATENCY,
    MESSAGE,
    OTHER,
    FakeService,
    answer,
    client_of,
    idle,
    outcome_of,
    start,
    titled,
)
from support.telemetry import Telemetry
from support.virtual_time import turns, virtual

from pushsdk import AsyncPushClient, Limits, Outcome, QueueFullError, ValidationError
from pushsdk.claims import MemoryClaims


@virtual
async def test_the_measured_time_in_the_queue_includes_the_wait_for_room():
    telemetry = Telemetry()
    service = FakeService(then=answer(after=1.0))
    limits = Limits(in_flight=1, queued_users=1)
    client = service.serve(telemetry.instrument(AsyncPushClient("https://push.example", "key", limits=limits)))
    async with client:
        await asyncio.gather(*(client.send(f"user-{number}", titled(number)) for number in range(3)))
    (queued,) = telemetry.points("pushsdk.queue.duration")
    assert queued.max == pytest.approx(2.0)


@virtual
async def test_a_full_queue_raises_at_once_if_configured():
    service = FakeService()
    async with client_of(service, limits=Limits(in_flight=1, queued_users=2, when_full="raise")) as client:
        first = start(client.send("a", MESSAGE))
        await turns()
        second = start(client.send(["b", "c"], OTHER))
        await turns()
        with pytest.raises(QueueFullError) as excinfo:
            await client.send("d", OTHER)
        assert excinfo.value.outcome == Outcome.NOT_SENT
        assert excinfo.value.user_ids == ("d",)
        await asyncio.gather(first, second)
        await client.send("d", OTHER)
    assert service.accepted("d") == 1


@virtual
async def test_the_bytes_of_the_limit_and_one_call_are_held_however_many_calls_wait():
    service = FakeService()
    most = 0
    async with client_of(service, limits=Limits(in_flight=1, queued_bytes=20_000)) as client:
        calls = [start(client.send(f"user-{n}", {"title": {"en": f"{n}".ljust(2000)}})) for n in range(100)]
        while not all(call.done() for call in calls):
            most = max(most, client.stats().queued_bytes)
            await asyncio.sleep(LATENCY / 4)
        assert idle(client)
    assert 20_000 < most < 23_000
    assert len(service.requests) == 100


@virtual
async def test_a_call_that_turns_out_wrong_after_the_wait_for_room_leaves_nothing_behind():
    service = FakeService()
    async with client_of(service, limits=Limits(in_flight=1, queued_users=1), claims=MemoryClaims()) as client:
        await client.send("z", MESSAGE, idempotency_key="job")
        tasks = [start(client.send("a", MESSAGE)), start(client.send("b", OTHER))]
        await turns()
        invalid = start(client.send("c", {"title": 7}))
        again, other = [start(client.send("z", text, idempotency_key="job")) for text in (MESSAGE, OTHER)]
        behind = start(client.send(["d", "e"], titled(1)))
        assert (await again).already_accepted == 1
        assert [type(await outcome_of(call)) for call in (invalid, other)] == [ValidationError] * 2
        await asyncio.gather(*tasks, behind)
        await client.flush()
        assert idle(client)
    assert service.sent == [("z",), ("a",), ("b",), ("d", "e")]


@virtual
async def test_calls_wait_for_room_in_the_order_they_came_and_a_large_one_is_not_overtaken_for_ever():
    service = FakeService()
    async with client_of(service, limits=Limits(in_flight=1, queued_users=2)) as client:
        first = start(client.send("first", MESSAGE))
        await turns()
        users = ["before-0", "before-1", ["x", "y", "z"], "after-0", "gone", "after-1"]
        calls = [start(client.send(user, titled(number))) for number, user in enumerate(users)]
        await turns()
        assert client.stats().queued_users == 2
        calls.pop(4).cancel()
        await asyncio.gather(first, *calls)
    assert [users[0] for users in service.sent] == ["first", "before-0", "before-1", "x", "after-0", "after-1"]
