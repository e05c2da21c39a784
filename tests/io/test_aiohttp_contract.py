"""The private parts of aiohttp that the transport relies on: a new aiohttp that changes them fails here.

Plain aiohttp against a real server; nothing of this package but the header value it hands over. What is leant on
beyond that by the exchange, which does without aiohttp's requests, is held where that is tested.
"""

from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest
from aiohttp import payload
from support import wire_tls
from support.wire_server import WireServer

BODY = b'{"userIds":["u"],"message":{}}'


class Probe(payload.Payload):
    """A body that records every access and the accessing function."""

    def __init__(self, error: Exception | None = None) -> None:
        super().__init__(BODY, content_type="application/x-probe")
        self.error = error
        self.asked: list[str] = []
        self.protocol: Any = None
        self.transport: Any = None
        self.should_close: bool | None = None

    @property
    def size(self) -> int | None:
        self.asked.append("size")
        return len(BODY)

    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        raise AssertionError("a body is not decoded")

    async def write(self, writer: Any) -> None:
        raise AssertionError("write_with_length is the one that is called")

    async def write_with_length(self, writer: Any, content_length: int | None) -> None:
        self.asked.append("write")
        self.protocol, self.transport = writer.protocol, writer.transport
        self.should_close = self.protocol.should_close
        if self.error is not None:
            raise self.error
        await writer.write(BODY)


@pytest.mark.parametrize("error", [LookupError("no"), OSError(5, "no")], ids=repr)
async def test_what_a_body_raises_is_a_cause_for_the_caller_and_ends_the_connection_unsent(
    session: aiohttp.ClientSession, server: WireServer, error: Exception
) -> None:
    with pytest.raises(aiohttp.ClientError) as excinfo:
        await post(session, server, Probe(error))
    causes, cause = [], excinfo.value.__cause__
    while cause is not None:
        causes.append(cause)
        cause = cause.__cause__
    assert error in causes
    assert server.begun == 0
    assert await post(session, server, Probe()) == 204
    assert server.connections == 2


@pytest.mark.parametrize("tls", [False, True], ids=["http", "https"])
async def test_the_writer_shows_its_connection_which_can_be_marked_to_be_closed(tls: bool) -> None:
    connector = aiohttp.TCPConnector(ssl=wire_tls.client_context())
    async with (
        WireServer(tls=wire_tls.good() if tls else None) as server,
        aiohttp.ClientSession(connector=connector) as session,
    ):
        first, second = Probe(), Probe()
        for probe in (first, second):
            await post(session, server, probe)
        assert first.protocol.transport is first.transport
        assert first.transport.get_extra_info("socket").fileno() > 0
        assert first.transport.is_closing() is False
        # The mark of a used connection is kept on the connection's protocol.
        assert second.protocol is first.protocol
        first.protocol._pushsdk_mark = 1
        assert (first.should_close, second.should_close, first.protocol.is_connected()) == (False, False, True)
        first.protocol.force_close()
        assert first.protocol.should_close is True
    assert server.connections == 1


@pytest.fixture
async def server() -> AsyncIterator[WireServer]:
    async with WireServer() as server:
        yield server


@pytest.fixture
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as session:
        yield session


async def post(session: aiohttp.ClientSession, server: WireServer, probe: Probe, **options: Any) -> int:
    async with session.post(f"{server.base_url}/v1/push", data=probe, **options) as answer:
        return answer.status


async def test_a_request_asks_the_payloads_size_before_it_is_written(
    session: aiohttp.ClientSession, server: WireServer
) -> None:
    probe = Probe()
    assert await post(session, server, probe) == 204
    assert (probe.asked[0], probe.asked.count("write")) == ("size", 1)
    assert probe.asked.index("size") < probe.asked.index("write")
    assert server.requests[0].headers["content-length"] == str(len(BODY))


def test_a_payload_keeps_nothing_that_the_lean_body_leaves_out() -> None:
    body = payload.BytesPayload(BODY, content_type="application/json")
    assert set(vars(body)) == {"_encoding", "_filename", "_headers", "_value", "_size"}
    assert (body._encoding, body._filename) == (None, None)
