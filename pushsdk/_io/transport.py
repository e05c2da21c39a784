"""aiohttp, and nothing else of the shell: one POST, the evidence of it, and its exceptions mapped once.

The evidence comes from the body itself: aiohttp writes the head together with the body's first bytes, so a body that
was never asked to write proves that nothing left, and one that wrote its last byte that everything was handed over.
That holds for the client's own session and for an injected one alike. What is leant on here is held by a contract
test against the installed aiohttp.
"""

from __future__ import annotations

import ssl
from base64 import b64encode
from collections.abc import Mapping
from contextlib import nullcontext
from functools import cache
from typing import Any, Protocol
from urllib.request import getproxies, proxy_bypass

import aiohttp
from aiohttp import payload
from aiohttp.abc import AbstractStreamWriter
from aiohttp.http import HttpProcessingError
from multidict import CIMultiDict
from yarl import URL

from pushsdk._core.address import EXPOSED, HeaderSecret
from pushsdk._core.errors import ConfigurationError
from pushsdk._core.operations import Operation
from pushsdk._core.outcome import Evidence, Failure, is_json
from pushsdk._io.fast_post import (
    HEAD_LIMITS,
    Claim,
    FastPost,
    RawResponse,
    RequestHead,
    StaleConnectionError,
    UnclaimedError,
    check_stale,
    claimed,
    confirm,
    is_own,
)
from pushsdk._io.tracing import AttemptSpan
from pushsdk._version import __version__

__all__ = ["AiohttpTransport", "Session", "Transport", "check_session", "check_ssl"]

Session = aiohttp.ClientSession

ERROR_BODY_LIMIT = 4 * 1024
ANSWER_BODY_LIMIT = 64 * 1024
# Only our own deadlines count: aiohttp rounds its timeouts up to whole seconds above this threshold (facts B.4).
_NEVER_ROUND = 1e9
_UNWATCHED: nullcontext[None] = nullcontext()


class Transport(Protocol):
    """The one effect on the network: POST once, and write down what happened."""

    async def post(
        self,
        operation: Operation,
        body: bytes,
        key: HeaderSecret,
        evidence: Evidence,
        *,
        connect: float | None,
        span: AttemptSpan | None = None,
        claim: Claim | None = None,
    ) -> None:
        """Send ``body`` once and fill ``evidence``.

        Never raises but for a cancellation, and then the evidence is true as far as it goes. ``connect`` is the
        connect timeout in seconds; ``span`` is this attempt as its
        observer sees it: its headers go along. ``claim`` is awaited after the connection is had and before the first
        byte, and returns the body to send, or None if nothing is to be sent.
        """
        ...

    async def close(self) -> None:
        """Close what the transport opened itself."""
        ...


class _EvidenceBody(payload.Payload):
    """A frozen body that writes down what became of it."""

    _autoclose = True
    _encoding = None
    _filename = None
    _headers = CIMultiDict({"Content-Type": "application/json"})

    def __init__(self, value: bytes, evidence: Evidence, claim: Claim | None) -> None:
        # Not the base's: it makes headers for each body, which costs as much as all of this.
        self._value = value
        self._size = len(value)
        self._evidence = evidence
        self._claim = claim
        # The connection, and its parser of this request's answer. Set when the body is written.
        self._protocol: Any = None
        self._parser: object = None

    @property
    def size(self) -> int | None:
        # Every real request asks for the length; a mock such as aioresponses never does.
        self._evidence.touched = True
        return self._size

    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        raise TypeError("a push body is not decoded")

    async def write(self, writer: AbstractStreamWriter) -> None:
        await self.write_with_length(writer, None)

    async def write_with_length(self, writer: AbstractStreamWriter, content_length: int | None) -> None:
        evidence = self._evidence
        protocol = self._protocol = writer.protocol  # type: ignore[attr-defined]
        # Once: a middleware of an injected session may send again, which is still this attempt.
        claim, self._claim = self._claim, None
        if claim is not None:
            body = await claimed(claim)
            # The head names the length by now. JSON may end in white space.
            self._value = body.ljust(len(self._value))
        check_stale(protocol, evidence)
        self._parser = protocol._parser
        evidence.started_writing = True
        await writer.write(self._value)
        evidence.written = True

    def confirm(self) -> None:
        """See ``fast_post.confirm``. No answer for a mock, or if another request has the connection by now."""
        if self._parser is not None and self._protocol._parser is self._parser:
            confirm(self._protocol, self._evidence)


