"""Deliveries with an idempotency key: requests, records and results, checked against the count of the service."""

import asyncio
import logging
import pickle
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from support.docs import page
from support.shaky_claims import ShakyClaims
from support.virtual_time import turns, virtual

import pushsdk.claims
from pushsdk import (
    Attempt,
    AuthenticationError,
    Batching,
    ClaimStoreError,
    ConfigurationError,
    MobilePush,
    NotSentError,
    Outcome,
    OutcomeUnknownError,
    PartialError,
    PayloadTooLargeError,
    PushError,
    Rate,
    RateLimitedError,
    Receipt,
    RejectedError,
    RetryPolicy,
    Timeout,
    ValidationError,
)
from pushsdk._core.idempotency import status_after
from pushsdk._core.outcome import Verdict
from pushsdk._core.user_states import UserState
from pushsdk.client import AsyncPushClient
from pushsdk.emulator import Fault
from pushsdk.testing import FakeRequest, FakeService

HELLO = MobilePush(title={"en": "Hello"})
JOB = "job-42 of user-1"
ONCE = RetryPolicy.none()
ACCEPTED, REJECTED, PENDING, UNKNOWN = UserState.ACCEPTED, UserState.REJECTED, UserState.PENDING, UserState.UNKNOWN


async def outcome_of(
    client: AsyncPushClient, users: str | list[str] = "user-1", **options: object
) -> Receipt | PushError:
    """Deliver the job, and return the receipt or the error."""
    try:
        return await client.send(users, HELLO, **{"idempotency_key": JOB, **options})  # type: ignore[arg-type]
    except PushError as error:
        return error


# -- one after the other --------------------------------------------------------------------------------------------


@virtual
async def test_a_redelivered_job_gets_a_receipt_and_pushes_no_user_again() -> None:
    service, claims = FakeService(), ShakyClaims()
    async with service.client(claims=claims) as client:
        first = await client.send(["user-1", "user-2", "user-1"], HELLO, idempotency_key=JOB)
        second = await client.send(["user-1", "user-2", "user-1"], HELLO, idempotency_key=JOB)
    assert (first.users, first.duplicates, first.already_accepted, first.requests) == (2, 1, 0, 1)
    assert second == Receipt(users=2, duplicates=1, requests=0, attempts=(), already_accepted=2)
    assert (second.outcome, second.status) == (Outcome.ACCEPTED, None)
    assert service.users() == {"user-1": 1, "user-2": 1}
    assert claims.ops == ["add", "swap", "add"]


@virtual
async def test_other_jobs_and_sends_without_a_key_are_pushed() -> None:
    service, claims = FakeService(), ShakyClaims()
    async with service.client(claims=claims) as client:
        for key in ("a", "b", "A", "a ", None, None):
            await client.send("user-1", HELLO, idempotency_key=key)
    assert service.users() == {"user-1": 6}
    assert claims.ops == ["add", "swap"] * 4


@virtual
async def test_sends_of_different_jobs_share_a_request() -> None:
    service, claims = FakeService(), ShakyClaims()
    async with service.client(claims=claims) as client:
        await asyncio.gather(*(client.send(f"user-{n}", HELLO, idempotency_key=f"job-{n}") for n in range(10)))
    assert len(service.requests) == 1
    assert claims.states() == [[ACCEPTED]] * 10


