"""The bodies of requests: read whole, in time and within a total of bytes, or refused."""

from __future__ import annotations

import asyncio

from aiohttp import web

from pushsdk.emulator.answers import invite
from pushsdk.emulator.guard import Refusal

__all__ = ["Bodies", "Unread"]

_TOTAL = 8  # bodies of the largest size: a client with 64 requests of 1,000 users in flight holds a fiftieth of it
_SECONDS = 60.0  # for a whole body
_HELD = web.RequestKey("held", int)


class Unread(Exception):
    """A body that is not taken; ``refusal`` says why."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.error)
        self.refusal = refusal


class Bodies:
    """Reads bodies of at most ``most`` bytes. ``held`` counts the bytes of all requests that are being answered."""

    def __init__(self, most: int) -> None:
        self.held: int = 0
        self._most = most
        self._too_large = Refusal(413, f"the body is over {most} bytes")
        self._too_many = Refusal(
            503, f"the bodies that are being read are over {_TOTAL * most} bytes: try again", {"Retry-After": "1"}
        )
        self._too_slow = Refusal(408, f"the body did not arrive within {_SECONDS:g} s")

    async def read(self, request: web.BaseRequest) -> bytes:
        """Return the body. Raises `Unread`, and what aiohttp raises if the body does not arrive whole."""
        if request.content.is_eof():  # it came with the head, as nearly all do
            return await self._read(request)
        invite(request)
        try:
            async with asyncio.timeout(_SECONDS):
                return await self._read(request)
        except TimeoutError:
            raise Unread(self._too_slow) from None

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
                raise Unread(self._too_large)
            if self.held > _TOTAL * self._most:
                raise Unread(self._too_many)
        return b"".join(chunks)
