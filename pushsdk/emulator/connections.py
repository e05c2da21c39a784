"""The listening socket and its connections: opened on loopback only, closed promptly whatever hangs on them."""

from __future__ import annotations

import asyncio
import errno
import logging
import math
import socket
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TypeAlias

from aiohttp import web
from aiohttp.http import HttpProcessingError
from aiohttp.web_protocol import RequestHandler

from pushsdk.emulator.app import Service

__all__ = ["Connections", "Handler", "bind"]

Handler: TypeAlias = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]

_BACKLOG = 1024  # a client that opens all its connections at once is no fault
_MOST = 20_000  # connections; each takes about 50 KB with a request on it
_SPARE = 64  # file descriptors for the store, the segments and whatever else the process does
_IDLE = 75.0  # seconds for the next head to arrive whole, as a usual proxy has it
_RETRY = 1.0  # seconds after which a failed accept is tried again
_QUIET = 60.0  # seconds between two lines of the log that say the same
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

    def __init__(self, service: Service, handle: Handler) -> None:
        super().__init__(
            handle,
            access_log=None,
            logger=_log,
            auto_decompress=False,  # Content-Length is then the length of the body, and there are no bombs
            lingering_time=1.0,
            keepalive_timeout=_IDLE,
        )
        self._service = service
        self._open: dict[RequestHandler, asyncio.Transport] = {}
        self._places = asyncio.Semaphore(_most_open())
        self._accepting: asyncio.Task[None]  # set by listen()
        self._warned = -math.inf  # when it was last said that no connection can be taken

    def listen(self, sock: socket.socket) -> None:
        """Serve what connects to the bound socket, which its owner closes after the end."""
        sock.listen(_BACKLOG)
        sock.setblocking(False)
        self._accepting = self._loop.create_task(self._accept(sock))

    async def _accept(self, sock: socket.socket) -> None:
        """Take one connection after the other. asyncio's server has no bound, and fills the log at EMFILE."""
        while True:
            if self._places.locked():
                self._warn("as many connections are open as may be: others wait")
            await self._places.acquire()
            try:
                connection, _ = await self._loop.sock_accept(sock)
                await self._loop.connect_accepted_socket(self, connection)
            except OSError as error:
                self._places.release()
                if error.errno != errno.ECONNABORTED:
                    self._warn(f"no connection can be taken: {error.strerror}")
                    await asyncio.sleep(_RETRY)

    def _warn(self, text: str) -> None:
        """Say it, at most once a minute."""
        if self._loop.time() - self._warned >= _QUIET:
            self._warned = self._loop.time()
            _log.warning(text)

    async def aclose(self) -> None:
        """Stop listening, let go of what hangs, and end every connection.

        Not by aiohttp's shutdown(), which waits its timeout out for each handler that waits for its client.
        """
        self._accepting.cancel()
        await asyncio.wait((self._accepting,))
        self._service.close()
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
        self._places.release()


def _most_open() -> int:
    """How many connections may be open: as many as this process has file descriptors for, but a few for itself."""
    most = _MOST
    with suppress(ImportError):  # a system without such a bound
        import resource

        files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        if files != resource.RLIM_INFINITY:
            most = max(1, min(most, files - _SPARE))
    return most
