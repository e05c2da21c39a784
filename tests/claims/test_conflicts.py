"""Conflicts with claims of other processes and operators, with attempts that were not claimed, and with sessions."""

import asyncio

import aiohttp
import pytest
from support.shaky_claims import ShakyClaims, deliver
from support.virtual_time import virtual
from support.wire_server import WireServer

from pushsdk import (
    AsyncPushClient,
    ClaimStoreError,
    MobilePush,
    OutcomeUnknownError,
    Receipt,
    RetryPolicy,
    ValidationError,
)
from pushsdk._core.idempotency import digest_of
from pushsdk._core.user_states import UserState
from pushsdk.claims import Claim, MemoryClaims, Put
from pushsdk.emulator import Fault
from pushsdk.testing import FakeService

OTHER = MobilePush(title={"en": "Other"})


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
        assert (len(error.attempts), client.stats().unknown, client.stats().not_sent) == (1, 1, 0)
    assert len(service.requests) == 1


@virtual
async def test_another_payload_is_refused_also_if_the_service_is_down():
    claims = ShakyClaims()
    async with FakeService().client(claims=claims) as client:
        await deliver(client)
    async with FakeService(Fault.refused()).client(claims=claims) as client:
        assert isinstance(await deliver(client, "user-1", OTHER), ValidationError)


@pytest.mark.parametrize("record", [b"{}", b'{"fingerprint":"x","claimed_at":0,"users":' + b"[" * 100_000])
@virtual
async def test_an_unreadable_record_is_never_replaced_and_blocks_no_other_call(record):
    service, claims = FakeService(), ShakyClaims()
    await MemoryClaims.put(claims, [Put(digest_of("damaged"), Claim("a" * 32, record))], 1e6)
    async with service.client(claims=claims) as client:
        for _ in range(2):
            calls = {"user-1": "good", "user-2": "damaged", "user-3": "fine"}.items()
            results = await asyncio.gather(*(deliver(client, user, idempotency_key=key) for user, key in calls))
            assert [type(result) for result in results] == [Receipt, ClaimStoreError, Receipt]
    assert service.users() == {"user-1": 1, "user-3": 1}
    assert dict(claims.stored())[digest_of("damaged")].record == record


async def test_a_session_that_retries_a_request_settles_its_claim():
    times = 0

    async def challenged(request, handler):
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
    assert claims.states() == [[UserState.ACCEPTED]]
