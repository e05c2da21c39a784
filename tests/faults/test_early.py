"""Early answers: received before the request was written, or before it arrived."""

import asyncio
import socket
import ssl
import sys
from contextlib import contextmanager

import aiohttp
import pytest
from support import wire_tls
from support.wire_answers import response
from support.wire_faults import always, fin, never_read, on_accept, only, pause, rst, send, step, take, when
from support.wire_judge import HELLO, Ledger
from support.wire_network import detoured
from support.wire_rig import HTTP_OR_HTTPS, OWN_OR_INJECTED, client_of, meeting
from support.wire_server import WireServer

from pushsdk import MobilePush, NotSentError, Outcome, OutcomeUnknownError, RetryPolicy
from pushsdk._io import fast_post

NONE = RetryPolicy.none()
LINUX = pytest.mark.skipif(sys.platform != "linux", reason="only Linux says what is not acknowledged")


@contextmanager
def hasty(early_bytes):
    """A server that answers, or ends, each connection as soon as it is there; its address, and its connections."""
    listener = socket.create_server(("127.0.0.1", 0))
    wires = []
    connect = aiohttp.TCPConnector._create_connection

    async def connecting(self, *args):
        protocol = await connect(self, *args)
        if protocol.transport.get_extra_info("peername") == listener.getsockname():
            wire, _ = listener.accept()
            wires.append(wire)
            _ = wire.send(early_bytes) if early_bytes else wire.shutdown(socket.SHUT_WR)
        return protocol

    aiohttp.TCPConnector._create_connection = connecting
    try:
        yield listener.getsockname(), wires
    finally:
        aiohttp.TCPConnector._create_connection = connect
        for sock in (listener, *wires):
            sock.close()


def read_from(wire):
    """Return the bytes that a connection had received before the client closed it."""
    wire.settimeout(5.0)
    try:
        return wire.recv(65536)
    except ConnectionResetError:
        # What came before the reset is read first.
        return b""


@OWN_OR_INJECTED
@pytest.mark.parametrize("early_bytes", [response(204), response(503), b""])
async def test_a_fresh_connection_with_an_answer_waiting_is_replaced(early_bytes, injected):
    ledger = Ledger()
    with hasty(early_bytes) as (address, wires):
        async with meeting(injected=injected, retry=NONE) as (server, client):
            with detoured(server, address, only(0)):
                ending = await ledger.ask(client, "user")
            await ledger.ask(client, "another")
            stats = client.stats()
        assert [read_from(wire) for wire in wires] == [b""]
    ledger.judge(server, ["user", "another"])
    assert ending.outcome == Outcome.ACCEPTED
    assert ending.tries == 1
    assert stats.stale_connections == 1


async def refuse_to_read(wire):
    wire.writer.transport.pause_reading()


def unread(answer, *, at, tls):
    """A server that answers the request with that number while the body is still on its way."""
    script = when(only(at), step(refuse_to_read, pause(0.05), send(answer), never_read))
    return WireServer(script, receive_buffer=2048, tls=tls)


LARGE = MobilePush(body={"en": "x" * 47_000})
HUGE = MobilePush(body={"en": "x" * 2_000_000})  # more than a TLS connection reads ahead


async def check_unread(*, warm, answer, injected, tls):
    """A 2xx proves nothing if the body is still on its way, and its connection is used no more."""
    async with (
        unread(answer, at=int(warm), tls=wire_tls.good() if tls else None) as server,
        client_of(server, injected=injected, retry=NONE) as client,
    ):
        if warm:
            await client.send("warm", HELLO)
        with pytest.raises(OutcomeUnknownError):
            await client.send("user", HUGE if tls else LARGE)
        await client.send("again", HELLO)
    assert server.connections == 2
    assert server.processed["user"] == 0
    assert server.processed["again"] == 1


@OWN_OR_INJECTED
@HTTP_OR_HTTPS
@LINUX
@pytest.mark.parametrize(
    ("warm", "answer"),
    [(True, response(204)), (False, response(204, Content_Length=2) + b"{}"), (True, response(200, b"{}"))],
)
async def test_a_2xx_for_a_large_request_that_was_not_read_is_unknown_however_late_it_comes(
    warm, answer, tls, injected
):
    await check_unread(warm=warm, answer=answer, injected=injected, tls=tls)


@HTTP_OR_HTTPS
@LINUX
def test_the_same_on_uvloop(tls):
    uvloop = pytest.importorskip("uvloop")
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(check_unread(warm=True, answer=response(204), injected=False, tls=tls))


@OWN_OR_INJECTED
@LINUX
@pytest.mark.parametrize(
    ("seconds", "size", "outcome"),
    [(0.5, 1, Outcome.UNKNOWN), (1.5, 1, Outcome.ACCEPTED), (1.5, 2_000, Outcome.UNKNOWN)],
)
async def test_the_kernel_is_asked_for_the_fastest_response_and_for_large_requests(
    seconds, size, outcome, injected, monkeypatch
):
    now = 0.0
    times = iter([1.0, seconds])

    async def take_time(wire):
        nonlocal now
        await take(wire)
        now += next(times)
        await wire.send(response(204))

    monkeypatch.setattr(fast_post, "monotonic", lambda: now)
    async with meeting(when(always, step(take_time)), injected=injected, retry=NONE) as (_, client):
        await client.send("warm", HELLO)
        monkeypatch.setattr(fast_post, "ioctl", lambda *_: b"\1\0\0\0")
        try:
            found = (await client.send("user", MobilePush(body={"en": "x" * size}))).outcome
        except OutcomeUnknownError as error:
            found = error.outcome
        assert found is outcome


# --- a fresh TLS connection ---


@pytest.mark.parametrize(
    ("loop", "version", "end", "injected"),
    [
        ("asyncio", ssl.TLSVersion.TLSv1_2, fin, False),
        ("asyncio", ssl.TLSVersion.TLSv1_2, rst, True),
        ("asyncio", ssl.TLSVersion.TLSv1_3, fin, True),
        ("uvloop", ssl.TLSVersion.TLSv1_2, fin, True),
        ("uvloop", ssl.TLSVersion.TLSv1_3, rst, False),
    ],
)
def test_a_tls_connection_that_ends_right_after_the_handshake_carries_nothing(loop, version, end, injected):
    new_event_loop = asyncio.new_event_loop if loop == "asyncio" else pytest.importorskip("uvloop").new_event_loop

    async def main():
        context = wire_tls.speaking(version)
        async with (
            WireServer(when(always, on_accept(end)), tls=context) as server,
            client_of(server, injected=injected, retry=NONE) as client,
        ):
            with pytest.raises(NotSentError) as excinfo:
                await client.send("user", HELLO)
            assert excinfo.value.retryable
        assert server.begun == 0
        if end is fin:
            # Replaced once: a service that does so again is left to the policy.
            assert server.connections == 2
            assert client.stats().stale_connections == 1

    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(main())


@OWN_OR_INJECTED
@pytest.mark.parametrize("are_read", [True, False])
@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_session_tickets_are_no_end(version, are_read, injected, monkeypatch):
    if not are_read:

        async def let_read(_connection):
            """Over a network, the tickets come later."""

        monkeypatch.setattr(fast_post.HttpConnection, "let_read", let_read)
    async with (
        WireServer(tls=wire_tls.speaking(version)) as server,
        client_of(server, injected=injected, retry=NONE) as client,
    ):
        for _ in range(3):
            assert (await client.send("user", HELLO)).outcome is Outcome.ACCEPTED
    assert server.connections == 1
    assert client.stats().stale_connections == 0
