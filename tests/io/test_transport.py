"""The transport on real sockets: what it does, and that the evidence it leaves is true."""

import asyncio
import os
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import aiohttp
import pytest
from support import wire_tls
from support.mock_aiohttp import mocked
from support.requests import request_of
from support.wire_answers import response
from support.wire_faults import (
    Step,
    always,
    answering,
    endless,
    fin,
    hold,
    only,
    rst,
    send,
    step,
    take,
    when,
)
from support.wire_network import (
    Spoil,
    black_hole,
    closed,
    closed_port,
    late_408,
    reset,
    spoiled,
    stray_204,
)
from support.wire_rig import OWN_OR_INJECTED
from support.wire_server import Script, Wire, WireServer

from pushsdk._core.operations import CREATE_CAMPAIGN, PUSH
from pushsdk._core.outcome import Evidence, Failure
from pushsdk._core.secret import Secret
from pushsdk._io.fast_post import ANSWER_BODY_LIMIT, ERROR_BODY_LIMIT, WHOLE_BODY_LIMIT
from pushsdk._io.transport import AiohttpTransport, TransportSettings

KEY = Secret.of("key")
BODY = b'{"userIds":["u"],"message":{}}'
CAMPAIGN = b'{"name":"c"}'


@asynccontextmanager
async def transport_of(
    base_url: str,
    *,
    injected: bool = False,
    context: ssl.SSLContext | None = None,
    limit: int = 4,
    keepalive: float = 1.5,
    headers: dict[str, str] | None = None,
    proxy: str | None = None,
) -> AsyncIterator[AiohttpTransport]:
    session = aiohttp.ClientSession() if injected else None
    settings = TransportSettings(
        base_url=base_url,
        headers=headers or {},
        session=session,
        keepalive=keepalive,
        ssl=True if context is None else context,
        proxy=proxy and Secret.of(proxy),
    )
    transport = AiohttpTransport(settings, limit=limit)
    yield transport
    await transport.close()
    if session is not None:
        assert not session.closed
        await session.close()


@asynccontextmanager
async def rigged(
    script: Script | None = None, *, tls: bool = False, **options: Any
) -> AsyncIterator[tuple[WireServer, AiohttpTransport]]:
    """A server and a transport to it."""
    async with (
        WireServer(script, tls=wire_tls.good() if tls else None) as server,
        transport_of(server.base_url, **options) as transport,
    ):
        yield server, transport


async def post(
    transport: AiohttpTransport, body: bytes = BODY, *, connect: float | None = None, read: bool = False
) -> Evidence:
    evidence = Evidence()
    operation = CREATE_CAMPAIGN if read else PUSH
    await transport.post(request_of(body, evidence, operation, connect=connect), KEY)
    return evidence


def writing(evidence: Evidence) -> tuple[bool, bool, bool, bool]:
    """Return the evidence of the writing: a real transport, begun, done, on a used connection."""
    return evidence.touched, evidence.started_writing, evidence.written, evidence.reused


FIRST = (True, True, True, False)
AGAIN = (True, True, True, True)
NOTHING = (True, False, False, False)


# --- what goes well ---


@OWN_OR_INJECTED
@pytest.mark.parametrize("tls", [False, True], ids=["http", "https"])
async def test_a_whole_exchange_is_written_down_and_its_connection_kept(injected: bool, tls: bool) -> None:
    context = wire_tls.client_context()
    async with rigged(tls=tls, injected=injected, context=context) as (server, transport):
        first, second = await post(transport), await post(transport)
    assert (first.status, writing(first), first.failure, first.body) == (204, FIRST, None, None)
    assert (second.status, writing(second)) == (204, AGAIN)
    assert (server.connections, server.processed) == (1, {"u": 2})
    assert (server.requests[0].path, server.requests[0].body) == ("/ext/api/v1/push", BODY)


@OWN_OR_INJECTED
@pytest.mark.parametrize("tls", [False, True], ids=["http", "https"])
async def test_a_body_of_megabytes_is_written_whole(injected: bool, tls: bool) -> None:
    body = BODY.ljust(6_000_000)
    async with rigged(tls=tls, injected=injected, context=wire_tls.client_context()) as (server, transport):
        assert writing(await post(transport, body)) == FIRST
        assert writing(await post(transport, body)) == AGAIN
    assert [request.body for request in server.requests] == [body] * 2


