"""The transport on real sockets: what it does, and that the evidence it leaves is true."""

import asyncio
import socket
from contextlib import asynccontextmanager

import aiohttp
import pytest
from support import wire_tls
from support.requests import BODY, post, transport_to
from support.wire_answers import response
from support.wire_faults import answering
from support.wire_network import black_hole, closed_port
from support.wire_rig import HTTP_OR_HTTPS, OWN_OR_INJECTED
from support.wire_server import WireServer

from pushsdk._core.outcome import Failure
from pushsdk._core.secret import Secret
from pushsdk._io.fast_post import WHOLE_BODY_LIMIT
from pushsdk._io.transport import AiohttpTransport, TransportSettings


@asynccontextmanager
async def rigged(script=None, *, tls=False, **options):
    """A server and a transport to it."""
    ssl = wire_tls.client_context() if tls else True
    async with (
        WireServer(script, tls=wire_tls.good() if tls else None) as server,
        transport_to(server.base_url, ssl=ssl, **options) as transport,
    ):
        yield server, transport


def writing(evidence):
    """Return the evidence of the writing: a real transport, begun, done, on a used connection."""
    return evidence.touched, evidence.started_writing, evidence.written, evidence.reused


def over(session, base_url="http://127.0.0.1"):
    """Return a transport over an injected session."""
    settings = TransportSettings(base_url=base_url, session=session, headers=Secret.of({}))
    return AiohttpTransport(settings, limit=4)


FIRST = (True, True, True, False)
AGAIN = (True, True, True, True)


@OWN_OR_INJECTED
@HTTP_OR_HTTPS
async def test_exchanges_of_any_size_are_written_down_and_their_connection_kept(injected, tls):
    large = BODY.ljust(6_000_000)
    async with rigged(tls=tls, injected=injected) as (server, transport):
        first = await post(transport)
        second = await post(transport)
        third = await post(transport, large)
    assert first.status == 204
    assert writing(first) == FIRST
    assert first.failure is None
    assert first.body is None
    assert [(each.status, writing(each)) for each in (second, third)] == [(204, AGAIN)] * 2
    assert server.connections == 1
    assert server.processed == {"u": 3}
    assert [(request.path, request.body) for request in server.requests[1:]] == [
        ("/ext/api/v1/push", BODY),
        ("/ext/api/v1/push", large),
    ]


@pytest.mark.parametrize("answer", [response(204), response(200, b"{}")])
async def test_a_shared_connection_then_carries_the_sessions_other_responses_whole(answer):
    large = b"z" * 1_000_000
    answers = map(answering, (answer, response(200, large)))
    async with (
        WireServer(lambda moment, _: next(answers).run if moment == "request" else None) as server,
        aiohttp.ClientSession() as session,
    ):
        await post(over(session, server.base_url))
        async with session.post(server.base_url, data=BODY) as other:
            assert await other.read() == large
    assert server.connections == 1


# --- a host that moves ---


@pytest.mark.parametrize(
    ("trouble", "injected"), [("refused", False), ("no connection in time", True), ("cancelled", False)]
)
async def test_after_a_failure_to_connect_the_name_is_looked_up_again(trouble, injected, monkeypatch):
    looked_up = []
    loop = asyncio.get_running_loop()
    async with WireServer() as server, closed_port() as closed, black_hole() as silent:
        places = iter([closed if trouble == "refused" else silent, server.address])

        async def getaddrinfo(host, _port, **_):
            looked_up.append(host)
            return [(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", next(places))]

        monkeypatch.setattr(loop, "getaddrinfo", getaddrinfo, raising=False)
        async with transport_to(f"http://localhost:{server.port}/ext/api", injected=injected) as transport:
            first = asyncio.create_task(post(transport, connect=0.02 if trouble == "no connection in time" else None))
            if trouble == "cancelled":
                await asyncio.sleep(0.02)
                first.cancel()
                await asyncio.wait([first])
            else:
                assert (await first).status is None
            assert [(await post(transport)).status for _ in range(2)] == [204, 204]
    assert looked_up == ["localhost"] * 2


async def test_a_session_without_names_has_none_to_look_up_again(tmp_path):
    async with aiohttp.ClientSession(connector=aiohttp.UnixConnector(str(tmp_path / "nobody"))) as session:
        transport = over(session)
        assert (await post(transport)).failure is Failure.REFUSED


# --- what fails ---


async def test_no_tls_is_named_for_a_connection_without_it(monkeypatch):
    async def never(*_, sock, **__):
        with sock:
            await asyncio.Event().wait()

    async with rigged() as (_, transport):
        # As if the loop stood still after the TCP connection was open.
        monkeypatch.setattr(asyncio.get_running_loop(), "create_connection", never)
        evidence = await post(transport, connect=0.01)
    assert evidence.failure == Failure.CONNECT_TIMEOUT
    assert evidence.reason.endswith(", connect timeout 0.01 s")
    assert "TLS" not in evidence.reason


async def test_an_unexpected_exception_before_the_first_byte_is_a_failure_that_sent_nothing():
    config = aiohttp.TraceConfig()
    config.on_request_start.append(lambda *_: 1 / 0)
    async with aiohttp.ClientSession(trace_configs=[config]) as session:
        evidence = await post(over(session))
    assert evidence.failure == Failure.OTHER
    assert writing(evidence) == (True, False, False, False)


# --- bodies ---


class OlderRequest(aiohttp.ClientRequest):
    """Writes its body without a length."""

    async def write_bytes(self, writer, *_):
        with pytest.raises(TypeError, match="not decoded"):
            self.body.decode()
        await self.body.write(writer)
        await writer.write_eof()


async def test_a_body_can_be_written_without_a_length():
    async with WireServer() as server, aiohttp.ClientSession(request_class=OlderRequest) as session:
        assert writing(await post(over(session, server.base_url))) == FIRST
    assert server.requests[0].body == BODY


@pytest.mark.parametrize("size", [WHOLE_BODY_LIMIT, 4_000_000])
async def test_a_unix_socket_tells_only_of_bytes_that_it_has_not_taken(tmp_path, size):
    ended = asyncio.Event()

    async def answer(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        await reader.readexactly(WHOLE_BODY_LIMIT)
        writer.write(response(204))
        await ended.wait()
        writer.close()

    service = await asyncio.start_unix_server(answer, tmp_path / "service")
    async with aiohttp.ClientSession(connector=aiohttp.UnixConnector(str(tmp_path / "service"))) as session:
        evidence = await post(over(session), BODY.ljust(size))
    ended.set()
    service.close()
    await service.wait_closed()
    assert evidence.status == 204
    assert evidence.written == (size == WHOLE_BODY_LIMIT)
