"""Retry-After: honored by the whole client, and never beyond a call's deadline."""

import asyncio

import pytest
from support.wire_answers import http_date, response
from support.wire_faults import always, answering, first, when
from support.wire_judge import HELLO
from support.wire_rig import client_of
from support.wire_server import WireServer

from pushsdk import NotSentError, Outcome, RateLimitedError, RetryPolicy, Timeout

SHORT, LONG = Timeout(total=0.2), Timeout(total=9.0)


def throttling(status, retry_after, bad=always):
    """Answers so at the bad times."""
    return WireServer(when(bad, answering(response(status, Retry_After=retry_after))))


async def failed_at_once(client, error):
    """Return the error of a send that waits for nothing."""
    loop = asyncio.get_running_loop()
    started = loop.time()
    with pytest.raises(error) as excinfo:
        await client.send("user", HELLO)
    assert loop.time() - started < 0.1
    return excinfo.value


@pytest.mark.parametrize(
    ("status", "header", "timeout", "limit"),
    [(429, "date", SHORT, None), (503, 30, SHORT, None), (429, 2, LONG, 0.1)],
    ids=["a date", "no time left", "above the policy's limit"],
)
async def test_a_wait_that_the_call_has_no_time_for_ends_it_at_once(status, header, timeout, limit):
    policy = RetryPolicy.safe() if limit is None else RetryPolicy.safe(max_retry_after=limit)
    value, seconds = (http_date(3600), 3600) if header == "date" else (header, header)
    async with throttling(status, value) as server, client_of(server, timeout=timeout, retry=policy) as client:
        error = await failed_at_once(client, RateLimitedError)
    assert (error.outcome, error.status, len(error.attempts)) == (Outcome.REJECTED, status, 1)
    # A date is compared with the wall clock, which runs on while the machine stands still.
    assert error.retry_after == pytest.approx(seconds, abs=60 if header == "date" else 0)
    assert (server.begun, server.processed) == (1, {})


async def test_the_whole_client_waits_and_fails_calls_that_cannot():
    async with throttling(429, 30, first(1)) as server, client_of(server, timeout=SHORT) as client:
        await failed_at_once(client, RateLimitedError)
        error = await failed_at_once(client, NotSentError)
    assert error.retry_after == pytest.approx(30, abs=1)
    assert (server.begun, server.processed) == (1, {})