async def test_more_timeouts_than_are_remembered_are_still_right() -> None:
    async with rigged() as (server, transport):
        for number in range(70):
            assert (await post(transport, connect=1.0 + number)).status == 204
    assert server.connections == 1


async def test_an_idle_connection_is_kept_as_long_as_was_said() -> None:
    async with rigged(keepalive=0.01) as (server, transport):
        await post(transport)
        await asyncio.sleep(0.05)
        assert writing(await post(transport)) == FIRST
    assert server.connections == 2


# --- connections gone stale ---

STALE = pytest.mark.parametrize(
    "spoil", [closed, reset, stray_204, late_408], ids=["FIN", "RST", "stray 204", "late 408"]
)


@OWN_OR_INJECTED
@STALE
async def test_nothing_is_written_to_a_pooled_connection_that_is_not_silent(spoil: Spoil, injected: bool) -> None:
    async with rigged(injected=injected) as (server, transport):
        await post(transport)
        with spoiled(server, spoil, only(0)) as done:
            evidence = await post(transport)
            assert (evidence.status, evidence.failure) == (None, Failure.STALE)
            assert writing(evidence) == (True, False, False, True)
            second = await post(transport)
        assert (second.status, writing(second), len(done)) == (204, FIRST, 1)
    assert (server.processed, server.begun) == ({"u": 2}, 2)


@OWN_OR_INJECTED
async def test_an_end_that_the_loop_has_seen_costs_nothing(injected: bool) -> None:
    script = when(only(0), step(take, send(response(204)), fin))
    async with rigged(script, injected=injected) as (server, transport):
        await post(transport)
        await asyncio.sleep(0.01)
        assert writing(await post(transport)) == FIRST
    assert server.processed == {"u": 2}


async def test_a_stray_answer_that_the_loop_has_read_is_no_answer() -> None:
    script = when(only(0), step(take, send(response(204)), send(response(204))))
    async with rigged(script) as (server, transport):
        for _ in range(3):
            evidence = await post(transport)
            if evidence.failure is Failure.STALE:
                evidence = await post(transport)
            assert evidence.status == 204
    assert server.processed == {"u": 3}


async def test_a_new_connection_that_ends_before_the_first_byte_is_stale_and_no_used_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    connect = aiohttp.TCPConnector.connect

    async def connecting(self: aiohttp.TCPConnector, *args: Any, **kwargs: Any) -> Any:
        connection = await connect(self, *args, **kwargs)
        connection.transport.close()
        return connection

    monkeypatch.setattr(aiohttp.TCPConnector, "connect", connecting)
    async with rigged() as (server, transport):
        evidence = await post(transport)
    assert (evidence.failure, writing(evidence), server.begun) == (Failure.STALE, NOTHING, 0)


@STALE
async def test_a_pooled_connection_that_the_sessions_owner_used_is_a_used_one(spoil: Spoil) -> None:
    async with WireServer() as server, aiohttp.ClientSession() as session:
        transport = AiohttpTransport(TransportSettings(base_url=server.base_url, session=session), limit=4)
        async with session.post(f"{server.base_url}/v1/push", data=BODY) as answer:
            assert answer.status == 204
        with spoiled(server, spoil, only(0)):
            evidence = await post(transport)
        assert (evidence.status, evidence.failure) == (None, Failure.STALE)


# --- a host that moves ---


