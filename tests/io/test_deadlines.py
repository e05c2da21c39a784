"""``timeout``: it covers a call as a whole, ends it within 10 ms, and with a true outcome."""

import asyncio

import pytest
from support.fake_service import (
    MESSAGE,
    OTHER,
    FakeService,
    answer,
    client_of,
    hang,
    idle,
    outcome_of,
    start,
    unreachable,
)
from support.virtual_time import now, virtual

from pushsdk import Batching, Limits, Outcome, OutcomeUnknownError, RetryPolicy, SendAbandoned, Timeout

GRACE = 0.010


@virtual
async def test_a_shared_request_runs_until_the_latest_deadline_and_calls_that_expire_before_are_reported_later():
    service = FakeService(answer(after=2.0), answer(after=1.0))
    events = []
    async with client_of(service, limits=Limits(in_flight=1), timeout=1.5, on_event=events.append) as client:
        busy = start(client.send("busy", OTHER, timeout=5.0))
        await asyncio.sleep(1.0)
        early = start(client.send(["early", "bird"], MESSAGE))
        await asyncio.sleep(0.6)
        later = start(client.send("later", MESSAGE))
        before = now()
        error = await outcome_of(early)
        assert type(error) is OutcomeUnknownError
        assert error.user_ids == ("early", "bird")
        assert before + 0.9 <= now() <= before + 0.9 + GRACE
        assert client.stats().in_flight == 1
        await later
        await busy
        assert idle(client)
    ends = [(event.user_ids, event.outcome) for event in events if isinstance(event, SendAbandoned)]
    assert ends == [(("early", "bird"), Outcome.ACCEPTED)]


@virtual
async def test_a_call_that_joins_later_ones_in_line_ends_at_its_own_deadline():
    async def api_key():
        await asyncio.sleep(waits.pop())
        return "key"

    waits = [0.0, 3.0, 0.0]
    async with client_of(FakeService(answer(after=8.0)), api_key=api_key, limits=Limits(in_flight=1)) as client:
        client.submit("busy", OTHER)
        await asyncio.sleep(1.0)
        before, early = now(), client.submit("early", MESSAGE, timeout=5.0)
        await asyncio.sleep(1.0)
        client.submit("later", MESSAGE, timeout=5.0)
        await outcome_of(early)
        assert now() == pytest.approx(before + 5.0, abs=GRACE)


@pytest.mark.parametrize("is_cancelled", [False, True])
@pytest.mark.parametrize(
    ("behavior", "asking", "outcome", "attempts"),
    [
        (answer(429), 0.0, Outcome.REJECTED, 1),
        (answer(429, {"Retry-After": "3"}), 0.0, Outcome.REJECTED, 1),
        (answer(401), 3.0, Outcome.REJECTED, 1),
        (answer(connecting=3.0), 0.0, Outcome.NOT_SENT, 0),
    ],
)
@virtual
async def test_a_call_that_ends_before_its_shared_request_is_not_in_doubt_while_nothing_is_in_flight(
    behavior, asking, outcome, attempts, is_cancelled
):
    async def api_key():
        # Once for each call, and again after a response.
        await asyncio.sleep(asking if service.requests else 0.0)
        return "new" if service.requests else "old"

    service = FakeService(behavior)
    events = []
    options = {
        "on_event": events.append,
        "batching": Batching(linger=3.0),
        "retry": RetryPolicy.safe(throttle_delay=3.0),
        "timeout": 5.0,
    }
    async with client_of(service, api_key=api_key, **options) as client:
        before, early = now(), start(client.send("early", MESSAGE))
        await asyncio.sleep(2.9)
        later = start(client.send("later", MESSAGE))
        if is_cancelled:
            await asyncio.sleep(2.0)
            early.cancel()
        error = await outcome_of(early)
        end = events[-1] if is_cancelled else error
        assert is_cancelled or now() == pytest.approx(before + 5.0, abs=GRACE)
        assert (end.outcome, len(end.attempts), end.user_ids) == (outcome, attempts, ("early",))
        await later
        assert idle(client)
    assert "early" not in service.sent[-1]


@virtual
async def test_the_attempt_timeout_ends_an_attempt_and_the_total_the_call():
    service = FakeService(then=hang())
    async with client_of(service, retry=RetryPolicy.at_least_once(initial_delay=0.001)) as client:
        before = now()
        error = await outcome_of(client.send("a", MESSAGE, timeout=Timeout(total=1.2, attempt=0.5)))
        assert now() <= before + 1.2 + GRACE
    assert [attempt.seconds for attempt in error.attempts] == pytest.approx([0.5, 0.5, 0.2], abs=GRACE)
    assert "attempt timeout" in error.attempts[0].reason
    assert "deadline" in error.attempts[2].reason


@virtual
async def test_calls_of_a_shared_request_with_nearly_equal_deadlines_get_its_outcome():
    async with client_of(FakeService(then=unreachable()), batching=Batching(linger=0.1), timeout=1.0) as client:
        tasks = []
        for number in range(20):
            tasks.append(start(client.send(f"user-{number}", MESSAGE)))
            await asyncio.sleep(0.00019)
        deadline = now() + 1.0
        errors = [await outcome_of(task) for task in tasks]
        assert now() <= deadline + GRACE
    assert [(error.outcome, len(error.attempts)) for error in errors] == [(Outcome.NOT_SENT, 1)] * 20