SETTLES = [
    # The response, the recorded states, and the errors of this delivery and the next.
    pytest.param(Fault.status(400, first=1), [[REJECTED]], RejectedError, RejectedError, id="400"),
    pytest.param(Fault.status(404, first=1), [[REJECTED]], RejectedError, RejectedError, id="404"),
    pytest.param(Fault.status(501, first=1), [[REJECTED]], RejectedError, RejectedError, id="501"),
    pytest.param(Fault.status(302, first=1), [[PENDING]], RejectedError, None, id="302"),
    pytest.param(Fault.status(401, first=1), [[PENDING]], AuthenticationError, None, id="401"),
    pytest.param(Fault.status(403, first=1), [[PENDING]], AuthenticationError, None, id="403"),
    pytest.param(Fault.status(413, first=1), [[PENDING]], PayloadTooLargeError, None, id="413"),
    pytest.param(Fault.status(429, first=1), [[PENDING]], RateLimitedError, None, id="429"),
    pytest.param(Fault.status(408, first=1), [[PENDING]], RejectedError, None, id="408"),
    pytest.param(
        Fault.status(503, headers={"Retry-After": "0"}, first=1),
        [[PENDING]],
        RateLimitedError,
        None,
        id="503, asked for",
    ),
    pytest.param(Fault.refused(first=1), [], NotSentError, None, id="not sent"),
    pytest.param(Fault.status(500, first=1), [[UNKNOWN]], OutcomeUnknownError, OutcomeUnknownError, id="500"),
    pytest.param(Fault.status(503, first=1), [[UNKNOWN]], OutcomeUnknownError, OutcomeUnknownError, id="503"),
    pytest.param(Fault.reset_after(first=1), [[UNKNOWN]], OutcomeUnknownError, OutcomeUnknownError, id="reset after"),
    pytest.param(Fault.reset_before(first=1), [[UNKNOWN]], OutcomeUnknownError, OutcomeUnknownError, id="reset before"),
    pytest.param(Fault.hang(first=1), [[UNKNOWN]], OutcomeUnknownError, OutcomeUnknownError, id="silence"),
]


@pytest.mark.parametrize(("answer", "records", "first", "second"), SETTLES)
@virtual
async def test_only_acceptance_and_final_rejection_settle_a_job(
    answer: Fault, records: list[list[UserState]], first: type[PushError], second: type[PushError] | None
) -> None:
    service, claims = FakeService(answer), ShakyClaims()
    async with service.client(claims=claims, retry=ONCE) as client:
        results = await outcome_of(client)
        assert type(results) is first
        assert len(results.attempts) == 1
        assert claims.states() == records
        last = await outcome_of(client)
    if second is None:
        assert isinstance(last, Receipt)
        assert (last.already_accepted, len(service.requests)) == (0, 2)
        return
    assert type(last) is second
    assert (last.outcome, last.attempts, last.user_ids) == (results.outcome, (), ("user-1",))
    assert getattr(last, "status", None) == (getattr(results, "status", None) if records == [[REJECTED]] else None)
    assert len(service.requests) == 1
    assert "this call sent nothing" in str(last)
    assert not any(secret in f"{last} {last!r}" for secret in (JOB, "Hello", "user-1"))
    assert pickle.loads(pickle.dumps(last)).outcome is last.outcome


@virtual
async def test_retries_within_a_call_are_one_delivery() -> None:
    service, claims = FakeService(Fault.status(429, first=1), Fault.refused(first=1)), ShakyClaims()
    async with service.client(claims=claims) as client:
        receipt = await client.send("user-1", HELLO, idempotency_key=JOB)
    assert (len(receipt.attempts), claims.ops, claims.states()) == (3, ["add", "swap", "swap", "swap"], [[ACCEPTED]])


@virtual
async def test_an_unknown_job_is_skipped_until_its_claim_expires() -> None:
    service, claims = FakeService(Fault.reset_before(first=1)), ShakyClaims(claim_ttl=3600.0)
    async with service.client(claims=claims) as client:
        assert type(await outcome_of(client)) is OutcomeUnknownError
        await asyncio.sleep(3590.0)
        assert type(await outcome_of(client)) is OutcomeUnknownError
        await asyncio.sleep(20.0)
        assert isinstance(await outcome_of(client), Receipt)
    assert service.users() == {"user-1": 1}


# -- at the same time -----------------------------------------------------------------------------------------------


@virtual
async def test_only_one_of_several_concurrent_deliveries_sends() -> None:
    service = FakeService(Fault.delay(1.0))
    async with service.client(claims=ShakyClaims()) as client:
        results = await asyncio.gather(*(outcome_of(client) for _ in range(5)))
        assert sorted(type(result).__name__ for result in results) == ["OutcomeUnknownError"] * 4 + ["Receipt"]
        assert isinstance(await outcome_of(client), Receipt)
    assert service.users() == {"user-1": 1}


