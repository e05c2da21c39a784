"""The api_key callable: asked at each attempt; whatever it does, a call ends truly and in time."""

import asyncio
import itertools
import traceback
from collections.abc import Iterator
from typing import Any

import pytest
from support.fake_service import MESSAGE, FakeService, answer, client_of, idle, outcome_of, refused, start
from support.virtual_time import now, turns, virtual

from pushsdk import (
    AuthenticationError,
    NotSentError,
    Outcome,
    OutcomeUnknownError,
    RetryPolicy,
    Timeout,
)


class StoreError(Exception):
    """An exception of a library."""


def raises() -> str:
    raise StoreError("key-that-must-not-show")


async def raises_later() -> str:
    await asyncio.sleep(0.01)
    raise ConnectionError("key-that-must-not-show")


def has_a_bug() -> str:
    return "key" + 1  # type: ignore[operator]


async def hangs() -> str:
    return await asyncio.get_running_loop().create_future()


@pytest.mark.parametrize("is_async", [False, True])
@virtual
async def test_a_callable_is_asked_at_each_attempt(is_async: bool) -> None:
    numbers, service = itertools.count(), FakeService(refused())

    async def later() -> str:
        await asyncio.sleep(0.5)
        return f"key-{next(numbers)}"

    async with client_of(service, api_key=later if is_async else lambda: f"key-{next(numbers)}") as client:
        await client.send("a", MESSAGE)
        await client.send("b", MESSAGE)
    assert [request.api_key for request in service.requests] == ["key-0", "key-1", "key-2"]


async def cancelled() -> str:
    raise asyncio.CancelledError


@pytest.mark.parametrize(
    ("source", "reason", "attempts"),
    [
        (raises, "callable failed: StoreError at test_credentials.py:", 4),
        (raises_later, "callable failed: ConnectionError at test_credentials.py:", 4),
        (has_a_bug, "has a bug: TypeError at test_credentials.py:", 1),
        (cancelled, "callable failed: CancelledError", 4),
        (lambda: None, "got None", 1),
        (lambda: "two\r\nlines", "no valid key", 1),
    ],
)
@virtual
async def test_a_callable_that_gives_no_key_makes_the_call_not_sent_without_showing_why(
    source: Any, reason: str, attempts: int
) -> None:
    service = FakeService()
    async with client_of(service, api_key=source) as client:
        with pytest.raises(NotSentError) as excinfo:
            await client.send("a", MESSAGE)
        assert idle(client)
    error = excinfo.value
    assert service.requests == []
    assert (len(error.attempts), error.retryable) == (attempts, attempts > 1)
    assert reason in str(error)
    assert "must-not-show" not in f"{error!r}{error.args}"
    if source in (raises, has_a_bug):
        assert traceback.extract_tb(error.__cause__.__traceback__)[-1].name == source.__name__  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("keys", "requests"),
    [(itertools.repeat("key"), 1), (iter(["key"]), 1), (map("key-{}".format, itertools.count()), 2)],
    ids=["the same key", "no key", "always another key"],
)
@virtual
async def test_a_401_is_repeated_once_if_there_is_another_key(keys: Iterator[str], requests: int) -> None:
    service = FakeService(then=answer(401))
    async with client_of(service, api_key=lambda: next(keys)) as client:
        with pytest.raises(AuthenticationError):
            await client.send("a", MESSAGE)
        assert idle(client)
    assert len(service.requests) == requests


@virtual
async def test_a_401_after_which_the_callable_hangs_is_rejected_at_the_deadline() -> None:
    calls = itertools.count()

    async def key() -> str:
        return "key" if next(calls) == 0 else await hangs()

    async with client_of(FakeService(then=answer(401)), api_key=key) as client:
        before = now()
        with pytest.raises(AuthenticationError):
            await client.send("a", MESSAGE, timeout=1.0)
        assert now() <= before + 1.01
        assert idle(client)


@virtual
async def test_a_rotated_key_is_free_of_attempts_and_budget() -> None:
    keys = map("key-{}".format, itertools.count())
    service = FakeService(answer(401))
    async with client_of(service, api_key=lambda: next(keys), retry=RetryPolicy.none()) as client:
        receipt = await client.send("b", MESSAGE)
        assert client.stats().retry_tokens == 500
    assert [attempt.status for attempt in receipt.attempts] == [401, 204]
    assert len({request.api_key for request in service.requests}) == 2


@virtual
async def test_a_401_that_the_caller_reads_as_unknown_is_not_repeated_with_a_rotated_key() -> None:
    keys = (f"key-{number}" for number in itertools.count())
    service = FakeService(answer(401, accepted=True))
    policy = RetryPolicy.safe(statuses={401: Outcome.UNKNOWN})
    async with client_of(service, api_key=lambda: next(keys), retry=policy) as client:
        with pytest.raises(OutcomeUnknownError):
            await client.send("a", MESSAGE)
    assert service.users() == {"a": 1}


@pytest.mark.parametrize("patience", [Timeout(total=1.0), Timeout(total=1.0, attempt=0.3)])
@virtual
async def test_a_callable_that_hangs_makes_the_call_not_sent_within_the_deadline(patience: Timeout) -> None:
    service = FakeService()
    async with client_of(service, api_key=hangs) as client:
        before = asyncio.get_running_loop().time()
        with pytest.raises(
            NotSentError, match=r"callable failed: it did not return within the (total|attempt) timeout "
        ) as told:
            await client.send("a", MESSAGE, timeout=patience)
        assert "Raise the timeout" not in str(told.value)
        assert asyncio.get_running_loop().time() <= before + 1.01
        assert idle(client)


@virtual
async def test_a_callable_that_hangs_is_ended_by_the_close_and_by_a_cancellation() -> None:
    client = client_of(FakeService(), api_key=hangs)
    closed_call, cancelled = start(client.send("a", MESSAGE)), start(client.send("b", {"title": {"en": "x"}}))
    await turns()
    cancelled.cancel()
    assert isinstance(await outcome_of(cancelled), asyncio.CancelledError)
    report = await client.aclose(drain=0.0)
    assert isinstance(await outcome_of(closed_call), NotSentError)
    assert (report.not_sent, report.abandoned[0].outcome) == (("a",), Outcome.NOT_SENT)
