"""The fake service: what its responses mean to a real client, and what it counts."""

import asyncio

import pytest
from support.shaky_claims import ShakyClaims
from support.virtual_time import now

from pushsdk import (
    AsyncPushClient,
    Batching,
    ClaimStoreError,
    ConfigurationError,
    MessageWarning,
    MobilePush,
    NotSentError,
    Outcome,
    OutcomeUnknownError,
    PushError,
    RejectedError,
    RetryPolicy,
    Timeout,
    UnexpectedResponseError,
)
from pushsdk.emulator import Fault
from pushsdk.testing import FakeRequest, FakeResponse, FakeService, virtual_time

MESSAGE = MobilePush(title={"en": "Hello"})


@virtual_time
async def test_a_request_whose_claim_failed_is_not_received_and_leaves_its_response_to_the_next():
    service, claims = FakeService(FakeResponse.status(404)), ShakyClaims(add=["down"])
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
    assert (receipt.outcome, receipt.users) == (Outcome.ACCEPTED, 2)
    assert (service.accepted("ann"), service.accepted("eve")) == (2, 0)
    assert service.users() == {"ann": 2, "bob": 1}
    first, second = service.requests
    assert (first.path, first.user_ids, first.custom_fields) == ("v1/push", ("ann", "bob"), {"n": 1})
    assert (second.message["title"], second.custom_fields) == ({"en": "Hello"}, None)
    assert service.pushes == [first, second]
    assert repr(first) == "FakeRequest('v1/push', users=2, accepted=True)"


@virtual_time
async def test_a_duplicate_has_the_same_content_and_user():
    service = FakeService()
    async with service.client() as client:
        for users, fields in ((["ann", "bob"], {"n": 1}), ("ann", None), ("bob", None), ("ann", {"n": 1})):
            await client.send(users, MESSAGE, custom_fields=fields)
    assert (service.users(), service.duplicates()) == ({"ann": 3, "bob": 2}, {"ann": 2})


@virtual_time
async def test_a_campaign_is_created_with_a_uuid():
    service = FakeService(FakeResponse.accept())
    async with service.client() as client:
        created = [(await client.create_campaign({"name": "spring"})).uuid for _ in range(2)]
    assert len(set(created)) == 2
    assert [request.path for request in service.campaigns] == ["v1/campaigns"] * 2
    assert service.pushes == []


NOT_SENT, UNKNOWN, REJECTED = NotSentError, OutcomeUnknownError, RejectedError


@pytest.mark.parametrize(
    ("response", "error", "accepted"),
    [
        (FakeResponse.refused(), NOT_SENT, 0),
        (FakeResponse.unreachable(), NOT_SENT, 0),
        (FakeResponse.reset_before(), UNKNOWN, 0),
        (FakeResponse.reset_after(), UNKNOWN, 1),
        (FakeResponse.hang(), UNKNOWN, 0),
        (FakeResponse.hang(accepted=True), UNKNOWN, 1),
        (FakeResponse.status(400), REJECTED, 0),
        (FakeResponse.status(500), UNKNOWN, 0),
        (FakeResponse.status(504, accepted=True), UNKNOWN, 1),
        (FakeResponse.status(204), None, 1),
        (FakeResponse.status(200, accepted=False), None, 0),
        (FakeResponse(code=204, connecting=8.0), None, 0),
        (FakeResponse(code=204, connecting=11.0), NOT_SENT, 0),
        (FakeResponse(code=204, leaves="part"), UNKNOWN, 0),
    ],
)
@virtual_time
async def test_the_clients_outcome_fits_the_fate_of_the_request(
    response: FakeResponse, error: type[PushError] | None, accepted: int
) -> None:
    service = FakeService(response)
    async with service.client(retry=RetryPolicy.none()) as client:
        if error is None:
            await client.send("ann", MESSAGE)
        else:
            with pytest.raises(error):
                await client.send("ann", MESSAGE)
    assert service.accepted("ann") == accepted
    assert service.in_flight == 0


@virtual_time
async def test_responses_are_used_in_turn_and_delays_take_no_time():
    service = FakeService(
        FakeResponse.refused(), FakeResponse.status(429, headers={"Retry-After": "50"}), FakeResponse.accept()
    )
    async with service.client(timeout=Timeout(total=None)) as client:
        before = now()
        await client.send("ann", MESSAGE)
        assert now() - before > 50
    assert [request.accepted for request in service.requests] == [False, False, True]


@virtual_time
async def test_then_may_be_a_function_of_the_request():
    def respond(request: FakeRequest) -> FakeResponse:
        return FakeResponse.status(400, body="no such user") if "eve" in request.user_ids else FakeResponse.accept()

    service = FakeService(then=respond)
    async with service.client() as client:
        await client.send("ann", MESSAGE)
        with pytest.raises(RejectedError) as refused:
            await client.send("eve", MESSAGE)
    assert refused.value.body == b"no such user"
    assert service.users() == {"ann": 1}


@virtual_time
async def test_then_may_be_one_response_for_all_requests():
    service = FakeService(then=FakeResponse.status(400))
    async with service.client() as client:
        for user in "ab":
            with pytest.raises(RejectedError):
                await client.send(user, MESSAGE)


