"""Fixed caps on what leaves per second."""

import asyncio

import pytest
from support.fake_service import FakeService, answer, client_of, outcome_of, refused, start, titled
from support.virtual_time import now, virtual

from pushsdk import Outcome, Rate, RetryPolicy


@virtual
async def test_requests_per_second_spaces_requests_and_retries_out():
    service = FakeService(refused())
    rate = Rate(requests_per_second=10.0)
    retry = RetryPolicy.safe(initial_delay=0.001)
    async with client_of(service, rate=rate, retry=retry) as client:
        before = now()
        await asyncio.gather(*(client.send("a", titled(number)) for number in range(4)))
    assert [request.started - before for request in service.requests] == pytest.approx([0.0, 0.1, 0.2, 0.3, 0.4])


@pytest.mark.parametrize(
    ("status", "policy", "is_throttle"),
    [
        (429, RetryPolicy.none(), True),
        (503, RetryPolicy.none(), False),
        (429, RetryPolicy.none(retry_on=frozenset()), False),
        (429, RetryPolicy.none(statuses={429: Outcome.UNKNOWN}), False),
    ],
)
@virtual
async def test_a_throttle_is_a_429_that_may_be_repeated(status, policy, is_throttle):
    async with client_of(FakeService(then=answer(status)), retry=policy) as client:
        sends = [start(client.send("a", titled(number), timeout=5.0)) for number in range(100)]
        await asyncio.gather(*map(outcome_of, sends))
        assert (client.stats().not_sent > 0) is is_throttle
