"""Deliveries with an idempotency key: requests, records and results, checked against the count of the service."""

import asyncio
import logging
import pickle
from hashlib import sha256
from types import SimpleNamespace

import aiohttp
import pytest
from support.requests import Shouted
from support.shaky_claims import HELLO, JOB, ShakyClaims, deliver, delivering
from support.virtual_time import now, virtual

from pushsdk import (
    AsyncPushClient,
    Batching,
    ClaimStoreError,
    ConfigurationError,
    NotSentError,
    Outcome,
    OutcomeUnknownError,
    Rate,
    RateLimitedError,
    Receipt,
    RejectedError,
    RetryPolicy,
    Timeout,
    ValidationError,
)
from pushsdk._core.idempotency import digest_of
from pushsdk._core.user_states import UserState
from pushsdk.claims import Claim, MemoryClaims, Put
from pushsdk.claims._operators import claimed, settle
from pushsdk.emulator import Emulator, Fault
from pushsdk.testing import FakeService

ONCE = RetryPolicy.none()
ACCEPTED = UserState.ACCEPTED
REJECTED = UserState.REJECTED
PENDING = UserState.PENDING
UNKNOWN = UserState.UNKNOWN


# -- one after the other --------------------------------------------------------------------------------------------


@virtual
async def test_a_redelivered_job_gets_a_receipt_and_pushes_no_user_again():
    service = FakeService()
    claims = ShakyClaims()
    users = ["user-1", "user-2", "user-1"]
    async with service.client(claims=claims) as client:
        first = await deliver(client, users)
        second = await deliver(client, users)
        assert claims.ops == ["add", "swap", "add"]
        for key in ("another", "Another", None, None):
            await client.send("user-3", HELLO, idempotency_key=key)
    assert first.users == 2
    assert first.duplicates == 1
    assert first.already_accepted == 0
    assert first.requests == 1
    assert second == Receipt(users=2, duplicates=1, requests=0, attempts=(), already_accepted=2)
    assert service.users() == {"user-1": 1, "user-2": 1, "user-3": 4}


SETTLES = [
    # The response, the recorded states, and the errors of this delivery and the next.
    (Fault.status(400, first=1), [[REJECTED]], RejectedError, RejectedError),
    (Fault.status(302, first=1), [[PENDING]], RejectedError, None),
    (Fault.status(429, first=1), [[PENDING]], RateLimitedError, None),
    (Fault.refused(first=1), [], NotSentError, None),
    (Fault.status(500, first=1), [[UNKNOWN]], OutcomeUnknownError, OutcomeUnknownError),
    (Fault.reset_before(first=1), [[UNKNOWN]], OutcomeUnknownError, OutcomeUnknownError),
]


@pytest.mark.parametrize(("answer", "records", "first", "second"), SETTLES)
@virtual
async def test_only_acceptance_and_final_rejection_settle_a_job(answer, records, first, second):
    async with delivering(FakeService(answer), retry=ONCE) as (service, claims, client):
        error = await deliver(client)
        assert type(error) is first
        assert len(error.attempts) == 1
        assert claims.states() == records
        last = await deliver(client)
    if second is None:
        assert isinstance(last, Receipt)
        assert last.already_accepted == 0
        assert len(service.requests) == 2
        return
    assert type(last) is second
    assert last.outcome == error.outcome
    assert last.attempts == ()
    assert last.user_ids == ("user-1",)
    assert getattr(last, "status", None) == (400 if records == [[REJECTED]] else None)
    assert len(service.requests) == 1
    assert "this call sent nothing" in str(last)
    assert not any(secret in f"{last} {last!r}" for secret in (JOB, "Hello", "user-1"))
    assert pickle.loads(pickle.dumps(last)).outcome is last.outcome


# -- at the same time -----------------------------------------------------------------------------------------------


@pytest.fixture
def advance(monkeypatch):
    """A function that advances the wall clock, which else stands still."""
    seconds = [1e9]
    for module in ("_runs.keyed", "_runs.claim_log", "_io.request"):
        monkeypatch.setattr(f"pushsdk.{module}.time", SimpleNamespace(time=lambda: sum(seconds)), raising=False)
    return seconds.append


