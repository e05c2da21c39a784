"""One request from its head to its answer: refuse, read, decide, accept, answer or fail as told.

The only place of the emulator that touches HTTP. The handler is a bare aiohttp one, without router and middleware:
the emulator must not be what a test of 22,000 users waits for.
"""

from __future__ import annotations

import asyncio
import socket
import struct

import msgspec
from aiohttp import web
from aiohttp.web_protocol import RequestHandler, RequestPayloadError

from pushsdk.emulator.faults import Fault, HangFault, Rules, StatusFault, TruncatedFault
from pushsdk.emulator.guard import ENDPOINTS, Guard, Refusal
from pushsdk.emulator.shapes import Unreadable, read_campaign, read_push
from pushsdk.emulator.store import Store

__all__ = ["Service"]

_RESET = struct.pack("ii", 1, 0)  # SO_LINGER with no time to linger: close() sends RST
_CUTS = {
    "status": b"HTTP/1.1 20",
    "headers": b"HTTP/1.1 200 OK\r\nContent-Type: application/js",
    "body": b'HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 47\r\n\r\n{"uuid": "',
}


class Service:
    """The two endpoints over a store. Its parts are replaced from outside: ``rules`` at any time."""

    def __init__(self, *, store: Store, rules: Rules, guard: Guard) -> None:
        loop = asyncio.get_running_loop()
        self.store = store
        self.rules = rules  # replaced by Emulator.set_faults
        self.guard = guard
        self.requests: int = 0  # every request on the wire, refused ones too
        self.closing: asyncio.Future[None] = loop.create_future()  # done when the emulator closes
        self.lost: dict[RequestHandler, asyncio.Future[None]] = {}  # open connections, kept by Connections

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer one request; accept it at most once, and only when its body arrived whole."""
        self.requests += 1
        headers = request.headers
        api_key = headers.get("Api-Key", "")
        path = request.path
        refusal = self.guard.judge(request.method, path, headers)
        if refusal is not None:
            return _refuse(refusal)
        _invite(request)
        try:
            body = await request.read()
            endpoint = ENDPOINTS[path]
            user_ids = _users(endpoint, body)
        except web.HTTPRequestEntityTooLarge:
            return _refuse(self.guard.too_large)
        except Unreadable as error:
            return _refuse(Refusal(400, str(error)))
        except (RequestPayloadError, OSError):  # the body did not arrive whole
            return _abort(request)
        verdict = self.rules.decide(endpoint, user_ids, len(body))
        if verdict.delay and not await self._waited(verdict.delay):
            return _abort(request)
        if verdict.fault is None:
            return self._accept(api_key, user_ids, body)
        if verdict.fault.accepts:
            self._accept(api_key, user_ids, body)
        return await self._fail(verdict.fault, request)

    def _accept(self, api_key: str, user_ids: tuple[str, ...], body: bytes) -> web.Response:
        if user_ids:
            self.store.accept_push(api_key, user_ids, body)
            return web.Response(status=204)
        return _json(200, {"uuid": self.store.accept_campaign(api_key, body).uuid})

    async def _fail(self, fault: Fault, request: web.BaseRequest) -> web.StreamResponse:
        if isinstance(fault, StatusFault):
            return _status(fault)
        if isinstance(fault, TruncatedFault):
            return _cut(request, _CUTS[fault.at])
        if isinstance(fault, HangFault):
            await self._left(request)
        return _abort(request)

    async def _left(self, request: web.BaseRequest) -> None:
        """Wait until the client leaves, who may be gone since a delay began, or the emulator closes."""
        lost = self.lost.get(request.protocol)
        if lost is not None:
            await asyncio.wait((self.closing, lost), return_when="FIRST_COMPLETED")

    async def _waited(self, seconds: float) -> bool:
        """Wait; False when the emulator closes first."""
        done, _ = await asyncio.wait((self.closing,), timeout=seconds)
        return not done


def _users(endpoint: str, body: bytes) -> tuple[str, ...]:
    """The users of a push, who are at least one; none for a campaign."""
    if endpoint == "push":
        return read_push(body).user_ids
    read_campaign(body)
    return ()


def _json(status: int, value: object, headers: dict[str, str] | None = None) -> web.Response:
    body = msgspec.json.encode(value)
    return web.Response(status=status, body=body, headers=headers, content_type="application/json")


def _refuse(refusal: Refusal) -> web.Response:
    return _json(refusal.status, {"error": refusal.error}, dict(refusal.headers))


def _status(fault: StatusFault) -> web.Response:
    headers = dict(fault.headers)
    if fault.body and "content-type" not in {name.lower() for name in headers}:
        headers["Content-Type"] = "application/json"
    return web.Response(status=fault.code, body=fault.body.encode() or None, headers=headers)


def _invite(request: web.BaseRequest) -> None:
    """Answer a client that asks before it sends its body, as curl does with a large one."""
    if request.headers.get("Expect", "").lower() == "100-continue" and request.transport is not None:
        request.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")


def _abort(request: web.BaseRequest) -> web.Response:
    """Reset the connection. The response is never written: aiohttp takes a closed transport for a client gone."""
    transport = request.transport
    if transport is not None:
        transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        transport.abort()
    return web.Response(status=500)


def _cut(request: web.BaseRequest, part: bytes) -> web.Response:
    """Write the beginning of an answer and close in order, so that it arrives."""
    transport = request.transport
    if transport is not None:
        transport.write(part)
        transport.close()
    return web.Response(status=500)
