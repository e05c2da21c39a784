"""Which part of the emulator a request is for: the service's two paths, the control routes, or the page."""

from __future__ import annotations

from aiohttp import web

from pushsdk.emulator.app import Service
from pushsdk.emulator.guard import Guard

__all__ = ["Front"]


class Front:
    """Hands each request on by its path."""

    def __init__(self, service: Service, guard: Guard) -> None:
        self._service = service
        self._guard = guard

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer one request."""
        return await self._service.handle(request)
