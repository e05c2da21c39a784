"""A client of the emulator's control routes made of a bare socket, which checks every answer by its route's type."""

import asyncio
import json
from contextlib import asynccontextmanager, suppress
from types import SimpleNamespace
from urllib.parse import quote

import msgspec

from pushsdk.emulator.control.routes import ROOT, find


async def until(condition):
    """Wait for what happens on the far side of a socket, or in a thread, and sets no event."""
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0)


class Events:
    """The server-sent events of one connection."""

    def __init__(self, reader, writer):
        self._reader = reader
        self.writer = writer

    async def line(self):
        async with asyncio.timeout(60):
            return (await self._reader.readline()).decode().rstrip("\n")

    async def next(self):
        """Return the next event: .event, .id (None if missing), .data. Skips comments."""
        fields = {}
        while (line := await self.line()) or not fields:
            assert not self._reader.at_eof(), "the stream has ended"
            name, _, value = line.partition(": ")
            if name:
                fields[name] = value
        return SimpleNamespace(event=fields["event"], id=fields.get("id"), data=json.loads(fields["data"]))

    async def until(self, event):
        """All events up to the first of this kind."""
        events = [await self.next()]
        while events[-1].event != event:
            events.append(await self.next())
        return events


class Api:
    """Calls control routes of one emulator, with its Api-Key. A header of None leaves it out."""

    def __init__(self, emulator, **headers):
        self.emulator = emulator
        self.host = emulator.url.removeprefix("http://")
        self._headers = {"Host": self.host, "Api-Key": emulator.api_key, **_named(headers)}

    def head(self, method, path, version="1.1", **headers):
        fields = {**self._headers, "Connection": "close", **_named(headers)}
        lines = [f"{name}: {value}" for name, value in fields.items() if value is not None]
        return "\r\n".join([f"{method} {path} HTTP/{version}", *lines, "", ""]).encode("utf-8", "surrogateescape")

    @asynccontextmanager
    async def connected(self):
        reader, writer = await asyncio.open_connection("127.0.0.1", int(self.host.rpartition(":")[2]))
        try:
            yield reader, writer
        finally:
            writer.transport.abort()

    async def bytes(self, request):
        """The answer to these bytes: .status, .headers (lower case), .body, .json."""
        async with self.connected() as (reader, writer):
            writer.write(request)
            async with asyncio.timeout(60):
                head, _, body = (await reader.read()).partition(b"\r\n\r\n")
        status, *lines = head.decode().split("\r\n")
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
        assert not any(name.startswith("access-control") for name in headers)
        value = None
        if body and headers["content-type"].partition(";")[0] == "application/json":
            with suppress(RecursionError):  # json takes less depth than the service
                value = json.loads(body)
        return SimpleNamespace(status=int(status.split()[1]), headers=headers, body=body, json=value)

    async def raw(self, method, path, body=None, **headers):
        """The answer to a whole request for this path from the root of the host."""
        if body is not None:
            body = body if isinstance(body, bytes) else json.dumps(body).encode()
            headers = {"Content-Type": "application/json", "Content-Length": str(len(body)), **_named(headers)}
        return await self.bytes(self.head(method, path, **headers) + (body or b""))

    async def ask(self, method, path, body=None, **headers):
        """Return the response of a control route, checked against the route's type."""
        answer = await self.raw(method, f"{ROOT}{path}", body, **headers)
        assert answer.headers["cache-control"] == "no-store"
        if answer.status == 200:
            route, _ = find(f"{ROOT}{path}".partition("?")[0])[method]
            msgspec.json.decode(answer.body, type=route.kinds["return"])
        else:
            assert list(answer.json) == ["error"], answer.json
            assert answer.json["error"]
        return answer

    async def get(self, path, **headers):
        """The value of a route that answers."""
        return await self.done("GET", path, **headers)

    async def done(self, method, path, body=None, **headers):
        answer = await self.ask(method, path, body, **headers)
        assert answer.status == 200, (answer.status, answer.json)
        return answer.json

    async def refused(self, method, path, body=None, **headers):
        """The status and the text of a refusal."""
        answer = await self.ask(method, path, body, **headers)
        assert answer.status != 200, answer.json
        return answer.status, answer.json["error"]

    async def user(self, user_id):
        return await self.get(f"/users/{quote(user_id, safe='')}")

    @asynccontextmanager
    async def events(self, query="", **headers):
        """Open a stream and skip its head. Uses HTTP/1.0, so that the stream is not chunked."""
        async with self.connected() as (reader, writer):
            writer.write(self.head("GET", f"{ROOT}/events{query}", "1.0", **headers))
            async with asyncio.timeout(60):
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
            assert head.startswith("HTTP/1.0 200 "), head
            assert "text/event-stream" in head
            yield Events(reader, writer)


def _named(headers):
    return {name.replace("_", "-"): value for name, value in headers.items()}
