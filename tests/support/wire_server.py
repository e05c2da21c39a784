"""A server that misbehaves on purpose and records every request that reached it.

Raw asyncio streams, no HTTP library: what a connection does is a script of small steps (``wire_faults``), and
the tests check the client against the records (complete requests, processed requests).
"""

import asyncio
import itertools
import json
import socket
import struct
from collections import Counter
from dataclasses import dataclass
from functools import cached_property

CHUNK = 65536


@dataclass(frozen=True)
class ReceivedRequest:
    """A request that arrived whole."""

    head: bytes
    body: bytes
    at: float = 0.0

    @cached_property
    def headers(self):
        """The header fields, names in lower case."""
        lines = self.head.decode("latin-1").split("\r\n")[1:]
        fields = (line.partition(":") for line in lines if line)
        return {name.lower(): value.strip() for name, _, value in fields}

    @property
    def path(self):
        """The request target."""
        return self.head.split(b" ", 2)[1].decode()

    @cached_property
    def document(self):
        """The JSON body."""
        return json.loads(self.body)

    @property
    def is_campaign(self):
        """Return True if the request creates a campaign."""
        return self.path.endswith("/v1/campaigns")

    @property
    def users(self):
        """The user ids of a push, or the name of a campaign."""
        return (str(self.document["name"]),) if self.is_campaign else tuple(self.document["userIds"])


class Wire:
    """One accepted connection, as the steps of a script use it."""

    def __init__(self, server, reader, writer, number):
        self.server = server
        self.number = number
        self.reader = reader
        self.writer = writer
        self.peer = writer.get_extra_info("peername")
        #: Requests begun on this connection; set before each step.
        self.exchanges = 0
        #: Set to ignore all later requests.
        self.deaf = False
        #: The request in hand, once it arrived whole.
        self.request = None
        self._first = b""
        self._head = b""

    async def begun(self):
        """Wait for the first byte of the next request; return False if the peer disconnects."""
        self.request = None
        self._head = b""
        self._first = await self.reader.read(1)
        return bool(self._first)

    async def read_head(self):
        """Read the request line and the header fields."""
        self._head = self._first + await self.reader.readuntil(b"\r\n\r\n")
        self.server.api_keys.add(ReceivedRequest(self._head, b"").headers.get("api-key", ""))
        return self._head

    async def read_some(self, size):
        """Read the head, and ``size`` bytes of the body, and no more."""
        await self.read_head()
        await self.reader.readexactly(size)

    async def read_request(self):
        """Read a whole request and enter it in the books."""
        head = self._head or await self.read_head()
        length = int(ReceivedRequest(head, b"").headers["content-length"])
        body = await self.reader.readexactly(length)
        self.request = ReceivedRequest(head, body, asyncio.get_running_loop().time())
        self.server.requests.append(self.request)
        return self.request

    def process(self):
        """Process the request: its users are pushed now."""
        assert self.request is not None, "a request that did not arrive whole can't be processed"
        self.server.processed.update(self.request.users)

    async def send(self, data):
        """Write, and wait until it is handed to the kernel."""
        self.writer.write(data)
        await self.writer.drain()

    async def fin(self):
        """Close our half of the connection, then read until the peer has closed its half."""
        if self.writer.can_write_eof():
            self.writer.write_eof()
        else:
            self.writer.close()
        await self.hold()

    async def rst(self):
        """Reset the connection; the RST is sent when this returns."""
        sock = self.writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()
        await asyncio.sleep(0)  # the transport closes its socket in the loop's next turn

    async def hold(self):
        """Send nothing more, and discard input until the peer disconnects."""
        while await self.reader.read(CHUNK):
            pass


class WireServer:
    """``async with WireServer(script, tls=context) as server``: listens on loopback, and keeps the books.

    ``script`` is called with "accept" for each connection, and with "request" at the first byte of each request, and
    their number, over all connections, from 0. It returns what to do with the ``Wire``, or None to behave.
    ``receive_buffer`` is the kernel's for each connection, in bytes.
    """

    def __init__(self, script=None, tls=None, host="127.0.0.1", receive_buffer=None):
        self.script = script
        self.tls = tls
        self.host = host
        self.receive_buffer = receive_buffer
        #: Connections accepted.
        self.connections = 0
        #: Requests of which at least a byte arrived.
        self.begun = 0
        #: Complete requests.
        self.requests = []
        #: How often each user (or campaign name) was pushed.
        self.processed = Counter()
        #: The value of Api-Key in each head that arrived.
        self.api_keys = set()
        #: Errors of scripts; raised on exit.
        self.mistakes = []

    async def __aenter__(self):
        self._wires = {}
        self._tasks = set()
        self._numbers = itertools.count()
        self._open = True
        self._server = await asyncio.start_server(self._accept, self.host, 0, ssl=self.tls, backlog=256)
        if self.receive_buffer is not None:
            self._server.sockets[0].setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self.receive_buffer)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_):
        self._open = False
        self._server.close()
        for wire in list(self._wires.values()):
            wire.writer.transport.abort()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.wait_closed()
        if self.mistakes:
            raise ExceptionGroup("the script of a WireServer failed", self.mistakes)

    @property
    def address(self):
        """Host and port."""
        return self.host, self.port

    @property
    def base_url(self):
        """The service's base URL, with the path prefix that the interface's section 4 demands."""
        return f"{'https' if self.tls else 'http'}://{self.host}:{self.port}/ext/api"

    @property
    def open_wires(self):
        """The connections that are open now, oldest first."""
        return list(self._wires.values())

    async def quiet(self):
        """Wait until every connection has ended, so that all that was written to them has been read."""
        while self._tasks:
            await asyncio.wait(self._tasks)  # unlike a gather, it takes a turn of the loop if all are done

    def wire_of(self, peer):
        """Return the open connection to ``peer``, a socket name."""
        return self._wires.get(peer)

    def _accept(self, reader, writer):
        self.connections += 1
        wire = Wire(self, reader, writer, next(self._numbers))
        if not self._open:
            writer.transport.abort()
            return
        self._wires[wire.peer] = wire
        task = asyncio.get_running_loop().create_task(self._serve(wire))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, wire):
        try:
            await self._converse(wire)
        except (OSError, asyncio.IncompleteReadError):
            pass  # the peer went away: that is its right
        except Exception as mistake:  # noqa: BLE001 - kept and raised on the way out
            self.mistakes.append(mistake)
        finally:
            self._wires.pop(wire.peer, None)
            wire.writer.transport.abort()

    async def _converse(self, wire):
        script = self.script or behave
        await (script("accept", wire.number) or _welcome)(wire)
        while not wire.writer.is_closing() and await wire.begun():
            if wire.deaf:
                await wire.hold()
                return
            number, self.begun = self.begun, self.begun + 1
            wire.exchanges += 1
            await (script("request", number) or no_content)(wire)


def behave(_moment, _number):
    """The script of a server that always follows the interface."""


async def _welcome(_wire):
    """Take the connection."""


async def no_content(wire):
    """Read, process, and answer as documented: 204 to a push, 200 and a uuid to a campaign."""
    request = await wire.read_request()
    wire.process()
    body = b'{"uuid":"5f0c6a52"}' if request.is_campaign else b""
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body)
    await wire.send(head + body if body else b"HTTP/1.1 204 No Content\r\n\r\n")