class AiohttpTransport:
    """POSTs by aiohttp, over a session of its own or an injected one, which is never closed.

    Constructed inside a running loop. No redirects, cookies, decompression, environment proxies or netrc on the own
    session; on an injected one, what a single request can set is set: certificates are verified there too.
    """

    def __init__(
        self,
        base_url: str,
        *,
        headers: Mapping[str, str],
        key: HeaderSecret | None,
        session: aiohttp.ClientSession | None,
        limit: int,
        keepalive: float,
        ssl: Any,
        proxy: str | None,
        allow_insecure: bool = False,
    ) -> None:
        self._urls: dict[Operation, URL] = {}
        self._base_url = URL(base_url)
        self._headers = {
            "Content-Type": "application/json",
            "Accept-Encoding": "identity",
            "User-Agent": f"pushsdk/{__version__}",
            **headers,
        }
        self._owned = session is None
        self._session = session or aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=limit, keepalive_timeout=keepalive, ssl=ssl),
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=_timeout(None),
            auto_decompress=False,
            trust_env=False,
        )
        self._fast_post = FastPost.over(self._session) if self._owned and proxy is None else None
        # By the URL, with the key where that is always the same.
        self._key = key
        self._heads: dict[Operation, RequestHead] = {}
        self._options: dict[str, Any] = {"allow_redirects": False, "raise_for_status": False, **HEAD_LIMITS}
        if not self._owned:
            # A context, for with True aiohttp does as the session's connector was told, which may verify nothing, and
            # takes connections that somebody else opened.
            verifying = ssl is not True or self._base_url.scheme == "http"
            self._options |= {"auto_decompress": False, "ssl": ssl if verifying else _verifying()}
        # Whether a proxy of the session's could read the key: then each request is looked at.
        self._exposed = not (self._owned or proxy or allow_insecure) and self._base_url.scheme == "http"
        if proxy is not None:
            self._options["proxy"], login = _split_login(proxy)
            if login is not None and self._base_url.scheme == "http":
                self._headers["Proxy-Authorization"] = login
            elif login is not None:
                self._options["proxy_headers"] = {"Proxy-Authorization": login}
        self._timeouts: dict[float | None, aiohttp.ClientTimeout] = {}

    async def post(
        self,
        operation: Operation,
        body: bytes,
        key: HeaderSecret,
        evidence: Evidence,
        *,
        connect: float | None,
        span: AttemptSpan | None = None,
        claim: Claim | None = None,
    ) -> None:
        """See ``Transport.post``."""
        if self._session.closed:
            evidence.touched, evidence.failure = True, Failure.SESSION
            return
        if self._exposed and _is_proxied(self._session, self._base_url):
            evidence.touched, evidence.failure, evidence.reason = True, Failure.PROXY, EXPOSED
            return
        response: RawResponse | aiohttp.ClientResponse | None = None
        url, timeout, fast_post = self._url(operation), self._timeout(connect), self._fast_post
        headers = None if span is None else span.headers
        try:
            if fast_post is not None and fast_post.takes(body):
                evidence.touched = True
                response = await fast_post.post(
                    self._head(operation, url, key, headers), body, evidence, timeout, claim
                )
            else:
                if claim is not None and not is_own(getattr(self._session._request, "__func__", None)):
                    # A mock or a recorder, which may never ask the body to write. Until then nothing can have left.
                    evidence.touched = True
                    body, claim = await claimed(claim), None
                    evidence.touched = False
                # What session.post() calls, without the context manager that it wraps it in.
                data = _EvidenceBody(body, evidence, claim)
                with _UNWATCHED if span is None else span.current():
                    response = await self._session._request(
                        operation.method,
                        url,
                        data=data,
                        headers=self._merged(key, headers),
                        timeout=timeout,
                        **self._options,
                    )
                if 200 <= response.status < 300:
                    data.confirm()
            evidence.status = response.status
            if evidence.status != 204 or operation.returns_body:
                await _take_in(response, evidence, read=operation.returns_body)
        except Exception as error:  # noqa: BLE001 - the one place where exceptions become evidence
            # With a status the exception came from reading the body: the status stands.
            if evidence.status is None:
                evidence.failure, evidence.reason = _failure_of(error, evidence), type(error).__name__
            # A protocol keeps what it raised, and that its frames, with the head and the body.
            error.__traceback__ = None
        finally:
            if response is not None:
                if not evidence.written and isinstance(response, aiohttp.ClientResponse):
                    # It answered what had not been sent: nobody is to meet this connection again.
                    response.close()
                else:
                    response.release()
                if evidence.touched and not evidence.started_writing:
                    evidence.failure = Failure.STALE

    async def close(self) -> None:
        """Close the own session; an injected one stays open."""
        if self._owned:
            await self._session.close()

    def _head(
        self, operation: Operation, url: URL, key: HeaderSecret, headers: Mapping[str, str] | None
    ) -> RequestHead:
        if headers is not None or key is not self._key:
            return RequestHead(operation.method, url, self._merged(key, headers))
        head = self._heads.get(operation)
        if head is None:
            head = self._heads[operation] = RequestHead(operation.method, url, self._merged(key, None))
        return head

    def _merged(self, key: HeaderSecret, headers: Mapping[str, str] | None) -> Mapping[str, str]:
        merged = CIMultiDict({**self._headers, "Api-Key": key})
        # Names differ in case: a header of the caller's is replaced, not joined by another of the same name.
        merged.update(headers or {})
        return merged

    def _url(self, operation: Operation) -> URL:
        url = self._urls.get(operation)
        if url is None:
            # joinpath, not join: that would drop the path prefix (facts B.4).
            url = self._urls[operation] = self._base_url.joinpath(*operation.path.split("/"))
        return url

    def _timeout(self, connect: float | None) -> aiohttp.ClientTimeout:
        timeout = self._timeouts.get(connect)
        if timeout is None:
            if len(self._timeouts) > 64:
                self._timeouts.clear()
            timeout = self._timeouts[connect] = _timeout(connect)
        return timeout


