"""Small requests on connections that aiohttp opens and this module reads.

aiohttp opens each connection: host names, TLS, happy eyeballs. Then ``HttpConnection`` takes the place of aiohttp's
protocol on it. A plain 204 is recognized at once. Any other response goes to aiohttp's protocol, from its first byte.

``check_stale`` finds a stale connection before the first byte is written; ``RequestSender`` then replaces the
connection (``_may_replace`` in ``_io.sender``).

The module serves only the releases of aiohttp that the contract test covers, and no session or request that other code
mocks, traces, records, forbids or proxies.
"""

import asyncio
import math
import re
import select
import socket
import sys
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from time import monotonic
from types import FunctionType
from typing import Any

import aiohttp
from aiohttp import client_reqrep, hdrs
from aiohttp.http_writer import _serialize_headers
from yarl import URL

from pushsdk._core.outcome import Evidence, is_json

if sys.platform == "linux":  # pragma: no branch - the tests run there
    from fcntl import ioctl
    from termios import TIOCOUTQ

# Together with any head it stays below the 64 KiB from which a writer has to wait for the connection to drain.
WHOLE_BODY_LIMIT = 48 * 1024
# Bytes of one read. asyncio's 256 KiB make the allocator map and unmap memory for each response: 10 us.
READ_SIZE = 64 * 1024
ERROR_BODY_LIMIT = 4 * 1024
ANSWER_BODY_LIMIT = 64 * 1024
KNOWN_RELEASES = ("3.14.",)
# For the head of a response. Gateways add many kilobytes of cookies and policies; aiohttp's 8,190 bytes are too few.
HEAD_LIMITS: Mapping[str, Any] = {"max_line_size": 64 * 1024, "max_field_size": 64 * 1024, "max_headers": 256}
# Set on aiohttp's protocol to its ``HttpConnection``: the next request finds that it was used.
_CONNECTION = "_pushsdk_connection"
# A whole 204 whose headers leave the connection open, all of it valid for aiohttp's parser, too.
_is_plain_204 = re.compile(
    rb"HTTP/1\.1 204 [ -~]{0,99}\r\n"
    rb"(?:(?:(?i:connection: *keep-alive)"
    rb"|(?!(?i:connection|proxy-connection|content-length|transfer-encoding|upgrade|sec-websocket-key1):)"
    rb"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,99}:[\t -~\x80-\xff]{0,4096})\r\n){0,64}"
    rb"\r\n"
).fullmatch

Claim = Callable[[], Awaitable[bytes | None]]
"""Hook that is awaited after the connection is acquired and before the first byte is written.

Returns the body to send, as long as the one it replaces or shorter; None if nothing is to be sent.
"""


class StaleConnectionError(Exception):
    """The connection was closed, or had input waiting before the request. Nothing was written."""


class UnclaimedError(Exception):
    """The claim was refused, or failed. Nothing was written."""


