"""Conflicts with claims of other processes, of operators, and of the same key with another payload."""

import asyncio
from typing import Any

import aiohttp
import pytest
from support.shaky_claims import ShakyClaims
from support.virtual_time import virtual
from support.wire_server import WireServer

from pushsdk import (
    AsyncPushClient,
    ClaimStoreError,
    Limits,
    MobilePush,
    OutcomeUnknownError,
    PushError,
    Rate,
    Receipt,
    RejectedError,
    RetryPolicy,
    ValidationError,
)
from pushsdk._core.idempotency import digest_of
from pushsdk._core.user_states import UserState
from pushsdk.claims import Claim, MemoryClaims, Put
from pushsdk.claims._operators import claimed, release
from pushsdk.emulator import Fault
from pushsdk.testing import FakeRequest, FakeService

HELLO, OTHER = MobilePush(title={"en": "Hello"}), MobilePush(title={"en": "Other"})
JOB = "job"
ACCEPTED, REJECTED, UNKNOWN = UserState.ACCEPTED, UserState.REJECTED, UserState.UNKNOWN


async def deliver(
    client: AsyncPushClient,
    users: str | list[str] = "user-1",
    message: MobilePush = HELLO,
    key: str = JOB,
    timeout: float | None = None,
) -> Receipt | PushError:
    try:
        return await client.send(users, message, idempotency_key=key, timeout=timeout)
    except PushError as error:
        return error


@virtual
async def test_a_key_with_another_payload_is_refused_every_time() -> None:
    service, claims = FakeService(Fault.delay(1.0)), ShakyClaims()
    async with service.client(claims=claims) as client:
        assert isinstance(await deliver(client), Receipt)
    async with service.client(claims=claims, limits=Limits(in_flight=1)) as client:
        errors = await asyncio.gather(*(deliver(client, message=OTHER) for _ in range(3)))
    assert [type(error) for error in errors] == [ValidationError] * 3
    assert (service.users(), claims.states()) == ({"user-1": 1}, [[ACCEPTED]])


@virtual
async def test_a_split_call_with_another_payload_sends_nothing() -> None:
    def fate(request: FakeRequest) -> Fault | None:
        return Fault.status(413) if len(request.user_ids) > 2 else None

    service, claims = FakeService(then=fate), ShakyClaims()
    users = [f"user-{number}".ljust(300, "-") for number in range(6)]
    async with service.client(claims=claims) as client:
        await deliver(client, users)
    async with service.client(claims=claims, limits=Limits(in_flight=1)) as client:
        await deliver(client, users, key="learns how much the service takes")
        assert isinstance(await deliver(client, users, OTHER), ValidationError)
    assert set(service.users().values()) == {2}
    assert service.duplicates() == dict.fromkeys(users, 2), "one for each of the two keys"
    assert claims.states() == [[ACCEPTED] * 6] * 2


@virtual
async def test_a_call_stays_unknown_if_its_second_attempt_cannot_be_claimed() -> None:
    claims = ShakyClaims()

    def fate(request: FakeRequest) -> Fault | None:
        claims.faults["swap"] = ["slow", *["down"] * 9]
        return Fault.status(500)

    service = FakeService(then=fate)
    async with service.client(claims=claims, retry=RetryPolicy.at_least_once()) as client:
        results = await deliver(client)
        assert isinstance(results, OutcomeUnknownError)
        assert (len(results.attempts), client.stats().unknown, client.stats().not_sent) == (1, 1, 0)
    assert len(service.requests) == 1


@virtual
async def test_a_rejected_request_used_its_rate_although_the_next_key_is_not_tried() -> None:
    claims, keys = ShakyClaims(), iter(["old", "new"])

    def fate(request: FakeRequest) -> Fault | None:
        claims.faults["swap"] = ["down"] * 9
        return Fault.status(401) if len(service.requests) == 1 else None

    service = FakeService(then=fate)
    client = service.serve(
        AsyncPushClient(
            "https://push.example", lambda: next(keys, "new"), claims=claims, rate=Rate(requests_per_second=10)
        )
    )
    async with client:
        assert isinstance(await deliver(client), RejectedError)
        # At ten requests per second, the next request waits.
        started = asyncio.get_running_loop().time()
        claims.faults["swap"].clear()
        await client.send("user-2", HELLO)
        assert asyncio.get_running_loop().time() - started > 0.05
        assert client._lifetime.engine.limiter.in_flight == 0


@virtual
async def test_a_user_accepted_by_another_process_meanwhile_is_not_retried() -> None:
    service, claims = FakeService(Fault.status(500, first=1)), ShakyClaims()
    patient = RetryPolicy.at_least_once(initial_delay=60.0, max_delay=60.0)
    async with (
        service.client(claims=claims, retry=patient) as client,
        service.client(claims=claims) as other,
    ):
        first = asyncio.create_task(deliver(client, timeout=600.0))
        await asyncio.sleep(1.0)
        assert claims.states() == [[UNKNOWN]]
        assert await release(claims, await claimed(claims)) == []
        assert isinstance(await deliver(other), Receipt)
        results = await first
    assert isinstance(results, Receipt)
    assert (results.already_accepted, service.users()) == (1, {"user-1": 1})


@pytest.mark.parametrize("record", [b"{}", b'{"fingerprint":"x","claimed_at":0,"users":' + b"[" * 100_000])
@virtual
async def test_an_unreadable_record_is_never_replaced_and_blocks_no_other_call(record: bytes) -> None:
    service, claims = FakeService(), ShakyClaims()
    await MemoryClaims.put(claims, [Put(digest_of("damaged"), Claim("a" * 32, record))], 1e6)
    async with service.client(claims=claims) as client:
        calls = {"user-1": "good", "user-2": "damaged", "user-3": "fine"}
        for _ in range(2):
            errors = await asyncio.gather(*(deliver(client, user, key=key) for user, key in calls.items()))
            assert [type(error) for error in errors] == [Receipt, ClaimStoreError, Receipt]
    assert service.users() == {"user-1": 1, "user-3": 1}
    assert claims._claims[digest_of("damaged")][0].record == record


async def test_a_session_that_retries_a_request_settles_its_claim() -> None:
    times = 0

    async def challenged(request: Any, handler: Any) -> Any:
        # As aiohttp's DigestAuthMiddleware does after a challenge.
        nonlocal times
        times += 1
        response = await handler(request)
        if times == 1:
            response.release()
            response = await handler(request)
        return response

    claims = ShakyClaims()
    async with (
        WireServer() as server,
        aiohttp.ClientSession(middlewares=(challenged,)) as session,
        AsyncPushClient(server.base_url, "key", session=session, claims=claims) as client,
    ):
        assert isinstance(await deliver(client), Receipt)
        assert len(server.requests) == 2
    assert claims.states() == [[ACCEPTED]]


async def test_a_call_that_ends_before_the_mock_is_called_was_not_sent() -> None:
    claims = ShakyClaims(add=["slow"])
    async with aiohttp.ClientSession() as session:

        async def recorder(*_: Any, **__: Any) -> Any:
            raise AssertionError("nothing is claimed yet")

        session._request = recorder  # type: ignore[method-assign]
        async with AsyncPushClient("http://127.0.0.1:9", "key", session=session, claims=claims) as client:
            results = await deliver(client, timeout=0.05)
    assert isinstance(results, ClaimStoreError)
    assert claims.states() == [[UserState.PENDING]]
