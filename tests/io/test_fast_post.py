"""Small requests, read by the client itself: the same as aiohttp's own on the wire, and used only if safe."""

import asyncio
import json
import pickle
from asyncio.selector_events import _SelectorSocketTransport as SocketTransport
from contextlib import contextmanager
from unittest.mock import Mock

import aiohttp
import pytest
from aiohttp import http_writer
from aiohttp.client_proto import ResponseHandler
from hypothesis import given
from hypothesis import strategies as st
from multidict import CIMultiDict
from support.requests import BODY, KEY, post, transport_to
from support.wire_answers import BEHIND, response
from support.wire_faults import (
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
from support.wire_server import WireServer
from yarl import URL

from pushsdk._core.outcome import Failure
from pushsdk._core.secret import Secret
from pushsdk._io import fast_post
from pushsdk._io.fast_post import WHOLE_BODY_LIMIT, FastPost, HttpConnection
from pushsdk._io.heads import Heads, RequestHead, header_text

HEADS = Heads(URL("http://127.0.0.1"), {})
TRACEPARENT = {"traceparent": "00-1-1-01"}


@pytest.fixture
async def server():
    async with WireServer() as server:
        yield server


class Watched:
    """An attempt with headers of its own, and how often it was the current one."""

    def __init__(self, headers):
        self.headers = headers
        self.seen = 0

    @contextmanager
    def current(self):
        self.seen += 1
        yield

    aside = current

    def end(self, *_):
        raise AssertionError("the transport ends no attempt")


@pytest.mark.parametrize("headers", [None, TRACEPARENT, {"x-team": "other"}])
async def test_it_is_the_same_on_the_wire_as_aiohttps_own_which_alone_makes_the_attempt_current(
    server, transport, headers, monkeypatch
):
    span = Watched(headers)
    await post(transport, span=span)
    assert span.seen == 0
    monkeypatch.setattr(fast_post, "WHOLE_BODY_LIMIT", 0)
    await post(transport, span=span)
    assert span.seen == 1
    ours, theirs = server.requests
    assert ours.head.splitlines()[0] == theirs.head.splitlines()[0] == b"POST /ext/api/v1/push HTTP/1.1"
    assert ours.headers == theirs.headers
    assert ours.headers["api-key"] == "s3cr3t"
    assert ours.body == theirs.body
    assert server.connections == 1


@pytest.fixture
async def transport(server):
    async with transport_to(server.base_url, headers={"X-Team": "growth"}) as transport:
        yield transport


async def refuse(*_args, **_options):
    raise aiohttp.ClientConnectionError("no network in tests")


class CustomRequest(aiohttp.ClientRequest):
    """A class of the application."""


class Response(aiohttp.ClientResponse):
    """A class of the application."""


async def middleware(request, handler):
    return await handler(request)


def trace(session):
    config = aiohttp.TraceConfig()
    config.freeze()
    session.trace_configs.append(config)


HANDS = {
    "the session's requests": lambda _, patch: patch.setattr(aiohttp.ClientSession, "_request", refuse),
    "what writes a request": lambda _, patch: patch.setattr(aiohttp.ClientRequest, "send", refuse),
    "what reads an answer": lambda _, patch: patch.setattr(aiohttp.ClientResponse, "start", refuse),
    "tracing": lambda session, _: trace(session),
}


@pytest.mark.parametrize("hand", HANDS)
async def test_whoever_lays_hands_on_requests_is_heeded(hand, monkeypatch):
    async with aiohttp.ClientSession() as session:
        fast = FastPost(session, HEADS, 1.5)
        assert fast.takes(BODY)
        HANDS[hand](session, monkeypatch)
        assert not fast.takes(BODY)


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
)
async def test_a_session_that_instrumentation_customized_sends_by_itself(options):
    async with aiohttp.ClientSession(**options) as session:
        assert not FastPost(session, HEADS, 1.5).takes(BODY)


async def test_what_only_says_that_an_answer_is_to_come_is_none():
    early = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: <a>\r\n\r\n"
    script = when(always, step(take, send(early), send(response(429, b"later", Retry_After="7"))))
    async with WireServer(script) as server, transport_to(server.base_url) as transport:
        evidence = await post(transport)
        await post(transport)
    assert evidence.status == 429
    assert evidence.body == b"later"
    assert evidence.headers["Retry-After"] == "7"
    assert server.connections == 1


