"""Concurrent sends: which meet in one request, and when that leaves."""

import asyncio

import pytest
from support.fake_service import LATENCY, MESSAGE, OTHER, FakeService, answer, client_of, start
from support.virtual_time import now, virtual

from pushsdk import Batching, Limits, RetryPolicy


@virtual
async def test_a_lone_send_leaves_at_once_and_while_all_places_are_busy_the_open_batch_keeps_filling():
    service = FakeService()
    async with client_of(service, limits=Limits(in_flight=1)) as client:
        before = now()
        tasks = []
        for user in "abcd":
            tasks.append(start(client.send(user, MESSAGE)))
            await asyncio.sleep(LATENCY / 5)
        await asyncio.gather(*tasks)
    assert service.requests[0].started == before
    assert service.sent == [("a",), ("b", "c", "d")]


@virtual
async def test_a_full_batch_does_not_linger_a_call_that_does_not_fit_opens_the_next_and_flush_sends_it():
    service = FakeService()
    async with client_of(service, batching=Batching(linger=9.0, max_users=3)) as client:
        sent = now()
        calls = [start(client.send([*users], MESSAGE)) for users in ("abc", "de", "fg", "h")]
        await asyncio.gather(calls[0], *calls[2:])
        assert now() < sent + 1.0
        await calls[1]
        assert now() >= sent + 9.0
        client.submit("i", MESSAGE)
        await client.flush()
        assert now() < sent + 10.0
    assert {*service.sent} == {("a", "b", "c"), ("f", "g", "h"), ("d", "e"), ("i",)}


@virtual
async def test_each_merged_call_gets_its_own_receipt():
    service = FakeService(answer(200, body=b"{}"))
    async with client_of(service) as client:
        receipts = await asyncio.gather(*(client.send(users, MESSAGE) for users in ("a", ["b", "c"], ["d", "d"], "e")))
    assert service.sent == [("a", "b", "c", "d", "e")]
    assert [(receipt.users, receipt.duplicates) for receipt in receipts] == [(1, 0), (2, 0), (1, 1), (1, 0)]
    assert {(receipt.requests, receipt.status) for receipt in receipts} == {(1, 200)}
    assert len({receipt.attempts for receipt in receipts}) == 1


@pytest.mark.parametrize(
    "options",
    [{"message": OTHER}, {"custom_fields": {"a": {"x": 1}}}, {"retry": RetryPolicy.none()}, {"timeout": 7.0}],
)
@virtual
async def test_sends_that_differ_in_anything_do_not_meet(options):
    service = FakeService()
    async with client_of(service) as client:
        await asyncio.gather(client.send("a", MESSAGE), client.send("b", **{"message": MESSAGE, **options}))
    assert sorted(service.sent) == [("a",), ("b",)]


@virtual
async def test_a_call_with_too_little_time_does_not_linger():
    service = FakeService()
    async with client_of(service, batching=Batching(linger=1.0)) as client:
        sent = now()
        await client.send("a", MESSAGE, timeout=0.5)
        assert service.requests[0].started == sent
