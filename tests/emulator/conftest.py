"""A running emulator, and a client on a bare socket, independent of the SDK and of aiohttp's client."""

import json
import socket
from contextlib import asynccontextmanager
from types import SimpleNamespace

import pytest
from support.control_api import Api

from pushsdk.emulator import Emulator

MESSAGE = {"title": {"en": "Hello"}, "body": {"en": "World"}}


class EmulatorClient:
    """Sends requests to the endpoints of one emulator. A header of None leaves it out."""

    def __init__(self, emulator):
        self.emulator = emulator
        self._api = Api(emulator, Content_Type="application/json")
        self.host = self._api.host
        self.port = int(self.host.rpartition(":")[2])

    def head(self, length, *, path="/v1/push", method="POST", **headers):
        return self._api.head(method, f"/external/api{path}", **{"Content-Length": str(length), **headers})

    @asynccontextmanager
    async def connected(self):
        async with self._api.connected() as (reader, writer):
            yield SimpleNamespace(read=reader, write=writer.write, drain=writer.drain, writer=writer)

    async def bytes(self, request):
        """Return everything received until the connection ends; a reset raises ConnectionResetError."""
        async with self.connected() as connection:
            connection.write(request)
            return await connection.read.read()

    async def send(self, body, **head):
        """Return the response to a complete request: .status, .headers (lower case), .text, .json."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        answer = await self._api.bytes(self.head(len(data), **head) + data)
        answer.text = answer.body.decode()
        return answer

    async def push(self, *user_ids, **head):
        return await self.send({"userIds": user_ids, "message": MESSAGE}, **head)

    async def campaign(self, **head):
        return await self.send({"name": "Spring", "message": MESSAGE}, path="/v1/campaigns", **head)

    async def vanish(self, request):
        """Send, then reset the connection at once."""
        with socket.create_connection(("127.0.0.1", self.port)) as sock:
            sock.sendall(request)


@pytest.fixture
async def emulator():
    async with Emulator() as running:
        yield running


@pytest.fixture
def wire(emulator):
    return EmulatorClient(emulator)


@pytest.fixture
def api(emulator):
    return Api(emulator)


@pytest.fixture
def running():
    """``async with running(faults=[...]) as wire``: an emulator with these arguments, `Wire.emulator`."""

    @asynccontextmanager
    async def run(**options):
        async with Emulator(**options) as started:
            yield EmulatorClient(started)

    return run
