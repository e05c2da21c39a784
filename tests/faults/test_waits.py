"""Retry-After: honored by the whole client, and never beyond a call's deadline."""

from __future__ import annotations

import asyncio

import pytest
from support.wire_answers import http_date, response
from support.wire_faults import always, answering, first, when
from support.wire_judge import HELLO, Ledger
from support.wire_rig import QUICK, client_of
from support.wire_server import WireServer

from pushsdk import NotSentError, Outcome, RateLimitedError, RetryPolicy, Timeout

SHORT = Timeout(total=0.2)
AT_ONCE = 0.1


def throttling(status: int, retry_after: object, bad: object = always) -> WireServer:
    """Answers so at the bad times."""
    return WireServer(when(bad, answering(response(status, Retry_After=retry_after))))


class Stopwatch:
    """Duration of a block on the loop's clock, in seconds."""

    seconds = 0.0

    def __enter__(self) -> Stopwatch:
        self._started = asyncio.get_running_loop().time()
        return self

    def __exit__(self, *_: object) -> None:
        self.seconds = asyncio.get_running_loop().time() - self._started


@pytest.mark.parametrize("status", [429, 503])
@pytest.mark.parametrize("header", [1, 30, 10**9, "date"])
async def test_a_wait_that_the_call_has_no_time_for_ends_it_at_once(status: int, header: object) -> None:
    value = http_date(3600) if header == "date" else header
    async with throttling(status, value) as server, client_of(server, timeout=SHORT) as client:
        with Stopwatch() as watch, pytest.raises(RateLimitedError) as excinfo:
            await client.send("user", HELLO)
    assert watch.seconds < AT_ONCE
    assert (excinfo.value.outcome, excinfo.value.status, len(excinfo.value.attempts)) == (Outcome.REJECTED, status, 1)
    # A date is compared with the wall clock, which runs on while the machine stands still.
    assert excinfo.value.retry_after == pytest.approx(
        3600 if header == "date" else header, abs=60 if header == "date" else 0
    )
    assert (server.begun, server.processed) == (1, {})


@pytest.mark.parametrize("header", [2, 10**9])
async def test_a_wait_above_the_policys_limit_ends_the_call_at_once(header: int) -> None:
    policy = RetryPolicy.safe(max_retry_after=0.1)
    async with (
        throttling(429, header) as server,
        client_of(server, retry=policy, timeout=Timeout(total=9.0)) as client,
    ):
        with Stopwatch() as watch, pytest.raises(RateLimitedError) as excinfo:
            await client.send("user", HELLO)
    assert watch.seconds < AT_ONCE
    assert (excinfo.value.retry_after, server.begun) == (header, 1)


async def test_the_service_is_given_the_second_it_asked_for() -> None:
    async def push(status: int) -> tuple[float, dict[str, int]]:
        async with throttling(status, 1, first(1)) as server, client_of(server, timeout=Timeout(total=9.0)) as client:
            await client.send("user", HELLO)
        throttled, retried = server.requests
        return retried.at - throttled.at, dict(server.processed)

    for waited, processed in await asyncio.gather(push(429), push(503)):
        assert waited >= 1.0
        assert processed == {"user": 1}


async def test_the_whole_client_waits_and_fails_calls_that_cannot() -> None:
    async with throttling(429, 30, first(1)) as server, client_of(server, timeout=SHORT) as client:
        with pytest.raises(RateLimitedError):
            await client.send("first", HELLO)
        with Stopwatch() as watch, pytest.raises(NotSentError) as excinfo:
            await client.send("second", HELLO)
    assert watch.seconds < AT_ONCE
    assert excinfo.value.retry_after == pytest.approx(30, abs=1)
    assert (server.begun, server.processed) == (1, {})


@pytest.mark.parametrize("header", [-1, "soon", "", "1e3", "nan", "0x10", "Thu, 99 Foo 2026 25:61:00 GMT"])
async def test_a_retry_after_that_makes_no_sense_counts_as_absent(header: object) -> None:
    async with throttling(429, header, first(1)) as server, client_of(server, retry=QUICK) as client:
        with Stopwatch() as watch:
            await client.send("user", HELLO)
    assert watch.seconds < AT_ONCE
    assert (server.begun, server.processed) == (2, {"user": 1})


@pytest.mark.parametrize("header", [-1, "soon"])
async def test_a_503_whose_retry_after_makes_no_sense_leaves_it_open(header: object) -> None:
    ledger = Ledger()
    async with throttling(503, header) as server, client_of(server, retry=QUICK) as client:
        ending = await ledger.ask(client, "user")
    assert (ending.outcome, ending.tries, server.begun) == (Outcome.UNKNOWN, 1, 1)


async def test_an_outage_is_not_stormed() -> None:
    users, ledger = [f"user-{n}" for n in range(200)], Ledger()
    async with throttling(429, 0) as server, client_of(server, retry=QUICK) as client:
        await asyncio.gather(*(ledger.ask(client, user) for user in users))
    ledger.judge(server, users)
    # What the client still holds back at a call's deadline was never sent.
    assert set(ledger.count) <= {Outcome.REJECTED, Outcome.NOT_SENT}
    # 500 tokens at 5 each: a hundred repeats for the whole client at most.
    assert server.begun <= len(users) + 100
