"""Small requests on connections that aiohttp opens and this module reads.

aiohttp opens each connection: host names, TLS, happy eyeballs. Then ``HttpConnection`` replaces aiohttp's
protocol on it. A plain 204 is recognized at once. Any other response goes to aiohttp's protocol, from its first byte.
In both cases the connection records the status when it reads the head: a response that was read counts, even if its
task is cancelled in the same loop turn.

``check_stale`` finds a stale connection before the first byte is written; ``RequestSender`` then replaces the
connection (``_may_replace`` in ``_io.sender``).

``FastPost`` serves only the aiohttp releases that the contract test covers, and no session or request that other
code mocks, traces, records, forbids or proxies. Requests that aiohttp sends are read by ``HttpConnection``, too.
"""

import asyncio
import io
import itertools
import math
import re
import select
import socket
import sys
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from time import monotonic
from types import FunctionType
from typing import Any

import aiohttp
from aiohttp import client_reqrep

from pushsdk._core.judging import is_json
from pushsdk._core.outcome import Evidence, Failure
from pushsdk._io.heads import KNOWN_RELEASES, Heads, RequestHead
from pushsdk._io.request import ApiRequest, Claim, resolve
from pushsdk._io.timers import Respond, let_read

if sys.platform == "linux":  # pragma: no branch - the tests run there
    from fcntl import ioctl
    from termios import TIOCOUTQ

# Together with any head it stays below the 64 KiB from which a writer has to wait for the connection to drain.
WHOLE_BODY_LIMIT = 48 * 1024
# Bytes per read. asyncio's 256 KiB make the allocator map and unmap memory for each response: 10 us.
READ_SIZE = 64 * 1024
ERROR_BODY_LIMIT = 4 * 1024
ANSWER_BODY_LIMIT = 64 * 1024
# Bytes that fit into one TCP segment on every path: IPv6 allows packets of 1,280 bytes, less 72 for headers. A request
# in one segment arrives whole or not at all.
SEGMENT = 1_208
# Seconds between an idle connection's end here and the time that the server announced: for the way, and for a loop
# that is late.
MARGIN = 0.5
# Seconds. After a shorter idle time servers do not close a connection for being idle: they crashed, or restarted.
LEAST_IDLE = 0.5
# A peer that has closed the connection answers a request by a reset, after one round trip: looked for every 10 ms.
RESET_CHECK, RESET_CHECKS = 0.01, 50
# For a response's head. Gateways add many kilobytes in cookies and policies; aiohttp's 8,190 bytes are too few.
HEAD_LIMIT = 128 * 1024
HEAD_LIMITS: Mapping[str, Any] = {"max_line_size": 64 * 1024, "max_field_size": 64 * 1024, "max_headers": 256}
# Set on aiohttp's protocol to its ``HttpConnection``: the next request finds that it was used.
_CONNECTION = "_pushsdk_connection"
# A whole 204 whose headers leave the connection open, all of it valid for aiohttp's parser, too. The group is the
# announced idle time. Each line matches in one way: with two, a head with 40 such lines would take years.
match_plain_204 = re.compile(
    rb"HTTP/1\.1 204 [ -~]{0,99}\r\n"
    rb"(?:(?:(?i:connection: *keep-alive)"
    rb"|(?i:keep-alive:)(?=[\t -~]{0,99}(?i:timeout *= *)(\d{1,9}))[\t -~]{0,199}"
    rb"|(?!(?i:connection|keep-alive|proxy-connection|content-length|transfer-encoding|upgrade|sec-websocket-key1):)"
    rb"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,99}:[\t -~\x80-\xff]{0,4096})\r\n){0,64}"
    rb"\r\n"
).fullmatch
# A proxy and the application may both add the length: RFC 9110 (8.6) lets a recipient take equal ones for one.
# Only in a head that comes in one read, as nearly all do.
_without_repeats = partial(
    re.compile(
        rb"(?i)\r\ncontent-length:[ \t]*(\d+)[ \t]*(?=\r\n(?:[^\r\n]+\r\n){0,64}?content-length:[ \t]*\1[ \t]*\r\n)"
    ).sub,
    b"",
)
_find_timeout = re.compile(r"timeout *= *(\d{1,9})", re.IGNORECASE).search


class UnsentError(Exception):
    """Nothing was written, for this reason. aiohttp wraps such an error that a request's body raises."""

    failure: Failure


