"""One POST and its answer, on a connection of aiohttp's pool, without the request and response objects around them.

These, the headers merged for each request, its URL looked at and timers that never fire, are half of what aiohttp
needs for a POST; its pool, its connecting, its parser are used as they are. What is leant on here is private to
aiohttp, so it is used with the releases that the contract test was run with, and not where somebody else has laid
hands on a session or on requests: to mock, trace, record or forbid them, or to send them by a proxy.
"""

from __future__ import annotations

import select
from collections.abc import Callable, Mapping
from types import FunctionType
from typing import Any, NoReturn

import aiohttp
from aiohttp import client_reqrep, hdrs
from aiohttp.client_proto import ResponseHandler
from aiohttp.connector import Connection
from aiohttp.http_writer import _serialize_headers
from yarl import URL

from pushsdk._core.outcome import Evidence

__all__ = ["HEAD_LIMITS", "WHOLE_BODY_LIMIT", "Answer", "Exchange", "Head", "StaleConnectionError", "look"]

# Together with any head it stays below the 64 KiB from which a writer has to wait for the connection to drain.
WHOLE_BODY_LIMIT = 48 * 1024
KNOWN_RELEASES = ("3.14.",)
# Of an answer's head. Gateways add cookies and policies of many kilobytes; aiohttp's 8,190 bytes make a 204 unreadable.
HEAD_LIMITS: Mapping[str, Any] = {"max_line_size": 64 * 1024, "max_field_size": 64 * 1024, "max_headers": 256}
# Set on a connection's protocol at its first write, to what polls its socket: its next request finds it reused.
_POLL = "_pushsdk_poll"


class StaleConnectionError(Exception):
    """The pooled connection was dead, or had an answer waiting that nobody asked for. Nothing was written."""


def look(protocol: Any, evidence: Evidence) -> None:
    """Have a last look at a connection before its first byte is written. Raises StaleConnectionError."""
    transport = protocol.transport
    poll = getattr(protocol, _POLL, None)
    # ``_payload`` is that of the last answer: somebody else's request on an injected session left no poller. One that
    # nobody has read yet is of an answer to nothing, and tells of no earlier request.
    evidence.reused = poll is not None or (protocol._payload is not None and not protocol._buffer)
    if transport is None or transport.is_closing():
        raise StaleConnectionError
    if poll is None:
        poll = _poller(transport)
        setattr(protocol, _POLL, poll)
    # An answer to nothing is either read already (should_close), or still in the socket. And what was answered before
    # it had been read is still being written.
    if protocol.should_close or (evidence.reused and (poll(0) or protocol.writing_paused)):
        raise StaleConnectionError


def _poller(transport: Any) -> Callable[[int], Any]:
    """Tells whether input or a hang-up waits on the socket. For reused connections: a fresh TLS one may have some."""
    sock = transport.get_extra_info("socket")
    try:
        poller = select.poll()
    except AttributeError:  # pragma: no cover - no poll() on Windows
        return lambda timeout: select.select([sock], [], [], timeout)[0]
    poller.register(sock.fileno(), select.POLLIN)
    return poller.poll


class Head:
    """All of a request that does not depend on its body. Nobody is shown it: it holds the key."""

    __slots__ = ("_text", "request")

    def __init__(self, url: URL, headers: Mapping[str, str]) -> None:
        #: For the pool: where to connect to. Made by aiohttp, so the head is the one it would send.
        self.request = aiohttp.ClientRequest(hdrs.METH_POST, url, headers=headers)
        merged = self.request.headers
        merged.popall(hdrs.CONTENT_LENGTH, None)
        text = _serialize_headers(f"POST {url.raw_path_qs} HTTP/1.1", merged)
        self._text = text.removesuffix(b"\r\n") + b"Content-Length: "

    def write(self, transport: Any, body: bytes) -> None:
        """Hand the whole request over."""
        transport.write(b"%b%d\r\n\r\n%b" % (self._text, len(body), body))

    def __reduce__(self) -> NoReturn:
        raise TypeError("a head is not pickled: it holds the Api-Key")


class Answer:
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


class Exchange:
    """POSTs by one session."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        connector = session.connector
        assert connector is not None  # noqa: S101 - the session was just made
        self._session: Any = session
        self._connector = connector

    @classmethod
    def over(cls, session: aiohttp.ClientSession, release: str = aiohttp.__version__) -> Exchange | None:
        """One for this session, None where its requests have to be aiohttp's own."""
        plain = release.startswith(KNOWN_RELEASES) and all(map(_is_own, (_REQUEST, _SEND, _START)))
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

    async def post(self, head: Head, body: bytes, evidence: Evidence, timeout: aiohttp.ClientTimeout) -> Answer:
        """Send the request and wait for the answer's head. Raises as a session does."""
        try:
            connection = await self._connector.connect(head.request, [], timeout)
        except TimeoutError as error:
            raise aiohttp.ConnectionTimeoutError from error
        try:
            protocol = connection.protocol
            assert protocol is not None  # noqa: S101 - of a connection that was just opened
            look(protocol, evidence)
            protocol.set_response_params(read_until_eof=True, auto_decompress=False, **HEAD_LIMITS)
            evidence.started_writing = True
            head.write(protocol.transport, body)
            evidence.written = True
            return Answer(connection, *await _answer(protocol))
        except BaseException:
            connection.close()
            raise


async def _answer(protocol: ResponseHandler) -> tuple[Any, aiohttp.StreamReader]:
    while True:
        message, content = await protocol.read()
        # Others of 1xx only say that the answer is still to come.
        if not 100 <= message.code < 200 or message.code == 101:
            return message, content


def _is_own(function: Any) -> bool:
    """Whether this is aiohttp's own, and nobody's mock or wrapper around it."""
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
