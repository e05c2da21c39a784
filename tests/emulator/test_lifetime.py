"""The lifetime of an emulator: its options, its address, its bounds, and its end, which waits for nobody."""

import asyncio
import socket
import threading
from contextlib import AsyncExitStack, suppress

import pytest
from support.control_api import until

from pushsdk.emulator import Emulator, Fault, ServiceLimits, http_io, server
from pushsdk.emulator.control import handlers
from pushsdk.emulator.store.queries import Store

PUSH = b'{"userIds":["ann"],"message":{}}'


# Options


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"port": 70_000}, "port must be a port from 0 to 65535, .*; got 70000"),
        ({"faults": Fault.hang()}, "faults must be a list; got Fault"),
        ({"hosts": ["http://push.test"]}, r"hosts\[0\] must be a name .*, for example push\.test:8080; got .*"),
        ({"api_key": "a b"}, "api_key must be 1 to 4096 visible ASCII characters, or left out; got .*"),
        ({"log": lambda: None}, "log must be .*; got the function .*<lambda>"),
    ],
)
def test_a_wrong_option_is_an_error_with_the_rule(options, text):
    with pytest.raises(ValueError, match=f"^{text}$"):
        Emulator(**options)


async def test_before_it_runs_it_has_no_address_and_may_be_reset():
    emulator = Emulator(faults=[Fault.hang()], limits=ServiceLimits(max_users=5), log=print)
    with pytest.raises(RuntimeError, match="async with"):
        emulator.base_url  # noqa: B018
    emulator.reset()
    assert emulator.requests == 0
    assert emulator.users() == {}
    assert emulator.hits() == {"1: hang": 0}
    assert emulator.limits.max_users == 5
    assert emulator.api_key != Emulator().api_key
    for view, name in ((emulator, "limits"), (emulator, "limts"), (emulator.inbox(), "limts")):
        with pytest.raises(AttributeError, match=name):
            setattr(view, name, None)


# Address


async def test_it_listens_on_127_0_0_1_and_nowhere_else_and_runs_once(wire, emulator):
    assert emulator.base_url == f"http://127.0.0.1:{wire.port}/external/api"
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(("127.0.0.2", wire.port))
    with pytest.raises(RuntimeError, match="once"):
        await emulator.__aenter__()


# Bounds


async def test_a_slow_head_or_body_ends_the_connection(running, monkeypatch):
    monkeypatch.setattr(http_io, "_BODY_SECONDS", 0.02)
    monkeypatch.setattr(server, "_IDLE_SECONDS", 0.02)
    async with running() as wire, asyncio.timeout(60):
        assert (await wire.received(wire.push_head(100) + PUSH)).startswith(b"HTTP/1.1 408 ")
        for head in (b"", b"POST /ext", b"GET /_emulator/v1/health HTTP/1.1\r\nHost: "):
            assert await wire.received(head) == b""
        assert wire.emulator.pushes == ()


async def test_the_bytes_of_all_bodies_on_their_way_are_bounded(running, monkeypatch):
    monkeypatch.setattr(http_io, "_MOST_ARRIVING", 3000)
    async with running(max_body=2000) as wire, AsyncExitStack() as stack:
        for _ in range(2):
            reader, writer = await stack.enter_async_context(wire.connected())
            writer.write(wire.push_head(1500) + b" " * 1400)
        await until(lambda: wire.emulator.requests == 2)
        refused = await wire.send(b" " * 300 + PUSH)
        assert refused.status == 503
        assert refused.headers["retry-after"] == "1"
        writer.write(b" " * 100)
        assert b" 400 " in await reader.readline()
        assert (await wire.send(b" " * 300 + PUSH)).status == 204


@pytest.mark.parametrize("has_head", [True, False])
async def test_the_bytes_of_heads_and_trailers_on_their_way_are_bounded(running, monkeypatch, has_head):
    monkeypatch.setattr(http_io, "_MOST_ARRIVING", 3000)
    async with running(max_body=2000) as wire:
        head = wire.push_head(0, **{"Content-Length": None, "Transfer-Encoding": "chunked"})
        async with wire.connected() as (reader, writer), asyncio.timeout(60):
            writer.write(head + b"0\r\n" if has_head else head.removesuffix(b"\r\n"))
            await until(lambda: wire.emulator.requests == has_head)
            writer.write(b"X: %b\r\n" % (b"x" * 4000))
            with pytest.raises(ConnectionResetError):
                await reader.read()
        assert (await wire.push("ann")).status == 204


async def test_the_bodies_that_a_response_shows_are_bounded(emulator, wire, monkeypatch):
    for _ in range(4):
        await wire.push("ann")
    monkeypatch.setattr(handlers, "_MAX_BODIES", 2 * len(emulator.pushes[0].body))
    pushes = (await wire.get("/users/ann"))["pushes"]
    assert [push["message"] is not None for push in pushes] == [False, False, True, True]


# The end


async def test_closing_does_not_wait_for_anybody(running, monkeypatch, caplog):
    """Clients that are idle, within a head or a body, wait for faults or the store, or do not read their response."""
    go_on = threading.Event()
    readers = []
    waited = []

    def held(*_, **__):
        readers.append(1)
        if not go_on.wait(15):
            waited.append(1)
        raise RuntimeError("it is too late to tell this")

    monkeypatch.setattr(Store, "received", held)
    faults = [Fault.hang(user="a"), Fault.hang(user="b", accepted=True), Fault.delay(60, user="c")]
    async with asyncio.timeout(30):
        async with running(faults=[*faults, Fault.status(400, body="x" * 8_000_000)]) as wire:
            sent = [b"", b"POST /ext", wire.push_head(10) + b"{"]
            sent += [wire.push_head(32) + b'{"userIds":["%c"],"message":{  }}' % user for user in b"abcd"]
            sent += [wire.head("GET", "/_emulator/v1/users")] * 20
            socks = [socket.create_connection(("127.0.0.1", wire.port)) for _ in sent]
            for sock, part in zip(socks, sent, strict=True):
                sock.sendall(part)
            await until(lambda: (wire.emulator.requests, wire.emulator.hits()["4: status"]) == (5, 2) and bool(readers))
    for sock in socks:
        with suppress(ConnectionResetError):
            while sock.recv(1 << 20):
                pass
        sock.close()
    assert wire.emulator.accepted("b") == 1
    assert waited == []
    assert caplog.records == []
    go_on.set()
    assert asyncio.all_tasks() == {asyncio.current_task()}
