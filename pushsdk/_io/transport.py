"""Transport over aiohttp: sends one request, and collects its evidence.

Two paths lead to the service: small requests take ``fast_post``, on connections that it keeps; all others take
``session_post``, over aiohttp's session. ``failures`` maps the exceptions from both.
"""

import asyncio
import math
import ssl
from base64 import b64encode
from collections.abc import Mapping
from contextlib import suppress
from functools import cache, lru_cache
from typing import Any
from urllib.request import getproxies, proxy_bypass

try:
    import resource
except ImportError:  # pragma: no cover - Windows
    resource = None  # type: ignore[assignment]

import aiohttp
import msgspec
from yarl import URL

from pushsdk._core.address import EXPOSED
from pushsdk._core.errors import ConfigurationError
from pushsdk._core.kinds import must_be
from pushsdk._core.outcome import Evidence, Failure, Guarded
from pushsdk._core.policy import Limits
from pushsdk._core.secret import Secret
from pushsdk._io.failures import CONNECTING, failure_of, forget_frames, os_error, phase_of, words_of
from pushsdk._io.fast_post import HEAD_LIMITS, FastPost
from pushsdk._io.heads import Heads, header_text
from pushsdk._io.request import ApiRequest
from pushsdk._io.session_post import SessionPost
from pushsdk._version import __version__

Session = aiohttp.ClientSession

# aiohttp rounds timeouts above this threshold up to whole seconds. Deadlines are set by the client.
_NEVER_ROUND = 1e9
# File descriptors: one client uses half, if the process may open more.
DESCRIPTORS = 8192


