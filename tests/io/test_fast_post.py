"""Small requests, read by the client itself: the same as aiohttp's own on the wire, and used only if safe."""

import asyncio
import gc
import json
import pickle
import sys
import types
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import aiohttp
import pytest
from aiohttp import http_writer
from aiohttp.client_proto import ResponseHandler
from hypothesis import given
from hypothesis import strategies as st
from multidict import CIMultiDict
from support import wire_tls
from support.mock_aiohttp import mocked
from support.requests import request_of
from support.wire_answers import BEHIND, response
from support.wire_faults import (
    Step,
    always,
    answering,
    fin,
    hold,
    on_accept,
    only,
    pause,
    reached,
    rst,
    send,
    step,
    take,
    when,
)
from support.wire_server import Act, Wire, WireServer
from yarl import URL

from pushsdk._core.outcome import Evidence, Failure
from pushsdk._core.secret import Secret
from pushsdk._io import fast_post
from pushsdk._io.fast_post import WHOLE_BODY_LIMIT, FastPost, HttpConnection
from pushsdk._io.heads import Heads, RequestHead, header_text
from pushsdk._io.request import ApiRequest
from pushsdk._io.transport import AiohttpTransport, TransportSettings

KEY = Secret.of("s3cr3t")
HEADS = Heads(URL("http://127.0.0.1"), {})
BODY = b'{"userIds":["u"],"message":{}}'
TRACEPARENT = {"traceparent": "00-1-1-01"}


@pytest.fixture
async def server() -> AsyncIterator[WireServer]:
    async with WireServer() as server:
        yield server


def transport_of(server: WireServer | SimpleNamespace, *, proxy: str | None = None) -> AiohttpTransport:
    settings = TransportSettings(
        base_url=server.base_url, headers={"X-Team": "growth"}, proxy=proxy and Secret.of(proxy)
    )
    return AiohttpTransport(settings, limit=4)


class Watched:
    """An attempt with headers of its own, and how often it was the current one."""

    def __init__(self, headers: dict[str, str] | None = None) -> None:
        self.headers = headers
        self.seen = 0

    @contextmanager
    def current(self) -> Iterator[None]:
        self.seen += 1
        yield

    aside = current

    def end(self, *_: object) -> None:
        raise AssertionError("the transport ends no attempt")


async def post(transport: AiohttpTransport, body: bytes = BODY, *, span: Watched | None = None) -> Evidence:
    evidence = Evidence()
    await transport.post(request_of(body, evidence, span=span), KEY)
    return evidence


