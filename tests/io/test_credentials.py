"""The api_key callable: asked at each attempt; whatever it does, a call ends truly and in time."""

import asyncio
import itertools
import traceback
from typing import Any

import pytest
from support.fake_service import MESSAGE, FakeService, answer, client_of, hang, idle, outcome_of, refused, start
from support.virtual_time import turns, virtual

from pushsdk import (
    AuthenticationError,
    NotSentError,
    Outcome,
    OutcomeUnknownError,
    Receipt,
    RetryPolicy,
    Timeout,
)

NONE = RetryPolicy.none()


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
    service = FakeService(answer(401, accepted=True))
    policy = RetryPolicy.safe(statuses={401: Outcome.UNKNOWN})
    async with client_of(service, api_key=lambda: next(keys), retry=policy) as client:
        with pytest.raises(OutcomeUnknownError):
            await client.send("a", MESSAGE)
    assert service.users() == {"a": 1}


@virtual
async def test_a_callable_is_asked_at_each_attempt_sync_or_async() -> None:
    numbers = itertools.count()

    async def later() -> str:
        await asyncio.sleep(0.5)
        return f"key-{next(numbers)}"

    for source in (lambda: f"key-{next(numbers)}", later):
        service = FakeService(refused())
        async with client_of(service, api_key=source) as client:
            await client.send("a", MESSAGE)
            await client.send("b", MESSAGE)
        assert len({request.key for request in service.requests}) == 3


@pytest.mark.parametrize(
    ("source", "reason", "attempts"),
    [
        (raises, "callable failed: StoreError at test_credentials.py:", 4),
        (raises_later, "callable failed: ConnectionError at test_credentials.py:", 4),
        (has_a_bug, "has a bug: TypeError at test_credentials.py:", 1),
        (lambda: "", "no valid key", 1),
        (lambda: None, "no valid key", 1),
        (lambda: "two\r\nlines", "no valid key", 1),
        (lambda: b"bytes", "no valid key", 1),
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
    assert service.requests == []
    assert len(excinfo.value.attempts) == attempts
    assert excinfo.value.retryable is (attempts > 1)
    assert reason in str(excinfo.value)
    assert "must-not-show" not in f"{excinfo.value!r}{excinfo.value.args}"


@pytest.mark.parametrize("source", [raises, has_a_bug])
@virtual
async def test_the_cause_is_what_the_callable_raised_with_its_traceback(source: Any) -> None:
    async with client_of(FakeService(), api_key=source) as client:
        with pytest.raises(NotSentError) as excinfo:
            await client.send("a", MESSAGE)
    cause = excinfo.value.__cause__
    assert isinstance(cause, (StoreError, TypeError))
    assert traceback.extract_tb(cause.__traceback__)[-1].name == source.__name__


@virtual
async def test_the_error_of_an_invalid_key_names_the_rule_that_it_breaks() -> None:
    async with client_of(FakeService(), api_key=lambda: None) as client:
        with pytest.raises(NotSentError) as excinfo:
            await client.send("a", MESSAGE)
    assert "got None" in str(excinfo.value)


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


@virtual
async def test_a_401_with_the_same_key_is_not_repeated() -> None:
    service = FakeService(then=answer(401))
    async with client_of(service, api_key=lambda: "key") as client:
        with pytest.raises(AuthenticationError):
            await client.send("a", MESSAGE)
    assert len(service.requests) == 1


@virtual
async def test_a_401_after_which_there_is_no_key_any_more_is_rejected() -> None:
    keys = iter(["key"])
    service = FakeService(then=answer(401))
    async with client_of(service, api_key=lambda: next(keys)) as client:
        with pytest.raises(AuthenticationError):
            await client.send("a", MESSAGE)
        assert idle(client)


@virtual
async def test_a_401_after_which_the_callable_hangs_is_rejected_at_the_deadline() -> None:
    calls = itertools.count()

    async def key() -> str:
        return "key" if next(calls) == 0 else await hangs()

    service = FakeService(then=answer(401))
    async with client_of(service, api_key=key) as client:
        before = asyncio.get_running_loop().time()
        with pytest.raises(AuthenticationError):
            await client.send("a", MESSAGE, timeout=1.0)
        assert asyncio.get_running_loop().time() <= before + 1.01
        assert idle(client)


@virtual
async def test_a_rotated_key_is_free_of_attempts_and_budget_and_is_used_once() -> None:
    keys = (f"key-{number}" for number in itertools.count())
    service = FakeService(answer(401), hang())
    async with client_of(service, api_key=lambda: next(keys), retry=NONE) as client:
        with pytest.raises(OutcomeUnknownError) as excinfo:
            await client.send("a", MESSAGE)
        assert client.stats().retry_tokens == 500
        assert isinstance(await client.send("b", MESSAGE), Receipt)
    assert [attempt.status for attempt in excinfo.value.attempts] == [401, None]