async def test_a_connection_that_is_still_being_written_is_not_reused(server, transport, monkeypatch):
    with monkeypatch.context() as patch:
        # For a small request the kernel is asked only if its answer is the fastest so far.
        patch.setattr(HttpConnection, "_unacknowledged", lambda _: 0)
        patch.setattr(SocketTransport, "get_write_buffer_size", lambda _: 1)
        assert (await post(transport)).status == 204
    assert (await post(transport)).reused is False
    assert len(server.requests) == 2
    assert server.connections == 2


@pytest.mark.parametrize("early_bytes", [b"220 hello\r\n", response(204)])
async def test_what_was_said_before_the_request_is_no_answer_to_it(early_bytes, monkeypatch):
    connect = aiohttp.TCPConnector._create_connection

    async def heard(self, *args):
        # As happens over TLS 1.2 and on uvloop: data comes before whoever waits for the connection has woken.
        protocol = await connect(self, *args)
        while not protocol._tail:  # noqa: ASYNC110 - the server sets no event
            await asyncio.sleep(0)
        return protocol

    monkeypatch.setattr(aiohttp.TCPConnector, "_create_connection", heard)
    async with (
        WireServer(when(always, on_accept(send(early_bytes)))) as server,
        transport_to(server.base_url) as transport,
    ):
        evidence = await post(transport)
    assert evidence.status is None
    assert not evidence.started_writing
    assert not evidence.reused
    assert server.begun == 0


@pytest.mark.parametrize("serialize", [http_writer._serialize_headers, http_writer._py_serialize_headers])
async def test_a_secret_header_reads_as_stars_to_all_but_the_writer(serialize):
    value = header_text(KEY)
    assert serialize("POST / HTTP/1.1", CIMultiDict({"Api-Key": value})).endswith(b"\r\nApi-Key: s3cr3t\r\n\r\n")
    assert repr(value) == "'***'"
    assert value[:9] == "***"
    assert json.dumps([value]) == '["***"]'
    assert value == header_text(KEY)
    assert hash(value) == hash(header_text(KEY))
    assert value == "s3cr3t"  # in the mock of a session
    assert value not in (header_text(Secret.of("other")), "***", None)
    head = RequestHead("POST", URL("http://127.0.0.1/v1/push"), {"Api-Key": value})
    assert "s3cr3t" not in f"{head!r} {head.request.headers!r} {vars(head.request)!r}"
    for secret in (value, head):
        with pytest.raises(TypeError, match="pickle"):
            pickle.dumps(secret)


def test_an_unknown_aiohttp_gets_the_text(monkeypatch):
    monkeypatch.setattr(aiohttp, "__version__", "3.15.0")
    assert type(header_text(KEY)) is str


# --- responses ---


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
async def test_every_204_that_is_taken_for_plain_is_one_to_aiohttps_parser_too(before, after):
    data = b"HTTP/1.1 204 No Content\r\n%b\r\n%b" % (b"".join(before), b"".join(after))
    protocol = ResponseHandler(asyncio.get_running_loop())
    protocol.connection_made(Mock())
    protocol.set_response_params(read_until_eof=True, auto_decompress=False)
    protocol.data_received(data)
    messages = [protocol._buffer.popleft()[0][0] for _ in range(len(protocol._buffer))]
    if fast_post.match_plain_204(data):
        assert [(message.code, message.should_close) for message in messages] == [(204, False)]
        assert not protocol.should_close


# --- idle connections ---


class Clock:
    """The time that idle connections are measured by."""

    def __init__(self, monkeypatch):
        self.time = fast_post.monotonic()
        monkeypatch.setattr(fast_post, "monotonic", lambda: self.time)


@pytest.fixture
def clock(monkeypatch):
    return Clock(monkeypatch)


async def is_kept(transport, clock, idle, body):
    """Return True if a connection that was idle for so long is used again."""
    await post(transport, body)
    clock.time += idle
    evidence = await post(transport, body)
    if evidence.failure is Failure.STALE:
        assert not evidence.started_writing
        evidence = await post(transport, body)
    assert evidence.status is not None
    return evidence.reused


LARGE = BODY.ljust(WHOLE_BODY_LIMIT + 1)