@OWN_OR_INJECTED
@pytest.mark.parametrize("trouble", ["refused", "no connection in time", "cancelled"])
async def test_after_a_failure_to_connect_the_name_is_looked_up_again(
    trouble: str, injected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked_up, loop = list[str](), asyncio.get_running_loop()
    async with rigged(injected=injected) as (server, _), closed_port() as closed, black_hole() as silent:
        moved = closed if trouble == "refused" else silent
        places = iter([moved, server.address])

        async def getaddrinfo(host: str, _port: int, **_: object) -> list[tuple[object, ...]]:
            looked_up.append(host)
            return [(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", next(places))]

        monkeypatch.setattr(loop, "getaddrinfo", getaddrinfo, raising=False)
        async with transport_of(f"http://localhost:{server.port}/ext/api", injected=injected) as transport:
            first = asyncio.create_task(post(transport, connect=0.02 if trouble == "no connection in time" else None))
            if trouble == "cancelled":
                await asyncio.sleep(0.02)
                first.cancel()
                await asyncio.wait([first])
            else:
                assert (await first).status is None
            assert (await post(transport)).status == 204
            assert (await post(transport)).status == 204
    assert looked_up == ["localhost"] * 2


async def test_a_session_without_names_has_none_to_look_up_again(tmp_path: Path) -> None:
    async with aiohttp.ClientSession(connector=aiohttp.UnixConnector(str(tmp_path / "nobody"))) as session:
        transport = AiohttpTransport(TransportSettings(base_url="http://127.0.0.1", session=session), limit=4)
        assert (await post(transport)).failure is Failure.REFUSED


# --- what fails ---


def silent(acceptance: asyncio.Event) -> Step:
    """Take the request, tell so, and say nothing."""

    async def tell(_wire: Wire) -> None:
        acceptance.set()

    return step(take, tell, hold)


async def test_waiting_for_a_place_in_the_pool_is_bounded_by_the_connect_timeout() -> None:
    acceptance = asyncio.Event()
    async with rigged(when(only(0), silent(acceptance)), limit=1) as (_server, transport):
        busy = asyncio.create_task(post(transport))
        await acceptance.wait()
        evidence = await post(transport, connect=0.02)
        assert (evidence.failure, writing(evidence)) == (Failure.CONNECT_TIMEOUT, NOTHING)
        busy.cancel()
        await asyncio.wait([busy])


async def test_a_session_that_is_closed_in_between_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    async def post_(*_: Any, **__: Any) -> None:
        raise RuntimeError("Session is closed")

    async with transport_of("http://127.0.0.1:9", injected=True) as transport:
        monkeypatch.setattr(transport._session, "_request", post_)
        evidence = await post(transport)
    assert (evidence.failure, evidence.reason) == (Failure.SESSION, "RuntimeError")


async def test_an_unexpected_exception_is_a_failure() -> None:
    async with rigged() as (server, transport):
        evidence = Evidence()
        await transport.post(request_of(BODY, evidence), Secret.of("a\r\nb"))
    assert (evidence.failure, evidence.reason, server.begun) == (Failure.OTHER, "ValueError", 0)
    assert writing(evidence) == NOTHING


# --- bodies ---


@OWN_OR_INJECTED
@pytest.mark.parametrize(
    ("status", "read", "size"),
    [(200, False, ERROR_BODY_LIMIT), (204, False, None), (200, True, ANSWER_BODY_LIMIT), (400, False, ERROR_BODY_LIMIT),
     (500, True, ERROR_BODY_LIMIT), (302, False, ERROR_BODY_LIMIT)],
)  # fmt: skip
async def test_a_body_is_read_to_its_bound(status: int, read: bool, size: int | None, injected: bool) -> None:
    body = b"" if status == 204 else b"x" * (1 << 17)
    async with rigged(when(always, answering(response(status, body))), injected=injected) as (_server, transport):
        evidence = await post(transport, CAMPAIGN if read else BODY, read=read)
    assert (evidence.status, evidence.body and len(evidence.body)) == (status, size)
    assert (dict(evidence.headers) == {}) is (status == 204)


async def test_a_body_that_ends_at_the_bound_is_kept_whole() -> None:
    bodies = [b"x" * ERROR_BODY_LIMIT, b"x" * (ERROR_BODY_LIMIT - 1), b""]
    answers = iter([answering(response(400, body)).run for body in bodies])
    async with rigged(lambda moment, _: next(answers) if moment == "request" else None) as (server, transport):
        assert [(await post(transport)).body for _ in bodies] == bodies
    assert server.connections == 1


@pytest.mark.parametrize("end", [fin, rst], ids=["truncated", "reset"])
async def test_a_status_stands_whatever_becomes_of_the_body(end: Callable[[Any], Awaitable[object]]) -> None:
    head = response(200, Content_Length=1000)
    async with rigged(when(always, step(take, send(head), send(b"{"), end))) as (_server, transport):
        evidence = await post(transport, CAMPAIGN, read=True)
    assert (evidence.status, evidence.failure) == (200, None)
    # A reset may overtake what was sent before it.
    assert evidence.body in ((None, b"{") if end is rst else (b"{",))


async def test_a_body_that_breaks_off_before_its_first_byte_is_not_an_empty_one() -> None:
    async with rigged(when(always, step(take, send(response(200, Content_Length=9)), fin))) as (_server, transport):
        evidence = await post(transport, CAMPAIGN, read=True)
    assert (evidence.status, evidence.failure, evidence.body) == (200, None, None)


@OWN_OR_INJECTED
async def test_a_head_of_long_lines_and_many_headers_is_read(injected: bool) -> None:
    long, many = "x" * 65_000, {f"X_{number}": number for number in range(200)}
    head = response(204, Set_Cookie=long, **many).replace(b"Anything", long.encode())
    async with rigged(when(always, answering(head)), injected=injected) as (server, transport):
        assert [(await post(transport)).status for _ in range(2)] == [204, 204]
    assert server.connections == 1


@OWN_OR_INJECTED
async def test_the_connection_of_an_unread_body_is_not_reused(injected: bool) -> None:
    script = when(only(0), step(take, send(response(200, Content_Length=10**9)), endless(b"x" * 65536)))
    async with rigged(script, injected=injected, limit=1) as (server, transport):
        assert (await post(transport)).status == 200
        assert writing(await post(transport)) == FIRST
    assert server.connections == 2


# --- mocks, and the body by itself ---


async def test_the_body_is_bytes_and_can_be_written_without_a_length() -> None:
    bodies: list[Any] = []
    with mocked() as service:
        service.post("https://push.example/v1/push", status=204, callback=lambda _, data, **__: bodies.append(data))
        async with transport_of("https://push.example") as transport:
            await post(transport)
    with pytest.raises(TypeError, match="not decoded"):
        bodies[0].decode()

    written: list[bytes] = []

    async def write(data: bytes) -> None:
        assert not bodies[0]._evidence.written, "before it is"
        written.append(data)

    left, right = socket.socketpair()
    with left, right:
        transport: Any = SimpleNamespace(
            is_closing=lambda: False, get_extra_info={"socket": left}.get, set_protocol=lambda _: None
        )
        protocol = SimpleNamespace(
            transport=transport,
            should_close=False,
            writing_paused=False,
            is_connected=lambda: True,
            _payload=None,
            _parser=None,
        )
        await bodies[0].write(SimpleNamespace(protocol=protocol, write=write))
    assert written == [BODY]


async def test_a_unix_socket_is_not_asked_what_its_peer_has_read(tmp_path: Path) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        await reader.readexactly(WHOLE_BODY_LIMIT)
        writer.write(response(204))
        await reader.read()
        writer.close()

    service = await asyncio.start_unix_server(answer, tmp_path / "service")
    async with aiohttp.ClientSession(connector=aiohttp.UnixConnector(str(tmp_path / "service"))) as session:
        settings = TransportSettings(base_url="http://127.0.0.1", session=session)
        transport = AiohttpTransport(settings, limit=4)
        evidence = await post(transport, BODY.ljust(WHOLE_BODY_LIMIT))
    assert (evidence.status, evidence.written) == (204, True)
    service.close()
    await service.wait_closed()


def under_the_loop(data: bytes) -> Spoil:
    """The server's kernel says this, or ends: uvloop itself would wait for the end of the turn."""

    async def saying(wire: Wire) -> None:
        with socket.socket(fileno=os.dup(wire.writer.get_extra_info("socket").fileno())) as sock:
            _ = sock.send(data) if data else sock.shutdown(socket.SHUT_WR)

    return saying


@pytest.mark.parametrize("data", [b"", response(204), response(408)], ids=["FIN", "stray 204", "late 408"])
def test_the_guard_works_under_uvloop_too(data: bytes) -> None:
    uvloop = pytest.importorskip("uvloop")

    async def main() -> None:
        async with rigged() as (server, transport):
            await post(transport)
            with spoiled(server, under_the_loop(data)):
                evidence = await post(transport)
            # Before Python 3.12 the answer may be taken before the body is asked: a status without a request.
            assert evidence.failure is Failure.STALE or evidence.status is not None
            await asyncio.sleep(0.02)
            assert (evidence.started_writing, server.begun) == (False, 1)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())


async def test_an_answer_to_a_request_that_was_never_begun_is_a_stale_connections(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def answer(*_: object, data: Any, **__: object) -> Any:
        assert data.size == len(BODY)
        return SimpleNamespace(status=500, headers={}, content=aiohttp.streams.EMPTY_PAYLOAD, close=lambda: None)

    async with transport_of("http://127.0.0.1:1", injected=True) as transport:
        monkeypatch.setattr(transport._session, "_request", answer)
        evidence = await post(transport)
    assert (evidence.status, evidence.failure, evidence.started_writing) == (500, Failure.STALE, False)
