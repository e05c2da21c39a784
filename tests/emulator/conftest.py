"""A running emulator, and a client on a bare socket, independent of the SDK and of aiohttp's client."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from support.control_api import Api, until

from pushsdk.emulator import Emulator

MESSAGE = {"title": {"en": "Hello"}, "body": {"en": "World"}}


class EmulatorClient:
    """Sends requests to one emulator. A header of None leaves it out."""

    def __init__(self, emulator: Emulator) -> None:
        self.emulator = emulator
        self.host = emulator.base_url.removeprefix("http://").partition("/")[0]
        self.port = int(self.host.rpartition(":")[2])

    def head(self, length: int, *, path: str = "/v1/push", method: str = "POST", **headers: str | None) -> bytes:
        fields = {
            "Host": self.host,
            "Api-Key": self.emulator.api_key,
            "Content-Type": "application/json",
            "Content-Length": str(length),
            "Connection": "close",
        }
        fields |= {name.replace("_", "-"): value for name, value in headers.items()}
        lines = [f"{name}: {value}" for name, value in fields.items() if value is not None]
        return "\r\n".join([f"{method} /external/api{path} HTTP/1.1", *lines, "", ""]).encode()

    @asynccontextmanager
    async def connected(self) -> AsyncIterator[SimpleNamespace]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            yield SimpleNamespace(read=reader, write=writer.write, drain=writer.drain, writer=writer)
        finally:
            writer.transport.abort()

    async def bytes(self, request: bytes) -> bytes:
        """Return everything received until the connection ends; a reset raises ConnectionResetError."""
        async with self.connected() as connection:
            connection.write(request)
            return await connection.read.read()

    async def send(self, body: Any, **head: Any) -> SimpleNamespace:
        """Return the response to a complete request: .status, .headers (lower case), .text, .json."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        answer, _, text = (await self.bytes(self.head(len(data), **head) + data)).partition(b"\r\n\r\n")
        status, *lines = answer.decode().split("\r\n")
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
        value = json.loads(text) if text[:1] == b"{" else None
        return SimpleNamespace(status=int(status.split()[1]), headers=headers, text=text.decode(), json=value)

    async def push(self, *user_ids: str, **head: Any) -> SimpleNamespace:
        return await self.send({"userIds": user_ids, "message": MESSAGE}, **head)

    async def campaign(self, **head: Any) -> SimpleNamespace:
        return await self.send({"name": "Spring", "message": MESSAGE}, path="/v1/campaigns", **head)

    async def vanish(self, request: bytes) -> None:
        """Send, then reset the connection at once."""
        with socket.create_connection(("127.0.0.1", self.port)) as sock:
            sock.sendall(request)


@pytest.fixture
async def emulator() -> AsyncIterator[Emulator]:
    async with Emulator() as running:
        yield running


@pytest.fixture
def wire(emulator: Emulator) -> EmulatorClient:
    return EmulatorClient(emulator)


@pytest.fixture
def api(emulator: Emulator) -> Api:
    return Api(emulator)


@pytest.fixture
def running() -> Callable[..., Any]:
    """``async with running(faults=[...]) as wire``: an emulator with these arguments, `Wire.emulator`."""

    @asynccontextmanager
    async def run(**options: Any) -> AsyncIterator[EmulatorClient]:
        async with Emulator(**options) as started:
            yield EmulatorClient(started)

    return run


@pytest.fixture(name="until")
def _until() -> Callable[[Callable[[], bool]], Any]:
    return until