ANNOUNCED = [
    (b"204 No Content" + b"\r\nKeep-Alive: timeout=1" * 40 + b"\r\nContent-Length: 0", BODY, 0.5),
    (b"204 No Content\r\nkeep-alive: max=100, Timeout = 1\r\nServer: x", BODY, 0.5),
    (b"204 No Content\r\nConnection: keep-alive\r\nKEEP-ALIVE: timeout=1", LARGE, 0.5),
    (b"400 Bad\r\nContent-Length: 0\r\nKeep-Alive: timeout=1, max=5", BODY, 0.5),
    (b"400 Bad\r\nContent-Length: 0\r\nkeep-alive: max=100, Timeout = 1", LARGE, 0.5),
    (b"204 No Content\r\nKeep-Alive: timeout=0", BODY, 0.0),
    (b"204 No Content\r\nKeep-Alive: timeout=5", BODY, 1.5),
    (b"204 No Content\r\nKeep-Alive: max=1", BODY, 1.5),
    (b"400 Bad\r\nContent-Length: 0\r\nX-Keep-Alive: timeout=1", BODY, 1.5),
    (b"204 No Content\r\nServer: x", LARGE, 1.5),
]


@pytest.mark.parametrize(("head", "body", "seconds"), ANNOUNCED)
async def test_an_idle_connection_is_kept_for_less_than_the_server_announces(head, body, seconds, clock):
    script = when(always, answering(b"HTTP/1.1 %b\r\n\r\n" % head))
    async with WireServer(script) as server, transport_to(server.base_url) as transport:
        if seconds:
            assert await is_kept(transport, clock, seconds - 0.01, body)
        assert await is_kept(transport, clock, seconds + 0.01, body) is False


@pytest.mark.parametrize(
    ("idle", "seconds", "body", "end"),
    [(1.4, 0.7, BODY, fin), (1.4, 0.7, LARGE, rst), (0.7, 0.5, BODY, rst), (0.4, 1.5, LARGE, fin)],
    ids=["halved", "halved, large", "not below half a second", "a crash, as it was hardly idle"],
)
async def test_idle_connections_are_kept_for_a_shorter_time_after_the_server_closed_one_with_a_request_in_flight(
    idle, seconds, body, end, clock
):
    async with WireServer(when(only(1), step(take, end))) as server, transport_to(server.base_url) as transport:
        await post(transport, body)
        clock.time += idle
        evidence = await post(transport, body)
        assert evidence.status is None
        assert evidence.reused
        assert await is_kept(transport, clock, seconds - 0.01, body)
        assert await is_kept(transport, clock, seconds + 0.01, body) is False


@pytest.mark.parametrize("name", BEHIND)
@pytest.mark.parametrize(
    ("path", "segments"), [("small", 1), ("small", 2), ("large", 1), ("large", 2), ("by a proxy", 2), ("injected", 1)]
)
async def test_what_is_behind_a_204_answers_no_other_request(name, segments, path):
    head, rest = BEHIND[name]
    acts = [send(head + rest)] if segments == 1 else [send(head), pause(0.005), send(rest)]
    async with WireServer(when(always, step(take, *acts))) as server:
        proxy = Secret.of(server.base_url.removesuffix("/ext/api")) if path == "by a proxy" else None
        body = LARGE if path == "large" else BODY
        statuses = []
        async with transport_to(
            server.base_url, injected=path == "injected", proxy=proxy, keepalive=9.0, limit=1
        ) as transport:
            for _ in range(3):
                evidence = await post(transport, body)
                if evidence.failure is Failure.STALE:
                    # The head announced nothing: what came behind it was found before the next request.
                    evidence = await post(transport, body)
                statuses.append((evidence.status, evidence.written))
                if "announced" in name:
                    await asyncio.sleep(0.01)
    assert statuses == [(204, True)] * 3
    assert server.connections == 3
    assert server.processed["u"] == 3


async def test_an_answer_that_comes_as_its_request_is_cancelled_answers_no_other():
    arrival, silent = reached(take, hold)
    async with WireServer(when(only(0), silent)) as server, transport_to(server.base_url) as transport:
        sending = asyncio.create_task(post(transport))
        await arrival.wait()
        (wire,) = server.open_wires
        wire.writer.write(response(204))
        # The loop runs this, then reads, then wakes the request.
        asyncio.get_running_loop().call_soon(sending.cancel)
        with pytest.raises(asyncio.CancelledError):
            await sending
        assert (await post(transport)).reused is False
    assert len(server.requests) == 2
    assert server.connections == 2
