"""Reading request bodies, the emulator's responses, and connections that end without a response."""

import asyncio
import socket
import struct
from collections.abc import Mapping
from typing import cast

import msgspec
from aiohttp import web
from aiohttp.streams import EMPTY_PAYLOAD, StreamReader
from aiohttp.web_protocol import RequestHandler, RequestPayloadError

from pushsdk.emulator.guard import Guard, Refused

PRIVATE = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Cross-Origin-Resource-Policy": "same-origin",
}
"""Headers for responses that must not be cached, framed, or rendered as a page."""
_BODY_SECONDS = 60.0
_MOST_ARRIVING = 64 * 1024 * 1024  # bytes of all requests that have not ended
_RESET = struct.pack("ii", 1, 0)  # SO_LINGER with no time to linger: close() sends RST


class Connection(RequestHandler):
    """A connection whose bytes count as arriving until their request is read, also in heads and trailers."""

    # Set by the server. The second is cancelled when the emulator closes, or the connection ends.
    guard: Guard
    lost: asyncio.Future[None]
    arrived: int = 0
    body: StreamReader = EMPTY_PAYLOAD

    def begin(self, body: StreamReader = EMPTY_PAYLOAD) -> None:
        """Count from now on this body's bytes, and those after it, until the connection is lost."""
        if not self.lost.done():
            self.guard.arriving += body.total_bytes - self.arrived
            self.arrived, self.body = body.total_bytes, body

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self.arrived += len(data)
        self.guard.arriving += len(data)
        # ``read_body`` refuses requests whose head is complete.
        if self.arrived > self.body.total_bytes and not self._messages and _is_full(self.guard):
            abort(self)


def connection_of(request: web.BaseRequest) -> Connection:
    """Return the connection that a request came on: the server makes no other kind."""
    return cast(Connection, request.protocol)


def json_response(status: int, value: object, headers: Mapping[str, str] | None = None) -> web.Response:
    """Return a JSON response with this value."""
    body = msgspec.json.encode(value)
    return web.Response(status=status, body=body, headers=headers, content_type="application/json")


def refuse(refused: Refused, headers: Mapping[str, str] = {}) -> web.Response:
    """Return the response for a refusal."""
    return json_response(refused.status, {"error": refused.error}, {**headers, **refused.headers})


async def read_body(request: web.BaseRequest, guard: Guard) -> bytes:
    """Return the body, at most the guard's ``max_body`` bytes.

    Raises `Refused` if the body is too large or too slow, or if too many bytes are on their way; RequestPayloadError if
    it is incomplete.
    """
    _check_room(guard, int(request.headers.get("Content-Length", 0)))
    content, transport, body = request.content, request.transport, bytearray()
    expect = request.headers.get("Expect", "").lower()
    if expect == "100-continue" and transport is not None and not content.is_eof():
        # curl waits for this before it sends a large body.
        transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    try:
        # Most bodies arrive with the head: a timer for each push would cost 1 % of it.
        async with asyncio.timeout(None if content.is_eof() else _BODY_SECONDS):
            while chunk := await content.readany():
                body += chunk
                _check_room(guard, len(body))
    except TimeoutError:
        raise Refused(408, f"the body did not arrive within {_BODY_SECONDS:g} s") from None
    except (RequestPayloadError, OSError):
        raise RequestPayloadError from None
    finally:
        connection_of(request).begin()
    return bytes(body)


def _check_room(guard: Guard, size: int) -> None:
    """Raise `Refused` if a body with so many bytes is too large, or too many bytes are on their way."""
    if size > guard.max_body:
        raise Refused(413, f"the body is over {guard.max_body} bytes")
    if _is_full(guard):
        raise Refused(503, "too many large bodies at a time: send again", {"Retry-After": "1"})


def _is_full(guard: Guard) -> bool:
    return guard.arriving > max(_MOST_ARRIVING, guard.max_body)


def abort(request: web.BaseRequest | RequestHandler) -> web.Response:
    """Reset the connection. aiohttp never writes the returned response, because the transport is closed."""
    transport = request.transport
    if transport is not None:
        transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        transport.abort()
    return web.Response(status=500)


def cut(request: web.BaseRequest, part: bytes) -> web.Response:
    """Write the beginning of a response and close without a reset, so that the client receives the part."""
    transport = request.transport
    if transport is not None:
        transport.write(part)
        transport.close()
    return web.Response(status=500)
