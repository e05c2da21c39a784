"""Checks on the head of a request, sans-IO: host, origin, token, path, method, Api-Key, type, size.

Every web page in a browser on this machine can reach a loopback port (DNS rebinding, cross-site requests), so Host and
Origin are checked first.
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Iterable, Mapping

from msgspec import Struct

from pushsdk.emulator.store.records import Endpoint

HOST = "127.0.0.1"  # asyncio's default would be every interface
LOOPBACK = ("localhost", "127.0.0.1", "[::1]")
PREFIX = "/external/api"
ENDPOINTS: Mapping[str, Endpoint] = {f"{PREFIX}/v1/push": "push", f"{PREFIX}/v1/campaigns": "campaigns"}


class Refusal(Struct, frozen=True):
    """The response that refuses a request: status, error text, extra headers."""

    status: int
    error: str
    headers: Mapping[str, str] = {}


class Refused(Exception):
    """Ends the handling of a request with ``refusal`` as the response."""

    def __init__(self, status: int, error: str, headers: Mapping[str, str] = {}) -> None:
        super().__init__(error)
        self.refusal: Refusal = Refusal(status, error, headers)


_ORIGIN = Refusal(403, "requests from other sites are refused: open the address in its own tab")
_PATH = Refusal(404, f"no such path; the paths are {' and '.join(ENDPOINTS)}")
_METHOD = Refusal(405, "the method must be POST", {"Allow": "POST"})
_KEY = Refusal(401, "the Api-Key header is missing or empty")
_TYPE = Refusal(415, "Content-Type must be application/json")
_TOKEN = Refusal(401, "a token is needed: send Authorization: Bearer TOKEN", {"WWW-Authenticate": "Bearer"})
_WRITES = frozenset({"POST", "PUT", "PATCH"})


_NAME = re.compile(r"(\[[0-9a-fA-F:.]+\]|[\w.-]+)(:[0-9]{1,5})?", re.ASCII)


def is_host(name: str) -> bool:
    """Return True for a valid Host header: a name or an address, with an optional port."""
    return _NAME.fullmatch(name) is not None


class Guard:
    """Judges the heads of requests to the emulator on ``port``, with bodies of at most ``max_body`` bytes.

    ``hosts`` are further names of the emulator besides loopback, with or without a port. A ``token`` is required by
    everything except the service's own two paths.
    """

    def __init__(self, *, port: int, max_body: int, hosts: Iterable[str] = (), token: str | None = None) -> None:
        names = {name.lower() for name in (*LOOPBACK, *hosts)}
        self._hosts = {f"{name}:{port}" for name in names} | {name for name in names if _has_port(name)}
        if port == 80:
            self._hosts |= names
        self._foreign_host = Refusal(
            403, f"Host must be {', '.join(sorted(names))} with the emulator's port: pass further names as `hosts`"
        )
        self.max_body: int = max_body
        self._token = token
        self._too_large = Refusal(413, f"the body is over {max_body} bytes")

    def judge(self, method: str, path: str, headers: Mapping[str, str]) -> Refusal | None:
        """Return the first refusal of a request to the service, or None."""
        refusal = self.foreign(headers)
        if refusal is not None:
            return refusal
        checks = (
            (path not in ENDPOINTS, _PATH),
            (method != "POST", _METHOD),
            (not headers.get("Api-Key"), _KEY),
            (not _is_json(headers.get("Content-Type", "")), _TYPE),
            (int(headers.get("Content-Length", 0)) > self.max_body, self._too_large),
        )
        return next((refusal for refused, refusal in checks if refused), None)

    def judge_control(self, method: str, headers: Mapping[str, str]) -> Refusal | None:
        """Return the refusal of a control request, or None. Writes must be JSON, which no form can send."""
        refusal = self.foreign(headers)
        if refusal is not None:
            return refusal
        if not self.has_token(headers):
            return _TOKEN
        if method in _WRITES and not _is_json(headers.get("Content-Type", "")):
            return _TYPE
        return None

    def foreign(self, headers: Mapping[str, str]) -> Refusal | None:
        """Return the refusal of a request from another site, or to a false host name (DNS rebinding); else None."""
        if headers.get("Host", "").lower() not in self._hosts:
            return self._foreign_host
        # Other ports of this machine are same-site, and refused as well.
        if headers.get("Sec-Fetch-Site", "none") not in {"none", "same-origin"}:
            return _ORIGIN
        origin = headers.get("Origin")
        if origin is not None and origin.lower().partition("://")[2] not in self._hosts:
            return _ORIGIN
        return None

    @property
    def token_needed(self) -> bool:
        """True if the control routes require a token."""
        return self._token is not None

    def has_token(self, headers: Mapping[str, str]) -> bool:
        """Return True if the head has the token, or no token is required."""
        scheme, _, token = headers.get("Authorization", "").partition(" ")
        return self._token is None or (
            scheme.lower() == "bearer" and hmac.compare_digest(_bytes(token.strip()), _bytes(self._token))
        )


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")  # as headers are decoded


def _has_port(name: str) -> bool:
    return name.rpartition(":")[2].isdigit() and not name.endswith("]")


def _is_json(content_type: str) -> bool:
    return content_type.partition(";")[0].strip().lower() == "application/json"