class HttpConnection(asyncio.BufferedProtocol):
    """One connection, with the kernel's view of it. Reads the responses to the requests of ``FastPost``."""

    def __init__(self, handler: Any, *, used: bool) -> None:
        #: aiohttp's protocol. Reads responses that are not plain, and every response to a request of aiohttp's own.
        self.handler = handler
        self.transport = transport = handler.transport
        #: True once a request was written.
        self.used = used
        #: The place in aiohttp's pool, the ``FastPost``, and the memory for reads. Set by ``FastPost``.
        self.lease: Any = None
        self.pool: Any = None
        self.buffer: Any = None
        #: Set while a response is awaited. Called with True for a plain 204, else with False: aiohttp's protocol reads.
        self.respond: Callable[[bool], None] | None = None
        self.is_handed_over = False
        if hasattr(transport, "max_size"):  # asyncio's, not uvloop's
            transport.max_size = READ_SIZE
        sock = transport.get_extra_info("socket")
        self.is_plain = transport.get_extra_info("sslcontext") is None
        #: ``poll(0)`` is true if input or a hang-up waits.
        self.poll: Callable[[int], Any]
        try:
            poller = select.poll()
        except AttributeError:  # pragma: no cover - no poll() on Windows
            self.poll = lambda timeout: select.select([sock], [], [], timeout)[0]
        else:
            poller.register(sock.fileno(), select.POLLIN)
            self.poll = poller.poll
        # Only Linux counts what the peer has not acknowledged, and only for TCP; TLS adds bytes of its own.
        is_counted = sys.platform == "linux" and self.is_plain and sock.family in (socket.AF_INET, socket.AF_INET6)
        self._fd = sock.fileno() if is_counted else None
        self._unacknowledged = bytearray(4)
        #: Time when the last request was written, or the last response received.
        self.since = 0.0
        #: Shortest time to a response, in seconds.
        self.quickest = math.inf

    @classmethod
    def of(cls, handler: Any, evidence: Evidence) -> "HttpConnection":
        """Return the connection of aiohttp's protocol. Raises StaleConnectionError if the connection is stale."""
        connection: HttpConnection | None = getattr(handler, _CONNECTION, None)
        # Other users of an injected session leave no ``HttpConnection``, but the ``_payload`` of their last response.
        # Unread input is no response to an earlier request.
        evidence.reused = connection.used if connection else handler._payload is not None and not handler._buffer
        # Unsolicited input was read already. A paused writer still holds an earlier request, answered before the server
        # had read it.
        if handler.should_close or handler.writing_paused or not handler.is_connected():
            raise StaleConnectionError
        if connection is None:
            connection = cls(handler, used=evidence.reused)
            setattr(handler, _CONNECTION, connection)
        return connection

    def check_stale(self, evidence: Evidence) -> None:
        """Raise StaleConnectionError if the connection is closed or has input waiting, just before the first byte."""
        evidence.reused = self.used
        # A fresh TLS connection may have session tickets waiting.
        if self.transport.is_closing() or ((self.is_plain or self.used) and self.poll(0)):
            raise StaleConnectionError
        self.used = True
        self.since = monotonic()

    def write(self, head: "RequestHead", body: bytes, evidence: Evidence, respond: Callable[[bool], None]) -> None:
        """Write the whole request. ``respond`` is called at its response, or if the connection is lost."""
        evidence.started_writing = True
        self.respond = respond
        head.write(self.transport, body)
        evidence.written = True

    def accept(self, evidence: Evidence) -> None:
        """Record a plain 204, and release the connection."""
        evidence.status = 204
        self.confirm(evidence)
        self.pool.release(self)

    def abort(self) -> None:
        """Close the connection, whatever comes."""
        self.respond = None
        self.lease.close()

    def confirm(self, evidence: Evidence) -> None:
        """Record the latency of a 2xx. Mark the request as not written if the peer's kernel lacks a part of it.

        Such a response does not belong to this request, so the connection is closed.
        """
        now = monotonic()
        seconds, self.since = now - self.since, now
        if evidence.reused or self.handler.should_close:
            evidence.latency = seconds
        # An unsolicited response arrives faster than any real one. Only the fastest response so far pays for the system
        # call, which takes 2 % of a send. A closed socket can't be asked: its file descriptor may be reused.
        if seconds < self.quickest and not self.transport.is_closing():
            if self._fd is not None:
                ioctl(self._fd, TIOCOUTQ, self._unacknowledged)
            if any(self._unacknowledged):
                evidence.written = False
                self.transport.close()
            else:
                self.quickest = seconds

    def get_buffer(self, sizehint: int) -> Any:
        """Return the memory for one read."""
        return self.buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Recognize a plain 204; leave any other response to aiohttp's protocol."""
        if self.is_handed_over:
            self.handler.data_received(bytes(self.buffer[:nbytes]))
        elif self.respond is None:
            # No request awaits a response.
            self.transport.close()
        elif _is_plain_204(self.buffer, 0, nbytes):
            self._respond(is_plain=True)
        else:
            self.is_handed_over = True
            self.handler.set_response_params(read_until_eof=True, auto_decompress=False, **HEAD_LIMITS)
            self.handler.data_received(bytes(self.buffer[:nbytes]))
            self._respond(is_plain=False)

    def connection_lost(self, exc: Exception | None) -> None:
        """Let aiohttp's protocol raise the reason in the request that awaits a response."""
        self.handler.connection_lost(exc)
        self._respond(is_plain=False)

    def _respond(self, *, is_plain: bool) -> None:
        respond, self.respond = self.respond, None
        if respond is not None and self.is_plain:
            respond(is_plain)
        elif respond is not None:
            # TLS tells of the peer's close only after the data before it, and then the connection must not be reused.
            asyncio.get_running_loop().call_soon(respond, is_plain)


