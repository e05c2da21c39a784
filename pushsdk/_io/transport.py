"""Transport over aiohttp: sends one request, collects its evidence, and maps exceptions once.

The body itself provides the evidence. aiohttp writes the head with the first bytes of the body: if the body was
never asked to write, nothing was sent; if its last byte was written, everything was. That holds for the client's own
session and for an injected one. A contract test checks these properties of the installed aiohttp.
"""

import asyncio
import math
import os
import socket
import ssl
import traceback
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from functools import cache, lru_cache
from typing import Any, Protocol
from urllib.request import getproxies, proxy_bypass

try:
    import resource
except ImportError:  # pragma: no cover - Windows
    resource = None  # type: ignore[assignment]

import aiohttp
import msgspec
from aiohttp import payload
from aiohttp.abc import AbstractStreamWriter
from aiohttp.http import HttpProcessingError
from multidict import CIMultiDict
from yarl import URL

from pushsdk._core.address import EXPOSED
from pushsdk._core.errors import ConfigurationError
from pushsdk._core.kinds import must_be
from pushsdk._core.operations import PUSH
from pushsdk._core.outcome import NO_HEADERS, PROVES_UNSENT, Evidence, Failure, Guarded
from pushsdk._core.policy import Limits
from pushsdk._core.secret import Secret
from pushsdk._io import fast_post
from pushsdk._io.request import ApiRequest
from pushsdk._version import __version__

Session = aiohttp.ClientSession

# aiohttp rounds timeouts above this threshold up to whole seconds. The client has deadlines of its own.
_NEVER_ROUND = 1e9
# File descriptors of which one client uses half, if the process may open more.
DESCRIPTORS = 8192


