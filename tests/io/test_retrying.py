"""Retries: which attempts are retried, how often, after which wait, and which calls can't wait."""

import pytest
import tenacity
from support.fake_service import (
    MESSAGE,
    OTHER,
    FakeService,
    answer,
    client_of,
    fails,
    idle,
    outcome_of,
    partial,
    refused,
    start,
    titled,
)
from support.virtual_time import now, virtual

from pushsdk import Batching, Limits, NotSentError, Outcome, PushError, RateLimitedError, Receipt, RetryPolicy
from pushsdk._core.outcome import Failure

COLLAPSIBLE = {"title": {"en": "Hello"}, "collapseId": "news"}
SAFE = RetryPolicy.safe
OFTEN = RetryPolicy.at_least_once
COLLAPSE = RetryPolicy.collapsible


@pytest.mark.parametrize(
    ("behavior", "policy", "message", "attempts", "outcome"),
    [
        (refused(), SAFE, MESSAGE, 4, Outcome.NOT_SENT),
        (answer(429), SAFE, MESSAGE, 4, Outcome.REJECTED),
        (answer(401), OFTEN, MESSAGE, 1, Outcome.REJECTED),
        (answer(503), SAFE, MESSAGE, 1, Outcome.UNKNOWN),
        (answer(503), OFTEN, MESSAGE, 4, Outcome.UNKNOWN),
        (answer(500), COLLAPSE, MESSAGE, 1, Outcome.UNKNOWN),
        (answer(500), COLLAPSE, COLLAPSIBLE, 4, Outcome.UNKNOWN),
        (partial(), SAFE, COLLAPSIBLE, 1, Outcome.UNKNOWN),
    ],
)
@virtual
async def test_how_often_each_policy_tries(behavior, policy, message, attempts, outcome):
    service = FakeService(then=behavior)
    async with client_of(service, retry=policy(), limits=Limits(in_flight=2)) as client:
        end = await outcome_of(client.send("a", message))
    assert len(service.requests) == attempts
    assert len(end.attempts) == attempts
    assert end.outcome == outcome
    assert len({request.body for request in service.requests}) == 1


@pytest.fixture
def loops(monkeypatch):
    """A list that grows by one whenever a request enters tenacity's loop."""
    loops = []
    enter = tenacity.AsyncRetrying.__call__

    def entered(loop, *args, **options):
        loops.append(loop)
        return enter(loop, *args, **options)

    monkeypatch.setattr(tenacity.AsyncRetrying, "__call__", entered)
    return loops


@pytest.mark.parametrize(
    ("behavior", "options"),
    [
        (answer(404), {}),
        (fails(Failure.CERTIFICATE), {}),
        (answer(429), {"retry": RetryPolicy.from_tenacity(max_attempts=1, retry=lambda state: True)}),
        (answer(404), {"retry": RetryPolicy.from_tenacity(stop=tenacity.stop_after_attempt(9))}),
        (answer(429, {"Retry-After": "61"}), {}),
        (answer(429, {"Retry-After": "20"}), {"timeout": 10.0}),
        (answer(429), {"retry_tokens": 4}),
    ],
)
@virtual
async def test_a_failure_that_may_not_be_retried_does_not_enter_the_loop(behavior, options, loops):
    service = FakeService(then=behavior)
    async with client_of(service, **options) as client:
        error = await outcome_of(client.send("a", MESSAGE))
    assert isinstance(error, PushError)
    assert ("budget" in str(error)) is ("retry_tokens" in options)
    assert len(service.requests) == 1
    assert loops == []


@virtual
async def test_calls_that_linger_or_wait_in_line_or_for_admission_end_when_the_pause_is_too_long_for_them():
    service = FakeService(answer(429, {"Retry-After": "20"}, after=0.1))
    limits = Limits(in_flight=1, queued_users=3)
    async with client_of(service, limits=limits, batching=Batching(linger=0.3)) as client:
        first = start(client.send("a", MESSAGE, timeout=0.25))
        short = [start(client.send(user, OTHER, timeout=0.29)) for user in ("in line", "with it")]
        lingers = start(client.send("lingers", OTHER, timeout=5.0))
        patient = start(client.send("too many", titled(1), timeout=30.0))
        not_admitted = start(client.send("not admitted", OTHER, timeout=6.0))
        before = now()
        errors = [await outcome_of(task) for task in (*short, lingers, not_admitted)]
        assert now() == pytest.approx(before + 0.1)
        assert [type(error) for error in errors] == [NotSentError] * 4
        assert [error.retry_after for error in errors] == pytest.approx([20.0] * 4)
        assert isinstance(await outcome_of(first), RateLimitedError)
        assert isinstance(await outcome_of(patient), Receipt)
        assert idle(client)


@pytest.mark.parametrize(
    ("tokens", "behaviors", "left"),
    [(400, [answer(429)], 400), (400, [refused(), answer(429)], 386), (400, [answer()], 401), (500, [answer()], 500)],
)
@virtual
async def test_a_retried_success_gives_back_what_its_last_retry_cost_and_a_first_try_refills_the_budget(
    tokens, behaviors, left
):
    async with client_of(FakeService(*behaviors), retry_tokens=tokens) as client:
        await outcome_of(client.send("a", MESSAGE))
        assert client.stats().retry_tokens == left