async def claimed(claim: Claim) -> bytes:
    """Return the claimed body. Raises UnclaimedError if nothing is to be sent.

    Call ``check_stale`` afterwards: if the attempt ended during the claim, its connection is closed or was answered.
    """
    body = await claim()
    if body is None:
        raise UnclaimedError
    return body


def _resolve(waiter: asyncio.Future[bool], is_plain: bool) -> None:
    if not waiter.done():
        waiter.set_result(is_plain)


class RequestHead:
    """The constant part of a request: request line and headers. Contains the Api-Key; never log it."""

    def __init__(self, method: str, url: URL, headers: Mapping[str, str]) -> None:
        #: Tells the pool where to connect. Created by aiohttp, so the head is the one that aiohttp would send.
        self.request = aiohttp.ClientRequest(method, url, headers=headers)
        self.request.headers.popall(hdrs.CONTENT_LENGTH, None)
        text = _serialize_headers(f"{method} {url.raw_path_qs} HTTP/1.1", self.request.headers)
        self._text = text.removesuffix(b"\r\n") + b"Content-Length: "

    def write(self, transport: Any, body: bytes) -> None:
        """Write the whole request."""
        transport.write(b"%b%d\r\n\r\n%b" % (self._text, len(body), body))


async def read_body(response: Any, content: aiohttp.StreamReader, evidence: Evidence, *, wanted: bool = False) -> None:
    """Record headers and the start of the body, without decompression. An incomplete body is recorded, too.

    ``wanted``: the caller needs the body of a 2xx. Else its first byte that is not white space is enough.
    """
    evidence.headers = response.headers
    is_success = evidence.status in range(200, 300)
    if is_success and not wanted and is_json(response.headers):
        return
    limit = ANSWER_BODY_LIMIT if is_success and wanted else ERROR_BODY_LIMIT
    body = bytearray()
    try:
        async for chunk in content.iter_chunked(limit):
            body += chunk
            if len(body) >= limit or (is_success and not wanted and body.strip()):
                break
        evidence.body = b""
    finally:
        if body:
            evidence.body = bytes(body[:limit])