class TransportSettings(Guarded, msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """The checked settings of a connection."""

    base_url: str
    session: Session | None = None
    proxy: Secret | None = None
    allow_insecure: bool = False
    ssl: Any = True
    headers: dict[str, str] = {}
    keepalive: float = 1.5


class Transport(Protocol):
    """The one effect on the network: send once, and collect evidence."""

    async def post(self, request: ApiRequest, key: Secret) -> None:
        """Send the request once, or go on with one that was begun, and fill its evidence.

        Raises only CancelledError; the evidence so far is valid then. The headers of the request's span are sent, too.
        See ``Claim`` for its claim.
        """

    async def close(self) -> None:
        """Close what the transport opened itself."""


class _EvidenceBody(payload.Payload):
    """A fixed body that collects evidence of its writing."""

    _autoclose = True
    _encoding = None
    _filename = None
    _headers = CIMultiDict({"Content-Type": "application/json"})

    def __init__(
        self,
        value: bytes,
        evidence: Evidence,
        claim: fast_post.Claim | None,
        connection_of: Callable[[Any], fast_post.HttpConnection],
    ) -> None:
        # Without the constructor of the base, which doubles the cost by making headers for each body.
        self._value = value
        self._size = len(value)
        self._evidence = evidence
        self._claim = claim
        # A plain function: mocks copy the body, and with it what it refers to.
        self._connection_of = connection_of
        # Set when the body is written.
        self._connection: fast_post.HttpConnection | None = None

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
        # Claimed once: a middleware of an injected session may send again, within this attempt.
        claim, self._claim = self._claim, None
        protocol = writer.protocol  # type: ignore[attr-defined]
        self._connection = connection = self._connection_of(protocol)
        await connection.let_read()
        if claim is not None:
            body = await fast_post.claimed(claim)
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
        """Record what was read of the response, unless another request uses the connection by now."""
        if self._connection is not None and self._connection.evidence is self._evidence:
            self._connection.take_in()


class AiohttpTransport:
    """Sends by aiohttp, over its own session or an injected one, which is never closed.

    Constructed inside a running loop. Its own session has no redirects, cookies, decompression, environment proxies or
    netrc. On an injected session, each request sets as much of that as it can, and always verifies certificates.
    """

    def __init__(self, settings: TransportSettings, *, limit: int) -> None:
        session, proxy, ssl = settings.session, settings.proxy, settings.ssl
        if session is not None and session._loop is not asyncio.get_running_loop():
            raise ConfigurationError("session is of another event loop: make it in the asyncio.run() that uses it")
        base = self._base_url = URL(settings.base_url)
        # Bounded, for paths with an id. Not ``join``, which would drop the path prefix.
        self._url = lru_cache(64)(lambda operation: base.joinpath(*operation.path.split("/")))
        host = self._base_url.host or ""
        self._place = f"{f'[{host}]' if ':' in host else host}:{self._base_url.port}"
        self._headers = {
            "Content-Type": "application/json",
            "Accept-Encoding": "identity",
            "User-Agent": f"pushsdk/{__version__}",
            **settings.headers,
        }
        self._owned = session is None
        self._session = session or aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=limit, keepalive_timeout=settings.keepalive, ssl=ssl),
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=_timeout(None),
            auto_decompress=False,
            trust_env=False,
        )
        # How long an injected session keeps its connections is for its owner to say.
        keepalive = settings.keepalive if self._owned else math.inf
        self._fast_post = fast_post.FastPost(self._session, keepalive, is_used=self._owned and proxy is None)
        self._options: dict[str, Any] = {"allow_redirects": False, "raise_for_status": False, **fast_post.HEAD_LIMITS}
        if not self._owned:
            # A context: with True, aiohttp follows the session's connector, which may verify nothing, and reuses
            # connections that other code opened.
            verifying = ssl is not True or self._base_url.scheme == "http"
            self._options |= {"auto_decompress": False, "ssl": ssl if verifying else _verifying()}
        # True if a proxy of the session could read the key: then each request is checked.
        self._exposed = not (self._owned or proxy or settings.allow_insecure) and self._base_url.scheme == "http"
        if proxy is not None:
            self._options["proxy"], login = _split_login(proxy)
            if login is not None and self._base_url.scheme == "http":
                self._headers["Proxy-Authorization"] = login
            elif login is not None:
                self._options["proxy_headers"] = {"Proxy-Authorization": login}
        # By key, of which a client with tenants has many.
        self._push_head = lru_cache(1024)(
            lambda key: fast_post.RequestHead(PUSH.method, self._url(PUSH), self._merged(key, None))
        )

    def begin(
        self, request: ApiRequest, key: Secret, respond: Callable[[bool], None]
    ) -> fast_post.HttpConnection | None:
        """Write the request at once, if there is an idle connection for it. Return that.

        ``respond(True)`` follows a plain 204: call ``release`` of the connection's pool. ``respond(False)`` follows
        anything else: call ``post``.
        """
        fast = self._fast_post
        if not fast.takes(request.body):
            return None
        return fast.begin(self._push_head(key), request.body, request.evidence, respond)

    async def post(self, request: ApiRequest, key: Secret) -> None:
        """See ``Transport.post``."""
        operation, body, evidence, flight = request.operation, request.body, request.evidence, request.flight
        claim, span = request.prepare, flight.span
        begun, flight.connection = flight.connection, None
        if not self._owned and self._session.closed:
            evidence.touched, evidence.failure = True, Failure.SESSION
            return
        if self._exposed and _is_proxied(self._session, self._base_url):
            evidence.touched, evidence.failure, evidence.reason = True, Failure.PROXY, EXPOSED
            return
        response: aiohttp.ClientResponse | None = None
        data: _EvidenceBody | None = None
        timeout, fast = _timeout(request.options.timeout.connect), self._fast_post
        headers = None if span is None else span.headers
        try:
            if begun or (operation is PUSH and fast.takes(body)):
                evidence.touched = True
                await fast.post(self._head(key, headers), body, evidence, timeout, claim, begun)
                return
            fast.lend()
            if claim is not None and not fast_post.is_own(getattr(self._session._request, "__func__", None)):
                # A mock or a recorder may never ask the body to write. Nothing is sent before the claim.
                evidence.touched = True
                body, claim = await fast_post.claimed(claim), None
                evidence.touched = False
            # Called by session.post(), which adds a context manager.
            data = _EvidenceBody(
                body, evidence, claim, lambda protocol: fast_post.HttpConnection.of(protocol, fast, evidence)
            )
            with nullcontext() if span is None else span.current():
                response = await self._session._request(
                    operation.method,
                    self._url(operation),
                    data=data,
                    headers=self._merged(key, headers),
                    timeout=timeout,
                    **self._options,
                )
            evidence.status = response.status
            if evidence.status != 204 or operation.returns_body:
                await fast_post.read_body(response, response.content, evidence, wanted=operation.returns_body)
        except asyncio.CancelledError as error:
            if (phase := _connecting(error)) is not None:
                evidence.failure, evidence.reason = Failure.CONNECT_TIMEOUT, f"{self._place}, {phase}"
                self._look_up_again()
            elif data is not None and response is None:
                data.take_in()
            raise
        except Exception as error:  # noqa: BLE001 - the one place where exceptions become evidence
            # After a status, the exception came from reading the body: the status counts.
            if evidence.status is None:
                self._record(error, evidence, request.options.timeout.connect)
            # A protocol keeps its exception, whose frames hold the head and the body.
            link: BaseException | None = error
            while link is not None:
                link.__traceback__, link = None, link.__context__
        finally:
            if response is not None:
                if not evidence.written:
                    # A response to an unsent request: don't reuse the connection.
                    response.close()
                else:
                    response.release()
                if evidence.touched and not evidence.started_writing:
                    evidence.failure = Failure.STALE

    def _record(self, error: Exception, evidence: Evidence, connect: float | None) -> None:
        """Record the reason why there is no response."""
        phase = _connecting(error)
        evidence.failure = failure = _failure_of(error, evidence)
        evidence.error = _os_error(error)
        if failure is Failure.CONNECT_TIMEOUT:
            words = f"{phase or ''}connect timeout {connect:g} s"
        elif isinstance(error, aiohttp.ClientHttpProxyError):
            words = f"HTTP {error.status}"
        elif evidence.error is not None and failure is not Failure.DISCONNECTED:
            words = _words(evidence.error)
        else:
            words = "" if failure in (Failure.DISCONNECTED, Failure.UNREADABLE) else type(error).__name__
        if failure in _CONNECTING:
            self._look_up_again()
        place = self._options.get("proxy") if failure is Failure.PROXY else self._place
        evidence.reason = f"{place}, {words}" if place and failure in _CONNECTING else words

    def _look_up_again(self) -> None:
        """Forget the addresses of host names, which aiohttp keeps for 10 s: the host may have moved."""
        if isinstance(connector := self._session.connector, aiohttp.TCPConnector):
            connector.clear_dns_cache()

    async def close(self) -> None:
        """Close the own session; an injected one stays open."""
        try:
            if self._owned:
                await self._session.close()
        finally:
            self._fast_post.close()

    def _head(self, key: Secret, headers: Mapping[str, str] | None) -> fast_post.RequestHead:
        if headers is None:
            return self._push_head(key)
        return fast_post.RequestHead(PUSH.method, self._url(PUSH), self._merged(key, headers))

    def _merged(self, key: Secret, headers: Mapping[str, str] | None) -> Mapping[str, str]:
        merged = CIMultiDict({**self._headers, "Api-Key": fast_post.header_text(key)})
        # Header names are case-insensitive: replace a header of the caller, don't add a second one.
        merged.update(headers or {})
        return merged


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


