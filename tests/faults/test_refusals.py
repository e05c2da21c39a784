"""Rejections: redirects that are not followed, merged requests that are split to find a culprit."""

from __future__ import annotations

import asyncio
import math

import pytest
from support.wire_answers import NO_CONTENT, response
from support.wire_faults import always, answering, when
from support.wire_judge import Ledger
from support.wire_rig import client_of
from support.wire_server import Act, Wire, WireServer

from pushsdk import Batching, CampaignRequest, Outcome, PayloadTooLargeError, RejectedError

# Long ids: a request is not halved for its size if the message is most of the bytes.
USERS = [f"user-{n:060}" for n in range(16)]


@pytest.mark.parametrize("injected", [False, True], ids=["own session", "injected session"])
@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_redirect_is_not_followed_and_the_key_stays_here(status: int, injected: bool) -> None:
    async with WireServer() as other:
        elsewhere = answering(response(status, Location=f"{other.base_url}/v1/push"))
        async with WireServer(when(always, elsewhere)) as server, client_of(server, injected=injected) as client:
            with pytest.raises(RejectedError, match="to 127\\.0\\.0\\.1") as push:
                await client.send("user", {"body": {"en": "hi"}})
            with pytest.raises(RejectedError) as campaign:
                await client.create_campaign(CampaignRequest(name="spring"))
    assert (push.value.status, campaign.value.status) == (status, status)
    assert (other.connections, other.bytes_received, other.api_keys) == (0, 0, set())
    assert (server.begun, server.api_keys) == (2, {"key"})


def refusing(status: int, culprits: set[str]) -> Act:
    """Answer ``status`` to each request with one of these users, and accept the others."""

    async def acting(wire: Wire) -> None:
        request = await wire.read_request()
        if culprits & set(request.users):
            await wire.send(response(status, b'{"error":"no"}'))
        else:
            wire.process()
            await wire.send(NO_CONTENT)

    return acting


def too_large_above(users: int) -> Act:
    """Answer 413 to each request with more users than this."""

    async def acting(wire: Wire) -> None:
        request = await wire.read_request()
        if len(request.users) > users:
            await wire.send(response(413))
        else:
            wire.process()
            await wire.send(NO_CONTENT)

    return acting


async def push_together(server: WireServer, **options: object) -> Ledger:
    """All users, one call each, in one request to begin with."""
    ledger = Ledger()
    async with client_of(server, **options) as client:
        await asyncio.gather(*(ledger.ask(client, user, alone=False) for user in USERS))
    ledger.judge(server, USERS)
    assert len(server.requests[0].users) == len(USERS)
    return ledger


@pytest.mark.parametrize("status", [400, 422])
@pytest.mark.parametrize("culprit", [USERS[0], USERS[7], USERS[-1]])
async def test_one_culprit_is_found_and_its_neighbours_are_pushed(status: int, culprit: str) -> None:
    async with WireServer(lambda moment, _: refusing(status, {culprit}) if moment == "request" else None) as server:
        ledger = await push_together(server)
    assert [user for user, each in ledger.endings.items() if each.outcome is Outcome.REJECTED] == [culprit]
    assert ledger.count[Outcome.ACCEPTED] == len(USERS) - 1
    # The whole, 8 calls alone while the message may be to blame, then two requests a level.
    assert server.begun <= 1 + 8 + 2 * math.ceil(math.log2(len(USERS)))


@pytest.mark.parametrize("status", [400, 422])
async def test_a_message_that_is_refused_for_everybody_is_soon_given_up(status: int) -> None:
    async with WireServer(when(always, answering(response(status)))) as server:
        ledger = await push_together(server)
    assert ledger.count == {Outcome.REJECTED: len(USERS)}
    assert server.begun < len(USERS)


@pytest.mark.parametrize("status", [400, 413, 422])
async def test_nothing_is_split_with_splitting_off(status: int) -> None:
    async with WireServer(when(always, answering(response(status)))) as server:
        ledger = await push_together(server, batching=Batching(split_on=set()))
    assert (ledger.count, server.begun) == ({Outcome.REJECTED: len(USERS)}, 1)


async def test_a_request_that_is_too_large_is_halved_until_it_fits() -> None:
    async with WireServer(lambda moment, _: too_large_above(4) if moment == "request" else None) as server:
        ledger = await push_together(server)
    assert ledger.count == {Outcome.ACCEPTED: len(USERS)}
    assert server.begun == 1 + 2 + 4


async def test_one_call_that_is_too_large_is_halved_too() -> None:
    async with (
        WireServer(lambda moment, _: too_large_above(4) if moment == "request" else None) as server,
        client_of(server) as client,
    ):
        receipt = await client.send(USERS, {"body": {"en": "hi"}})
    assert (receipt.outcome, receipt.users) == (Outcome.ACCEPTED, len(USERS))
    assert server.processed == dict.fromkeys(USERS, 1)


async def test_a_lone_user_that_is_too_large_is_refused() -> None:
    async with WireServer(when(always, answering(response(413)))) as server, client_of(server) as client:
        with pytest.raises(PayloadTooLargeError) as caught:
            await client.send("user", {"body": {"en": "hi"}})
    assert (caught.value.status, server.begun) == (413, 1)


async def test_a_doubt_is_never_split() -> None:
    script = when(always, answering(response(500), processed=True))
    async with WireServer(script) as server:
        ledger = await push_together(server, batching=Batching(split_on={400, 500}))
    assert ledger.count == {Outcome.UNKNOWN: len(USERS)}
    assert (server.begun, set(server.processed.values())) == (1, {1})


@pytest.mark.parametrize("status", [401, 403])
async def test_a_refused_key_is_asked_with_once(status: int) -> None:
    async with WireServer(when(always, answering(response(status)))) as server:
        ledger = await push_together(server)
    assert (ledger.count, server.begun) == ({Outcome.REJECTED: len(USERS)}, 1)
