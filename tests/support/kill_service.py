"""A push service over raw sockets that counts the pushes of each user: the reference of the kill tests.

Shares no code with the client. A seeded draw decides the fate of each complete request, even if its sender has died.
"""

import asyncio
import itertools
import json
import os
import random
import socket
import struct
from array import array
from collections import Counter
from typing import NamedTuple


class Fate(NamedTuple):
    """The fate of a request."""

    accepted: bool
    #: None is a reset without an answer.
    status: int | None
    header: bytes = b""
    #: Fates after which the client can't know if the request was accepted.
    unknown: bool = False


FATES = {
    "accepted": Fate(True, 204),
    "reset_before": Fate(False, None, unknown=True),
    "reset_after": Fate(True, None, unknown=True),
    "429": Fate(False, 429),
    "429, at once": Fate(False, 429, b"Retry-After: 0\r\n"),
    "429, in a minute": Fate(False, 429, b"Retry-After: 60\r\n"),
    "503": Fate(False, 503, unknown=True),
    "503, at once": Fate(False, 503, b"Retry-After: 0\r\n"),
    "504 after": Fate(True, 504, unknown=True),
    "400": Fate(False, 400),
}
CALM = {"accepted": 1.0}
ROUGH = {
    "accepted": 0.80,
    "reset_before": 0.03,
    "reset_after": 0.04,
    "429": 0.02,
    "429, at once": 0.02,
    "503": 0.02,
    "503, at once": 0.02,
    "504 after": 0.03,
    "400": 0.02,
}
#: Frequent faults, but every retried request is accepted in the end.
STEADY = {**ROUGH, "accepted": 0.94, "reset_after": 0.01, "504 after": 0.01, "400": 0.01}
# Different ones in processes that run at the same time.
_numbers = itertools.count(1_000_000 * os.getpid())
_RESET = struct.pack("ii", 1, 0)  # SO_LINGER with no time to linger: close() sends RST


def name_of(number):
    """The id of user ``number``."""
    return f"person-{number:07}"


def number_of(name):
    """The other way, with any word before the number."""
    return int(name.rpartition("-")[2])


class KillService:
    """``async with KillService(users, ...) as service``: listens on loopback, and keeps the books."""

    def __init__(self, users, *, seed, faults=ROUGH, culprits=frozenset(), latency=0.006):
        #: How often each user was pushed to.
        self.pushes = array("H", bytes(2 * users))
        #: Complete requests by fate, and the users of requests with a fate that the client can't know.
        self.fates = Counter()
        self.unknown = 0
        #: Complete requests, and complete requests without a response.
        self.seen = 0
        self.in_hand = 0
        self.most_in_hand = 0
        #: The number in each user's message, if messages are numbered.
        self.messages = set()
        #: Values of Api-Key, and violations of the interface.
        self.keys = set()
        self.mistakes = []
        #: Called with the number of each request that has arrived.
        self.when_seen = lambda count: None
        self.connections = set()
        self._culprits = culprits
        self._latency = latency
        self.behave(faults)
        self._draw = random.Random(seed)
        self._still = asyncio.Event()

    async def __aenter__(self):
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: _Connection(self), "127.0.0.1", 0, backlog=256)
        host, port = self._server.sockets[0].getsockname()
        # Unique to this service: clients of an earlier test may still send to a reused port.
        self._path = f"/ext/{next(_numbers)}/api"
        self.base_url = f"http://{host}:{port}{self._path}"
        return self

    async def __aexit__(self, *_):
        self._server.close()
        for connection in list(self.connections):
            connection.transport.abort()
        await self.quiet()
        await self._server.wait_closed()
        assert not self.mistakes, self.mistakes

    def behave(self, faults):
        """Draw the fates of requests from these names, with these weights."""
        self._names, self._weights = list(faults), list(faults.values())

    async def quiet(self):
        """Wait until all senders have disconnected and all received requests are processed."""
        while self.connections or self.in_hand:
            self._still.clear()
            await self._still.wait()

    def left(self, connection):
        """A connection has ended."""
        self.connections.discard(connection)
        self._still.set()

    def arrived(self, connection, head, body):
        """A whole request: its fate is drawn now, and shows somewhat later."""
        if not self._is_ours(head):
            connection.answer(FATES["400"])
            return
        content = json.loads(body)
        users = [number_of(name) for name in content["userIds"]]
        if len(set(users)) != len(users):
            self.mistakes.append("a user twice in one request")
        if "number" in (custom := content.get("customFields", {})):
            self.messages.update((user, custom["number"]) for user in users)
        name = self._draw.choices(self._names, self._weights)[0]
        if not self._culprits.isdisjoint(users):
            name = "400"
        self.fates[name] += 1
        self.seen += 1
        self.in_hand += 1
        self.most_in_hand = max(self.in_hand, self.most_in_hand)
        fate = FATES[name]
        seconds = self._latency * (0.5 + self._draw.random())
        asyncio.get_running_loop().call_later(seconds, self._happen, connection, fate, users)
        self.when_seen(self.seen)

    def _happen(self, connection, fate, users):
        if fate.accepted:
            for user in users:
                self.pushes[user] += 1
        if fate.unknown:
            self.unknown += len(users)
        self.in_hand -= 1
        connection.answer(fate)
        self._still.set()

    def _is_ours(self, head):
        first, *lines = head.decode().split("\r\n")
        fields = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        self.keys.add(fields.get("api-key", ""))
        if first == f"POST {self._path}/v1/push HTTP/1.1" and fields.get("content-type") == "application/json":
            return True
        self.mistakes.append(first)
        return False


class _Connection(asyncio.Protocol):
    """HTTP/1.1 with Content-Length, one request after the other: all that the client speaks."""

    transport: asyncio.Transport

    def __init__(self, service):
        self._service = service
        self._buffer = bytearray()

    def connection_made(self, transport):
        self.transport = transport
        self._service.connections.add(self)

    def connection_lost(self, exc):
        self._service.left(self)

    def data_received(self, data):
        self._buffer += data
        end = self._buffer.find(b"\r\n\r\n")
        if end < 0:
            return
        head = bytes(self._buffer[:end])
        length = int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0])
        body = bytes(self._buffer[end + 4 :])
        if len(body) > length:
            self._service.mistakes.append("more than one request at a time")
        if len(body) >= length:
            self._buffer.clear()
            self._service.arrived(self, head, body)

    def answer(self, fate):
        """Respond or reset, without effect if the client was killed."""
        if self.transport.is_closing():
            return
        if fate.status is None:
            self.transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            self.transport.abort()
        else:
            length = b"" if fate.status == 204 else b"Content-Length: 0\r\n"
            self.transport.write(b"HTTP/1.1 %d Told\r\n%s%s\r\n" % (fate.status, fate.header, length))