class TransportSettings(Guarded, msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """A connection's checked settings."""

    base_url: str
    session: Session | None = None
    proxy: Secret | None = None
    allow_insecure: bool = False
    ssl: Any = True
    headers: Secret
    keepalive: float = 1.5


class AiohttpTransport:
    """A transport by aiohttp, over a session that it makes, or an injected one, which is never closed.

    Constructed inside a running loop. The session that it makes has no redirects, cookies, decompression, proxies from
    the environment, or netrc. On an injected session, each request sets as much of that as it can, and always verifies
    certificates.
    """

    def __init__(self, settings: TransportSettings, *, limit: int) -> None:
        session, proxy, url = settings.session, settings.proxy, URL(settings.base_url)
        if session is not None and session._loop is not asyncio.get_running_loop():
            raise ConfigurationError("session is of another event loop: make it in the asyncio.run() that uses it")
        self._base_url = url
        self._owned = session is None
        self._session = session or _own_session(settings, limit)
        # True if a session proxy could read the key: then each request is checked.
        self._exposed = not (self._owned or proxy or settings.allow_insecure) and url.scheme == "http"
        self._options, headers = _options_of(settings, url.scheme)
        # Without a path or a query, which may hold a secret.
        self._proxy = self._options["proxy"].origin() if proxy else None
        through = f" through {self._proxy}" if proxy else ""
        self._place = f"{url.host_subcomponent}:{url.port}{through}"
        heads = Heads(url, headers)
        # How long an injected session keeps its connections is for its owner to say.
        keepalive = settings.keepalive if self._owned else math.inf
        #: Sends small requests.
        self.fast = FastPost(self._session, heads, keepalive, is_used=self._owned and proxy is None)
        self._slow = SessionPost(self._session, self.fast, heads, self._options)

    async def post(self, request: ApiRequest) -> None:
        """See ``Transport.post``."""
        evidence, flight = request.evidence, request.flight
        begun, flight.connection = flight.connection, None
        if reason := self._refusal():
            evidence.touched = True
            evidence.failure, evidence.reason = reason
            return
        connect = request.options.timeout.connect
        try:
            if begun is not None:
                await self.fast.go_on(begun, evidence)
            else:
                path = self.fast if self.fast.takes(request.body) else self._slow
                await path.post(request, _timeout(connect))
        except asyncio.CancelledError as error:
            if (phase := phase_of(error, self._base_url.scheme)) is not None:
                evidence.failure, evidence.reason = Failure.CONNECT_TIMEOUT, f"{self._place}, {phase}"
                self._look_up_again()
            raise
        except Exception as error:  # noqa: BLE001 - the one place where exceptions become evidence
            # After a status, the exception came from reading the body: the status counts.
            if evidence.status is None:
                self._record(error, evidence, connect)
            forget_frames(error)

    def _refusal(self) -> tuple[Failure, str] | None:
        """Return the reason why no request may be sent, if there is one."""
        if not self._owned and self._session.closed:
            return Failure.SESSION, ""
        if self._exposed and _is_proxied(self._session, self._base_url):
            return Failure.PROXY, EXPOSED
        return None

    def _record(self, error: Exception, evidence: Evidence, connect: float | None) -> None:
        """Record the reason why there is no response."""
        phase = phase_of(error, self._base_url.scheme)
        evidence.failure = failure = failure_of(error, evidence)
        evidence.error = os_error(error)
        words = words_of(error, failure, evidence.error)
        if failure is Failure.CONNECT_TIMEOUT:
            words = f"{phase or ''}connect timeout {connect:g} s"
        if failure in CONNECTING:
            self._look_up_again()
        if failure in CONNECTING or phase is not None:  # or the proxy ended it
            place = self._proxy if failure is Failure.PROXY else self._place
            words = f"{place}, {words}".removesuffix(", ") if place else words
        evidence.reason = words

    def _look_up_again(self) -> None:
        """Forget the host addresses, which aiohttp keeps for 10 s: the host may have moved."""
        if isinstance(connector := self._session.connector, aiohttp.TCPConnector):
            connector.clear_dns_cache()

    async def close(self) -> None:
        """Close the client's session; an injected one stays open."""
        try:
            if self._owned:
                await self._session.close()
        finally:
            self.fast.close()


def _own_session(settings: TransportSettings, limit: int) -> Session:
    connector = aiohttp.TCPConnector(limit=limit, keepalive_timeout=settings.keepalive, ssl=settings.ssl)
    cookies = aiohttp.DummyCookieJar()
    return aiohttp.ClientSession(
        connector=connector, cookie_jar=cookies, timeout=_timeout(None), auto_decompress=False, trust_env=False
    )


def _options_of(settings: TransportSettings, scheme: str) -> tuple[dict[str, Any], Mapping[str, str]]:
    """Return the arguments for each aiohttp request, and the headers for each request."""
    options: dict[str, Any] = {"allow_redirects": False, "raise_for_status": False, **HEAD_LIMITS}
    headers = {
        "Content-Type": "application/json",
        "Accept-Encoding": "identity",
        "User-Agent": f"pushsdk/{__version__}",
        # Cookies in clear: aiohttp reads them, to merge them with those of the session.
        **{
            name: value if name.lower() == "cookie" else header_text(Secret.of(value))
            for name, value in settings.headers.reveal().items()
        },
    }
    if settings.session is not None:
        # A context: with True, aiohttp follows the session's connector, which may verify nothing, and reuses
        # connections that other code opened.
        is_verifying = settings.ssl is not True or scheme == "http"
        options |= {"auto_decompress": False, "ssl": settings.ssl if is_verifying else _verifying()}
    if settings.proxy is not None:
        options["proxy"], login = _split_login(settings.proxy)
        # In plain http the proxy reads the request headers.
        (headers if scheme == "http" else options.setdefault("proxy_headers", {})).update(login)
    return options, headers


@cache
def _verifying() -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.set_alpn_protocols(("http/1.1",))  # as aiohttp does
    return context


def _is_proxied(session: Session, url: URL) -> bool:
    """Return True if the session would send a plain http request by a proxy: its own, or the environment's."""
    by_environment = session.trust_env and "http" in getproxies() and not proxy_bypass(url.host or "")
    return by_environment or session._default_proxy is not None


def _split_login(proxy: Secret) -> tuple[URL, dict[str, str]]:
    """Return the proxy without its user and password, and these as a header: aiohttp keeps the URL in its frames."""
    url = URL(proxy.reveal())
    if url.user is None and url.password is None:
        return url, {}
    login = b64encode(f"{url.user or ''}:{url.password or ''}".encode()).decode()
    return url.with_user(None), {"Proxy-Authorization": header_text(Secret.of(f"Basic {login}"))}


@lru_cache(64)
def _timeout(connect: float | None) -> aiohttp.ClientTimeout:
    return aiohttp.ClientTimeout(total=None, connect=connect, ceil_threshold=_NEVER_ROUND)


def most_in_flight(limits: Limits, session: object = None) -> int:
    """Return the cap on requests in flight: the setting, or half the file descriptors; and an injected pool's."""
    files = DESCRIPTORS if resource is None else resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    cap = limits.in_flight or min(DESCRIPTORS, files) // 2 or 1
    connector = getattr(session, "connector", None)
    for name in ("limit", "limit_per_host"):
        cap = min(cap, getattr(connector, name, 0) or cap)
    return cap


def check_session(session: object) -> None:
    """Raise ConfigurationError unless the session is None or an aiohttp session."""
    if session is not None and not isinstance(session, aiohttp.ClientSession):
        raise must_be("session", "an aiohttp.ClientSession", session)


def check_host(name: str, url: str | Secret) -> None:
    """Raise ConfigurationError if aiohttp can't parse a URL that the core has checked: its ``xn--`` host is broken."""
    with suppress(ValueError):
        if URL(Secret.of(url).reveal()).host is not None:
            return
    raise ConfigurationError(f"{name} must have a valid host name: what follows xn-- can't be decoded")


def check_ssl(context: ssl.SSLContext | None) -> None:
    """Raise ConfigurationError for a context that does not verify, or that was set to allow TLS before 1.2.

    On Debian, Python leaves the minimum to OpenSSL, and any is taken.
    """
    if context is None:
        return
    # Without verification any server could read the key.
    if context.verify_mode is not ssl.CERT_REQUIRED or not context.check_hostname:
        raise ConfigurationError(
            "ssl: the context does not verify the server's certificate and host name; load your own CA into it instead"
        )
    minimum = context.minimum_version
    if minimum < min(ssl.TLSVersion.TLSv1_2, ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).minimum_version):
        raise ConfigurationError(
            f"ssl: minimum_version must be TLSVersion.TLSv1_2 or later, or left as Python sets it; got {minimum.name}"
        )
