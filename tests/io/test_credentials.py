"""The api_key callable: asked at each attempt; whatever it does, a call ends truly and in time."""

from __future__ import annotations

import asyncio
import itertools

import pytest
from support.fake_service import MESSAGE, FakeService, answer, client_of
from support.virtual_time import virtual

from pushsdk import NotSentError, Outcome, OutcomeUnknownError, RetryPolicy


@virtual
async def test_a_callable_that_awaits_something_cancelled_makes_the_call_not_sent() -> None:
    async def key() -> str:
        raise asyncio.CancelledError

    service = FakeService()
    async with client_of(service, api_key=key) as client:
        with pytest.raises(NotSentError):
            await client.send("a", MESSAGE)
    assert service.requests == []


@virtual
async def test_a_401_that_the_caller_reads_as_unknown_is_not_repeated_with_a_rotated_key() -> None:
    keys = (f"key-{number}" for number in itertools.count())
    service = FakeService(answer(401, processed=True))
    policy = RetryPolicy.safe(statuses={401: Outcome.UNKNOWN})
    async with client_of(service, api_key=lambda: next(keys), retry=policy) as client:
        with pytest.raises(OutcomeUnknownError):
            await client.send("a", MESSAGE)
    assert service.processed == {"a": 1}