@virtual
async def test_a_delivery_beside_one_in_flight_is_retried_and_finds_its_outcome(advance):
    async with (
        delivering(FakeService(Fault.delay(3.0)), timeout=20.0) as (service, claims, client),
        service.client(claims=claims) as other,
    ):
        first = asyncio.create_task(deliver(client))
        await asyncio.sleep(2.0)
        advance(2.0)
        for duplicate in (await deliver(client), await deliver(other)):
            assert type(duplicate) is OutcomeUnknownError
            assert duplicate.retryable
            assert duplicate.retry_after == 18.0
            assert "claimed the users 2 s ago and may be in flight for 18 s more; this call sent nothing" in str(
                duplicate
            )
        # A clock that is behind does not lengthen the claim.
        advance(-600.0)
        assert (await deliver(other)).retry_after == 20.0
        assert isinstance(await first, Receipt)
        assert [(await deliver(sender)).already_accepted for sender in (client, other)] == [1, 1]
    assert service.users() == {"user-1": 1}


@virtual
async def test_a_claim_whose_call_has_timed_out_is_unknown_and_not_retried(advance):
    async with (
        delivering(FakeService(Fault.hang(accepted=True, first=1)), timeout=20.0) as (service, claims, client),
        service.client(claims=claims) as other,
    ):
        first = asyncio.create_task(deliver(client))
        await asyncio.sleep(1.0)
        # Deliveries in between don't extend the time.
        for seconds, retryable in ((10.0, True), (9.5, True), (1.0, False)):
            advance(seconds)
            error = await deliver(other)
            assert type(error) is OutcomeUnknownError
            assert error.retryable == retryable
        assert f"pushsdk claims show {sha256(JOB.encode()).hexdigest()[:12]}, with PUSHSDK_CLAIMS set" in str(error)
        # The outcome is known to be UNKNOWN before that time.
        assert type(await first) is OutcomeUnknownError
        advance(-15.0)
        assert not (await deliver(other)).retryable
    assert service.users() == {"user-1": 1}


@pytest.mark.parametrize("clock", ["wall", "loop"])
@virtual
async def test_a_machine_suspended_after_a_claim_pushes_nobody_whom_another_has_pushed_to(clock, advance):
    async def suspended():
        await settle(claims, await claimed(claims))
        await deliver(other)
        # The loop's clock stands still while the machine sleeps, and the other may be set back.
        (advance if clock == "wall" else asyncio.get_running_loop().jump)(11.0)

    claims = ShakyClaims(add=[suspended])
    async with delivering(claims=claims) as (service, _, client), service.client(claims=claims) as other:
        assert (await deliver(client)).already_accepted == 1
    assert service.users() == {"user-1": 1}


@virtual
async def test_a_machine_suspended_as_its_claim_is_refused_does_not_try_again(advance, caplog):
    async def suspended():
        advance(11.0)

    async with delivering() as (_, claims, client):
        await deliver(client)
        claims.faults["add"].append(suspended)
        assert (await deliver(client)).already_accepted == 1
        await asyncio.sleep(60.0)
        assert client.stats().retries == 0
    assert caplog.records == []


# -- jobs in one request -------------------------------------------------------------------------------------------


def strict():
    """Return a service that rejects requests with a bad user."""
    return FakeService(
        then=lambda request: Fault.status(400) if any(user.startswith("bad") for user in request.user_ids) else None
    )


async def together(client, *users):
    results = await asyncio.gather(*(deliver(client, user, idempotency_key=f"job of {user}") for user in users))
    return [type(result) for result in results]


@virtual
async def test_a_rejection_of_an_unsplit_request_settles_no_user():
    async with delivering(strict(), batching=Batching(split_on=frozenset())) as (service, claims, client):
        assert await together(client, "good", "bad") == [RejectedError] * 2
        assert claims.states() == [[PENDING], [PENDING]]
        assert await together(client, "good") == [Receipt]
        assert await together(client, "bad") == [RejectedError]
        assert claims.states() == [[ACCEPTED], [REJECTED]]
    assert service.users() == {"good": 1}


