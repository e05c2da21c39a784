"""The claim of a request: made once its connection is had, before its first byte, however the request leaves."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest
from support.mock_aiohttp import mocked
from support.requests import request_of
from support.wire_network import closed_port
from support.wire_server import WireServer

from pushsdk._core.outcome import Evidence, Failure, Outcome, judge
from pushsdk._core.secret import Secret
from pushsdk._io.request import Claim
from pushsdk._io.transport import AiohttpTransport, TransportSettings

KEY = Secret.of("key")
BODY = b'{"userIds":["a","b"],"message":{}}'
SHORTER = b'{"userIds":["b"],"message":{}}'


class Claims:
    """A claim that a test holds up and answers."""

    def __init__(self, answer: bytes | None = BODY) -> None:
        self.asked = asyncio.Event()
        self.go_on = asyncio.Event()
        self.answer = answer

    async def __call__(self) -> bytes | None:
        self.asked.set()
        await self.go_on.wait()
        return self.answer


@pytest.fixture
async def server() -> AsyncIterator[WireServer]:
    async with WireServer() as server:
        yield server


@pytest.fixture(params=["the exchange", "aiohttp's own way"])
async def transport(request: pytest.FixtureRequest, server: WireServer) -> AsyncIterator[AiohttpTransport]:
    session = None if request.param == "the exchange" else aiohttp.ClientSession()
    transport = transport_to(server.base_url, session)
    yield transport
    await transport.close()
    if session is not None:
        await session.close()


def transport_to(base_url: str, session: aiohttp.ClientSession | None = None) -> AiohttpTransport:
    return AiohttpTransport(TransportSettings(base_url=base_url, session=session), limit=4)


async def post(transport: AiohttpTransport, claim: Claim | None, evidence: Evidence | None = None) -> Evidence:
    evidence = evidence or Evidence()
    await transport.post(request_of(BODY, evidence, claim=claim), KEY)
    return evidence


def outcome(evidence: Evidence) -> Outcome:
    return judge(evidence, statuses={}, retry_on=frozenset(), started=0.0, seconds=0.0).outcome


async def test_the_latency_on_a_new_connection_includes_the_claim(transport: AiohttpTransport) -> None:
    async def claim() -> bytes:
        await asyncio.sleep(0.02)
        return BODY

    first, second = await post(transport, claim), await post(transport, claim)
    assert first.latency is not None
    assert 0.02 <= first.latency < 1.0
    assert second.latency is None


async def test_a_claim_is_asked_for_on_an_open_connection_before_the_first_byte(
    server: WireServer, transport: AiohttpTransport
) -> None:
    claim = Claims()
    posting = asyncio.create_task(post(transport, claim))
    await claim.asked.wait()
    assert len(server.open_wires) == 1
    assert not await begun_requests(server)
    claim.go_on.set()
    assert outcome(await posting) is Outcome.ACCEPTED
    assert [request.body for request in server.requests] == [BODY]


async def begun_requests(server: WireServer) -> int:
    for _ in range(20):
        await asyncio.sleep(0)
    return sum(wire.exchanges for wire in server.open_wires)


async def test_a_claim_can_leave_users_out(server: WireServer, transport: AiohttpTransport) -> None:
    claim = Claims(SHORTER)
    claim.go_on.set()
    assert outcome(await post(transport, claim)) is Outcome.ACCEPTED
    assert [json.loads(request.body)["userIds"] for request in server.requests] == [["b"]]


async def test_a_refused_claim_sends_nothing(server: WireServer, transport: AiohttpTransport) -> None:
    claim = Claims(None)
    claim.go_on.set()
    evidence = await post(transport, claim)
    assert (evidence.failure, outcome(evidence)) == (Failure.UNCLAIMED, Outcome.NOT_SENT)
    assert outcome(await post(transport, None)) is Outcome.ACCEPTED
    assert len(server.requests) == 1


async def test_no_claim_is_asked_for_without_a_connection() -> None:
    async with closed_port() as (host, port):
        transport = transport_to(f"http://{host}:{port}")
        claim = Claims()
        evidence = await post(transport, claim)
        await transport.close()
    assert evidence.failure is Failure.REFUSED
    assert not claim.asked.is_set()


async def test_a_connection_that_ends_during_the_claim_is_stale(
    server: WireServer, transport: AiohttpTransport
) -> None:
    claim = Claims()
    posting = asyncio.create_task(post(transport, claim))
    await claim.asked.wait()
    (wire,) = server.open_wires
    wire.writer.close()
    await wire.writer.wait_closed()
    claim.go_on.set()
    evidence = await posting
    assert (evidence.failure, outcome(evidence)) == (Failure.STALE, Outcome.NOT_SENT)
    assert server.requests == []


async def test_an_answer_that_comes_during_the_claim_ends_the_attempt_and_nothing_is_sent(
    server: WireServer, transport: AiohttpTransport
) -> None:
    claim = Claims()
    posting = asyncio.create_task(post(transport, claim))
    await claim.asked.wait()
    (wire,) = server.open_wires
    wire.writer.write(b"HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\n\r\n")
    await wire.writer.drain()
    for _ in range(20):
        await asyncio.sleep(0)
    claim.go_on.set()
    evidence = await posting
    assert (evidence.started_writing, outcome(evidence)) == (False, Outcome.NOT_SENT)
    assert not await begun_requests(server)
    assert server.requests == []


async def test_a_cancelled_attempt_sends_nothing_although_its_claim_is_made(
    server: WireServer, transport: AiohttpTransport
) -> None:
    claim, evidence = Claims(), Evidence()
    posting = asyncio.create_task(post(transport, claim, evidence))
    await claim.asked.wait()
    posting.cancel()
    claim.go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await posting
    assert not evidence.started_writing
    assert not await begun_requests(server)
    assert server.requests == []


async def test_a_mock_is_not_asked_before_the_claim_is_made() -> None:
    claim: Any = Claims(None)
    claim.go_on.set()
    with mocked() as mock:
        mock.post("https://push.example/v1/push", status=204)
        transport = transport_to("https://push.example")
        evidence = await post(transport, claim)
        await transport.close()
    assert (evidence.failure, outcome(evidence)) == (Failure.UNCLAIMED, Outcome.NOT_SENT)
    assert not mock.requests


async def test_a_mock_answers_what_is_claimed() -> None:
    claim: Any = Claims(SHORTER)
    claim.go_on.set()
    with mocked() as mock:
        mock.post("https://push.example/v1/push", status=204)
        transport = transport_to("https://push.example")
        assert outcome(await post(transport, claim)) is Outcome.ACCEPTED
        await transport.close()
