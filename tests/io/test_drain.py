"""aclose: what is on its way may end within the drain; the rest is ended, nothing starts any more, all is told."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from support.fake_service import MESSAGE, FakeService, Request, answer, client_of, hang, outcome_of, refused, start
from support.virtual_time import turns, virtual

from pushsdk import ClientClosedError, Limits, OutcomeUnknownError, Rate, RejectedError, RetryPolicy


@virtual
async def test_a_call_that_waits_for_its_retry_is_ended_and_not_sent_any_more() -> None:
    service = FakeService(refused(), then=hang())
    client = client_of(service, retry=RetryPolicy.safe(base=5.0))
    task = start(client.send("a", MESSAGE))
    await turns(10)
    before = asyncio.get_running_loop().time()
    report = await client.aclose(drain=0.0)
    assert asyncio.get_running_loop().time() == before
    assert len(service.requests) == 1
    assert report.not_sent == ("a",)
    assert isinstance(await outcome_of(task), ClientClosedError)


@pytest.mark.parametrize(
    "policy",
    [RetryPolicy.at_least_once, lambda: RetryPolicy.from_tenacity(retry=lambda state: True)],
    ids=["at_least_once", "from_tenacity"],
)
@virtual
async def test_an_attempt_ended_by_the_close_is_not_repeated_under_any_policy(
    policy: Callable[[], RetryPolicy],
) -> None:
    service = FakeService(then=hang())
    client = client_of(service, retry=policy())
    task = start(client.send("a", MESSAGE))
    await turns()
    before = asyncio.get_running_loop().time()
    report = await client.aclose(drain=0.0)
    assert asyncio.get_running_loop().time() == before
    assert len(service.requests) == 1
    assert report.unknown == ("a",)
    assert isinstance(await outcome_of(task), OutcomeUnknownError)


@virtual
async def test_pieces_of_a_split_that_have_not_left_do_not_leave_after_the_close() -> None:
    def then(request: Request) -> object:
        return answer(400) if len(request.users) > 2 else hang()

    service = FakeService(then=then)
    client = client_of(service)
    tasks = [start(client.send(f"user-{number}", MESSAGE)) for number in range(8)]
    # Whole, halves, and the first two quarters hang.
    await asyncio.sleep(0.05)
    assert len(service.requests) == 5
    before = asyncio.get_running_loop().time()
    report = await client.aclose(drain=0.0)
    assert asyncio.get_running_loop().time() == before
    assert len(service.requests) == 5
    assert (len(report.unknown), len(report.rejected)) == (4, 4)
    ended = [type(await outcome_of(task)) for task in tasks]
    assert sorted(kind.__name__ for kind in ended) == [OutcomeUnknownError.__name__] * 4 + [RejectedError.__name__] * 4


@virtual
async def test_a_call_admitted_while_the_client_closes_is_ended_with_the_drain() -> None:
    for lead in range(6):
        service = FakeService()
        limits, rate = Limits(queued_users=1), Rate(requests_per_second=0.1)
        client = client_of(service, limits=limits, rate=rate)
        await client.send("first", MESSAGE)
        in_line = start(client.send("in line", MESSAGE))
        await turns()
        not_admitted = start(client.send("not admitted", MESSAGE))
        await turns()
        before = asyncio.get_running_loop().time()
        closing = start(client.aclose(drain=0.0))
        await turns(lead)
        in_line.cancel()
        await closing
        assert isinstance(await outcome_of(not_admitted), ClientClosedError)
        assert asyncio.get_running_loop().time() == before, f"cancelled {lead} turns after"