@virtual
async def test_a_claim_may_be_in_flight_until_the_last_deadline_in_its_request():
    late = FakeService(Fault.delay(8.5))
    async with delivering(late, timeout=10.0, batching=Batching(linger=2.0)) as (_, claims, client):
        first = asyncio.create_task(deliver(client, idempotency_key="early"))
        await asyncio.sleep(1.0)
        await deliver(client, "user-2")
        assert "this call sent nothing" not in str(await first)
        assert first.result().retryable
    assert [round(record.sending_until - record.claimed_at) for record in claims.records()] == [9, 9]


@pytest.mark.parametrize("rate", [Rate(requests_per_second=0.01), Rate(users_per_second=0.01)])
@virtual
async def test_a_request_with_recorded_users_only_costs_no_rate(rate):
    async with delivering() as (service, claims, client):
        await deliver(client)
    async with service.client(claims=claims, rate=rate) as client:
        started = now()
        assert (await deliver(client)).already_accepted == 1
        await client.send("user-2", HELLO)
        assert now() - started < 1.0


# -- the same key for something else --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("users", "title", "fields", "part"),
    [
        (["user-1", "user-3"], "Hello", {"n": 1}, "other users"),
        (["user-1", "user-3"], "Hallo", {"n": 2}, "another message"),
        (["user-1", "user-2"], "Hello", {"n": 2}, "other custom fields"),
    ],
)
@virtual
async def test_the_same_key_with_another_payload_is_an_error(users, title, fields, part, caplog):
    async with delivering() as (service, claims, client):
        await client.send(["user-1", "user-2"], {"title": {"en": "Hello"}}, custom_fields={"n": 1}, idempotency_key=JOB)
        with pytest.raises(ValidationError, match=f"was used with {part}: nothing was sent; ") as excinfo:
            await client.send(users, {"title": {"en": title}}, custom_fields=fields, idempotency_key=JOB)
        assert JOB not in str(excinfo.value)
    assert len(service.requests) == 1
    assert caplog.records == []
    assert claims.states() == [[ACCEPTED, ACCEPTED]]


@virtual
async def test_a_key_is_any_text_that_is_not_empty_nor_too_long():
    async with delivering() as (service, claims, client):
        for wrong in ("", 42, "a\0b", "\ud800", "é" * 257):
            error = await deliver(client, idempotency_key=wrong)
            assert type(error) is ValidationError
            assert "idempotency_key" in str(error)
            assert "éé" not in str(error)
        assert service.requests == []
        assert claims.ops == []
        for key in ("é" * 256, "\n", "💌"):
            keys = (key, Shouted(key))
            assert [(await deliver(client, idempotency_key=each)).already_accepted for each in keys] == [0, 1]
    async with service.client() as client:
        assert type(error := await deliver(client)) is ConfigurationError
        assert "pass claims=" in str(error)


@virtual
async def test_neither_users_nor_content_are_stored(caplog):
    caplog.set_level(logging.DEBUG)
    claims = ShakyClaims()
    async with FakeService().client(claims=claims, api_key="the-secret") as client:
        await client.send(["user-1"], HELLO, custom_fields={"city": "Bonn"}, idempotency_key=JOB)
    ((key, claim),) = claims.stored()
    assert (len(key), len(claim.token)) == (64, 32)
    stored = key + claim.token + claim.record.decode()
    for secret in ("user-1", "Hello", "Bonn", "the-secret", "job-42", "push.example"):
        assert secret not in stored + caplog.text


# -- while the service is away ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (Fault.status(204, first=1), Receipt),
        (Fault.status(404, first=1), RejectedError),
        (Fault.hang(accepted=True, first=1), OutcomeUnknownError),
    ],
)
@virtual
async def test_a_delivery_that_makes_no_claim_reports_the_record(answer, kind):
    service = FakeService(answer)
    away = FakeService(Fault.refused())
    claims = MemoryClaims()
    async with service.client(claims=claims) as client:
        first = await deliver(client)
    async with away.client(claims=claims, retry=ONCE) as client:
        result = await deliver(client)
        assert isinstance(await deliver(client, message={"title": {"en": "Other"}}), ValidationError)
    assert type(first) is type(result) is kind
    assert result.attempts == ()
    told = ["; the claim is in this process's memory, and ends with it" in str(each) for each in (first, result)]
    assert told == [kind is OutcomeUnknownError] * 2


