"""The claim of a request: made once its connection is had, before its first byte, however the request leaves."""

import asyncio

import pytest
from support.mock_aiohttp import mocked
from support.requests import BODY, post, transport_to
from support.wire_server import WireServer

from pushsdk._core.outcome import Failure

SHORTER = b'{"userIds":[],"message":{}}'


class Claims:
    """A claim that a test holds up and answers."""

    def __init__(self, answer=BODY):
        self.asked = asyncio.Event()
        self.go_on = asyncio.Event()
        self.answer = answer

    async def __call__(self):
        self.asked.set()
        await self.go_on.wait()
        return self.answer

    @classmethod
    def made(cls, answer):
        claims = cls(answer)
        claims.go_on.set()
        return claims


@pytest.fixture
async def server():
    async with WireServer() as server:
        yield server


@pytest.fixture(params=[False, True])
async def transport(request, server):
    async with transport_to(server.base_url, injected=request.param) as transport:
        yield transport


async def begun_requests(server):
    for _ in range(20):
        await asyncio.sleep(0)
    return sum(wire.exchanges for wire in server.open_wires)


async def test_a_claim_is_asked_for_on_an_open_connection_before_the_first_byte_and_can_leave_users_out(
    server, transport
):
    claim = Claims(SHORTER)
    posting = asyncio.create_task(post(transport, claim=claim))
    await claim.asked.wait()
    assert len(server.open_wires) == 1
    assert not await begun_requests(server)
    claim.go_on.set()
    async with asyncio.timeout(9.0):  # a server waits for the rest of a body that was announced as longer
        assert (await posting).status == 204
    assert [request.body.rstrip() for request in server.requests] == [claim.answer]


@pytest.mark.parametrize("end", ["closed", "answered", "cancelled"])
async def test_an_attempt_that_ends_during_the_claim_sends_nothing(server, transport, end):
    claim = Claims()
    posting = asyncio.create_task(post(transport, claim=claim))
    await claim.asked.wait()
    (wire,) = server.open_wires
    if end == "closed":
        wire.writer.close()
        await wire.writer.wait_closed()
    elif end == "answered":
        wire.writer.write(b"HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\n\r\n")
        await begun_requests(server)
    else:
        posting.cancel()
    claim.go_on.set()
    await asyncio.wait([posting])
    if end == "cancelled":
        assert posting.cancelled()
    else:
        assert posting.result().failure == Failure.STALE
        assert not posting.result().started_writing
    assert not await begun_requests(server)
    assert server.requests == []


@pytest.mark.parametrize(("answer", "failure"), [(None, Failure.UNCLAIMED), (SHORTER, None)])
async def test_a_mock_is_asked_only_after_the_claim_is_made(answer, failure):
    with mocked() as mock:
        mock.post("https://push.example/v1/push", status=204)
        async with transport_to("https://push.example") as transport:
            evidence = await post(transport, claim=Claims.made(answer))
    assert evidence.failure == failure
    assert evidence.status == (204 if answer else None)
    assert bool(mock.requests) is bool(answer)
