"""tenacity's own strategies, campaigns, and the key: what the sender does beside the plain push."""

import asyncio
import logging
import math
import sys

import pytest
import tenacity
from support.fake_service import MESSAGE, FakeService, answer, client_of, idle, outcome_of, refused, reset_after, start
from support.virtual_time import now, virtual

from pushsdk import CampaignRequest, NotSentError, Outcome, OutcomeUnknownError, PushError, RetryPolicy
from pushsdk._io.sender import guarded

CAMPAIGN = CampaignRequest(external_id="spring")


async def started(policy, service):
    """Return when each attempt of a send began, from the first on."""
    async with client_of(service, retry=policy) as client:
        await outcome_of(client.send("a", MESSAGE))
        assert idle(client)
    return [request.started - service.requests[0].started for request in service.requests]


async def is_unknown(state):
    await asyncio.sleep(0.01)
    return isinstance(state.outcome.exception(), OutcomeUnknownError)


TENACITY = RetryPolicy.from_tenacity


@pytest.mark.parametrize(
    ("policy", "behavior", "times"),
    [
        (TENACITY(stop=tenacity.stop_after_attempt(3), wait=tenacity.wait_fixed(0.5)), refused(), [0.0, 0.5, 1.0]),
        (TENACITY(retry=tenacity.retry_if_exception_type(NotSentError)), answer(429), [0.0]),
        (TENACITY(retry=is_unknown, wait=tenacity.wait_none()), answer(500, after=0.0), [0.0, 0.01, 0.02, 0.03]),
        (TENACITY(retry=is_unknown), refused(), [0.0]),
        (TENACITY(wait=lambda state: math.nan), refused(), [0.0] * 4),
        (TENACITY(wait=tenacity.wait_none()), answer(429, {"Retry-After": "3"}, after=0.0), [0.0, 3.0, 6.0, 9.0]),
    ],
)
@virtual
async def test_tenacitys_stop_wait_and_retry_are_obeyed(policy, behavior, times):
    assert await started(policy, FakeService(then=behavior)) == pytest.approx(times)


@pytest.mark.parametrize(
    ("policy", "requests"), [(RetryPolicy.collapsible(), 1), (RetryPolicy.at_least_once(max_attempts=2), 2)]
)
@virtual
async def test_an_unknown_campaign_is_repeated_by_at_least_once_only_and_carries_its_external_id(policy, requests):
    service = FakeService(then=reset_after())
    async with client_of(service, retry=policy) as client:
        with pytest.raises(OutcomeUnknownError) as excinfo:
            await client.create_campaign(CAMPAIGN)
    assert excinfo.value.external_id == "spring"
    assert len(service.campaigns) == requests


@pytest.mark.parametrize("strategy", ["stop", "wait", "retry"])
@virtual
async def test_a_strategy_that_raises_ends_the_retries_and_not_the_outcome(strategy, caplog):
    def broken(state):
        raise KeyError("secret")

    service = FakeService(then=answer(429))
    async with client_of(service, retry=RetryPolicy.from_tenacity(**{strategy: broken})) as client:
        with caplog.at_level(logging.ERROR), pytest.raises(PushError) as excinfo:
            await client.send("a", MESSAGE)
    assert excinfo.value.outcome is Outcome.REJECTED
    assert len(service.requests) == 1
    assert "KeyError" in caplog.text
    assert "secret" not in caplog.text


@pytest.mark.plays_bug
@pytest.mark.parametrize("callers", [1, 3])
@virtual
async def test_a_transport_that_raises_ends_every_caller_as_unknown_and_leaves_nothing_behind(callers):
    async def broken(request):
        request.write()
        raise RuntimeError("a bug")

    service = FakeService(then=broken)
    async with client_of(service) as client:
        tasks = [start(client.send(f"user-{number}", MESSAGE)) for number in range(callers)]
        outcomes = [await outcome_of(task) for task in tasks]
        assert all(isinstance(outcome, OutcomeUnknownError) for outcome in outcomes)
        assert client.stats().unknown == callers
        assert idle(client)


@virtual
async def test_a_campaign_that_cannot_wait_out_the_pause_which_the_clients_policy_bounds_ends_at_once():
    service = FakeService(answer(429, {"Retry-After": "900"}))
    async with client_of(service, retry=RetryPolicy(max_retry_after=20.0)) as client:
        await outcome_of(client.send("a", MESSAGE, retry=RetryPolicy(max_attempts=1, max_retry_after=900.0)))
        await asyncio.sleep(0.4)
        before = now()
        with pytest.raises(
            NotSentError, match=r"past the call's deadline: for 20 s, .* Call again after 20 s"
        ) as excinfo:
            await client.create_campaign(CAMPAIGN, timeout=5.0)
        assert now() == before
        assert excinfo.value.retry_after == 20.0


def test_a_callback_may_end_the_process():
    with pytest.raises(SystemExit):
        guarded("on_progress", sys.exit)("why")