class StaleConnectionError(UnsentError):
    """The connection was closed, or had input waiting before the request."""

    failure = Failure.STALE


class UnclaimedError(UnsentError):
    """The claim was refused, or failed."""

    failure = Failure.UNCLAIMED


# Not an ``asyncio.Protocol``: from a subclass of that, uvloop would not read into ``TlsConnection``'s memory.
class HttpConnection(asyncio.BaseProtocol):
    """One connection, with the kernel's view of it. Reads the responses to all requests from this package."""

    def __init__(self, handler: Any, *, used: bool) -> None:
        #: aiohttp's protocol. Parses responses that are not plain.
        self.handler = handler
        self.transport = transport = handler.transport
        #: True once a request was written.
        self.used = used
        #: The ``FastPost``, set by ``of``; and the place in aiohttp's pool, set by ``FastPost.acquire``.
        self.pool: Any = None
        self.lease: Any = None
        #: The last request: its evidence, its size, and the idle time before it in seconds. Set when it is written.
        self.evidence = Evidence(status=0)
        self.size = math.inf
        self.idle = 0.0
        #: Set while a response is awaited. Called with True for a plain 204, else with False: aiohttp parses it.
        self.respond: Respond | None = None
        #: Takes the bytes read for aiohttp's protocol. None before a response's first byte, unless aiohttp writes.
        self.read: Callable[[bytes], object] | None = None
        if hasattr(transport, "max_size"):  # asyncio's, not uvloop's
            transport.max_size = READ_SIZE
        sock = transport.get_extra_info("socket")
        #: ``poll(0)`` is true if input or a hang-up waits.
        self.poll: Callable[[int], Any]
        try:
            poller = select.poll()
        except AttributeError:  # pragma: no cover - no poll() on Windows
            self.poll = lambda timeout: select.select([sock], [], [], timeout)[0]
        else:
            poller.register(sock.fileno(), select.POLLIN)
            self.poll = poller.poll
        self.is_plain = type(self) is HttpConnection
        # Only Linux counts what the peer has not acknowledged, and only for TCP.
        is_counted = sys.platform == "linux" and sock.family in (socket.AF_INET, socket.AF_INET6)
        self._fd = sock.fileno() if is_counted else None
        #: Time when the connection was opened, the last request was written, or the last response received.
        self.since = monotonic()
        #: Shortest time to a response, in seconds.
        self.quickest = math.inf

    @classmethod
    def of(cls, handler: Any, pool: "FastPost", evidence: Evidence) -> "HttpConnection":
        """Return the connection for aiohttp's protocol, in its place. Raises StaleConnectionError if it is stale."""
        connection: HttpConnection | None = getattr(handler, _CONNECTION, None)
        # Other users of an injected session leave no ``HttpConnection``, but the ``_payload`` of their last response.
        # Unread input is no response to an earlier request.
        evidence.reused = connection.used if connection else handler._payload is not None and not handler._buffer
        is_old = connection is not None and monotonic() - connection.since > pool.keepalive
        # Unsolicited input was read already. A paused writer still holds an earlier request, answered before the server
        # had read it.
        if is_old or handler.should_close or handler.writing_paused or not handler.is_connected():
            raise StaleConnectionError
        if connection is None:
            kind = TlsConnection if handler.transport.get_extra_info("sslcontext") else HttpConnection
            connection = kind(handler, used=evidence.reused)
            setattr(handler, _CONNECTION, connection)
        connection.pool, connection.read = pool, None
        connection.transport.set_protocol(connection)
        return connection

    async def let_read(self) -> None:
        """Let the loop read the end of a fresh TLS connection. Raises StaleConnectionError if the peer closed it."""
        if not (self.is_plain or self.used):
            await let_read()
            if not self.handler.is_connected():
                raise StaleConnectionError

    def check_stale(self, evidence: Evidence) -> None:
        """Raise StaleConnectionError if the connection is closed or has input waiting, just before the first byte."""
        evidence.reused = self.used
        is_closed = self.handler.transport is None or self.transport.is_closing()
        # A fresh TLS connection may have session tickets waiting.
        if is_closed or ((self.is_plain or self.used) and self.poll(0)):
            raise StaleConnectionError
        now = monotonic()
        self.used, self.idle, self.since, self.evidence = True, now - self.since, now, evidence

    def write(
        self,
        head: RequestHead,
        body: bytes,
        evidence: Evidence,
        respond: Respond,
        extra: bytes,
    ) -> None:
        """Write the whole request, with these ``extra`` header lines. Raises as ``check_stale`` does.

        ``respond`` is called at its response, or if the connection is lost.
        """
        self.check_stale(evidence)
        evidence.started_writing = True
        self.respond = respond
        self.size = head.write(self.transport, body, extra)
        evidence.written = True

    def hand_over(self) -> None:
        """Let aiohttp write the next request."""
        self.read, self.size = self._read_head, math.inf

    def abort(self) -> None:
        """Close the connection, whatever comes. The bytes already read count."""
        self.respond = None
        self.take_in()
        self.lease.close()

    def take_in(self) -> None:
        """Record the body as far as it was read, if the head was read and its task ends before it could take it."""
        if self.handler._buffer and self.evidence.status is not None:
            (message, content), _ = self.handler._buffer[-1]
            reading = read_body(message, content, self.evidence)
            with suppress(Exception):
                reading.send(None)
            reading.close()

    def data_received(self, data: bytes) -> None:
        """Recognize a plain 204; leave any other response to aiohttp's protocol."""
        if self.read is not None:
            self.read(data)
        elif self.respond is None:
            # No request awaits a response.
            self.transport.close()
        elif data == self.pool.plain or self.pool.recognizes(data):
            self._record(204)
            self._respond(True)
        else:
            self.handler.set_response_params(read_until_eof=True, auto_decompress=False, **HEAD_LIMITS)
            self._read_head(data)
            self._respond(False)

    def eof_received(self) -> bool:
        """Keep the connection for a while if the peer closed it before a request byte came."""
        self.handler.eof_received()
        if self.evidence.status is not None:
            return False
        self._shorten()
        # The peer's FIN acknowledges all that came before it. TLS adds bytes, so that the size tells nothing.
        if not self.is_plain or self._unacknowledged() < self.size:
            return False
        self._await_reset(RESET_CHECKS)
        return True

    def _await_reset(self, checks: int) -> None:
        """Find out if the peer has closed both halves: then its kernel answers the request by a reset.

        A peer that closed only its half may still read. Its kernel acknowledges the request.
        """
        if self.transport.is_closing():
            return
        is_unread = self._unacknowledged() >= self.size
        is_reset = bool(self.poll(0)[0][1] & (select.POLLERR | select.POLLHUP))
        if is_unread and checks and not is_reset:
            asyncio.get_running_loop().call_later(RESET_CHECK, self._await_reset, checks - 1)
            return
        if is_unread and is_reset:
            self.evidence.started_writing = self.evidence.written = False
            self.handler.set_exception(StaleConnectionError())
        self.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Let aiohttp's protocol raise the reason in the request that awaits a response."""
        if exc is not None:
            self._shorten()
        if self.read is None and self.respond is None:  # before a request's first byte
            self.handler.set_exception(StaleConnectionError())
        content = self.handler._payload
        self.handler.connection_lost(exc)
        if isinstance(content, aiohttp.StreamReader) and not (content.is_eof() or content.exception()):
            # aiohttp's parser forgets the body that it can't read.
            content.set_exception(aiohttp.ClientPayloadError())
        self._respond(False)

    def pause_writing(self) -> None:
        """See ``asyncio.Protocol``."""
        self.handler.pause_writing()

    def resume_writing(self) -> None:
        """See ``asyncio.Protocol``."""
        self.handler.resume_writing()

    def _read_head(self, data: bytes, seen: int = 0) -> None:
        """Let aiohttp's protocol parse the final head. The head of a 204 is the whole response, whatever follows.

        In pieces, as aiohttp's parser loses a 204 with something behind it in the same read. A head that goes on after
        ``HEAD_LIMIT`` bytes, of which earlier reads had ``seen``, is ended here, and the connection with it.
        """
        self.read, lines = partial(self._read_head, seen=seen + len(data)), io.BytesIO(data)
        # Up to the empty line, then by lines: this read may begin within the empty line, or with a 1xx.
        size = 0 if data[:1] in (b"\r", b"\n") else data.find(b"\r\n\r\n") + 4
        for piece in itertools.chain([_without_repeats(lines.read(size))], lines):
            self.handler.data_received(piece)
            if self.transport.is_closing():
                return  # the parser refused it
            message = self._final_head()
            if message is None and seen + lines.tell() > HEAD_LIMIT and piece.endswith(b"\n"):
                self.handler.data_received(b"\r\n")
                self.transport.close()
                message, lines = self._final_head(), io.BytesIO()
            if message is not None:
                self._end_head(message, lines.read())
                return

    def _final_head(self) -> Any:
        """Return the final response's head, or None if there was none yet."""
        message = self.handler._buffer[-1][0][0] if self.handler._buffer else None
        is_interim = message is not None and message.code != 101 and 100 <= message.code < 200
        return None if is_interim else message

    def _end_head(self, message: Any, rest: bytes) -> None:
        """Record the final response's head. ``rest`` holds the body bytes read so far."""
        if announced := _find_timeout(message.headers.get("Keep-Alive", "")):
            self.pool.announce(announced[1])
        if message.code != 204:
            self.evidence.headers = message.headers
        self._record(message.code)
        length = message.headers.get("Content-Length", "0")
        if message.code == 204 and (rest or message.chunked or int(length)):
            self.handler.force_close()
            self.read = bytes  # not read
        else:
            self._read_rest(self.handler._payload, rest)

    def _read_rest(self, body: Any, data: bytes, seen: int = 0) -> None:
        """Let aiohttp's protocol parse all after the head. Bytes beside the body, such as trailers, are bounded."""
        seen += len(data)
        if data:
            self.handler.data_received(data)
        self.read = self._read_next if body.is_eof() else partial(self._read_rest, body, seen=seen)
        if seen - body.total_bytes > HEAD_LIMIT:
            self.transport.close()

    def _read_next(self, data: bytes) -> None:
        """Let aiohttp's protocol parse other responses: an injected session may send requests on this connection.

        No further push, if they begin with a part of a head: perhaps nobody asked for it.
        """
        self.read = self.handler.data_received
        self.read(data)
        if not self.handler._buffer:
            self.handler.force_close()

    def _record(self, status: int) -> None:
        """Record the status, and the latency of a 2xx on a new connection: connecting does not count.

        Mark the request as not written if the peer lacks a part. Such a response does not belong to this request,
        so the connection is closed.
        """
        evidence = self.evidence
        evidence.status = status
        now = monotonic()
        seconds, self.since = now - self.since, now
        if not 200 <= status < 300:
            return
        if not evidence.reused:
            evidence.latency = self.idle + seconds
        # An unsolicited response arrives faster than any real one. For small requests only the fastest response so far
        # pays for the system call, which takes 2 % of a send.
        if seconds < self.quickest or self.size > SEGMENT:
            if self._unacknowledged():
                evidence.written = False
                self.transport.close()
            else:
                self.quickest = min(seconds, self.quickest)

    def _unacknowledged(self) -> int:
        """Return how many bytes the peer's kernel has not acknowledged; 0 if that is not known."""
        if self._fd is None:
            return 0
        queued = int.from_bytes(ioctl(self._fd, TIOCOUTQ, bytes(4)), sys.byteorder)
        return queued + int(self.transport.get_write_buffer_size())

    def _shorten(self) -> None:
        """Keep idle connections for a shorter time if the peer closed this one with a request in flight."""
        if self.evidence.status is None and self.evidence.reused:
            self.pool.shorten(self.idle)

    def _respond(self, is_plain: bool) -> None:
        respond, self.respond = self.respond, None
        if respond is not None and self.is_plain:
            respond(is_plain)
        elif respond is not None:
            # TLS tells of the peer's close only after the data before it, and then the connection must not be reused.
            asyncio.get_running_loop().call_soon(respond, is_plain)


