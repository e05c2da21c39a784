"""The api_key callable: asked at each attempt; whatever it does, a call ends truly and in time."""

import asyncio
import dataclasses
import gc
import itertools
import weakref

import pytest
from support.fake_service import MESSAGE, FakeService, answer, client_of, idle
from support.virtual_time import virtual

from pushsdk import AuthenticationError, Limits, NotSentError, Outcome, OutcomeUnknownError, RetryPolicy


@dataclasses.dataclass(frozen=True)
class StoreError(Exception):
    """An exception of a library."""

    text: str
    exceptions: None = None


def raises():
    try:
        has_a_bug()
    except TypeError as error:
        raise StoreError("key-that-must-not-show") from error


async def raises_later():
    await asyncio.sleep(0.01)
    raise ConnectionError("key-that-must-not-show")


def has_a_bug():
    return "key" + 1


async def cancelled():
    raise asyncio.CancelledError


@pytest.mark.parametrize(
    ("source", "reason", "attempts"),
    [
        (raises, "callable failed: StoreError at test_credentials.py:", 4),
        (raises_later, "callable failed: ConnectionError at test_credentials.py:", 4),
        (has_a_bug, "would meet again: TypeError at test_credentials.py:", 1),
        (cancelled, "callable failed: CancelledError", 4),
        (lambda: None, "got None", 1),
        (lambda: "two\r\nlines", "no valid key", 1),
    ],
)
@virtual
async def test_a_callable_that_gives_no_key_makes_the_call_not_sent_without_showing_why(source, reason, attempts):
    service = FakeService()
    async with client_of(service, api_key=source) as client:
        with pytest.raises(NotSentError) as excinfo:
            await client.send("a", MESSAGE)
        assert idle(client)
    error = excinfo.value
    assert service.requests == []
    assert len(error.attempts) == attempts
    assert error.retryable == (attempts > 1)
    assert reason in str(error)
    assert "must-not-show" not in f"{error!r}{error.args}"
    if source is raises:
        cause = weakref.ref(error.__cause__)
        del error, excinfo
        gc.collect()
        assert cause() is None


@virtual
async def test_calls_whose_keys_never_come_blame_the_callable_and_no_slots():
    limits = Limits(in_flight=1)
    async with client_of(FakeService(), api_key=asyncio.Event().wait, timeout=5.0, limits=limits) as client:
        sends = [client.send(f"user-{number}", MESSAGE) for number in range(9)]
        errors = await asyncio.gather(*sends, return_exceptions=True)
    assert {error.code for error in errors} == {"not-sent-key-failed"}


@pytest.mark.parametrize(
    ("keys", "requests"),
    [(itertools.repeat("key"), 1), (iter(["key"]), 1), (map("key-{}".format, itertools.count()), 2)],
)
@virtual
async def test_a_401_is_repeated_once_if_there_is_another_key(keys, requests):
    service = FakeService(then=answer(401))
    async with client_of(service, api_key=lambda: next(keys)) as client:
        with pytest.raises(AuthenticationError):
            await client.send("a", MESSAGE)
        assert idle(client)
    assert len(service.requests) == requests


@virtual
async def test_a_401_that_the_caller_reads_as_unknown_is_not_repeated_with_a_rotated_key():
    keys = (f"key-{number}" for number in itertools.count())
    service = FakeService(answer(401, accepted=True))
    policy = RetryPolicy.safe(statuses={401: Outcome.UNKNOWN})
    async with client_of(service, api_key=lambda: next(keys), retry=policy) as client:
        with pytest.raises(OutcomeUnknownError):
            await client.send("a", MESSAGE)
    assert service.users() == {"a": 1}