def _split_login(proxy: Secret) -> tuple[URL, str | None]:
    """Return the proxy without its user and password, and these as a header: aiohttp keeps the URL in its frames."""
    url = URL(proxy.reveal())
    if url.user is None and url.password is None:
        return url, None
    login = b64encode(f"{url.user or ''}:{url.password or ''}".encode()).decode()
    return url.with_user(None), fast_post.header_text(Secret.of(f"Basic {login}"))


@lru_cache(64)
def _timeout(connect: float | None) -> aiohttp.ClientTimeout:
    return aiohttp.ClientTimeout(total=None, connect=connect, ceil_threshold=_NEVER_ROUND)


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
    (aiohttp.ClientResponseError, Failure.UNREADABLE),
    (HttpProcessingError, Failure.UNREADABLE),
    (OSError, Failure.RESET),
    (aiohttp.ClientPayloadError, Failure.UNREADABLE),
)


# Failures whose text names host and port.
_CONNECTING = PROVES_UNSENT - {Failure.CREDENTIALS, Failure.UNCLAIMED}


def _connecting(error: BaseException | None) -> str | None:
    """Return the phase in which the opening of a connection ended, ``""`` before TLS; None if it was not that."""
    names = {frame.f_code.co_name for link in _chain(error) for frame, _ in traceback.walk_tb(link.__traceback__)}
    # Functions of aiohttp's connector, and of the library that opens its TCP connections.
    is_tls = "_wrap_create_connection" in names and "start_connection" not in names
    return ("TCP connected, the TLS handshake did not end, " * is_tls) if "_create_connection" in names else None


