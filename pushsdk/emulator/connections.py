"""The listening socket and its connections: opened on loopback only, closed promptly whatever hangs on them."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable
from typing import TypeAlias

from aiohttp import web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.http import HttpProcessingError, RawRequestMessage
from aiohttp.streams import StreamReader
from aiohttp.web_protocol import RequestHandler

from pushsdk.emulator.app import Service

__all__ = ["Connections", "Handler", "bind"]

Handler: TypeAlias = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]

_BACKLOG = 1024  # a client that opens all its connections at once is no fault
_GRACE = 0.1  # seconds that clients get at the end to take what is written for them


class _Malformed(logging.Filter):
    """Keeps what is sent here and is no HTTP out of the log; aiohttp's 400 to it is enough."""

    def filter(self, record: logging.LogRecord) -> bool:
        return not (record.exc_info and isinstance(record.exc_info[1], HttpProcessingError))


_log = logging.getLogger("pushsdk.emulator")
_log.addFilter(_Malformed())


def bind(host: str, port: int) -> socket.socket:
    """Take the port on this address, any free one for 0. Raises OSError where it is taken, gaierror for no address."""
    socket.getaddrinfo(host, port)  # create_server makes a nameless OSError of this failure
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.create_server((host, port), family=family)


class Connections(web.Server):
    """aiohttp's server with an end that waits for nobody; it tells the service when a connection is lost."""

    def __init__(self, service: Service, handle: Handler, *, max_body: int) -> None:
        super().__init__(
            handle,
            request_factory=self._new_request,
            access_log=None,
            logger=_log,
            auto_decompress=False,  # Content-Length is then the length of the body, and there are no bombs
            lingering_time=1.0,
        )
        self._service = service
        self._max_body = max_body
        self._open: dict[RequestHandler, asyncio.Transport] = {}
        self._listener: asyncio.Server  # set by listen()

    async def listen(self, sock: socket.socket) -> None:
        """Serve what connects to the bound socket, which belongs to the server from now on."""
        self._listener = await asyncio.get_running_loop().create_server(self, sock=sock, backlog=_BACKLOG)

    async def aclose(self) -> None:
        """Stop listening, let go of what hangs, and end every connection.

        Not by aiohttp's shutdown(), which waits its timeout out for each handler that waits for its client.
        """
        self._listener.close()
        self._service.closing.set_result(None)
        self.pre_shutdown()
        for transport in self._open.values():
            transport.close()  # what is written already still arrives
        await self._all_lost(_GRACE)
        for transport in self._open.values():  # their peers read nothing
            transport.abort()
        await self._all_lost(None)
        while self.connections:  # noqa: ASYNC110 - the handlers of what is lost end within a few turns, and say nothing
            await asyncio.sleep(0)

    async def _all_lost(self, timeout: float | None) -> None:
        if lost := tuple(self._service.lost.values()):
            await asyncio.wait(lost, timeout=timeout)

    def connection_made(self, handler: RequestHandler, transport: asyncio.Transport) -> None:
        super().connection_made(handler, transport)
        self._open[handler] = transport
        self._service.lost[handler] = self._loop.create_future()

    def connection_lost(self, handler: RequestHandler, exc: BaseException | None = None) -> None:
        super().connection_lost(handler, exc)
        del self._open[handler]
        self._service.lost.pop(handler).set_result(None)

    def _new_request(
        self,
        message: RawRequestMessage,
        payload: StreamReader,
        protocol: RequestHandler,
        writer: AbstractStreamWriter,
        task: asyncio.Task[None],
    ) -> web.BaseRequest:
        return web.BaseRequest(message, payload, protocol, writer, task, self._loop, client_max_size=self._max_body)
