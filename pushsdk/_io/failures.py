"""The reason that an aiohttp exception gives for an attempt without a response. Exceptions are mapped here only."""

import os
import socket
import ssl
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import aiohttp
from aiohttp.http import HttpProcessingError

from pushsdk._core.outcome import PROVES_UNSENT, Evidence, Failure
from pushsdk._io.fast_post import UnsentError

# In this order: later rows are base classes of earlier ones.
_FAILURES: tuple[tuple[type[BaseException], Failure], ...] = (
    (aiohttp.ClientConnectorCertificateError, Failure.CERTIFICATE),
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
# The same order.
_WORDS: tuple[tuple[type[BaseException], Callable[[Any], str | None]], ...] = (
    (aiohttp.ClientHttpProxyError, lambda error: f"HTTP {error.status}"),
    (ssl.SSLCertVerificationError, lambda error: error.verify_message.rstrip(".") or "CertificateError"),
    (ssl.SSLError, lambda error: (getattr(error, "reason", None) or "TLS error").replace("_", " ").lower()),
    (socket.gaierror, lambda error: error.strerror),
    (OSError, lambda error: error.errno and os.strerror(error.errno)),
)
CONNECTING = PROVES_UNSENT - {Failure.KEY_FAILED, Failure.UNCLAIMED}
"""Failures whose text names host and port."""


def failure_of(error: Exception, evidence: Evidence) -> Failure:
    """Return the failure that the exception stands for."""
    for link in _chain(error):
        if isinstance(link, UnsentError) and not evidence.started_writing:
            return link.failure
    if isinstance(error, aiohttp.ClientHttpProxyError) and error.status >= 500:
        return Failure.REFUSED  # by the service, or on the way there
    return next((failure for kind, failure in _FAILURES if isinstance(error, kind)), Failure.OTHER)


def phase_of(error: BaseException, scheme: str) -> str | None:
    """Return the phase in which opening a connection ended, ``""`` in TCP; None for any other exception."""
    names = {frame.f_code.co_name for link in _chain(error) for frame, _ in traceback.walk_tb(link.__traceback__)}
    if "_create_connection" not in names:
        return None
    if "_resolve_host" in names:
        return "the host name was not resolved in time, "
    # Functions from aiohttp's connector, and from the library that opens its TCP connections.
    is_tls = scheme == "https" and "_wrap_create_connection" in names and "start_connection" not in names
    return "TCP connected, the TLS handshake did not end, " if is_tls else ""


def os_error(error: Exception) -> OSError | None:
    """Return the reason from the operating system or from TLS, without frames: these hold the head and the body."""
    if isinstance(error, aiohttp.ServerDisconnectedError):  # its message may be the head of an answer
        return ConnectionResetError("the server closed the connection")
    cause = getattr(error, "os_error", None) or getattr(error, "certificate_error", None) or error
    if not isinstance(cause, OSError):
        return None
    cause.__traceback__ = cause.__cause__ = cause.__context__ = None
    return cause


def words_of(error: Exception, failure: Failure, cause: OSError | None) -> str:
    """Return fixed words for the exception, or ``""``: its text may quote the server."""
    if failure in (Failure.DISCONNECTED, Failure.UNREADABLE):
        return ""
    teller = cause or error
    words = next((words(teller) for kind, words in _WORDS if isinstance(teller, kind)), None)
    return words or type(teller).__name__


def forget_frames(error: BaseException) -> None:
    """Drop the exception's frames, which hold the head and the body: a protocol keeps its exception.

    Python 3.11 frees them without this, 3.12 and 3.13 do not.
    """
    link: BaseException | None = error
    while link is not None:
        link.__traceback__, link = None, link.__context__


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """Yield the error and its causes: aiohttp wraps exceptions from a body."""
    while error is not None:
        yield error
        error = error.__cause__
