"""Answers of the emulator's own, and the ends of a connection that are no answer."""

from __future__ import annotations

import socket
import struct
from collections.abc import Mapping

import msgspec
from aiohttp import web

from pushsdk.emulator.guard import Refusal

__all__ = ["PRIVATE", "abort", "cut", "invite", "json_answer", "refuse"]

PRIVATE = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Cross-Origin-Resource-Policy": "same-origin",
}
"""Headers of what is for nobody to keep, to frame, or to take for a page."""
_RESET = struct.pack("ii", 1, 0)  # SO_LINGER with no time to linger: close() sends RST


def json_answer(status: int, value: object, headers: Mapping[str, str] | None = None) -> web.Response:
    """An answer with this value."""
    body = msgspec.json.encode(value)
    return web.Response(status=status, body=body, headers=headers, content_type="application/json")


def refuse(refusal: Refusal) -> web.Response:
    """An answer that says why not."""
    return json_answer(refusal.status, {"error": refusal.error}, refusal.headers)


def invite(request: web.BaseRequest) -> None:
    """Answer a client that asks before it sends its body, as curl does with a large one."""
    if request.headers.get("Expect", "").lower() == "100-continue" and request.transport is not None:
        request.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")


def abort(request: web.BaseRequest) -> web.Response:
    """Reset the connection. The response is never written: aiohttp takes a closed transport for a client gone."""
    transport = request.transport
    if transport is not None:
        transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        transport.abort()
    return web.Response(status=500)


def cut(request: web.BaseRequest, part: bytes) -> web.Response:
    """Write the beginning of an answer and close in order, so that it arrives."""
    transport = request.transport
    if transport is not None:
        transport.write(part)
        transport.close()
    return web.Response(status=500)
