"""One POST and its answer, on a connection of aiohttp's pool, without the request and response objects around them.

These, the headers merged for each request, its URL looked at and timers that never fire, are half of what aiohttp
needs for a POST; its pool, its connecting, its parser are used as they are. What is leant on here is private to
aiohttp, so it is used with the releases that the contract test was run with, and not where somebody else has laid
hands on a session or on requests: to mock, trace, record or forbid them, or to send them by a proxy.
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
from aiohttp.client_proto import ResponseHandler
from aiohttp.connector import Connection
from aiohttp.http_writer import _serialize_headers
from yarl import URL

from pushsdk._core.outcome import Evidence

if sys.platform == "linux":  # pragma: no branch - the tests run there
    from fcntl import ioctl
    from termios import TIOCOUTQ

__all__ = [
    "HEAD_LIMITS",
    "WHOLE_BODY_LIMIT",
    "Claim",
    "FastPost",
    "RawResponse",
    "RequestHead",
    "StaleConnectionError",
    "UnclaimedError",
    "check_stale",
    "claimed",
    "confirm",
    "is_own",
]

# Together with any head it stays below the 64 KiB from which a writer has to wait for the connection to drain.
WHOLE_BODY_LIMIT = 48 * 1024
KNOWN_RELEASES = ("3.14.",)
# Of an answer's head. Gateways add cookies and policies of many kilobytes; aiohttp's 8,190 bytes make a 204 unreadable.
HEAD_LIMITS: Mapping[str, Any] = {"max_line_size": 64 * 1024, "max_field_size": 64 * 1024, "max_headers": 256}
# Set on a connection's protocol at its first write, to its ``_Socket``: the next request finds it reused.
_SOCKET = "_pushsdk_socket"


Claim = Callable[[], Awaitable[bytes | None]]
"""A hook for the last moment before the first byte: awaited once the connection is had.

Returns the body to send, as long as the one it replaces or shorter; None if nothing is to be sent.
"""


class StaleConnectionError(Exception):
    """The connection was dead, or had input waiting before the request. Nothing was written."""


class UnclaimedError(Exception):
    """The claim was refused, or could not be made. Nothing was written."""


class _Socket:
    """The kernel's view of a connection."""

    __slots__ = ("_fd", "_unacknowledged", "began", "is_plain", "poll", "quickest")

    def __init__(self, transport: Any) -> None:
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
        #: When the last request was about to be written, and the seconds to the quickest answer so far.
        self.began = 0.0
        self.quickest = math.inf

    def is_acknowledged(self) -> bool:
        """Return False if the peer's kernel is known to lack a part of what was written. The socket must be open."""
        if self._fd is not None:
            ioctl(self._fd, TIOCOUTQ, self._unacknowledged)
        return not any(self._unacknowledged)


def check_stale(protocol: Any, evidence: Evidence) -> None:
    """Have a last look at a connection before its first byte is written. Raises StaleConnectionError."""
    transport = protocol.transport
    sock = getattr(protocol, _SOCKET, None)
    # ``_payload`` is that of the last answer: another user of an injected session leaves no ``_Socket``. An answer that
    # nobody has read yet is an answer to nothing, and tells of no earlier request.
    evidence.reused = sock is not None or (protocol._payload is not None and not protocol._buffer)
    if transport is None or transport.is_closing():
        raise StaleConnectionError
    if sock is None:
        sock = _Socket(transport)
        setattr(protocol, _SOCKET, sock)
    # An answer to nothing is either read already (should_close), or still in the socket. And what was answered before
    # it had been read is still being written. A fresh TLS connection may have session tickets waiting.
    must_be_silent = sock.is_plain or evidence.reused
    if protocol.should_close or (must_be_silent and (sock.poll(0) or protocol.writing_paused)):
        raise StaleConnectionError
    sock.began = monotonic()


async def claimed(claim: Claim) -> bytes:
    """Return the body that is claimed. Raises UnclaimedError if nothing is to be sent.

    Call ``check_stale`` afterwards: if the attempt ended during the claim, its connection is closed or was answered.
    """
    body = await claim()
    if body is None:
        raise UnclaimedError
    return body