@pytest.fixture
def exchanged(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sizes of the bodies that went by the fast_post."""
    sizes: list[int] = []
    post = FastPost.post

    async def note(self: FastPost, request: ApiRequest, *others: Any) -> None:
        sizes.append(len(request.body))
        await post(self, request, *others)

    monkeypatch.setattr(FastPost, "post", note)
    return sizes


@pytest.mark.parametrize("headers", [None, TRACEPARENT, {"x-team": "other"}], ids=str)
async def test_it_is_the_same_on_the_wire_as_aiohttps_own(
    server: WireServer,
    headers: dict[str, str] | None,
    monkeypatch: pytest.MonkeyPatch,
    exchanged: list[int],
) -> None:
    transport = transport_of(server)
    await post(transport, span=Watched(headers))
    monkeypatch.setattr(fast_post, "WHOLE_BODY_LIMIT", 0)
    await post(transport, span=Watched(headers))
    await transport.close()
    assert exchanged == [len(BODY)]
    ours, theirs = server.requests
    assert ours.head.splitlines()[0] == theirs.head.splitlines()[0] == b"POST /ext/api/v1/push HTTP/1.1"
    assert ours.headers == theirs.headers
    assert ours.headers["api-key"] == "s3cr3t"
    assert (ours.body, server.connections) == (theirs.body, 1)


async def test_an_attempt_is_current_only_if_aiohttp_sends_it(
    server: WireServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    transport, span = transport_of(server), Watched()
    await post(transport, span=span)
    assert span.seen == 0
    monkeypatch.setattr(fast_post, "WHOLE_BODY_LIMIT", 0)
    await post(transport, span=span)
    assert span.seen == 1
    await transport.close()


async def test_it_makes_no_task_and_leaves_in_one_write(server: WireServer, monkeypatch: pytest.MonkeyPatch) -> None:
    transport = transport_of(server)
    await post(transport)
    before, writes, write = asyncio.all_tasks(), [], HttpConnection.write

    class TransportRecorder:
        def __init__(self, transport: Any) -> None:
            self.transport = transport

        def write(self, data: bytes) -> None:
            writes.append((data, asyncio.all_tasks()))
            self.transport.write(data)

    def write_to_recorder(connection: HttpConnection, *args: Any) -> None:
        own, connection.transport = connection.transport, TransportRecorder(connection.transport)
        write(connection, *args)
        connection.transport = own

    monkeypatch.setattr(HttpConnection, "write", write_to_recorder)
    assert (await post(transport)).status == 204
    await transport.close()
    ((data, tasks),) = writes
    assert data.endswith(b"\r\n\r\n" + BODY)
    assert tasks == before


async def refuse(*_args: Any, **_options: Any) -> Any:
    raise aiohttp.ClientConnectionError("no network in tests")


# What others lay hands on: the owner, the name.
SPOTS = {
    "the session's requests": (aiohttp.ClientSession, "_request"),
    "what writes a request": (aiohttp.ClientRequest, "send"),
    "what reads an answer": (aiohttp.ClientResponse, "start"),
}


@pytest.mark.parametrize("spot", SPOTS)
async def test_whoever_lays_hands_on_requests_is_heeded(
    server: WireServer, monkeypatch: pytest.MonkeyPatch, spot: str, exchanged: list[int]
) -> None:
    transport = transport_of(server)
    with monkeypatch.context() as patch:
        patch.setattr(*SPOTS[spot], refuse)
        assert (await post(transport)).status is None
    assert exchanged == []
    assert (await post(transport)).status == 204
    await transport.close()
    assert exchanged == [len(BODY)]


async def test_a_session_whose_own_request_is_replaced_is_heeded(server: WireServer) -> None:
    transport = transport_of(server)
    vars(transport._session)["_request"] = refuse
    assert (await post(transport)).status is None
    await transport.close()
    assert server.begun == 0


async def test_tracing_an_open_session_sees_its_requests(server: WireServer, exchanged: list[int]) -> None:
    transport = transport_of(server)
    events: list[object] = []

    async def note(*about: object) -> None:
        events.append(about)

    config = aiohttp.TraceConfig()
    config.on_request_end.append(note)
    config.freeze()
    transport._session.trace_configs.append(config)
    assert (await post(transport)).status == 204
    await transport.close()
    assert (len(events), exchanged) == (1, [])


@pytest.mark.parametrize("function", ["_REQUEST", "_SEND", "_START"])
async def test_what_was_laid_hands_on_before_is_left_alone(monkeypatch: pytest.MonkeyPatch, function: str) -> None:
    own = getattr(fast_post, function)
    posing = types.FunctionType(own.__code__, {}, own.__name__)
    for wrapper in (refuse, posing, types.MethodType(own, object())):
        monkeypatch.setattr(fast_post, function, wrapper)
        async with aiohttp.ClientSession() as session:
            assert not FastPost(session, HEADS, 1.5).takes(BODY)


class CustomRequest(aiohttp.ClientRequest):
    """A class of the application."""


class Response(aiohttp.ClientResponse):
    """A class of the application."""


async def middleware(request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType) -> aiohttp.ClientResponse:
    return await handler(request)


@pytest.mark.parametrize(
    "options",
    [
        {"middlewares": (middleware,)},
        {"request_class": CustomRequest},
        {"response_class": Response},
        {"trace_configs": [aiohttp.TraceConfig()]},
        {"headers": {"X-Added": "1"}},
        {"proxy": "http://127.0.0.1:9"},
        {"trust_env": True},
    ],
    ids=lambda options: next(iter(options)),
)
async def test_a_customized_session_sends_by_itself(
    server: WireServer, monkeypatch: pytest.MonkeyPatch, exchanged: list[int], options: dict[str, Any]
) -> None:
    make = aiohttp.ClientSession.__init__
    # As instrumentations do it.
    monkeypatch.setattr(aiohttp.ClientSession, "__init__", lambda self, **others: make(self, **{**others, **options}))
    transport = transport_of(server)
    await post(transport)
    await transport.close()
    assert exchanged == []


async def test_a_session_of_another_class_sends_by_itself(
    server: WireServer, monkeypatch: pytest.MonkeyPatch, exchanged: list[int]
) -> None:
    with pytest.warns(DeprecationWarning, match="discouraged"):
        session = type("Session", (aiohttp.ClientSession,), {})
    with monkeypatch.context() as patch:
        patch.setattr(aiohttp, "ClientSession", session)
        transport = transport_of(server)
    assert (await post(transport)).status == 204
    await transport.close()
    assert exchanged == []


@pytest.mark.parametrize(("size", "by_exchange"), [(WHOLE_BODY_LIMIT, True), (WHOLE_BODY_LIMIT + 1, False)])
async def test_a_body_that_might_have_to_wait_is_left_to_aiohttp(
    server: WireServer, exchanged: list[int], size: int, by_exchange: bool
) -> None:
    transport = transport_of(server)
    assert (await post(transport, BODY.ljust(size))).status == 204
    await transport.close()
    assert exchanged == ([size] if by_exchange else [])
    assert server.requests[0].body == BODY.ljust(size)


async def test_a_request_by_a_proxy_is_left_to_aiohttp(server: WireServer, exchanged: list[int]) -> None:
    transport = transport_of(server, proxy=server.base_url.removesuffix("/ext/api"))
    assert (await post(transport)).status == 204
    await transport.close()
    assert exchanged == []


async def test_a_mock_that_comes_and_goes_is_heeded_meanwhile(server: WireServer) -> None:
    transport = transport_of(server)
    assert (await post(transport)).touched
    with mocked() as mock:
        mock.post(f"{server.base_url}/v1/push", status=204)
        evidence = await post(transport)
        assert (evidence.status, evidence.touched) == (204, False)
    assert (await post(transport)).touched
    await transport.close()
    assert len(server.requests) == 2


@pytest.mark.parametrize(
    ("release", "leant_on"), [("3.14.4", True), ("3.14.19", True), ("3.15.0", False), ("4.0", False)]
)
async def test_only_releases_that_these_tests_were_run_with_are_leant_on(release: str, leant_on: bool) -> None:
    async with aiohttp.ClientSession() as session:
        assert FastPost(session, HEADS, 1.5, release=release).takes(BODY) is leant_on


async def test_the_installed_release_is_one_of_them() -> None:
    async with aiohttp.ClientSession() as session:
        assert FastPost(session, HEADS, 1.5).takes(BODY)


async def test_what_only_says_that_an_answer_is_to_come_is_none() -> None:
    early = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: <a>\r\n\r\n"
    script = when(always, step(take, send(early), send(response(429, b"later", Retry_After="7"))))
    async with WireServer(script) as server:
        transport = transport_of(server)
        evidence = await post(transport)
        await post(transport)
        await transport.close()
    assert (evidence.status, evidence.body, evidence.headers["Retry-After"]) == (429, b"later", "7")
    assert server.connections == 1


async def test_a_protocol_switch_is_a_response_and_its_connection_is_not_reused() -> None:
    script = when(only(0), answering(b"HTTP/1.1 101 Switching\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n"))
    async with WireServer(script) as server:
        transport = transport_of(server)
        assert [(await post(transport)).status for _ in range(2)] == [101, 204]
        await transport.close()
    assert server.connections == 2


async def test_a_connection_that_is_still_being_written_is_not_reused(
    server: WireServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    transport = transport_of(server)
    assert (await post(transport)).status == 204
    transport._fast._idle[-1].quickest = 0.0  # else the kernel is asked
    with monkeypatch.context() as patch:
        patch.setattr(asyncio.selector_events._SelectorSocketTransport, "get_write_buffer_size", lambda _: 1)
        assert (await post(transport)).status == 204
    assert (await post(transport)).reused is False
    await transport.close()
    assert (len(server.requests), server.connections) == (3, 2)


@pytest.mark.parametrize("early_bytes", [b"220 hello\r\n", response(204), response(503)], ids=["garbage", "204", "503"])
async def test_what_was_said_before_the_request_is_no_answer_to_it(
    early_bytes: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect = aiohttp.TCPConnector._create_connection

    async def heard(self: aiohttp.TCPConnector, *args: Any) -> Any:
        # As happens over TLS 1.2 and on uvloop: data comes before whoever waits for the connection has woken.
        protocol: Any = await connect(self, *args)
        while not protocol._tail:  # noqa: ASYNC110 - the server sets no event
            await asyncio.sleep(0)
        return protocol

    monkeypatch.setattr(aiohttp.TCPConnector, "_create_connection", heard)
    received, closed = bytearray(), asyncio.Event()

    async def speak(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(early_bytes)
        while data := await reader.read(65536):
            received.extend(data)
        writer.close()
        await writer.wait_closed()
        closed.set()

    service = await asyncio.start_server(speak, "127.0.0.1", 0)
    address = SimpleNamespace(base_url=f"http://127.0.0.1:{service.sockets[0].getsockname()[1]}")
    transport = transport_of(address)
    evidence = await post(transport)
    await transport.close()
    await closed.wait()
    service.close()
    await service.wait_closed()
    assert (bytes(received), evidence.status, evidence.started_writing, evidence.reused) == (b"", None, False, False)


@pytest.mark.parametrize("size", [len(BODY), WHOLE_BODY_LIMIT + 1], ids=["small", "large"])
@pytest.mark.parametrize(
    ("fault", "failure"),
    [
        (answering(b"junk\r\n\r\n"), Failure.UNREADABLE),
        (step(take, send(b"HTTP/1.1 20"), fin), Failure.DISCONNECTED),
        (step(take, rst), Failure.RESET),
    ],
    ids=["junk", "FIN", "RST"],
)
async def test_a_request_without_an_answer_does_not_keep_its_body(fault: Step, failure: Failure, size: int) -> None:
    async with WireServer(when(always, fault)) as server:
        transport = transport_of(server)
        body = bytes(bytearray(BODY.ljust(size)))
        gc.collect()
        gc.disable()
        try:
            before = sys.getrefcount(body)
            assert (await post(transport, body)).failure is failure
            # The connection's end comes in a later turn.
            for _ in range(3):
                await asyncio.sleep(0)
            assert sys.getrefcount(body) == before
        finally:
            gc.enable()
        await transport.close()


async def test_a_request_head_is_never_shown() -> None:
    head = RequestHead("POST", URL("http://127.0.0.1/v1/push"), {"Api-Key": header_text(KEY)})
    assert "s3cr3t" not in f"{head!r} {head.request.headers!r} {vars(head.request)!r}"
    with pytest.raises(TypeError, match="pickle"):
        pickle.dumps(head)


@pytest.mark.parametrize("serialize", [http_writer._serialize_headers, http_writer._py_serialize_headers])
def test_a_secret_header_reads_as_stars_to_all_but_the_writer(serialize: Any) -> None:
    value = header_text(KEY)
    assert serialize("POST / HTTP/1.1", CIMultiDict({"Api-Key": value})).endswith(b"\r\nApi-Key: s3cr3t\r\n\r\n")
    assert (repr(value), value[:9], json.dumps([value])) == ("'***'", "***", '["***"]')
    assert (value, hash(value)) == (header_text(KEY), hash(header_text(KEY)))
    assert value == "s3cr3t"  # in the mock of a session
    assert value not in (header_text(Secret.of("other")), "***", None)
    with pytest.raises(TypeError, match="pickle"):
        pickle.dumps(value)


def test_an_unknown_aiohttp_gets_the_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aiohttp, "__version__", "3.15.0")
    assert type(header_text(KEY)) is str


@pytest.mark.parametrize("text", ["a\r\nX-Other: b", "a\nb", "a\0b"])
async def test_no_header_brings_another_along(server: WireServer, text: str) -> None:
    transport = transport_of(server)
    evidence = await post(transport, span=Watched({"traceparent": text}))
    await transport.close()
    assert (evidence.touched, evidence.started_writing, evidence.status) == (True, False, None)
    assert server.begun == 0


# --- responses ---

PLAIN = {
    "the least": b"",
    "nginx": b"Server: nginx\r\nDate: Mon, 23 Nov 2026 11:45:29 GMT\r\nConnection: keep-alive\r\n",
    "envoy": b"date: Mon, 23 Nov 2026 11:45:29 GMT\r\nserver: envoy\r\nx-envoy-upstream-service-time: 3\r\n",
    "a framework": b"Vary: Accept\r\nSet-Cookie: a=\xc3\xa4\r\nKeep-Alive: timeout=5\r\n",
}


@pytest.mark.parametrize("headers", PLAIN.values(), ids=PLAIN.keys())
async def test_a_plain_204_needs_no_parser_of_aiohttp(headers: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ResponseHandler, "set_response_params", refuse)
    script = when(always, answering(b"HTTP/1.1 204 No Content\r\n%b\r\n" % headers))
    async with WireServer(script) as server:
        transport = transport_of(server)
        assert [(await post(transport)).status for _ in range(3)] == [204] * 3
        await transport.close()
    assert server.connections == 1


LINES = st.sampled_from(
    [
        *(b"HTTP/1.1 204 No Content\r\n", b"HTTP/1.1 204 \r\n", b"HTTP/1.1 204\r\n", b"HTTP/1.0 204 OK\r\n"),
        *(b"Connection: close\r\n", b"connection:keep-alive\r\n", b"Connection: keep-alive, upgrade\r\n"),
        *(b"Content-Length: 0\r\n", b"Content-Length: 7\r\n", b"Transfer-Encoding: chunked\r\n", b"Upgrade: x\r\n"),
        *(b"Date: now\r\n", b"A:\r\n", b"A : b\r\n", b" folded\r\n", b"\r\n", b"\n", b"0\r\n\r\n", b"A: \0\r\n"),
        *(b"Sec-WebSocket-Key1: x\r\n", b"Proxy-Connection: close\r\n", b"Content-Encoding: gzip\r\n", b"no\r\n"),
    ]
)


@given(st.lists(LINES, max_size=3), st.lists(LINES, max_size=2))
async def test_every_204_that_is_taken_for_plain_is_one_to_aiohttps_parser_too(
    before: list[bytes], after: list[bytes]
) -> None:
    data = b"HTTP/1.1 204 No Content\r\n%b\r\n%b" % (b"".join(before), b"".join(after))
    protocol = ResponseHandler(asyncio.get_running_loop())
    protocol.connection_made(Mock())
    protocol.set_response_params(read_until_eof=True, auto_decompress=False)
    protocol.data_received(data)
    messages = [protocol._buffer.popleft()[0][0] for _ in range(len(protocol._buffer))]
    if fast_post.match_plain_204(data):
        assert [(message.code, message.should_close) for message in messages] == [(204, False)]
        assert not protocol.should_close


CLOSING = {
    "Connection: close": b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n",
    "HTTP/1.0": b"HTTP/1.0 204 No Content\r\n\r\n",
    "another answer behind it": response(204) + response(204),
    "an error that closes": response(500, b"no", Connection="close"),
    "an unread body": response(500, b"x" * 9000)[:-1],
}


@pytest.mark.parametrize("data", CLOSING.values(), ids=CLOSING.keys())
async def test_a_connection_that_ends_with_its_answer_is_not_reused(data: bytes) -> None:
    async with WireServer(when(always, answering(data))) as server:
        transport = transport_of(server)
        statuses = {(await post(transport)).status for _ in range(2)}
        await transport.close()
    assert (statuses, server.connections) == ({int(data[9:12])}, 2)


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
@pytest.mark.parametrize("tls", [False, True], ids=["plain", "TLS"])
def test_small_and_large_requests_and_all_answers_share_a_connection(loop: str, tls: bool) -> None:
    new_event_loop = asyncio.new_event_loop if loop == "asyncio" else pytest.importorskip("uvloop").new_event_loop
    answers = [204, 429, 204, 503, 204, 400]
    bodies = [BODY, BODY, BODY.ljust(WHOLE_BODY_LIMIT + 1), BODY, BODY, BODY.ljust(WHOLE_BODY_LIMIT + 1)]

    def script(moment: str, number: int) -> Any:
        error = response(answers[number % 6], b"x" * 3000) if answers[number % 6] != 204 else response(204)
        return step(take, send(error[:9]), pause(0.001), send(error[9:])).run if moment == "request" else None

    async def main() -> None:
        async with WireServer(script, tls=wire_tls.good() if tls else None) as server:
            settings = TransportSettings(base_url=server.base_url, ssl=wire_tls.client_context() if tls else True)
            transport = AiohttpTransport(settings, limit=1)
            for _ in range(2):
                assert [(await post(transport, body)).status for body in bodies] == answers
            await transport.close()
        assert server.connections == 1
        assert [request.body for request in server.requests] == bodies * 2

    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(main())


# --- idle connections ---


async def test_the_connection_that_was_used_last_is_the_next_and_the_others_end(server: WireServer) -> None:
    settings = TransportSettings(base_url=server.base_url, keepalive=0.2)
    transport = AiohttpTransport(settings, limit=4)
    await asyncio.gather(*(post(transport) for _ in range(3)))
    now, longest = asyncio.get_running_loop().time(), 0.0
    ending = now + 5.0
    while len(server.open_wires) > 1 and now < ending:
        await post(transport)
        before, now = now, asyncio.get_running_loop().time()
        longest = max(longest, now - before)
    # On a machine that stood still, the last connection has been idle for too long, too.
    assert len(server.open_wires) == 1
    assert server.connections == 3 or longest > 0.2
    await server.quiet()
    assert server.open_wires == []
    await transport.close()


async def test_a_connection_that_was_idle_too_long_is_not_used_although_no_timer_could_run(
    server: WireServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    transport = transport_of(server)
    await post(transport)
    now = fast_post.monotonic()
    monkeypatch.setattr(fast_post, "monotonic", lambda: now + 1.6)
    assert (await post(transport)).reused is False
    await transport.close()
    assert server.connections == 2


class Clock:
    """The time that idle connections are measured by."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.time = fast_post.monotonic()
        monkeypatch.setattr(fast_post, "monotonic", lambda: self.time)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


async def is_kept(transport: AiohttpTransport, clock: Clock, idle: float, body: bytes = BODY) -> bool:
    """Return True if a connection that was idle for so long is used again."""
    await post(transport, body)
    clock.time += idle
    evidence = await post(transport, body)
    if evidence.failure is Failure.STALE:
        assert not evidence.started_writing
        evidence = await post(transport, body)
    assert evidence.status is not None
    return evidence.reused


ANNOUNCED = [
    (b"Keep-Alive: timeout=1", 0.5),
    (b"keep-alive: max=100, Timeout = 1", 0.5),
    (b"Keep-Alive: timeout=1, max=5\r\nServer: x", 0.5),
    (b"Connection: keep-alive\r\nKEEP-ALIVE: timeout=1\r\nDate: now", 0.5),
    (b"Keep-Alive: timeout=0", 0.0),
    (b"Keep-Alive: timeout=5", 1.5),
    (b"Keep-Alive: max=1", 1.5),
    (b"X-Keep-Alive: timeout=1", 1.5),
    (b"Server: x", 1.5),
]


@pytest.mark.parametrize("status", [b"204 No Content", b"400 Bad\r\nContent-Length: 0"], ids=["204", "400"])
@pytest.mark.parametrize("size", [len(BODY), WHOLE_BODY_LIMIT + 1], ids=["small", "large"])
@pytest.mark.parametrize(("header", "seconds"), ANNOUNCED, ids=lambda value: str(value))
async def test_an_idle_connection_is_kept_for_less_than_the_server_announces(
    header: bytes, seconds: float, size: int, status: bytes, clock: Clock
) -> None:
    script = when(always, answering(b"HTTP/1.1 %b\r\n%b\r\n\r\n" % (status, header)))
    async with WireServer(script) as server:
        transport = transport_of(server)
        if seconds:
            assert await is_kept(transport, clock, seconds - 0.01, BODY.ljust(size))
        assert await is_kept(transport, clock, seconds + 0.01, BODY.ljust(size)) is False
        await transport.close()


async def test_a_plain_204_that_announces_an_idle_time_needs_no_parser_of_aiohttp(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert fast_post.match_plain_204(b"HTTP/1.1 204 No Content\r\nKeep-Alive: timeout=5, max=9\r\n\r\n")[1] == b"5"
    assert fast_post.match_plain_204(b"HTTP/1.1 204 No Content\r\nKeep-Alive: max=9\r\n\r\n").lastindex is None


async def test_an_injected_session_keeps_connections_as_long_as_its_owner_says_unless_the_server_announces_less(
    clock: Clock,
) -> None:
    announcing = iter([b"", b"", b"Keep-Alive: timeout=3\r\n"])

    async def answer(wire: Wire) -> None:
        await take(wire)
        await wire.send(b"HTTP/1.1 204 No Content\r\n%b\r\n" % next(announcing, b""))

    async with WireServer(when(always, step(answer))) as server, aiohttp.ClientSession() as session:
        settings = TransportSettings(base_url=server.base_url, session=session)
        transport = AiohttpTransport(settings, limit=4)
        assert await is_kept(transport, clock, 10.0)
        assert await is_kept(transport, clock, 3.0) is False
        assert await is_kept(transport, clock, 2.0)


@pytest.mark.parametrize("end", [fin, rst], ids=["FIN", "RST"])
@pytest.mark.parametrize("size", [len(BODY), WHOLE_BODY_LIMIT + 1], ids=["small", "large"])
@pytest.mark.parametrize(
    ("idle", "kept", "closed"),
    [(1.4, 0.69, 0.71), (0.7, 0.49, 0.51), (0.4, 1.49, 1.51)],
    ids=["halved", "not below half a second", "a crash, as it was hardly idle"],
)
async def test_idle_connections_are_kept_for_a_shorter_time_after_the_server_closed_one_with_a_request_in_flight(
    idle: float, kept: float, closed: float, size: int, end: Act, clock: Clock
) -> None:
    async with WireServer(when(only(1), step(take, end))) as server:
        transport, body = transport_of(server), BODY.ljust(size)
        await post(transport, body)
        clock.time += idle
        evidence = await post(transport, body)
        assert (evidence.status, evidence.reused) == (None, True)
        assert await is_kept(transport, clock, kept, body)
        assert await is_kept(transport, clock, closed, body) is False
        await transport.close()


@pytest.mark.parametrize("spoil", ["a new connection", "our own end"])
async def test_what_the_server_did_not_close_for_idleness_shortens_nothing(spoil: str, clock: Clock) -> None:
    script = when(only(0), step(take, rst)) if spoil == "a new connection" else when(only(1), step(take, hold))
    async with WireServer(script) as server:
        transport = transport_of(server)
        await post(transport)
        clock.time += 1.4
        if spoil == "our own end":
            call = asyncio.create_task(post(transport))
            while len(server.requests) < 2:  # noqa: ASYNC110 - the server sets no event
                await asyncio.sleep(0)
            call.cancel()
            await asyncio.wait([call])
        assert await is_kept(transport, clock, 1.4)
        await transport.close()


@pytest.mark.parametrize("path", ["small", "large", "by a proxy", "injected"])
@pytest.mark.parametrize("segments", [1, 2])
@pytest.mark.parametrize("name", BEHIND)
async def test_what_is_behind_a_204_answers_no_other_request(name: str, segments: int, path: str) -> None:
    head, rest = BEHIND[name]
    acts = [send(head + rest)] if segments == 1 else [send(head), pause(0.005), send(rest)]
    async with WireServer(when(always, step(take, *acts))) as server:
        session = aiohttp.ClientSession() if path == "injected" else None
        proxy = server.base_url.removesuffix("/ext/api") if path == "by a proxy" else None
        settings = TransportSettings(
            base_url=server.base_url, session=session, proxy=proxy and Secret.of(proxy), keepalive=9.0
        )
        transport, body = AiohttpTransport(settings, limit=1), BODY.ljust(60_000 if path == "large" else 30)
        statuses = []
        for _ in range(3):
            evidence = await post(transport, body)
            if evidence.failure is Failure.STALE:
                # The head announced nothing: what came behind it was found before the next request.
                evidence = await post(transport, body)
            statuses.append((evidence.status, evidence.written))
            if "announced" in name:
                await asyncio.sleep(0.01)
        await transport.close()
        if session is not None:
            await session.close()
    assert statuses == [(204, True)] * 3
    assert (server.connections, server.processed["u"]) == (3, 3)


async def test_an_answer_that_comes_as_its_request_is_cancelled_answers_no_other() -> None:
    arrival, silent = reached(take, hold)
    async with WireServer(when(only(0), silent)) as server:
        transport = transport_of(server)
        sending = asyncio.create_task(post(transport))
        await arrival.wait()
        (wire,) = server.open_wires
        wire.writer.write(response(204))
        # The loop runs this, then reads, then wakes the request.
        asyncio.get_running_loop().call_soon(sending.cancel)
        with pytest.raises(asyncio.CancelledError):
            await sending
        assert (await post(transport)).reused is False
        await transport.close()
    assert (len(server.requests), server.connections) == (2, 2)


@pytest.mark.parametrize("injected", [False, True], ids=["own session", "injected session"])
async def test_a_tls_connection_that_ends_after_the_handshake_is_not_claimed(injected: bool) -> None:
    async def claim() -> bytes:
        raise AssertionError("nothing is claimed")

    session = aiohttp.ClientSession() if injected else None
    async with WireServer(when(always, on_accept(fin)), tls=wire_tls.good()) as server:
        settings = TransportSettings(base_url=server.base_url, ssl=wire_tls.client_context(), session=session)
        transport, evidence = AiohttpTransport(settings, limit=4), Evidence()
        await transport.post(request_of(BODY, evidence, claim=claim), KEY)
        await transport.close()
        if session is not None:
            await session.close()
    assert (evidence.failure, evidence.started_writing) == (Failure.STALE, False)


async def test_a_connection_that_ends_as_it_is_opened_is_not_claimed(
    server: WireServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect = aiohttp.TCPConnector.connect

    async def connecting(self: aiohttp.TCPConnector, *args: Any) -> Any:
        connection: Any = await connect(self, *args)
        connection.transport.abort()
        await asyncio.sleep(0)
        return connection

    monkeypatch.setattr(aiohttp.TCPConnector, "connect", connecting)
    transport, evidence = transport_of(server), Evidence()

    async def claim() -> bytes:
        raise AssertionError("nothing is claimed")

    await transport.post(request_of(BODY, evidence, claim=claim), KEY)
    await transport.close()
    assert (evidence.failure, evidence.started_writing, evidence.reused) == (Failure.STALE, False, False)