# -- deadlines and cancellation ---------------------------------------------------------------------------------------


@virtual
async def test_a_call_without_a_deadline_ends_before_its_claim_expires():
    async with delivering(
        FakeService(Fault.unreachable()),
        claims=ShakyClaims(claim_ttl=60.0),
        timeout=Timeout(total=None, attempt=None, connect=None),
    ) as (_, claims, client):
        started = now()
        assert type(await deliver(client)) is NotSentError
        assert now() - started == pytest.approx(30.0, abs=0.1)
    assert claims.states() == []


@pytest.mark.parametrize(
    ("answer", "records"),
    [(Fault.unreachable(first=1), []), (Fault.hang(accepted=True, first=1), [[UNKNOWN]])],
)
@virtual
async def test_a_cancelled_call_is_released_if_no_byte_was_sent(answer, records):
    async with delivering(FakeService(answer), timeout=Timeout(total=30.0, connect=None)) as (service, claims, client):
        task = asyncio.create_task(deliver(client))
        await asyncio.sleep(1.0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert claims.states() == records
        assert type(await deliver(client)) is (OutcomeUnknownError if records else Receipt)
    assert service.users() == {"user-1": 1}


# -- conflicts --------------------------------------------------------------------------------------------------------


@virtual
async def test_a_call_stays_unknown_if_its_second_attempt_cannot_be_claimed():
    claims = ShakyClaims()

    def fate(request):
        claims.faults["swap"] = ["slow", *["down"] * 9]
        return Fault.status(500)

    service = FakeService(then=fate)
    async with service.client(claims=claims, retry=RetryPolicy.at_least_once()) as client:
        error = await deliver(client)
        assert isinstance(error, OutcomeUnknownError)
        assert client.stats().unknown == 1
    assert len(service.requests) == 1


@virtual
async def test_an_unknown_attempt_is_repeated_under_its_claim_if_the_policy_says_so():
    service = FakeService(Fault.reset_after(first=1))
    async with service.client(claims=ShakyClaims(), retry=RetryPolicy.at_least_once()) as client:
        assert isinstance(await deliver(client), Receipt)
    assert service.users() == {"user-1": 2}


@pytest.mark.parametrize("record", [b"{}", b'{"fingerprint":"x","claimed_at":0,"users":' + b"[" * 100_000])
@virtual
async def test_an_unreadable_record_is_never_replaced_and_blocks_no_other_call(record):
    service = FakeService()
    claims = ShakyClaims()
    await MemoryClaims.put(claims, [Put(digest_of("damaged"), Claim("a" * 32, record))], 1e6)
    async with service.client(claims=claims) as client:
        for _ in range(2):
            calls = {"user-1": "good", "user-2": "damaged", "user-3": "fine"}.items()
            results = await asyncio.gather(*(deliver(client, user, idempotency_key=key) for user, key in calls))
            assert [type(result) for result in results] == [Receipt, ClaimStoreError, Receipt]
    assert service.users() == {"user-1": 1, "user-3": 1}
    assert dict(claims.stored())[digest_of("damaged")].record == record


@pytest.mark.parametrize(
    ("fault", "statuses", "state"),
    [
        (Fault.status(401, first=1), {}, ACCEPTED),
        (Fault.status(500, accepted=True, first=1), {}, UNKNOWN),
        (Fault.status(401, accepted=True, first=1), {401: Outcome.UNKNOWN}, UNKNOWN),
        (Fault.status(500, first=1), {500: Outcome.REJECTED}, ACCEPTED),
    ],
)
async def test_a_session_sends_a_request_again_only_if_it_was_rejected(fault, statuses, state):
    async def again(request, handler):
        # As aiohttp's DigestAuthMiddleware does after a challenge.
        response = await handler(request)
        return response if response.status == 204 else await handler(request)

    claims = ShakyClaims()
    async with (
        Emulator(faults=[fault]) as service,
        aiohttp.ClientSession(middlewares=(again,)) as session,
        AsyncPushClient(service.base_url, "key", session=session, claims=claims) as client,
    ):
        await deliver(client, retry=RetryPolicy.none(statuses=statuses))
        assert service.inbox("key").users() == {"user-1": 1}
    assert claims.states() == [[state]]
