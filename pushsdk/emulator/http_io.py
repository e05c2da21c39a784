"""Bodies of requests, the emulator's own responses, and the ends of a connection without a response."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Mapping

import msgspec
from aiohttp import web

from pushsdk.emulator.guard import Refusal, Refused

__all__ = ["PRIVATE", "abort", "cut", "json_response", "read_body", "refuse"]

PRIVATE = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Cross-Origin-Resource-Policy": "same-origin",
}
"""Headers of responses that must not be kept, framed, or taken for a page."""
_BODY_SECONDS = 60.0  # for a whole body
_RESET = struct.pack("ii", 1, 0)  # SO_LINGER with no time to linger: close() sends RST


def json_response(status: int, value: object, headers: Mapping[str, str] | None = None) -> web.Response:
    """Return a response with this value."""
    body = msgspec.json.encode(value)
    return web.Response(status=status, body=body, headers=headers, content_type="application/json")


def refuse(refusal: Refusal) -> web.Response:
    """Return a response with the reason of a refusal."""
    return json_response(refusal.status, {"error": refusal.error}, refusal.headers)


async def read_body(request: web.BaseRequest, most: int) -> bytes:
    """Return the body, of at most so many bytes.

    Raises `Refused`, RequestPayloadError or OSError if the body does not arrive whole.
    """
    if request.content.is_eof():  # the body came with the head, as nearly all do
        return await _read(request, most)
    if request.headers.get("Expect", "").lower() == "100-continue" and request.transport is not None:
        # The client asks before it sends its body, as curl does with a large one.
        request.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    try:
        async with asyncio.timeout(_BODY_SECONDS):
            return await _read(request, most)
    except TimeoutError:
        raise Refused(408, f"the body did not arrive within {_BODY_SECONDS:g} s") from None


async def _read(request: web.BaseRequest, most: int) -> bytes:
    body = bytearray()
    while chunk := await request.content.readany():
        body += chunk
        if len(body) > most:
            raise Refused(413, f"the body is over {most} bytes")
    return bytes(body)


def abort(request: web.BaseRequest) -> web.Response:
    """Reset the connection. The response is never written: aiohttp takes a closed transport for a client gone."""
    transport = request.transport
    if transport is not None:
        transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        transport.abort()
    return web.Response(status=500)


def cut(request: web.BaseRequest, part: bytes) -> web.Response:
    """Write the beginning of a response and close in order, so that it arrives."""
    transport = request.transport
    if transport is not None:
        transport.write(part)
        transport.close()
    return web.Response(status=500)
