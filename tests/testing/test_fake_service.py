"""The fake service: what its faults mean to a real client, and what it counts."""

import asyncio
from contextlib import nullcontext

import pytest
from support.shaky_claims import ShakyClaims
from support.virtual_time import now

from pushsdk import (
    ClaimStoreError,
    ConfigurationError,
    MessageWarning,
    MobilePush,
    NotSentError,
    Outcome,
    OutcomeUnknownError,
    RejectedError,
    RetryPolicy,
)
from pushsdk.emulator import Emulator, Fault
from pushsdk.testing import FakeService, virtual_time

MESSAGE = MobilePush(title={"en": "Hello"})


@virtual_time
async def test_a_request_whose_claim_failed_is_not_received_and_uses_up_no_fault():
    service = FakeService(Fault.status(404, first=1))
    claims = ShakyClaims(add=["down"])
    async with service.client(claims=claims) as client:
        with pytest.raises(ClaimStoreError):
            await client.send("ann", MESSAGE, idempotency_key="job")
        assert service.requests == []
        with pytest.raises(RejectedError):
            await client.send("ann", MESSAGE, idempotency_key="job")
    assert len(service.requests) == 1


@virtual_time
async def test_requests_are_accepted_by_default():
    service = FakeService()
    async with service.client() as client:
        receipt = await client.send(["ann", "bob"], MESSAGE, custom_fields={"n": 1})
        await client.send("ann", MESSAGE)
        created = [(await client.create_campaign({"name": "spring"})).uuid for _ in range(2)]
    assert receipt.outcome == Outcome.ACCEPTED
    assert receipt.users == 2
    assert len(set(created)) == 2
    assert service.accepted("ann") == 2
    assert service.accepted("eve") == 0
    assert service.users() == {"ann": 2, "bob": 1}
    first, second = service.pushes
    assert service.requests == [first, second, *service.campaigns]
    assert first.path == "v1/push"
    assert first.user_ids == ("ann", "bob")
    assert first.custom_fields == {"n": 1}
    assert second.message["title"] == {"en": "Hello"}
    assert second.custom_fields is None
    assert repr(first) == "FakeRequest('v1/push', users=2, accepted=True)"


@virtual_time
async def test_a_duplicate_has_the_same_content_and_user():
    service = FakeService()
    async with service.client() as client:
        for users, fields in ((["ann", "bob"], {"n": 1}), ("ann", None), ("bob", None), ("ann", {"n": 1})):
            await client.send(users, MESSAGE, custom_fields=fields)
    assert service.users() == {"ann": 3, "bob": 2}
    assert service.duplicates() == {"ann": 2}


@pytest.mark.parametrize(
    ("fault", "error", "accepted"),
    [
        (Fault.refused(), NotSentError, 0),
        (Fault.reset_before(), OutcomeUnknownError, 0),
        (Fault.reset_after(), OutcomeUnknownError, 1),
        (Fault.hang(accepted=True), OutcomeUnknownError, 1),
        (Fault.truncated(), OutcomeUnknownError, 1),
        (Fault.truncated(at="body"), None, 1),
        (Fault.delay(1.0), None, 1),
        (Fault.status(400), RejectedError, 0),
        (Fault.status(504, accepted=True), OutcomeUnknownError, 1),
    ],
)
@virtual_time
async def test_the_clients_outcome_fits_the_fate_of_the_request(fault, error, accepted):
    service = FakeService(fault)
    async with service.client(retry=RetryPolicy.none()) as client:
        with pytest.raises(error) if error else nullcontext():
            await client.send("ann", MESSAGE)
    assert service.accepted("ann") == accepted
    assert service.in_flight == 0


@virtual_time
async def test_then_may_delay_the_request_and_may_refuse_the_connection():
    fates = iter([Fault.delay(2.0), Fault.refused()])
    service = FakeService(Fault.delay(1.0), then=lambda _: next(fates))
    async with service.client(retry=RetryPolicy.none()) as client:
        before = now()
        await client.send("ann", MESSAGE)
        assert now() - before == pytest.approx(3.0)
        with pytest.raises(NotSentError):
            await client.send("ann", MESSAGE)


@virtual_time
async def test_a_delayed_request_is_accepted_after_its_client_gave_up():
    service = FakeService(Fault.delay(3.0))
    async with service.client(timeout=1.0) as client:
        with pytest.raises(OutcomeUnknownError):
            await client.send("ann", MESSAGE)
        assert service.accepted("ann") == 0
        await asyncio.sleep(2.1)
    assert service.accepted("ann") == 1
    assert len(service.pushes) == 1


@virtual_time
async def test_a_fault_with_a_probability_fires_by_the_seed_and_may_never_fire():
    stories = []
    for seed in (1, 1, 2):
        service = FakeService(Fault.delay(1.0, probability=0.5), Fault.hang(probability=0.0), seed=seed)
        async with service.client() as client:
            begun = now()
            times = []
            for number in range(16):
                await client.send(f"user-{number}", MESSAGE)
                times.append(round(now() - begun))
        stories.append(times)
    assert stories[0] == stories[1] != stories[2]


async def test_faults_that_never_fired_are_warned_of():
    text = r"^2 faults of the FakeService never fired: Fault.status\(code=500, every=2\), Fault.refused\(user='eve'\)$"
    with pytest.warns(MessageWarning, match=text):
        async with FakeService(Fault.status(500, every=2), Fault.refused(user="eve")).client() as client:
            await client.send("ann", MESSAGE)


def fails(_):
    raise ZeroDivisionError("by the test")


@pytest.mark.parametrize(
    ("then", "text"),
    [
        (lambda _: 429, "then raised ValueError: the fault of then must be a Fault, for example .*; got 429 "),
        (fails, "then raised ZeroDivisionError: by the test "),
    ],
)
@virtual_time
async def test_a_function_that_fails_is_named_and_is_the_cause(then, text):
    client = FakeService(then=then).client()
    with pytest.raises(OutcomeUnknownError, match=text) as unknown:
        await client.send("ann", MESSAGE)
    # The code under test may have handled the outcome.
    with pytest.raises((ValueError, ZeroDivisionError)) as raised:
        await client.aclose()
    assert unknown.value.__cause__ is raised.value
    await client.aclose()


async def respond_later(_):
    return None


FAULT = r"must be a Fault, for example Fault\.status\(429\)"


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: FakeService(429), rf"faults\[0\] {FAULT}; got 429"),
        (lambda: FakeService(Fault.hang(), Fault.hang), rf"faults\[1\] {FAULT}; got the function Fault.hang"),
        (lambda: FakeService(then=respond_later), "then must be .*; got the function respond_later"),
    ],
)
def test_a_wrong_argument_is_an_error_with_the_rule(make, text):
    with pytest.raises(ValueError, match=f"^{text}$"):
        make()


async def test_a_client_in_use_cannot_be_served():
    service = FakeService()
    async with service.client() as client:
        await client.send("ann", MESSAGE)
        with pytest.raises(ConfigurationError, match="before its first call"):
            FakeService().serve(client)


def test_retry_after_is_given_once():
    with pytest.raises(ValueError, match=r"^Retry-After is given twice, by retry_after= and in headers="):
        Fault.status(429, headers={"retry-after": "1"}, retry_after=2)


def test_the_emulator_has_no_fault_before_the_connection():
    text = r"^faults\[1\] must act on a request; got Fault.refused\(first=2\), which FakeService has$"
    with pytest.raises(ValueError, match=text):
        Emulator(faults=[Fault.hang(), Fault.refused(first=2)])
