"""A running emulator, and a client on a bare socket, independent of the SDK and of aiohttp's client."""

import socket
from contextlib import asynccontextmanager

import pytest
from support.control_api import Api

from pushsdk.emulator import Emulator

MESSAGE = {"title": {"en": "Hello"}, "body": {"en": "World"}}


class EmulatorClient(Api):
    """Calls the endpoints, too. A header of None leaves it out."""

    @property
    def port(self):
        return int(self.host.rpartition(":")[2])

    def push_head(self, length, **headers):
        fixed = {"Content-Type": "application/json", "Content-Length": str(length)}
        return self.head("POST", "/external/api/v1/push", **fixed | headers)

    async def received(self, request):
        """Return everything received until the connection ends; a reset raises ConnectionResetError."""
        async with self.connected() as (reader, writer):
            writer.write(request)
            return await reader.read()

    async def send(self, body, *, path="/v1/push", method="POST", **headers):
        return await self.raw(method, f"/external/api{path}", body, **headers)

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
def running():
    """``async with running(faults=[...]) as wire``: an emulator with these arguments, `wire.emulator`."""

    @asynccontextmanager
    async def run(**options):
        async with Emulator(**options) as started:
            yield EmulatorClient(started)

    return run
