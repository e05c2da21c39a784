"""Faults below HTTP: name lookups, TCP connects, and pooled connections that close while idle.

Each fault is a context manager over the running loop or the connector, so that it affects the client's own session
and an injected one alike; the sockets are real.
"""

import asyncio
import itertools
import socket
from contextlib import (
    ExitStack,
    asynccontextmanager,
    contextmanager,
    nullcontext,
    suppress,
)
from unittest.mock import patch

import aiohttp

from pushsdk._io.batch_sender import BatchSender
from pushsdk._io.fast_post import FastPost
from support.wire_faults import Step, always, first_byte, hold, reached, when
from support.wire_server import WireServer

# -- destinations that a connect may reach instead of the server ------------------------------------------------------


@asynccontextmanager
async def closed_port():
    """A port that is reserved and refuses."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        yield sock.getsockname()


@asynccontextmanager
async def black_hole():
    """Yield a port with a full backlog: the kernel drops each SYN."""
    with ExitStack() as stack:
        sock = stack.enter_context(socket.socket())
        sock.bind(("127.0.0.1", 0))
        sock.listen(0)
        for _ in range(3):
            filler = stack.enter_context(socket.socket())
            filler.setblocking(False)
            filler.connect_ex(sock.getsockname())
        yield sock.getsockname()


def another(does=None, tls=None):
    """The port of another server, one that always does this."""

    @asynccontextmanager
    async def place():
        script = when(always, does) if does else None
        async with WireServer(script, tls=tls and tls()) as server:
            yield server.address

    return place


@contextmanager
def detoured(server, place, bad=always):
    """Redirect the n-th connect to ``server`` to ``place`` if n is selected."""
    loop = asyncio.get_running_loop()
    connect = loop.sock_connect
    numbers = itertools.count()

    async def sock_connect(sock, address):
        ours = address[1] == server.port
        await connect(sock, place if ours and bad(next(numbers)) else address)

    loop.sock_connect = sock_connect
    try:
        yield
    finally:
        del loop.sock_connect


@contextmanager
def lookups(way, bad=always, *, hang=1.0):
    """Let the n-th name lookup fail or take ``hang`` seconds if n is selected; others return 127.0.0.1.

    A hung lookup ends, as with a resolver's own timeout: aiohttp lets later requests for the name wait for the
    pending lookup.
    """
    loop = asyncio.get_running_loop()
    numbers = itertools.count()

    async def getaddrinfo(_host, port, **_):
        if bad(next(numbers)):
            if way == "fail":
                raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
            await asyncio.sleep(hang)
        return [(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", ("127.0.0.1", port))]

    loop.getaddrinfo = getaddrinfo
    try:
        yield
    finally:
        del loop.getaddrinfo


# The same for a test that waits until the client is stuck: each yields the event that says so.


def _noting():
    """Return an event, and the condition that is always true and sets it."""
    stuck = asyncio.Event()
    return stuck, lambda _: stuck.set() or True


@asynccontextmanager
async def no_name(_server):
    """Name lookups hang."""
    stuck, bad = _noting()
    with lookups("hang", bad):
        yield stuck


@asynccontextmanager
async def _stuck_at(server, place):
    stuck, bad = _noting()
    async with place() as address:
        with detoured(server, address, bad):
            yield stuck


def no_connection(server):
    """SYNs are dropped."""
    return _stuck_at(server, black_hole)


@asynccontextmanager
async def no_handshake(server):
    """TLS handshakes hang after the client's first words."""
    stuck, hanging = reached(first_byte, hold)
    async with another(Step(hanging.run, "accept"))() as address:
        with detoured(server, address):
            yield stuck


# -- what becomes of an idle connection, from the server's end --------------------------------------------------------


async def closed(wire):
    """The server closes it."""
    wire.writer.get_extra_info("socket").shutdown(socket.SHUT_WR)


async def reset(wire):
    """The server resets it."""
    await wire.rst()


reset.turns = 1


def told(data):
    """Send unrequested data and keep the connection open."""

    async def saying(wire):
        wire.writer.write(data)

    return saying


def noticed(spoil, turns=3):
    """The same, and the client's loop has turned since: it may have seen it."""

    async def spoiling(wire):
        await spoil(wire)
        for _ in range(turns):
            await asyncio.sleep(0)

    spoiling.turns = turns + getattr(spoil, "turns", 0)
    return spoiling


stray_204 = told(b"HTTP/1.1 204 No Content\r\n\r\n")
late_408 = told(b"HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")


@contextmanager
def spoiled(server, spoil, bad=always):
    """Break the n-th pooled connection when a request takes it, if n is selected.

    Bytes written to such a connection are lost, so any response to them is stray.

    Done between the pool's handing it over and the first byte of the request, without a turn of the loop in
    which the client could notice. Yields the list of the connections that were spoiled.
    """
    numbers = itertools.count()
    done = []

    async def spoil_if_selected(connection):
        wire = server.wire_of(connection.transport.get_extra_info("sockname"))
        if wire is not None and wire.exchanges and wire not in done and bad(next(numbers)):
            done.append(wire)
            wire.deaf = True
            await spoil(wire)
        return connection

    def spoiling(acquire):
        async def acquiring(*args, **kwargs):
            return await spoil_if_selected(await acquire(*args, **kwargs))

        return acquiring

    def spoiling_at_once(take):
        def taking(pool):
            if (connection := take(pool)) is not None:
                with suppress(StopIteration):
                    spoil_if_selected(connection).send(None)
                    raise AssertionError("this spoil takes turns of the loop")
            return connection

        return taking

    # A request takes a connection from one of two pools: the client's, or aiohttp's. Without a task, it takes one of
    # the client's and is written, all without a turn of the loop.
    takes_turns = getattr(spoil, "turns", 0) > 0
    with (
        patch.object(BatchSender, "launch", lambda *_: False) if takes_turns else nullcontext(),
        patch.object(FastPost, "acquire", spoiling(FastPost.acquire)) if takes_turns else nullcontext(),
        nullcontext() if takes_turns else patch.object(FastPost, "take_idle", spoiling_at_once(FastPost.take_idle)),
        patch.object(aiohttp.TCPConnector, "connect", spoiling(aiohttp.TCPConnector.connect)),
    ):
        yield done