def confirm(protocol: Any, evidence: Evidence) -> None:
    """Take back that the whole request was written, if its 2xx came before the peer's kernel had all of it.

    Such an answer is no answer to this request, and its connection must carry no other.
    """
    sock = getattr(protocol, _SOCKET)
    seconds = monotonic() - sock.began
    # Without an acknowledgement an answer comes within a round trip, quicker than any answer that waited for its
    # request. So nearly no answer costs the microsecond of a system call, which is 2 % of a send. A closed socket can't
    # be asked: its number may be that of another one by now.
    if seconds < sock.quickest and protocol.is_connected():
        if sock.is_acknowledged():
            sock.quickest = seconds
        else:
            evidence.written = False
            protocol.force_close()


class RequestHead:
    """All of a request that does not depend on its body. Nobody is shown it: it holds the key."""

    __slots__ = ("_text", "request")

    def __init__(self, method: str, url: URL, headers: Mapping[str, str]) -> None:
        #: For the pool: where to connect to. Made by aiohttp, so the head is the one it would send.
        self.request = aiohttp.ClientRequest(method, url, headers=headers)
        merged = self.request.headers
        merged.popall(hdrs.CONTENT_LENGTH, None)
        text = _serialize_headers(f"{method} {url.raw_path_qs} HTTP/1.1", merged)
        self._text = text.removesuffix(b"\r\n") + b"Content-Length: "

    def write(self, transport: Any, body: bytes) -> None:
        """Hand the whole request over."""
        transport.write(b"%b%d\r\n\r\n%b" % (self._text, len(body), body))

    def __reduce__(self) -> NoReturn:
        raise TypeError("a head is not pickled: it holds the Api-Key")


class RawResponse:
    """What came back: as much of ``aiohttp.ClientResponse`` as is needed here. To be released."""

    __slots__ = ("_connection", "content", "headers", "status")

    def __init__(self, connection: Connection, message: Any, content: aiohttp.StreamReader) -> None:
        self._connection = connection
        self.status: int = message.code
        self.headers: Mapping[str, str] = message.headers
        self.content = content

    def release(self) -> None:
        """Give the connection back. The pool closes one whose answer was not read to its end."""
        self._connection.release()


class FastPost:
    """POSTs by one session."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        connector = session.connector
        assert connector is not None  # noqa: S101 - the session was just made
        self._session: Any = session
        self._connector = connector

    @classmethod
    def over(cls, session: aiohttp.ClientSession, release: str = aiohttp.__version__) -> FastPost | None:
        """One for this session, None where its requests have to be aiohttp's own."""
        plain = release.startswith(KNOWN_RELEASES) and all(map(is_own, (_REQUEST, _SEND, _START)))
        return cls(session) if plain and _is_plain(session) else None

    def takes(self, body: bytes) -> bool:
        """Whether this body can be sent from here: it needs no waiting, and nobody has laid hands on requests since."""
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
        """Send the request and wait for the answer's head. Raises as a session does."""
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
            message, content = await _answer(protocol)
            if 200 <= message.code < 300:
                confirm(protocol, evidence)
            return RawResponse(connection, message, content)
        except UnclaimedError:
            connection.release()
            raise
        except BaseException:
            connection.close()
            raise


async def _answer(protocol: ResponseHandler) -> tuple[Any, aiohttp.StreamReader]:
    while True:
        message, content = await protocol.read()
        # Others of 1xx only say that the answer is still to come.
        if not 100 <= message.code < 200 or message.code == 101:
            return message, content


def is_own(function: Any) -> bool:
    """Return True if this function is aiohttp's own, and not a mock or a wrapper around it."""
    return type(function) is FunctionType and any(function.__globals__ is names for names in _MODULES)


def _is_plain(session: Any) -> bool:
    """Whether it was made as it was asked for: instrumentations add what they need to every session."""
    return (
        type(session) is _SESSION
        and session._request_class is aiohttp.ClientRequest
        and session._response_class is aiohttp.ClientResponse
        and not any((session._trace_configs, session._middlewares, session._default_headers, session._default_auth))
        and not any((session._default_proxy, session._trust_env))
    )


_MODULES = (vars(aiohttp.client), vars(client_reqrep))
# As they were when this module was imported.
_SESSION, _REQUEST = aiohttp.ClientSession, aiohttp.ClientSession._request
_SEND, _START = aiohttp.ClientRequest.send, aiohttp.ClientResponse.start
