"""Early answers: received before the request was written, or before it arrived."""

import asyncio
import socket
import ssl
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import aiohttp
import pytest
from support import wire_tls
from support.wire_answers import response
from support.wire_faults import always, fin, on_accept, only, rst, step, take, when
from support.wire_judge import HELLO, Ledger
from support.wire_network import detoured
from support.wire_rig import OWN_OR_INJECTED, QUICK, client_of
from support.wire_server import Act, Wire, WireServer

from pushsdk import AsyncPushClient, MobilePush, NotSentError, Outcome, OutcomeUnknownError, RetryPolicy
from pushsdk._io import fast_post

NONE = RetryPolicy.none()
EARLY = pytest.mark.parametrize("early_bytes", [response(204), response(503), b""], ids=["204", "503", "EOF"])


@contextmanager
def hasty(early_bytes: bytes) -> Iterator[tuple[tuple[str, int], list[socket.socket]]]:
    """A server that answers, or ends, each connection as soon as it is there; its address, and its connections."""
    listener, wires = socket.create_server(("127.0.0.1", 0)), list[socket.socket]()
    connect = aiohttp.TCPConnector._create_connection

    async def connecting(self: aiohttp.TCPConnector, *args: object) -> object:
        protocol: object = await connect(self, *args)
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


def read_from(wire: socket.socket) -> bytes:
    """Return the bytes that a connection had received before the client closed it."""
    wire.settimeout(5.0)
    try:
        return wire.recv(65536)
    except ConnectionResetError:
        # What came before the reset is read first.
        return b""


@OWN_OR_INJECTED
@EARLY
async def test_a_fresh_connection_with_an_answer_waiting_is_replaced(early_bytes: bytes, injected: bool) -> None:
    ledger = Ledger()
    with hasty(early_bytes) as (address, wires):
        async with WireServer() as server, client_of(server, injected=injected, retry=RetryPolicy.none()) as client:
            with detoured(server, address, only(0)):
                ending = await ledger.ask(client, "user")
            await ledger.ask(client, "another")
            stats = client.stats()
        assert [read_from(wire) for wire in wires] == [b""]
    ledger.judge(server, ["user", "another"])
    assert (ending.outcome, ending.tries, stats.stale_connections) == (Outcome.ACCEPTED, 1, 1)


@OWN_OR_INJECTED
@EARLY
@pytest.mark.parametrize(("policy", "connections"), [(RetryPolicy.none(), 2), (QUICK, 4)], ids=["none", "safe"])
async def test_a_service_that_always_answers_too_early_is_left_to_the_policy(
    early_bytes: bytes, injected: bool, policy: RetryPolicy, connections: int
) -> None:
    with hasty(early_bytes) as (address, wires):
        async with WireServer() as server, client_of(server, injected=injected, retry=policy) as client:
            with detoured(server, address, always), pytest.raises(NotSentError) as excinfo:
                await client.send("user", HELLO)
        assert [read_from(wire) for wire in wires] == [b""] * connections
    assert excinfo.value.retryable
    assert len(excinfo.value.attempts) == policy.max_attempts


async def answer_unread(requests: tuple[bool, ...], *, injected: bool = False, retry: RetryPolicy = NONE) -> None:
    """Answer 204 to each request: after reading it if True, else with a part of it unread in the kernel.

    With a policy that retries, the last answer is followed by one to the second attempt.
    """
    loop, wires = asyncio.get_running_loop(), list[socket.socket]()

    async def accept() -> None:
        wires.append((await asyncio.wait_for(loop.sock_accept(listener), 5.0))[0])
        wires[-1].setblocking(False)

    async def read_rest() -> None:
        while not (await loop.sock_recv(wires[-1], 65536)).endswith(b"}"):
            pass
        # What is not acknowledged is answered quicker.
        await asyncio.sleep(0.05)

    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        listener.setblocking(False)
        session = aiohttp.ClientSession() if injected else None
        base_url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        async with AsyncPushClient(base_url, "key", retry=retry, session=session) as client:
            for number, read in enumerate(requests):
                send = asyncio.create_task(client.send("user", MobilePush(body={"en": "x" * 40_000})))
                if not number or not requests[number - 1]:  # on a new connection
                    await accept()
                await loop.sock_recv(wires[-1], 1)
                if read:
                    await read_rest()
                await loop.sock_sendall(wires[-1], response(204))
                if number and retry.max_attempts > 1:
                    await accept()
                    await read_rest()
                    await loop.sock_sendall(wires[-1], response(204))
                    assert len((await send).attempts) == 2
                elif read:
                    assert (await send).outcome is Outcome.ACCEPTED
                else:
                    with pytest.raises(OutcomeUnknownError):
                        await send
        for wire in wires:
            wire.close()
        if session is not None:
            await session.close()


