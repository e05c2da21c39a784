"""Which part of the emulator a request is for: the service's two paths, the control routes, or the page."""

from __future__ import annotations

from aiohttp import web

from pushsdk.emulator.app import Service
from pushsdk.emulator.bodies import Bodies
from pushsdk.emulator.control import Control
from pushsdk.emulator.guard import PREFIX, Guard
from pushsdk.emulator.pages import Pages
from pushsdk.emulator.routes import ROOT
from pushsdk.emulator.store import Store

__all__ = ["Front"]


class Front:
    """Hands each request on by its path."""

    def __init__(self, service: Service, store: Store, guard: Guard, bodies: Bodies) -> None:
        self._service = service
        self._bodies = bodies
        self._control = Control(service, store, guard, bodies)
        self._pages = Pages(guard)

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer one request, and give back what its body took."""
        try:
            return await self._handle(request)
        finally:
            self._bodies.release(request)

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        # What no browser asks for is for the service, which says what paths it has.
        path = request.path
        if path.startswith(PREFIX):
            return await self._service.handle(request)
        if path.startswith(ROOT):
            return await self._control.handle(request)
        page = self._pages.answer(request)
        return await self._service.handle(request) if page is None else page