@cache
def _verifying() -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.set_alpn_protocols(("http/1.1",))  # as aiohttp does
    return context


def _is_proxied(session: aiohttp.ClientSession, url: URL) -> bool:
    """Return True if the session would send a request of plain http by a proxy: its own, or the environment's."""
    if session._default_proxy is not None:
        return True
    return session.trust_env and "http" in getproxies() and not proxy_bypass(url.host or "")


def _split_login(proxy: str) -> tuple[URL, HeaderSecret | None]:
    """Return the proxy without its user and password, and these as a header: aiohttp keeps the URL in its frames."""
    url = URL(proxy)
    if url.user is None and url.password is None:
        return url, None
    login = b64encode(f"{url.user or ''}:{url.password or ''}".encode()).decode()
    return url.with_user(None), HeaderSecret(f"Basic {login}")


def _timeout(connect: float | None) -> aiohttp.ClientTimeout:
    return aiohttp.ClientTimeout(total=None, connect=connect, ceil_threshold=_NEVER_ROUND)


async def _take_in(response: RawResponse | aiohttp.ClientResponse, evidence: Evidence, *, read: bool) -> None:
    evidence.headers = response.headers
    if not 200 <= response.status < 300:
        await _read(response, evidence, ERROR_BODY_LIMIT)
    elif read:
        await _read(response, evidence, ANSWER_BODY_LIMIT)
    elif not is_json(response.headers):
        await _read(response, evidence, ERROR_BODY_LIMIT, first=True)