@OWN_OR_INJECTED
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux says what is not acknowledged")
async def test_a_204_for_what_the_peer_has_not_got_is_unknown_and_its_connection_is_used_no_more(
    injected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fast_post, "monotonic", asyncio.get_running_loop().time)
    await answer_unread((False, True, False), injected=injected)


@OWN_OR_INJECTED
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux says what is not acknowledged")
async def test_a_204_for_what_the_peer_has_not_got_is_retried_if_the_policy_says_so(
    injected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fast_post, "monotonic", asyncio.get_running_loop().time)
    retry = RetryPolicy.at_least_once(max_attempts=2, initial_delay=0.001)
    await answer_unread((True, False), injected=injected, retry=retry)


@OWN_OR_INJECTED
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux says what is not acknowledged")
@pytest.mark.parametrize("answer", [response(204), response(204, Content_Length=2) + b"{}", response(200, b"{}")])
@pytest.mark.parametrize("warm", [True, False], ids=["after a fast push", "on a new connection"])
async def test_a_2xx_for_a_large_request_that_was_not_read_is_unknown_however_late_it_comes(
    warm: bool, answer: bytes, injected: bool
) -> None:
    async def refuse_to_read(wire: Wire) -> None:
        wire.writer.transport.pause_reading()
        await asyncio.sleep(0.05)
        wire.writer.write(answer)
        await asyncio.sleep(0.01)
        await wire.rst()

    server = WireServer(when(only(int(warm)), step(refuse_to_read)))
    async with server:
        (listener,) = server._server.sockets
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        async with client_of(server, injected=injected, retry=NONE) as client:
            if warm:
                await client.send("user", HELLO)
            with pytest.raises(OutcomeUnknownError):
                await client.send("user", MobilePush(body={"en": "x" * 47_000}))


@OWN_OR_INJECTED
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux says what is not acknowledged")
@pytest.mark.parametrize(
    ("seconds", "size", "outcome"),
    [(0.5, 1, Outcome.UNKNOWN), (1.5, 1, Outcome.ACCEPTED), (1.5, 2_000, Outcome.UNKNOWN)],
    ids=["the fastest so far", "a slower one", "a slower one, to more than a segment"],
)
async def test_the_kernel_is_asked_for_the_fastest_response_and_for_large_requests(
    seconds: float, size: int, outcome: Outcome, injected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, times = 0.0, iter([1.0, seconds])

    async def take_time(wire: Wire) -> None:
        nonlocal now
        await take(wire)
        now += next(times)
        await wire.send(response(204))

    monkeypatch.setattr(fast_post, "monotonic", lambda: now)
    async with (
        WireServer(when(always, step(take_time))) as server,
        client_of(server, injected=injected, retry=NONE) as client,
    ):
        await client.send("warm", HELLO)
        monkeypatch.setattr(fast_post, "ioctl", lambda *_: b"\1\0\0\0")
        try:
            found = (await client.send("user", MobilePush(body={"en": "x" * size}))).outcome
        except OutcomeUnknownError as error:
            found = error.outcome
        assert found is outcome


# --- a fresh TLS connection ---


@OWN_OR_INJECTED
@pytest.mark.parametrize("end", [fin, rst], ids=["FIN", "RST"])
@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_a_tls_connection_that_ends_right_after_the_handshake_carries_nothing(
    loop: str, version: ssl.TLSVersion, end: Act, injected: bool
) -> None:
    new_event_loop = asyncio.new_event_loop if loop == "asyncio" else pytest.importorskip("uvloop").new_event_loop

    async def main() -> None:
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
            assert (server.connections, client.stats().stale_connections) == (2, 1)

    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(main())


@OWN_OR_INJECTED
@pytest.mark.parametrize("are_read", [True, False], ids=["read", "waiting"])
@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_session_tickets_are_no_end(
    version: ssl.TLSVersion, are_read: bool, injected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not are_read:

        async def let_read(_connection: object) -> None:
            """Over a network, the tickets come later."""

        monkeypatch.setattr(fast_post.HttpConnection, "let_read", let_read)
    async with (
        WireServer(tls=wire_tls.speaking(version)) as server,
        client_of(server, injected=injected, retry=NONE) as client,
    ):
        for _ in range(3):
            assert (await client.send("user", HELLO)).outcome is Outcome.ACCEPTED
    assert (server.connections, client.stats().stale_connections) == (1, 0)


def test_the_same_on_uvloop() -> None:
    uvloop = pytest.importorskip("uvloop")
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(answer_unread((False,)))
