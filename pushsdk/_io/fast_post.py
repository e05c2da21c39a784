"""One request on a connection of aiohttp's pool, without aiohttp's request and response objects.

``check_stale`` finds a stale connection before the first byte is written; ``RequestSender`` then replaces the
connection (``_may_replace`` in ``_io.sender``).

Request and response objects, merged headers and unused timers are half the cost of a POST by aiohttp. Its pool,
connector and parser are used unchanged. The module relies on private parts of aiohttp, so it serves only the releases
that the contract test covers, and no session or request that other code mocks, traces, records, forbids or proxies.
"""

from __future__ import annotations

import math
import select
import socket
import sys
from collections.abc import Awaitable, Callable, Mapping
from time import monotonic
from types import FunctionType
from typing import Any, NoReturn

import aiohttp
from aiohttp import client_reqrep, hdrs
from aiohttp.connector import Connection
from aiohttp.http_writer import _serialize_headers
from yarl import URL

from pushsdk._core.outcome import Evidence

if sys.platform == "linux":  # pragma: no branch - the tests run there
    from fcntl import ioctl
    from termios import TIOCOUTQ

# Together with any head it stays below the 64 KiB from which a writer has to wait for the connection to drain.
WHOLE_BODY_LIMIT = 48 * 1024
# Bytes of one read. asyncio's 256 KiB make the allocator map and unmap memory for each response: 10 us.
READ_SIZE = 64 * 1024
KNOWN_RELEASES = ("3.14.",)
# For the head of a response. Gateways add many kilobytes of cookies and policies; aiohttp's 8,190 bytes are too few.
HEAD_LIMITS: Mapping[str, Any] = {"max_line_size": 64 * 1024, "max_field_size": 64 * 1024, "max_headers": 256}
# Set on a connection's protocol at its first write, to its ``_Socket``: the next request finds it reused.
_SOCKET = "_pushsdk_socket"


Claim = Callable[[], Awaitable[bytes | None]]
"""Hook that is awaited after the connection is acquired and before the first byte is written.

Returns the body to send, as long as the one it replaces or shorter; None if nothing is to be sent.
"""


class StaleConnectionError(Exception):
    """The connection was closed, or had input waiting before the request. Nothing was written."""


class UnclaimedError(Exception):
    """The claim was refused, or failed. Nothing was written."""


class _Socket:
    """The kernel's view of a connection."""

    __slots__ = ("_fd", "_unacknowledged", "began", "is_plain", "poll", "quickest")

    def __init__(self, transport: Any) -> None:
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
        #: Time before the last request was written, and the shortest time to a response, in seconds.
        self.began = 0.0
        self.quickest = math.inf

    def is_acknowledged(self) -> bool:
        """Return False if the peer's kernel is known to lack a part of what was written. The socket must be open."""
        if self._fd is not None:
            ioctl(self._fd, TIOCOUTQ, self._unacknowledged)
        return not any(self._unacknowledged)


def check_stale(protocol: Any, evidence: Evidence) -> None:
    """Raise StaleConnectionError if the connection is closed or has input waiting, before the first byte is written."""
    transport = protocol.transport
    sock = getattr(protocol, _SOCKET, None)
    # Other users of an injected session leave no ``_Socket``, but the ``_payload`` of their last response. Unread input
    # is no response to an earlier request.
    evidence.reused = sock is not None or (protocol._payload is not None and not protocol._buffer)
    if transport is None or transport.is_closing():
        raise StaleConnectionError
    if sock is None:
        sock = _Socket(transport)
        setattr(protocol, _SOCKET, sock)
    # Unsolicited input is read already (should_close) or still in the socket. A paused writer still holds an earlier
    # request, answered before the server had read it. A fresh TLS connection may have session tickets waiting.
    must_be_silent = sock.is_plain or evidence.reused
    if protocol.should_close or (must_be_silent and (sock.poll(0) or protocol.writing_paused)):
        raise StaleConnectionError
    sock.began = monotonic()


async def claimed(claim: Claim) -> bytes:
    """Return the claimed body. Raises UnclaimedError if nothing is to be sent.

    Call ``check_stale`` afterwards: if the attempt ended during the claim, its connection is closed or was answered.
    """
    body = await claim()
    if body is None:
        raise UnclaimedError
    return body


