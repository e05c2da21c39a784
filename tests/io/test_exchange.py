"""The exchange on aiohttp's connections: the same on the wire as aiohttp's own request, and only where it is safe."""

from __future__ import annotations

import asyncio
import pickle
import types
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Any

import aiohttp
import pytest
from aiohttp.client_proto import ResponseHandler
from support.mock_aiohttp import mocked
from support.wire_answers import response
from support.wire_faults import always, answering, only, send, step, take, when
from support.wire_server import WireServer
from yarl import URL

from pushsdk._core.endpoint import HeaderSecret
from pushsdk._core.outcome import Evidence
from pushsdk._io import exchange
from pushsdk._io.exchange import WHOLE_BODY_LIMIT, Exchange, Head
from pushsdk._io.transport import AiohttpTransport

KEY = HeaderSecret("s3cr3t")
BODY = b'{"userIds":["u"],"message":{}}'
LARGE = BODY.ljust(WHOLE_BODY_LIMIT + 1)
TRACEPARENT = {"traceparent": "00-1-1-01"}


@pytest.fixture
async def server() -> AsyncIterator[WireServer]:
    async with WireServer() as server:
        yield server


def transport_of(server: WireServer, *, key: HeaderSecret | None = KEY, proxy: str | None = None) -> AiohttpTransport:
    return AiohttpTransport(
        server.base_url,
        headers={"X-Team": "growth"},
        key=key,
        session=None,
        limit=4,
        keepalive=4.0,
        ssl=True,
        proxy=proxy,
    )


async def post(transport: AiohttpTransport, body: bytes = BODY, **options: Any) -> Evidence:
    evidence = Evidence()
    await transport.post("v1/push", body, KEY, evidence, connect=None, read=False, **options)
    return evidence


@contextmanager
def counted(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[object]]:
    """The requests that aiohttp itself wrote."""
    own: list[object] = []
    write = aiohttp.ClientRequest.send

    async def note(self: aiohttp.ClientRequest, conn: Any) -> aiohttp.ClientResponse:
        own.append(self)
        return await write(self, conn)

    with monkeypatch.context() as patch:
        patch.setattr(aiohttp.ClientRequest, "send", note)
        yield own