def _os_error(error: Exception) -> OSError | None:
    """Return the reason of the operating system or of TLS, without frames: these hold the head and the body."""
    if isinstance(error, aiohttp.ServerDisconnectedError):  # its message may be the head of an answer
        return ConnectionResetError("the server closed the connection")
    cause = getattr(error, "os_error", None) or getattr(error, "certificate_error", None) or error
    if not isinstance(cause, OSError):
        return None
    cause.__traceback__ = cause.__cause__ = cause.__context__ = None
    return cause


def _words(error: OSError) -> str:
    """Return fixed words for the error: its own text may quote the server."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return error.verify_message.rstrip(".") or "CertificateError"
    if isinstance(error, ssl.SSLError):
        return (getattr(error, "reason", None) or "TLS error").replace("_", " ").lower()
    if isinstance(error, socket.gaierror):
        return error.strerror or "gaierror"
    return os.strerror(error.errno) if error.errno else type(error).__name__


def _failure_of(error: Exception, evidence: Evidence) -> Failure:
    if not evidence.started_writing:
        if any(isinstance(link, fast_post.UnclaimedError) for link in _chain(error)):
            return Failure.UNCLAIMED
        if evidence.touched and any(isinstance(link, fast_post.StaleConnectionError) for link in _chain(error)):
            return Failure.STALE
    for kind, failure in _FAILURES:
        if isinstance(error, kind):
            return failure
    if isinstance(error, RuntimeError) and "closed" in str(error):
        return Failure.SESSION
    return Failure.OTHER


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """Yield the error and its causes: aiohttp wraps what a body raises."""
    while error is not None:
        yield error
        error = error.__cause__


def most_in_flight(limits: Limits, session: object = None) -> int:
    """Return the cap on requests in flight: the setting, or half of the file descriptors; and an injected pool's."""
    files = DESCRIPTORS if resource is None else resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    cap = limits.in_flight or min(DESCRIPTORS, files) // 2
    connector = getattr(session, "connector", None)
    for name in ("limit", "limit_per_host"):
        cap = min(cap, getattr(connector, name, 0) or cap)
    return cap


def check_session(session: object) -> None:
    """Raise ConfigurationError unless the session is None or an aiohttp session."""
    if session is not None and not isinstance(session, aiohttp.ClientSession):
        raise must_be("session", "an aiohttp.ClientSession", session)


def check_host(name: str, url: str | Secret | None) -> None:
    """Raise ConfigurationError if aiohttp can't parse a URL that the core has checked: its ``xn--`` host is broken."""
    try:
        is_valid = url is None or URL(Secret.of(url).reveal()).host is not None
    except ValueError:
        is_valid = False
    if not is_valid:
        raise ConfigurationError(f"{name} must have a valid host name: what follows xn-- can't be decoded")


def check_ssl(context: ssl.SSLContext | None) -> None:
    """Raise ConfigurationError unless the context is None, or verifies with TLS 1.2 or later."""
    if context is None:
        return
    # Without verification any server could read the key.
    if context.verify_mode is not ssl.CERT_REQUIRED or not context.check_hostname:
        raise ConfigurationError(
            "ssl: the context does not verify the server's certificate and host name; load your own CA into it instead"
        )
    if context.minimum_version not in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
        raise ConfigurationError("ssl: the context's minimum_version is TLSVersion.TLSv1_2 or later")
