"""Fixed caps on what leaves per second."""

from __future__ import annotations

import asyncio
from itertools import pairwise

import pytest
from support.fake_service import MESSAGE, FakeService, answer, client_of, idle, outcome_of, refused, start
from support.virtual_time import turns, virtual

from pushsdk import NotSentError, Rate, RetryPolicy


def now() -> float:
    return asyncio.get_running_loop().time()


def titled(number: int) -> dict[str, dict[str, str]]:
    return {"title": {"en": f"number {number}"}}


@virtual
async def test_requests_per_second_spaces_requests_out() -> None:
    service = FakeService()
    async with client_of(service, rate=Rate(requests_per_second=10.0)) as client:
        before = now()
        await asyncio.gather(*(client.send("a", titled(number)) for number in range(5)))
    assert [request.started - before for request in service.requests] == pytest.approx([0.0, 0.1, 0.2, 0.3, 0.4])


@virtual
async def test_users_per_second_are_paid_by_the_wait_of_the_next_request() -> None:
    service = FakeService()
    async with client_of(service, rate=Rate(users_per_second=10.0)) as client:
        before = now()
        await client.send([f"user-{number}" for number in range(20)], MESSAGE)
        await client.send("a", MESSAGE)
    assert [request.started - before for request in service.requests] == pytest.approx([0.0, 2.0])


@virtual
async def test_while_the_rate_holds_it_back_the_batch_keeps_filling() -> None:
    service = FakeService()
    async with client_of(service, rate=Rate(requests_per_second=1.0)) as client:
        await client.send("a", MESSAGE)
        tasks = [start(client.send("b", MESSAGE))]
        await asyncio.sleep(0.5)
        tasks.append(start(client.send("c", MESSAGE)))
        await asyncio.gather(*tasks)
    assert service.sent == [("a",), ("b", "c")]


@virtual
async def test_a_retry_is_paced_too() -> None:
    service = FakeService(refused())
    async with client_of(service, rate=Rate(requests_per_second=1.0), retry=RetryPolicy.safe(base=0.01)) as client:
        before = now()
        await client.send("a", MESSAGE)
    assert service.requests[1].started == pytest.approx(before + 1.0)


@virtual
async def test_a_call_that_the_rate_keeps_beyond_its_deadline_was_not_sent_and_costs_no_rate() -> None:
    service = FakeService()
    async with client_of(service, rate=Rate(requests_per_second=1.0)) as client:
        before = now()
        await client.send("a", MESSAGE)
        with pytest.raises(NotSentError):
            await client.send("b", MESSAGE, timeout=0.5)
        assert now() <= before + 0.55
        await client.send("c", MESSAGE)
        assert idle(client)
    assert service.requests[1].started == pytest.approx(before + 1.0)


@virtual
async def test_a_pause_moves_what_the_rate_had_scheduled() -> None:
    service = FakeService(answer(429, {"Retry-After": "5"}, after=0.5))
    async with client_of(service, rate=Rate(requests_per_second=1.0)) as client:
        before = now()
        tasks = [start(client.send("a", MESSAGE, retry=RetryPolicy.none()))]
        await turns()
        tasks += [start(client.send("b", titled(number))) for number in range(2)]
        for task in tasks:
            await outcome_of(task)
    assert [request.started - before for request in service.requests] == pytest.approx([0.0, 5.5, 6.5])


@virtual
async def test_a_client_that_was_throttled_spaces_its_requests_out_until_it_is_free_again() -> None:
    service = FakeService()
    async with client_of(service) as client:
        await asyncio.gather(*(client.send("a", titled(number)) for number in range(10)))
        client._engine.gate.throttled(now(), now())
        before, count = now(), len(service.requests)
        await asyncio.gather(*(client.send("a", titled(number)) for number in range(9)))
        starts = [request.started - before for request in service.requests[count:]]
        assert [after - at for at, after in pairwise(starts)] == pytest.approx([1 / 8] * 8, abs=0.011)
        await asyncio.sleep(30.0)
        before, count = now(), len(service.requests)
        await asyncio.gather(*(client.send("a", titled(number)) for number in range(9)))
        assert [request.started for request in service.requests[count:]] == [before] * 9
        assert idle(client)


@virtual
async def test_while_it_is_held_back_sends_of_one_message_meet_in_fewer_requests() -> None:
    service = FakeService()
    async with client_of(service) as client:
        client._engine.gate.throttled(now(), now())
        await client.send("first", MESSAGE)
        sends = []
        for number in range(100):
            sends.append(start(client.send(f"user-{number}", MESSAGE)))
            await asyncio.sleep(0.02)
        await asyncio.gather(*sends)
    assert len(service.requests) <= 5
