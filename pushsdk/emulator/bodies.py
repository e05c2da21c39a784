"""The bodies of requests: read whole, in time and within a total of bytes, or refused."""

from __future__ import annotations

import asyncio

from aiohttp import web

from pushsdk.emulator.answers import invite
from pushsdk.emulator.guard import Refused

__all__ = ["Bodies"]

_TOTAL = 8  # bodies of the largest size: a client with 64 requests of 1,000 users in flight holds a fiftieth of it
_SECONDS = 60.0  # for a whole body
_HELD = web.RequestKey("held", int)


class Bodies:
    """Reads bodies of at most ``most`` bytes. ``held`` counts the bytes of all requests that are being answered."""

    def __init__(self, most: int) -> None:
        self.held: int = 0
        self._most = most

    async def read(self, request: web.BaseRequest) -> bytes:
        """Return the body. Raises `Refused`, and what aiohttp raises if the body does not arrive whole."""
        if request.content.is_eof():  # it came with the head, as nearly all do
            return await self._read(request)
        invite(request)
        try:
            async with asyncio.timeout(_SECONDS):
                return await self._read(request)
        except TimeoutError:
            raise Refused(408, f"the body did not arrive within {_SECONDS:g} s") from None

    def release(self, request: web.BaseRequest) -> None:
        """Give back the bytes of a request that is answered."""
        self.held -= request.get(_HELD, 0)

    async def _read(self, request: web.BaseRequest) -> bytes:
        chunks, size = [], 0
        while chunk := await request.content.readany():
            chunks.append(chunk)
            size += len(chunk)
            self.held += len(chunk)
            request[_HELD] = size
            if size > self._most:
                raise Refused(413, f"the body is over {self._most} bytes")
            if self.held > _TOTAL * self._most:
                raise Refused(
                    503,
                    f"the bodies that are being read are over {_TOTAL * self._most} bytes: try again",
                    {"Retry-After": "1"},
                )
        return b"".join(chunks)