async def _read(
    response: RawResponse | aiohttp.ClientResponse, evidence: Evidence, limit: int, *, first: bool = False
) -> None:
    """Note at most ``limit`` bytes of the body, as they come: nothing is decompressed.

    ``first`` ends it at the first byte that is no white space. What was read before the body broke off is kept.
    """
    read = bytearray()
    try:
        async for chunk in response.content.iter_chunked(limit):
            read += chunk
            if len(read) >= limit or (first and read.strip()):
                break
        evidence.body = b""
    finally:
        if read:
            evidence.body = bytes(read[:limit])


# In this order: later rows are base classes of earlier ones.
_FAILURES: tuple[tuple[type[BaseException], Failure], ...] = (
    (aiohttp.ClientConnectorCertificateError, Failure.CERTIFICATE),
    (aiohttp.ServerFingerprintMismatch, Failure.CERTIFICATE),
    (aiohttp.ClientConnectorSSLError, Failure.TLS),
    (aiohttp.ClientProxyConnectionError, Failure.PROXY),
    (aiohttp.ClientHttpProxyError, Failure.PROXY),
    (aiohttp.ClientConnectorDNSError, Failure.DNS),
    (aiohttp.ClientConnectorError, Failure.REFUSED),
    (aiohttp.ConnectionTimeoutError, Failure.CONNECT_TIMEOUT),
    (TimeoutError, Failure.ATTEMPT_TIMEOUT),
    (aiohttp.ServerDisconnectedError, Failure.DISCONNECTED),
    (aiohttp.ClientOSError, Failure.RESET),
    (aiohttp.ClientResponseError, Failure.UNREADABLE),
    (HttpProcessingError, Failure.UNREADABLE),
    (OSError, Failure.RESET),
    (aiohttp.ClientPayloadError, Failure.UNREADABLE),
)


def _failure_of(error: Exception, evidence: Evidence) -> Failure:
    if not evidence.started_writing:
        if _is_caused_by(UnclaimedError, error):
            return Failure.UNCLAIMED
        if evidence.touched and _is_caused_by(StaleConnectionError, error):
            return Failure.STALE
    for kind, failure in _FAILURES:
        if isinstance(error, kind):
            return failure
    if isinstance(error, RuntimeError) and "closed" in str(error):
        return Failure.SESSION
    return Failure.OTHER


def _is_caused_by(kind: type[Exception], error: BaseException | None) -> bool:
    """Return True if the body refused to be written for this reason: aiohttp wraps what a body raises."""
    while error is not None:
        if isinstance(error, kind):
            return True
        error = error.__cause__
    return False


def check_session(session: object) -> None:
    """Raises ConfigurationError unless it is None or an aiohttp session."""
    if session is not None and not isinstance(session, aiohttp.ClientSession):
        raise ConfigurationError("session is an aiohttp.ClientSession")


def check_ssl(context: object) -> None:
    """Raises ConfigurationError unless it is None or a context that verifies, by TLS 1.2 or later."""
    if context is None:
        return
    # Not a switch: turning the check off would show the key to whoever answers.
    if not isinstance(context, ssl.SSLContext):
        raise ConfigurationError("ssl is an ssl.SSLContext")
    if context.verify_mode is not ssl.CERT_REQUIRED or not context.check_hostname:
        raise ConfigurationError(
            "ssl: the context does not verify the server's certificate and host name; load your own CA into it instead"
        )
    if context.minimum_version not in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
        raise ConfigurationError("ssl: the context's minimum_version is TLSVersion.TLSv1_2 or later")