@virtual_time
async def test_a_response_may_have_latency():
    service = FakeService(FakeResponse.accept(after=2.0), FakeResponse.status(204, after=3.0))
    async with service.client() as client:
        before = now()
        await client.send("ann", MESSAGE)
        await client.send("ann", MESSAGE)
        assert now() - before == pytest.approx(5.0)
    assert service.requests[1].ended - service.requests[1].started == pytest.approx(3.0)


async def test_a_response_that_no_request_got_is_warned_of():
    with pytest.warns(MessageWarning, match=r"^1 response of the FakeService got no request: 500$"):
        async with FakeService(FakeResponse.accept(), FakeResponse.status(500)).client() as client:
            await client.send("ann", MESSAGE)


@virtual_time
async def test_requests_in_flight_are_counted():
    service = FakeService(then=FakeResponse.accept(after=1.0))
    async with service.client(batching=Batching(max_users=1)) as client:
        await asyncio.gather(*(client.send(str(number), MESSAGE) for number in range(3)))
    assert (service.most_in_flight, service.in_flight) == (3, 0)


@virtual_time
async def test_a_campaign_response_without_a_uuid_is_unexpected():
    async with FakeService(FakeResponse.status(200)).client() as client:
        with pytest.raises(UnexpectedResponseError):
            await client.create_campaign({"name": "spring"})


@virtual_time
async def test_a_run_needs_no_thread():
    service = FakeService()
    async with service.client() as client:
        report = await client.broadcast(map(str, range(2500)), MESSAGE)
    assert (report.accepted, len(service.requests)) == (2500, 3)


def fails(_: FakeRequest) -> FakeResponse:
    raise ZeroDivisionError("by the test")


@pytest.mark.parametrize(
    ("then", "text"),
    [
        (
            lambda _: 429,
            "then raised ValueError: the response of then must be a FakeResponse, for example .*; got 429 ",
        ),
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


async def respond_later(_: FakeRequest) -> FakeResponse:
    return FakeResponse.accept()


RESPONSE = r"must be a FakeResponse, for example FakeResponse\.status\(429\)"


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: FakeService(429), rf"responses\[0\] {RESPONSE}; got 429"),
        (lambda: FakeService(FakeResponse.accept), rf"responses\[0\] {RESPONSE}; got the function FakeResponse.accept"),
        (lambda: FakeService(then=429), f"then {RESPONSE}, or a function of 1 argument, not async; got 429"),
        (lambda: FakeService(then=respond_later), f"then {RESPONSE}, or .*; got the function respond_later"),
        (lambda: FakeService(then=FakeResponse), f"then {RESPONSE}, or .*; got the class FakeResponse"),
        (lambda: FakeService(then=lambda: None), f"then {RESPONSE}, or .*; got the function .*<lambda>"),
        (lambda: FakeResponse.status("429"), "code must be an int; got str"),
        (lambda: FakeResponse.status(42), "code must be an int >= 200; got 42"),
        (lambda: FakeResponse.status(429, headers=[("A", "1")]), "headers must be a mapping; got list"),
        (lambda: FakeResponse(leaves="some"), "leaves: unknown value 'some': use nothing, part, all"),
        (lambda: FakeService().serve("x"), "client must be an AsyncPushClient; got str"),
    ],
)
def test_a_wrong_argument_is_an_error_with_the_rule(make, text):
    with pytest.raises(ValueError, match=f"^{text}$"):
        make()


@pytest.mark.parametrize("make", [FakeResponse.status, Fault.status])
def test_a_status_may_ask_for_a_wait(make):
    assert make(429, retry_after=20, headers={"X-A": "1"}).headers == {"X-A": "1", "Retry-After": "20"}
    assert make(429).headers == {}


def test_an_unknown_option_of_the_client_is_an_error_with_the_near_one():
    with pytest.raises(TypeError, match=r"^FakeService\.client\(\) got .* 'retries': did you mean 'retry'\?$"):
        FakeService().client(retries=3)


def test_the_script_cannot_be_set_afterwards():
    with pytest.raises(AttributeError, match="then"):
        FakeService().then = FakeResponse.status(429)


async def test_the_service_works_in_any_event_loop():
    service = FakeService()
    async with service.client(api_key="k", base_url="https://elsewhere.example") as client:
        await client.send("ann", MESSAGE)
    assert service.requests[0].api_key == "k"


async def test_an_existing_client_can_be_served():
    service = FakeService()
    async with service.serve(AsyncPushClient("https://push.example", "k")) as client:
        await client.send("ann", MESSAGE)
    assert service.users() == {"ann": 1}


async def test_a_client_in_use_cannot_be_served():
    service = FakeService()
    async with service.client() as client:
        await client.send("ann", MESSAGE)
        with pytest.raises(ConfigurationError, match="before its first call"):
            FakeService().serve(client)


@pytest.mark.parametrize("kind", [FakeResponse, Fault])
def test_retry_after_is_given_once(kind):
    with pytest.raises(ValueError, match=r"^Retry-After is given twice, by retry_after= and in headers="):
        kind.status(429, headers={"retry-after": "1"}, retry_after=2)