def confirm(protocol: Any, evidence: Evidence) -> None:
    """Record the latency of a 2xx. Mark the request as not written if the peer's kernel has not acknowledged all of it.

    Such a response does not belong to this request, so the connection is closed.
    """
    sock = getattr(protocol, _SOCKET)
    seconds = monotonic() - sock.began
    if evidence.reused or protocol.should_close:
        evidence.latency = seconds
    # An unsolicited response arrives faster than any real one. Only the fastest response so far pays for the system
    # call, which takes 2 % of a send. A closed socket can't be asked: its file descriptor may be reused.
    if seconds < sock.quickest and protocol.is_connected():
        if sock.is_acknowledged():
            sock.quickest = seconds
        else:
            evidence.written = False
            protocol.force_close()


class RequestHead:
    """The constant part of a request: request line and headers. Contains the Api-Key; never log it."""

    __slots__ = ("_text", "request")

    def __init__(self, method: str, url: URL, headers: Mapping[str, str]) -> None:
        #: Tells the pool where to connect. Created by aiohttp, so the head is the one that aiohttp would send.
        self.request = aiohttp.ClientRequest(method, url, headers=headers)
        merged = self.request.headers
        merged.popall(hdrs.CONTENT_LENGTH, None)
        text = _serialize_headers(f"{method} {url.raw_path_qs} HTTP/1.1", merged)
        self._text = text.removesuffix(b"\r\n") + b"Content-Length: "

    def write(self, transport: Any, body: bytes) -> None:
        """Write the whole request."""
        transport.write(b"%b%d\r\n\r\n%b" % (self._text, len(body), body))

    def __reduce__(self) -> NoReturn:
        raise TypeError("a RequestHead is not pickled: it holds the Api-Key")


class RawResponse:
    """A response, with the parts of ``aiohttp.ClientResponse`` that are needed here. Release it."""

    __slots__ = ("_connection", "content", "headers", "status")

    def __init__(self, connection: Connection, message: Any, content: aiohttp.StreamReader) -> None:
        self._connection = connection
        self.status: int = message.code
        self.headers: Mapping[str, str] = message.headers
        self.content = content

    def release(self) -> None:
        """Return the connection to the pool, which closes the connection if the response was not read to its end."""
        self._connection.release()


class FastPost:
    """Sends requests over the connections of one session."""

    def __init__(self, session: Any) -> None:
        self._session = session
        self._connector = session.connector

    @classmethod
    def over(cls, session: Any, release: str = aiohttp.__version__) -> FastPost | None:
        """Return a FastPost for this session, or None if aiohttp itself has to send its requests."""
        if not (release.startswith(KNOWN_RELEASES) and all(map(is_own, (_REQUEST, _SEND, _START)))):
            return None
        # Instrumentation libraries add their hooks to every session.
        is_plain = (
            type(session) is _SESSION
            and session._request_class is aiohttp.ClientRequest
            and session._response_class is aiohttp.ClientResponse
            and not any((session._trace_configs, session._middlewares, session._default_headers, session._default_auth))
            and not any((session._default_proxy, session._trust_env))
        )
        return cls(session) if is_plain else None

    def takes(self, body: bytes) -> bool:
        """Return True if the body is small enough for one write, and aiohttp's requests are still unpatched."""
        session = self._session
        return (
            len(body) <= WHOLE_BODY_LIMIT
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
    ) -> RawResponse:
        """Send the request and wait for the head of the response. Raises as a session does."""
        try:
            connection = await self._connector.connect(head.request, [], timeout)
        except TimeoutError as error:
            raise aiohttp.ConnectionTimeoutError from error
        try:
            protocol = connection.protocol
            assert protocol is not None  # noqa: S101 - of a connection that was just opened
            if claim is not None:
                body = await claimed(claim)
            check_stale(protocol, evidence)
            protocol.set_response_params(read_until_eof=True, auto_decompress=False, **HEAD_LIMITS)
            evidence.started_writing = True
            head.write(protocol.transport, body)
            evidence.written = True
            message, content = await protocol.read()
            while 100 <= message.code < 200 and message.code != 101:  # the final response is still to come
                message, content = await protocol.read()
            if 200 <= message.code < 300:
                confirm(protocol, evidence)
            return RawResponse(connection, message, content)
        except UnclaimedError:
            connection.release()
            raise
        except BaseException:
            connection.close()
            raise


def is_own(function: Any) -> bool:
    """Return True if this function is aiohttp's own, not a mock or a wrapper."""
    return type(function) is FunctionType and any(function.__globals__ is names for names in _MODULES)


_MODULES = (vars(aiohttp.client), vars(client_reqrep))
# As they were when this module was imported.
_SESSION, _REQUEST = aiohttp.ClientSession, aiohttp.ClientSession._request
_SEND, _START = aiohttp.ClientRequest.send, aiohttp.ClientResponse.start