@pytest.mark.parametrize("headers", [None, TRACEPARENT, {"x-team": "other"}], ids=str)
@pytest.mark.parametrize("fixed", [True, False], ids=["a fixed key", "a key that is asked for"])
async def test_it_is_the_same_on_the_wire_as_aiohttps_own(
    server: WireServer, fixed: bool, headers: dict[str, str] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    transport = transport_of(server, key=KEY if fixed else None)
    with counted(monkeypatch) as own:
        await post(transport, headers=headers)
        assert own == []
        monkeypatch.setattr(exchange, "WHOLE_BODY_LIMIT", 0)
        await post(transport, headers=headers)
        assert len(own) == 1
    await transport.close()
    ours, theirs = server.requests
    assert ours.head.splitlines()[0] == theirs.head.splitlines()[0] == b"POST /ext/api/v1/push HTTP/1.1"
    assert ours.headers == theirs.headers
    assert ours.headers["api-key"] == "s3cr3t"
    assert (ours.body, server.connections) == (theirs.body, 1)


async def test_it_makes_no_task_and_leaves_in_one_write(server: WireServer, monkeypatch: pytest.MonkeyPatch) -> None:
    transport = transport_of(server)
    await post(transport)
    before, seen, write = asyncio.all_tasks(), [], Head.write

    class Recorder:
        def __init__(self, transport: Any) -> None:
            self.transport = transport

        def write(self, data: bytes) -> None:
            seen.append((data, asyncio.all_tasks()))
            self.transport.write(data)

    monkeypatch.setattr(Head, "write", lambda self, to, body: write(self, Recorder(to), body))
    assert (await post(transport)).status == 204
    await transport.close()
    ((data, tasks),) = seen
    assert data.endswith(b"\r\n\r\n" + BODY)
    assert tasks == before


@pytest.mark.parametrize("why", ["a large body", "a mock", "a mock that was there before", "a tracer", "a proxy"])
async def test_whatever_asks_for_aiohttps_own_requests_gets_them(
    server: WireServer, monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    request = aiohttp.ClientSession._request

    async def wrapper(*args: Any, **options: Any) -> aiohttp.ClientResponse:
        return await request(*args, **options)

    if why == "a mock that was there before":
        monkeypatch.setattr(exchange, "_REQUEST", wrapper)
    if why == "a tracer":
        # As instrumentations do it.
        monkeypatch.setattr(aiohttp.ClientSession, "trace_configs", [aiohttp.TraceConfig()])
    transport = transport_of(server, proxy=server.base_url.removesuffix("/ext/api") if why == "a proxy" else None)
    if why.startswith("a mock"):
        monkeypatch.setattr(aiohttp.ClientSession, "_request", wrapper)
    with counted(monkeypatch) as own:
        assert (await post(transport, LARGE if why == "a large body" else BODY)).status == 204
    await transport.close()
    assert len(own) == 1


async def test_a_body_at_the_limit_is_written_at_once(server: WireServer, monkeypatch: pytest.MonkeyPatch) -> None:
    transport = transport_of(server)
    with counted(monkeypatch) as own:
        assert (await post(transport, LARGE[:-1])).status == 204
    await transport.close()
    assert own == []
    assert server.requests[0].body == LARGE[:-1]


async def test_a_mock_that_comes_and_goes_is_heeded_meanwhile(server: WireServer) -> None:
    transport = transport_of(server)
    assert (await post(transport)).touched
    with mocked() as mock:
        mock.post(f"{server.base_url}/v1/push", status=204)
        told = await post(transport)
        assert (told.status, told.touched) == (204, False)
    assert (await post(transport)).touched
    await transport.close()
    assert len(server.requests) == 2


@pytest.mark.parametrize(
    ("release", "leant_on"), [("3.14.4", True), ("3.14.19", True), ("3.15.0", False), ("4.0", False)]
)
async def test_only_releases_that_these_tests_were_run_with_are_leant_on(release: str, leant_on: bool) -> None:
    async with aiohttp.ClientSession() as session:
        assert (Exchange.over(session, release) is not None) is leant_on


async def test_the_installed_release_is_one_of_them() -> None:
    async with aiohttp.ClientSession() as session:
        assert Exchange.over(session) is not None


def test_a_wrapper_that_poses_as_a_function_is_seen() -> None:
    request = exchange._REQUEST
    posing = types.FunctionType(request.__code__, {}, request.__name__)
    assert not exchange._is_own(posing)
    assert not exchange._is_own(lambda: None)
    assert not exchange._is_own(types.MethodType(request, object()))
    assert exchange._is_own(request)


async def test_what_only_says_that_an_answer_is_to_come_is_none() -> None:
    early = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: <a>\r\n\r\n"
    script = when(always, step(take, send(early), send(response(429, b"later", Retry_After="7"))))
    async with WireServer(script) as server:
        transport = transport_of(server)
        told = await post(transport)
        await post(transport)
        await transport.close()
    assert (told.status, told.body, told.headers["Retry-After"]) == (429, b"later", "7")
    assert server.connections == 1


async def test_another_protocol_is_an_answer_and_its_connection_is_given_to_nobody() -> None:
    script = when(only(0), answering(b"HTTP/1.1 101 Switching\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n"))
    async with WireServer(script) as server:
        transport = transport_of(server)
        assert [(await post(transport)).status for _ in range(2)] == [101, 204]
        await transport.close()
    assert server.connections == 2


async def test_a_connection_that_is_still_written_to_is_given_to_nobody(
    server: WireServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    transport = transport_of(server)
    assert (await post(transport)).status == 204
    with monkeypatch.context() as patch:
        patch.setattr(ResponseHandler, "writing_paused", True)
        told = await post(transport)
    assert (told.status, told.reused, told.started_writing) == (None, True, False)
    assert (await post(transport)).status == 204
    await transport.close()
    assert (len(server.requests), server.connections) == (2, 2)


async def test_nobody_is_shown_a_head() -> None:
    head = Head(URL("http://127.0.0.1/v1/push"), {"Api-Key": KEY})
    assert "s3cr3t" not in f"{head!r} {head.request.headers!r} {vars(head.request)!r}"
    with pytest.raises(TypeError, match="not pickled"):
        pickle.dumps(head)


@pytest.mark.parametrize("text", ["a\r\nX-Other: b", "a\nb", "a\0b"])
async def test_no_header_brings_another_along(server: WireServer, text: str) -> None:
    transport = transport_of(server)
    told = await post(transport, headers={"traceparent": text})
    await transport.close()
    assert (told.touched, told.started_writing, told.status) == (True, False, None)
    assert server.begun == 0