class FastPost:
    """Sends requests over connections of one session, and keeps the idle ones: the last used is the next."""

    def __init__(self, session: Any, keepalive: float, release: str = aiohttp.__version__) -> None:
        self._session = session
        self._loop = asyncio.get_running_loop()
        self._keepalive = keepalive
        # Count against the limit of aiohttp's pool: callers have no more requests in flight than that.
        self._idle: deque[HttpConnection] = deque()
        # One read ends before the next begins: all connections of a loop share this.
        self._buffer = memoryview(bytearray(READ_SIZE))
        self._sweeper: asyncio.TimerHandle | None = None
        # Instrumentation libraries add their hooks to every session.
        self._is_plain = (
            release.startswith(KNOWN_RELEASES)
            and all(map(is_own, (_REQUEST, _SEND, _START)))
            and type(session) is _SESSION
            and session._request_class is aiohttp.ClientRequest
            and session._response_class is aiohttp.ClientResponse
            and not any((session._middlewares, session._default_headers, session._default_auth))
            and not any((session._default_proxy, session._trust_env))
        )

    def takes(self, body: bytes) -> bool:
        """Return True if the body is small enough for one write, and aiohttp's session and requests are its own."""
        session = self._session
        return (
            len(body) <= WHOLE_BODY_LIMIT
            and self._is_plain
            and type(session)._request is _REQUEST
            and "_request" not in session.__dict__
            and not session._trace_configs
            and aiohttp.ClientRequest.send is _SEND
            and aiohttp.ClientResponse.start is _START
        )

    async def post(
        self,
        head: RequestHead,
        body: bytes,
        evidence: Evidence,
        timeout: aiohttp.ClientTimeout,
        claim: Claim | None = None,
        begun: HttpConnection | None = None,
    ) -> None:
        """Send the request, unless it was ``begun``, and record its response. Raises as a session does."""
        connection = begun or await self.acquire(head, evidence, timeout)
        try:
            if begun is None:
                if claim is not None:
                    body = await claimed(claim)
                connection.check_stale(evidence)
                waiter = self._loop.create_future()
                connection.write(head, body, evidence, partial(_resolve, waiter))
                if await waiter:
                    connection.accept(evidence)
            else:
                await asyncio.sleep(0)  # if the task was cancelled, that is raised here
            if evidence.status is None:
                message, content = await connection.handler.read()
                while 100 <= message.code < 200 and message.code != 101:  # the final response is still to come
                    message, content = await connection.handler.read()
                evidence.status = message.code
                if 200 <= evidence.status < 300:
                    connection.confirm(evidence)
                if evidence.status != 204:
                    await read_body(message, content, evidence)
                self.release(connection)
        except UnclaimedError:
            self.release(connection)
            raise
        except BaseException:
            connection.abort()
            raise

    def begin(
        self, head: RequestHead, body: bytes, evidence: Evidence, respond: Callable[[bool], None]
    ) -> HttpConnection | None:
        """Write the request at once if there is an idle connection, and return that."""
        if (connection := self._take_idle()) is None:
            return None
        try:
            connection.check_stale(evidence)
        except StaleConnectionError:
            self._idle.append(connection)  # counted when it is taken again
            return None
        evidence.touched = True
        try:
            connection.write(head, body, evidence, respond)
        except BaseException:
            connection.abort()
            raise
        return connection

    def _take_idle(self) -> HttpConnection | None:
        while self._idle:
            connection = self._idle.pop()
            if not connection.transport.is_closing() and monotonic() - connection.since <= self._keepalive:
                return connection
            connection.lease.close()
        return None

    async def acquire(self, head: RequestHead, evidence: Evidence, timeout: aiohttp.ClientTimeout) -> HttpConnection:
        """Return an idle connection, or one that aiohttp opens."""
        if (connection := self._take_idle()) is not None:
            return connection
        try:
            lease = await self._session.connector.connect(head.request, [], timeout)
        except TimeoutError as error:
            raise aiohttp.ConnectionTimeoutError from error
        try:
            connection = HttpConnection.of(lease.protocol, evidence)
        except Exception:
            lease.close()
            raise
        connection.lease, connection.pool, connection.buffer = lease, self, self._buffer
        connection.transport.set_protocol(connection)
        return connection

    def release(self, connection: HttpConnection) -> None:
        """Keep the connection for the next request, unless it can't carry one."""
        is_ended = connection.is_handed_over and connection.handler.should_close
        connection.is_handed_over = False
        # A part of the request may be unsent if the response came early.
        if is_ended or connection.transport.is_closing() or connection.transport.get_write_buffer_size():
            connection.lease.close()
        else:
            self._idle.append(connection)
            if self._sweeper is None:
                self._sweeper = self._loop.call_later(self._keepalive, self._sweep)

    def lend(self) -> None:
        """Return an idle connection to aiohttp's pool, for a request of aiohttp's own."""
        if self._idle:
            connection = self._idle.pop()
            connection.transport.set_protocol(connection.handler)
            connection.lease.release()

    def _sweep(self) -> None:
        """Close the connections that were idle too long."""
        while self._idle and monotonic() - self._idle[0].since >= self._keepalive:
            self._idle.popleft().lease.close()
        self._sweeper = self._loop.call_later(self._keepalive, self._sweep) if self._idle else None

    def close(self) -> None:
        """Release the idle connections. Call this after the session has closed all connections."""
        if self._sweeper is not None:
            self._sweeper.cancel()
        while self._idle:
            self._idle.pop().lease.close()


def is_own(function: Any) -> bool:
    """Return True if this function is aiohttp's own, not a mock or a wrapper."""
    return type(function) is FunctionType and any(function.__globals__ is names for names in _MODULES)


_MODULES = (vars(aiohttp.client), vars(client_reqrep))
# As they were when this module was imported.
_SESSION, _REQUEST = aiohttp.ClientSession, aiohttp.ClientSession._request
_SEND, _START = aiohttp.ClientRequest.send, aiohttp.ClientResponse.start
