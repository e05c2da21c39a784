"""Requests over aiohttp's session: a caller's session, through a proxy, or with a body too large for one write.

The body itself provides the evidence. aiohttp writes the head with the first body bytes: if the body was
never asked to write, nothing was sent; if its last byte was written, everything was. That holds for the client's own
session and for an injected one. A contract test checks these properties in the installed aiohttp.
"""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from typing import Any

import aiohttp
from aiohttp import payload
from aiohttp.abc import AbstractStreamWriter
from multidict import CIMultiDict

from pushsdk._core.judging import decide
from pushsdk._core.outcome import NO_HEADERS, REJECTED, Evidence, Failure
from pushsdk._io.fast_post import FastPost, HttpConnection, claimed, is_own, read_body
from pushsdk._io.heads import Heads
from pushsdk._io.request import ApiRequest, Claim


class _EvidenceBody(payload.Payload):
    """A fixed body that collects evidence while written."""

    _autoclose = True
    _encoding = None
    _filename = None
    _headers = CIMultiDict({"Content-Type": "application/json"})

    def __init__(
        self, value: bytes, evidence: Evidence, claim: Claim | None, connection_of: Callable[[Any], HttpConnection]
    ) -> None:
        # Without the base constructor, which doubles the cost by making headers for each body.
        self._value = value
        self._size = len(value)
        self._evidence = evidence
        self._claim = claim
        # A plain function: mocks copy the body, and with it the objects it refers to.
        self._connection_of = connection_of
        # Set when the body is written.
        self._connection: HttpConnection | None = None

    @property
    def size(self) -> int | None:
        # Each real request reads the length; mocks such as aioresponses never do.
        self._evidence.touched = True
        return self._size

    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        raise TypeError("a push body is not decoded")

    async def write(self, writer: AbstractStreamWriter) -> None:
        await self.write_with_length(writer, None)

    async def write_with_length(self, writer: AbstractStreamWriter, content_length: int | None) -> None:
        evidence = self._evidence
        protocol = writer.protocol  # type: ignore[attr-defined]
        self._connection = connection = self._connection_of(protocol)
        claim, self._claim = self._claim, None
        await connection.let_read()
        if claim is not None:
            body = await claimed(claim)
            # The head has announced the length already. JSON may end in white space.
            self._value = body.ljust(len(self._value))
        connection.check_stale(evidence)
        connection.hand_over()
        evidence.status, evidence.headers = None, NO_HEADERS
        evidence.started_writing = True
        await writer.write(self._value)
        if content_length == len(self._value):  # else aiohttp may add bytes
            connection.size = writer.output_size
        evidence.written = True

    def take_in(self) -> None:
        """Record the bytes read from the response, unless another request uses the connection by now."""
        if self._connection is not None and self._connection.evidence is self._evidence:
            self._connection.take_in()


class SessionPost:
    """A sender over one session. ``FastPost`` lends it idle connections, and reads those that it opens."""

    def __init__(
        self, session: aiohttp.ClientSession, fast_post: FastPost, heads: Heads, options: Mapping[str, Any]
    ) -> None:
        self._session = session
        self._fast_post = fast_post
        self._heads = heads
        # Arguments for each request.
        self._options = options

    async def post(self, request: ApiRequest, timeout: aiohttp.ClientTimeout) -> None:
        """Send the request, and record its response. Raises as a session does."""
        evidence, span, operation, pool = request.evidence, request.flight.span, request.operation, self._fast_post
        pool.lend()
        body, claim = await self._claimed(request)

        def connection_of(protocol: Any) -> HttpConnection:
            # An injected session's middleware may send again in this attempt: after a rejection, by the same claim.
            if evidence.started_writing and REJECTED not in decide(evidence, request.options.policy.statuses):
                raise aiohttp.ClientConnectionError("the request may have been pushed, so it is not sent again")
            return HttpConnection.of(protocol, pool, evidence)

        data = _EvidenceBody(body, evidence, claim, connection_of)
        try:
            with nullcontext() if span is None else span.current():
                # Called by session.post(), which adds a context manager.
                response = await self._session._request(
                    operation.method,
                    self._heads.url(operation),
                    data=data,
                    headers=self._heads.headers(request.key, span and span.headers),
                    timeout=timeout,
                    **self._options,
                )
        except asyncio.CancelledError:
            data.take_in()
            raise
        try:
            evidence.status = response.status
            if evidence.status != 204 or operation.returns_body:
                await read_body(response, response.content, evidence, wanted=operation.returns_body)
        finally:
            _end(response, evidence)

    async def _claimed(self, request: ApiRequest) -> tuple[bytes, Claim | None]:
        """Return the body, and the claim that it makes before its first byte."""
        evidence = request.evidence
        # A real session asks the body to write: if it ends before, as by a hook that raises, nothing was sent.
        evidence.touched = is_own(getattr(self._session._request, "__func__", None))
        if evidence.touched:
            return request.body, request.prepare
        # A mock or a recorder may never ask the body to write. Nothing is sent before the claim.
        evidence.touched = True
        body = await claimed(request.prepare)
        evidence.touched = False
        return body, None


def _end(response: aiohttp.ClientResponse, evidence: Evidence) -> None:
    if evidence.written:
        response.release()
    else:
        # A response to an unsent request: don't reuse the connection.
        response.close()
    if evidence.touched and not evidence.started_writing:
        evidence.failure = Failure.STALE