class TlsConnection(HttpConnection, asyncio.BufferedProtocol):
    """A connection by TLS. It reads into the pool's memory: else each read would map and unmap 256 KiB in 10 us."""

    def get_buffer(self, sizehint: int) -> Any:
        """Return the memory for one read."""
        return self.pool.buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Take the bytes read."""
        self.data_received(self.pool.buffer[:nbytes].tobytes())


async def claimed(claim: Claim) -> bytes:
    """Return the claimed body. Raises UnclaimedError if nothing is to be sent.

    Call ``check_stale`` afterwards: if the attempt ended during the claim, its connection is closed or was answered.
    """
    body = await claim()
    if body is None:
        raise UnclaimedError
    return body


async def read_body(response: Any, content: aiohttp.StreamReader, evidence: Evidence, *, wanted: bool = False) -> None:
    """Record headers and the start of the body, without decompression. An incomplete body is recorded, too.

    ``wanted``: the caller needs the body of a 2xx. Else its first byte that is not white space is enough.
    """
    evidence.headers = response.headers
    if evidence.status not in range(200, 300):
        await _read_start(content, evidence, ERROR_BODY_LIMIT)
    elif wanted:
        await _read_start(content, evidence, ANSWER_BODY_LIMIT)
    elif not is_json(response.headers):
        await _read_start(content, evidence, ERROR_BODY_LIMIT, is_peek=True)
    else:  # the part that came with the head: an error in it is logged
        evidence.body = content.read_nowait(ERROR_BODY_LIMIT)


async def _read_start(content: aiohttp.StreamReader, evidence: Evidence, limit: int, *, is_peek: bool = False) -> None:
    body = bytearray()
    try:
        async for chunk in content.iter_chunked(limit):
            body += chunk
            if len(body) >= limit or (is_peek and body.strip()):
                break
        evidence.body = b""
    finally:
        if body:
            evidence.body = bytes(body[:limit])


class FastPost:
    """A sender over one session's connections to one host. Keeps the idle ones: the last used is the next.

    ``is_used``: False if aiohttp sends all requests. Their connections are read by ``HttpConnection`` all the same.
    """

    def __init__(
        self,
        session: Any,
        heads: Heads,
        keepalive: float,
        *,
        is_used: bool = True,
    ) -> None:
        self._session = session
        self._heads = heads
        self._loop = asyncio.get_running_loop()
        #: Seconds for which an idle connection is kept. Only falls; set by ``announce`` and ``shorten``.
        self.keepalive = keepalive
        # Count against the limit of aiohttp's pool: callers have no more requests in flight than that.
        self._idle: deque[HttpConnection] = deque()
        #: The memory for one read, which ends before the next begins: all TLS connections of a loop share it.
        self.buffer = memoryview(bytearray(READ_SIZE))
        #: The last plain 204: responses are equal for a second, the resolution of their Date.
        self.plain = b""
        self._sweeper: asyncio.TimerHandle | None = None
        # Instrumentation libraries add their hooks to every session.
        self._is_plain = (
            is_used
            and aiohttp.__version__.startswith(KNOWN_RELEASES)
            and all(map(is_own, (_REQUEST, _SEND, _START)))
            and type(session) is _SESSION
            and session._request_class is _WRITER
            and session._response_class is _READER
            and not any((session._middlewares, session._default_headers, session._default_auth))
            and not any((session._default_proxy, session._trust_env))
        )

    def takes(self, body: bytes) -> bool:
        """Return True if the body is small enough for one write, and no mock replaces a part of aiohttp."""
        return (
            len(body) <= WHOLE_BODY_LIMIT
            and self._is_plain
            and _SESSION._request is _REQUEST
            and not self._session._trace_configs
            and _WRITER.send is _SEND
            and _READER.start is _START
        )

    async def post(self, request: ApiRequest, timeout: aiohttp.ClientTimeout) -> None:
        """Send the request, and record its response. Raises as a session does."""
        evidence, span = request.evidence, request.flight.span
        evidence.touched = True
        head, extra = self._heads.of(request.operation, request.key, span and span.headers)
        connection = await self.acquire(head, evidence, timeout)
        try:
            body = await claimed(request.prepare)
            waiter = self._loop.create_future()
            connection.write(head, body, evidence, partial(resolve, waiter), extra)
            if await waiter:
                self.release(connection)
            else:
                await self._read(connection, evidence, wanted=request.operation.returns_body)
        except UnclaimedError:
            self.release(connection)
            raise
        except BaseException:
            connection.abort()
            raise

    def start(self, connection: HttpConnection, request: ApiRequest, respond: Respond) -> bool:
        """Write the request at once on a reserved connection. Return False if the connection is stale.

        ``respond(True)`` follows a plain 204: call ``release``. ``respond(False)`` follows anything else: call
        ``go_on``.
        """
        evidence, span = request.evidence, request.flight.span
        try:
            head, extra = self._heads.of(request.operation, request.key, span and span.headers)
            connection.write(head, request.body, evidence, respond, extra)
        except StaleConnectionError:
            self._idle.append(connection)  # counted when it is taken again
            return False
        except BaseException:
            connection.abort()
            raise
        return True

    async def go_on(self, connection: HttpConnection, evidence: Evidence) -> None:
        """Record the response to a request that was begun, if it is not a plain 204. Raises as a session does."""
        try:
            await asyncio.sleep(0)  # if the task was cancelled, that is raised here
            await self._read(connection, evidence)
        except BaseException:
            connection.abort()
            raise

    async def _read(self, connection: HttpConnection, evidence: Evidence, *, wanted: bool = False) -> None:
        """Record a response that aiohttp's protocol parses."""
        if evidence.status is None or connection.read is not None:
            message, content = await connection.handler.read()
            while evidence.status != message.code:  # the final response is still to come
                message, content = await connection.handler.read()
            if evidence.status != 204:
                await read_body(message, content, evidence, wanted=wanted)
            self.release(connection)

    def take_idle(self) -> HttpConnection | None:
        """Return an idle connection, if there is one: call ``start``, else ``release``."""
        while self._idle:
            connection = self._idle.pop()
            if not connection.transport.is_closing() and monotonic() - connection.since <= self.keepalive:
                return connection
            connection.lease.close()
        return None

    async def acquire(self, head: RequestHead, evidence: Evidence, timeout: aiohttp.ClientTimeout) -> HttpConnection:
        """Return an idle connection, or one that aiohttp opens."""
        if (connection := self.take_idle()) is not None:
            return connection
        try:
            lease = await self._session.connector.connect(head.request, [], timeout)
        except TimeoutError as error:
            raise aiohttp.ConnectionTimeoutError from error
        try:
            connection = HttpConnection.of(lease.protocol, self, evidence)
            connection.lease = lease
            await connection.let_read()
        except BaseException:
            lease.close()
            raise
        return connection

    def release(self, connection: HttpConnection) -> None:
        """Keep the connection for the next request, unless it can't carry one."""
        is_ended = connection.read is not None and connection.handler.should_close
        connection.read = None
        # Part of the request may be unsent if the response came early.
        if is_ended or connection.transport.is_closing() or connection.transport.get_write_buffer_size():
            connection.lease.close()
        else:
            self._idle.append(connection)
            if self._sweeper is None:
                self._sweeper = self._loop.call_later(self.keepalive, self._sweep)

    def recognizes(self, response: bytes) -> bool:
        """Return True for a plain 204, and heed the idle time that it announces."""
        plain = match_plain_204(response)
        if plain is not None:
            self.plain = response
            if plain.lastindex:
                self.announce(plain[1])
        return plain is not None

    def announce(self, seconds: bytes | str) -> None:
        """Keep idle connections for less than the server says it does."""
        self.keepalive = min(self.keepalive, max(0.0, int(seconds) - MARGIN))

    def shorten(self, idle: float) -> None:
        """Keep idle connections for half as long as one that the server closed with a request in flight."""
        if idle > LEAST_IDLE:
            self.keepalive = min(self.keepalive, max(LEAST_IDLE, idle / 2))

    def lend(self) -> None:
        """Return an idle connection to aiohttp's pool, for a request that aiohttp sends."""
        if self._idle:
            self._idle.pop().lease.release()

    def _sweep(self) -> None:
        """Close the connections that were idle too long."""
        while self._idle and monotonic() - self._idle[0].since >= self.keepalive:
            self._idle.popleft().lease.close()
        self._sweeper = self._loop.call_later(self.keepalive, self._sweep) if self._idle else None

    def close(self) -> None:
        """Release the idle connections. Call this after the session has closed all connections."""
        if self._sweeper is not None:
            self._sweeper.cancel()
        while self._idle:
            self._idle.pop().lease.close()


def is_own(function: Any) -> bool:
    """Return True if this function is aiohttp's, not a mock or a wrapper."""
    return type(function) is FunctionType and any(function.__globals__ is names for names in _MODULES)


_MODULES = (vars(aiohttp.client), vars(client_reqrep))
# As they were when this module was imported.
_SESSION, _WRITER, _READER = aiohttp.ClientSession, aiohttp.ClientRequest, aiohttp.ClientResponse
_REQUEST, _SEND, _START = _SESSION._request, _WRITER.send, _READER.start