def wall_clock(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Return a function that advances the wall clock, which else stands still."""
    now = [1e9]
    monkeypatch.setattr("pushsdk._runs.keyed.time", SimpleNamespace(time=lambda: now[0]))
    monkeypatch.setattr("pushsdk._runs.claim_log.time", SimpleNamespace(time=lambda: now[0]))
    return lambda seconds: now.append(now.pop() + seconds)


@virtual
async def test_a_delivery_beside_one_in_flight_is_retried_and_finds_its_outcome(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    advance = wall_clock(monkeypatch)
    service, claims = FakeService(Fault.delay(3.0)), ShakyClaims()
    async with service.client(claims=claims, timeout=20.0) as client, service.client(claims=claims) as other:
        first = asyncio.create_task(outcome_of(client))
        await asyncio.sleep(2.0)
        advance(2.0)
        for duplicate in (await outcome_of(client), await outcome_of(other)):
            assert isinstance(duplicate, OutcomeUnknownError)
            assert (duplicate.retryable, duplicate.retry_after, duplicate.user_ids) == (True, 18.0, ("user-1",))
            assert str(duplicate) == (
                "outcome unknown: another call with this idempotency_key claimed the users 2 s ago and may be in "
                "flight for 18 s more; this call sent nothing: call again with the same key after that; see: pushsdk "
                "docs idempotency"
            )
        assert isinstance(await first, Receipt)
        for again in (await outcome_of(client), await outcome_of(other)):
            assert isinstance(again, Receipt)
            assert again.already_accepted == 1
    assert service.users() == {"user-1": 1}


@virtual
async def test_a_claim_whose_call_has_timed_out_is_unknown_and_not_retried(monkeypatch: pytest.MonkeyPatch) -> None:
    advance = wall_clock(monkeypatch)
    service, claims = FakeService(Fault.hang(accepted=True, first=1)), ShakyClaims()
    async with service.client(claims=claims, timeout=20.0) as client, service.client(claims=claims) as other:
        first = asyncio.create_task(outcome_of(client))
        await asyncio.sleep(1.0)
        # Deliveries in between don't extend the time.
        for seconds, retryable in ((10.0, True), (9.5, True), (1.0, False)):
            advance(seconds)
            error = await outcome_of(other)
            assert isinstance(error, OutcomeUnknownError)
            assert error.retryable is retryable
        assert str(error) == (
            "outcome unknown: an earlier call with this idempotency_key ended without a known outcome (its process "
            "died or its answer was lost); this call sent nothing; to push again, perhaps a second time, release the "
            "claim (pushsdk claims list, then pushsdk claims release KEY); see: pushsdk docs idempotency"
        )
        # The outcome is known to be UNKNOWN before that time.
        assert isinstance(await first, OutcomeUnknownError)
        advance(-15.0)
        error = await outcome_of(other)
        assert isinstance(error, OutcomeUnknownError)
        assert not error.retryable
    assert service.users() == {"user-1": 1}


# -- users with different outcomes -----------------------------------------------------------------------------------


def long(*names: str) -> list[str]:
    """Return ids that make up most of a request, so that a 413 splits the request."""
    return [name.ljust(200, "-") for name in names]


def singly(fates: dict[str, list[Fault]]) -> FakeService:
    """Return a service that accepts one user per request, with a script for each user."""

    def fate(request: FakeRequest) -> Fault | None:
        if len(request.user_ids) > 1:
            return Fault.status(413)
        fate_list = fates.get(request.user_ids[0].rstrip("-"), [])
        return fate_list.pop(0) if fate_list else None

    return FakeService(then=fate)


USERS = long("accepted", "rejected", "unknown", "throttled", "unsent")
TWO, THREE = long("user-1", "user-2"), long("user-1", "user-2", "user-3")
FATES = {
    "rejected": [Fault.status(404)],
    "unknown": [Fault.reset_after()],
    "throttled": [Fault.status(429), Fault.status(429)],
    "unsent": [Fault.refused(), Fault.refused(), Fault.reset_after()],
}


@virtual
async def test_a_later_delivery_sends_only_to_pending_users() -> None:
    service, claims = singly({name: list(fates) for name, fates in FATES.items()}), ShakyClaims()
    results, states, sent = [], [], []
    async with service.client(claims=claims, retry=ONCE) as client:
        for _ in range(5):
            service.requests.clear()
            results.append(await outcome_of(client, USERS))
            states.append(claims.states()[0])
            sent.append({user for request in service.requests for user in request.user_ids})
    assert states == [
        # By position, in the order of the sorted ids.
        [ACCEPTED, REJECTED, PENDING, UNKNOWN, PENDING],
        [ACCEPTED, REJECTED, PENDING, UNKNOWN, PENDING],
        [ACCEPTED, REJECTED, ACCEPTED, UNKNOWN, UNKNOWN],
        [ACCEPTED, REJECTED, ACCEPTED, UNKNOWN, UNKNOWN],
        [ACCEPTED, REJECTED, ACCEPTED, UNKNOWN, UNKNOWN],
    ]
    assert sent == [set(USERS), set(USERS[3:]), set(USERS[3:]), set(), set()]
    assert all(isinstance(result, PartialError) for result in results)
    # The unsent user was first in a request that got a 413: reported by the call, but not recorded.
    a, r, u, n = Outcome.ACCEPTED, Outcome.REJECTED, Outcome.UNKNOWN, Outcome.NOT_SENT
    outcomes = [list(result.outcomes.items()) for result in results if isinstance(result, PartialError)]
    assert outcomes == [
        list(zip(USERS, outcome, strict=True)) for outcome in ([a, r, u, r, r], [a, r, u, r, n], *[[a, r, u, a, u]] * 3)
    ]
    assert [bool(result.attempts) for result in results] == [True, True, True, False, False]
    assert service.duplicates() == {}
    assert claims.records()[0].claimed_at > 0


@virtual
async def test_a_delivery_that_completes_the_job_reports_already_accepted_users() -> None:
    service, claims = singly({"user-2": [Fault.refused()]}), ShakyClaims()
    async with service.client(claims=claims, retry=ONCE) as client:
        assert isinstance(await outcome_of(client, THREE), PartialError)
        receipt = await outcome_of(client, THREE)
        assert isinstance(receipt, Receipt)
        assert (receipt.users, receipt.already_accepted, receipt.requests, len(receipt.attempts)) == (3, 2, 1, 1)
        assert isinstance(second := await outcome_of(client, THREE), Receipt)
        assert (second.already_accepted, second.requests) == (3, 0)
    assert service.users() == dict.fromkeys(THREE, 1)


@virtual
async def test_a_delivery_rejected_like_the_previous_one_is_rejected_as_a_whole() -> None:
    service = singly({"user-1": [Fault.status(404)], "user-2": [Fault.refused(), Fault.status(404)]})
    claims = ShakyClaims()
    async with service.client(claims=claims, retry=ONCE) as client:
        await outcome_of(client, TWO)
        assert claims.states() == [[REJECTED, PENDING]]
        result = await outcome_of(client, TWO)
        assert type(result) is RejectedError
        assert (result.user_ids, len(result.attempts), result.status) == (tuple(TWO), 1, 404)
        second = await outcome_of(client, TWO)
    assert (type(second), second.attempts) == (RejectedError, ())


@virtual
async def test_only_one_concurrent_delivery_completes_a_job() -> None:
    service, claims = singly({"user-2": [Fault.refused(), Fault.delay(1.0)]}), ShakyClaims()
    async with service.client(claims=claims, retry=ONCE) as client:
        await outcome_of(client, TWO)
        results = await asyncio.gather(*(outcome_of(client, TWO) for _ in range(3)))
    assert sorted(type(result).__name__ for result in results) == ["PartialError", "PartialError", "Receipt"]
    assert service.users() == dict.fromkeys(TWO, 1)


@pytest.mark.parametrize("kind", [list, tuple, set, frozenset])
@virtual
async def test_the_order_of_the_users_does_not_matter(kind: type[Any]) -> None:
    service, claims = singly({"user-2": [Fault.status(429)]}), ShakyClaims()
    async with service.client(claims=claims, retry=ONCE) as client:
        first = await outcome_of(client, [THREE[2], THREE[0], THREE[1]])
        assert isinstance(first, PartialError)
        assert list(first.outcomes) == [THREE[2], THREE[0], THREE[1]]
        second = await outcome_of(client, kind([THREE[1], THREE[0], THREE[2]]))
        assert isinstance(second, Receipt)
        assert second.already_accepted == 2
    assert service.users() == dict.fromkeys(THREE, 1)


# -- users of one request -------------------------------------------------------------------------------------------


def strict() -> FakeService:
    """Return a service that rejects requests with a bad user."""
    return FakeService(
        then=lambda request: Fault.status(400) if any(user.startswith("bad") for user in request.user_ids) else None
    )


async def together(client: AsyncPushClient, *users: str) -> list[Receipt | BaseException]:
    return await asyncio.gather(
        *(client.send(user, HELLO, idempotency_key=f"job of {user}") for user in users), return_exceptions=True
    )


@virtual
async def test_a_rejection_of_an_unsplit_request_settles_no_user() -> None:
    service, claims = strict(), ShakyClaims()
    async with service.client(claims=claims, batching=Batching(split_on=frozenset())) as client:
        assert [type(outcome) for outcome in await together(client, "good", "bad")] == [RejectedError] * 2
        assert claims.states() == [[PENDING], [PENDING]]
        assert [type(outcome) for outcome in await together(client, "good")] == [Receipt]
        assert [type(outcome) for outcome in await together(client, "bad")] == [RejectedError]
        assert claims.states() == [[ACCEPTED], [REJECTED]]
    assert service.users() == {"good": 1}


@virtual
async def test_a_rejection_after_giving_up_on_the_message_settles_no_user() -> None:
    service, claims = strict(), ShakyClaims()
    async with service.client(claims=claims) as client:
        await together(client, *(f"bad-{number}" for number in range(9)))
        assert [type(outcome) for outcome in await together(client, "bad-9", "good")] == [RejectedError] * 2
        assert [type(outcome) for outcome in await together(client, "good")] == [Receipt]
    assert service.users() == {"good": 1}


@virtual
async def test_a_culprit_found_by_splitting_is_settled() -> None:
    service, claims = strict(), ShakyClaims()
    async with service.client(claims=claims) as client:
        assert [type(outcome) for outcome in await together(client, "a", "bad", "c")] == [
            Receipt,
            RejectedError,
            Receipt,
        ]
        assert claims.states() == [[ACCEPTED], [REJECTED], [ACCEPTED]]


@pytest.mark.parametrize("rate", [Rate(requests_per_second=0.01), Rate(users_per_second=0.01)])
@virtual
async def test_a_request_with_recorded_users_only_costs_no_rate(rate: Rate) -> None:
    service, claims = FakeService(), ShakyClaims()
    async with service.client(claims=claims) as client:
        await client.send("user-1", HELLO, idempotency_key="job")
    async with service.client(claims=claims, rate=rate) as client:
        started = asyncio.get_running_loop().time()
        assert (await client.send("user-1", HELLO, idempotency_key="job")).already_accepted == 1
        await client.send("user-2", HELLO)
        assert asyncio.get_running_loop().time() - started < 1.0


# -- after a fix ---------------------------------------------------------------------------------------------------


@virtual
async def test_a_job_is_sent_after_its_base_url_was_fixed() -> None:
    service, claims = (
        FakeService(Fault.status(302, headers={"Location": "https://push2.example/"}, first=1)),
        ShakyClaims(),
    )
    async with service.client(claims=claims) as client:
        assert type(await outcome_of(client)) is RejectedError
    async with service.client(claims=claims, base_url="https://push2.example/external/api") as client:
        assert isinstance(await outcome_of(client), Receipt)


@virtual
async def test_a_partly_sent_job_needs_a_new_key_for_another_base_url() -> None:
    service, claims = singly({"user-2": [Fault.status(302)]}), ShakyClaims()
    async with service.client(claims=claims) as client:
        assert isinstance(await outcome_of(client, TWO), PartialError)
        assert claims.states() == [[ACCEPTED, PENDING]]
    async with service.client(claims=claims, base_url="https://push2.example/external/api") as client:
        results = await outcome_of(client, TWO)
    assert isinstance(results, ValidationError)
    assert "a new key after a change of the payload or base_url" in str(results)


# -- the same key for something else --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("users", "title", "fields", "part"),
    [
        (["user-1"], "Hello", {"n": 1}, "other users"),
        (["user-1", "user-2", "user-3"], "Hello", {"n": 1}, "other users"),
        (["user-1", "user-3"], "Hello", {"n": 1}, "other users"),
        (["user-1", "user-2"], "Hallo", {"n": 1}, "another message"),
        (["user-1", "user-3"], "Hallo", {"n": 2}, "another message"),
        (["user-1", "user-2"], "Hello", {"n": 2}, "other custom fields"),
        (["user-1", "user-2"], "Hello", {}, "other custom fields"),
        (["user-1", "user-2"], "Hello", None, "other custom fields"),
    ],
)
@virtual
async def test_the_same_key_with_another_payload_is_an_error(
    users: list[str], title: str, fields: dict[str, int] | None, part: str
) -> None:
    service, claims = FakeService(), ShakyClaims()
    async with service.client(claims=claims) as client:
        await client.send(["user-1", "user-2"], {"title": {"en": "Hello"}}, custom_fields={"n": 1}, idempotency_key=JOB)
        with pytest.raises(ValidationError, match=f"was used with {part}: nothing was sent; ") as excinfo:
            await client.send(users, {"title": {"en": title}}, custom_fields=fields, idempotency_key=JOB)
        assert JOB not in str(excinfo.value)
    assert len(service.requests) == 1
    assert claims.states() == [[ACCEPTED, ACCEPTED]]


@pytest.mark.parametrize("key", ["", 42, b"job", "a\0b", "\ud800", "x" * 513, "é" * 257, True, ["job"]], ids=repr)
@virtual
async def test_an_invalid_key_is_refused(key: object) -> None:
    service, claims = FakeService(), ShakyClaims()
    async with service.client(claims=claims) as client:
        with pytest.raises(ValidationError, match="idempotency_key") as excinfo:
            await client.send("user-1", HELLO, idempotency_key=key)  # type: ignore[arg-type]
    assert (service.requests, claims.ops) == ([], [])
    assert not any(char in str(excinfo.value) for char in ("xxx", "éé"))


@pytest.mark.parametrize("key", ["x" * 512, "é" * 256, " ", "\n", "💌"])
@virtual
async def test_any_other_text_is_a_valid_key(key: str) -> None:
    async with FakeService().client(claims=ShakyClaims()) as client:
        assert (await client.send("user-1", HELLO, idempotency_key=key)).already_accepted == 0
        assert (await client.send("user-1", HELLO, idempotency_key=key)).already_accepted == 1


@virtual
async def test_a_key_without_a_store_is_an_error_and_nothing_is_sent() -> None:
    service = FakeService()
    async with service.client() as client:
        with pytest.raises(ConfigurationError, match="pass claims="):
            await client.send("user-1", HELLO, idempotency_key=JOB)
    assert service.requests == []


@pytest.mark.parametrize("claims", ["claims.db", object(), ShakyClaims, 0])
def test_an_invalid_store_is_refused(claims: object) -> None:
    with pytest.raises(ConfigurationError, match="claims must be a claim store"):
        AsyncPushClient("https://push.example", "key", claims=claims)  # type: ignore[arg-type]


@virtual
async def test_neither_users_nor_content_are_stored(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    claims = ShakyClaims()
    async with FakeService().client(claims=claims, api_key="the-secret") as client:
        await client.send(["user-1"], HELLO, custom_fields={"city": "Bonn"}, idempotency_key=JOB)
    ((key, (claim, _)),) = claims._claims.items()
    stored = key + claim.token + claim.record.decode()
    for secret in ("user-1", "Hello", "Bonn", "the-secret", "job-42", "push.example"):
        assert secret not in stored + caplog.text
    assert (len(key), len(claim.token)) == (64, 32)


# -- while the service is away ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (Fault.status(204, first=1), Receipt),
        (Fault.status(404, first=1), RejectedError),
        (Fault.hang(accepted=True, first=1), OutcomeUnknownError),
    ],
    ids=["accepted", "rejected", "unknown"],
)
@virtual
async def test_a_delivery_that_makes_no_claim_reports_the_record(answer: Fault, kind: type[Any]) -> None:
    service, away, claims = FakeService(answer), FakeService(Fault.refused()), ShakyClaims()
    async with service.client(claims=claims) as client:
        assert type(await outcome_of(client)) is kind
    async with away.client(claims=claims, retry=ONCE) as client:
        result = await outcome_of(client)
    assert type(result) is kind
    assert result.attempts == ()


@virtual
async def test_a_delivery_without_a_claim_or_a_record_is_not_sent() -> None:
    away, claims = FakeService(Fault.refused()), ShakyClaims(get=["down"])
    async with away.client(claims=claims, retry=ONCE) as client:
        assert type(await outcome_of(client)) is ClaimStoreError
        assert type(await outcome_of(client)) is NotSentError
    assert claims.states() == []


# -- deadlines ------------------------------------------------------------------------------------------------------


@virtual
async def test_a_call_past_its_deadline_stays_claimed_while_in_flight() -> None:
    service, claims = FakeService(Fault.hang(accepted=True, user="user-1")), ShakyClaims(claim_ttl=60.0)
    patient = Timeout(total=100.0, attempt=None)
    async with service.client(claims=claims, timeout=patient, batching=Batching(linger=0.1)) as client:
        other = asyncio.create_task(client.send("user-2", HELLO))
        first = await outcome_of(client)
        assert type(first) is OutcomeUnknownError
        assert "the deadline passed" in str(first)
        assert type(await outcome_of(client)) is OutcomeUnknownError
        await other
    assert claims.states() == [[UNKNOWN]]
    assert service.users() == {"user-1": 1, "user-2": 1}


@virtual
async def test_a_call_without_a_deadline_ends_before_its_claim_expires() -> None:
    service = FakeService(Fault.unreachable())
    claims = ShakyClaims(claim_ttl=60.0)
    async with service.client(claims=claims, timeout=Timeout(total=None, attempt=None, connect=None)) as client:
        started = asyncio.get_running_loop().time()
        assert type(await outcome_of(client)) is NotSentError
        assert asyncio.get_running_loop().time() - started == pytest.approx(30.0, abs=0.1)
    assert claims.states() == []


# -- cancellation ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "seconds", "records"),
    [
        pytest.param(Fault.unreachable(first=1), 1.0, [], id="before anything left"),
        pytest.param(Fault.hang(accepted=True, first=1), 1.0, [[UNKNOWN]], id="after"),
    ],
)
@virtual
async def test_a_cancelled_call_is_released_if_no_byte_was_sent(
    answer: Fault, seconds: float, records: list[list[UserState]]
) -> None:
    service, claims = FakeService(answer), ShakyClaims()
    async with service.client(claims=claims, timeout=Timeout(total=30.0, connect=None)) as client:
        task = asyncio.create_task(client.send("user-1", HELLO, idempotency_key=JOB))
        await asyncio.sleep(seconds)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert claims.states() == records
        second = await outcome_of(client)
    assert type(second) is (OutcomeUnknownError if records == [[UNKNOWN]] else Receipt)
    assert service.users() == {"user-1": 1}


@pytest.mark.parametrize("count", range(12))
@virtual
async def test_a_call_cancelled_at_any_turn_of_the_loop_is_accounted_for(count: int) -> None:
    service, claims = FakeService(), ShakyClaims()
    async with service.client(claims=claims) as client:
        task = asyncio.create_task(client.send("user-1", HELLO, idempotency_key=JOB))
        await turns(count)
        # Repeatedly, as anyio does.
        while not task.done():
            task.cancel()
            await turns(1)
        sent = bool(service.requests)
        assert [mark for marks in claims.states() for mark in marks] in (
            [[UNKNOWN], [ACCEPTED]] if sent else [[], [PENDING]]
        )
        second = await outcome_of(client)
    assert isinstance(second, Receipt) or sent
    assert service.duplicates() == {}


# -- the guide --------------------------------------------------------------------------------------------------------


GUIDE = page("idempotency")


def test_the_guides_table_of_recorded_states_matches_the_code() -> None:
    noted = [
        (outcome.split()[0].strip(","), state.strip())
        for outcome, state, _ in GUIDE.table("a user of an earlier delivery")
    ]
    assert noted == [
        ("accepted", ACCEPTED),
        ("rejected", REJECTED),
        ("rejected", PENDING),
        ("being", UserState.CLAIMED),
        ("unknown", UNKNOWN),
    ]
    assert status_after(Verdict(outcome=Outcome.ACCEPTED)).state is ACCEPTED
    assert status_after(Verdict(outcome=Outcome.UNKNOWN)).state is UNKNOWN
    for retryable, state in ((False, REJECTED), (True, PENDING)):
        attempt = Attempt(outcome=Outcome.REJECTED, status=400, retryable=retryable)
        assert status_after(Verdict(outcome=Outcome.REJECTED, attempts=(attempt,))).state is state
    assert status_after(Verdict(outcome=Outcome.NOT_SENT)).state is PENDING
    assert f"{ShakyClaims().claim_ttl / 86400:.0f} days" in GUIDE.text


def test_every_store_has_a_row_in_the_guide() -> None:
    stores = {name for name in pushsdk.claims.__all__ if name.endswith("Claims")}
    assert {name for name in stores if f"| `{name}(" in GUIDE.text} == stores
