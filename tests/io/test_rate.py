"""Fixed caps on what leaves per second."""

from __future__ import annotations

import asyncio

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
