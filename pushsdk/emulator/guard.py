"""Checks on request heads, sans-IO: host, origin, token, path, method, Api-Key, type.

Every web page in a browser on this machine can reach a loopback port (DNS rebinding, cross-site requests), so Host and
Origin are checked first.
"""

import hmac
from collections.abc import Iterable, Mapping
from typing import Literal

HOST = "127.0.0.1"  # asyncio's default would be every interface
LOOPBACK = ("localhost", "127.0.0.1", "[::1]")
PREFIX = "/external/api"
Endpoint = Literal["push", "campaigns"]
ENDPOINTS: Mapping[str, Endpoint] = {f"{PREFIX}/v1/push": "push", f"{PREFIX}/v1/campaigns": "campaigns"}


class Refused(Exception):
    """Ends the request with a response: status, error text, extra headers."""

    def __init__(self, status: int, error: str, headers: Mapping[str, str] = {}) -> None:
        super().__init__(error)
        self.status = status
        self.error = error
        self.headers = headers


class Guard:
    """Checks request heads for the emulator. It holds ``max_body`` and a count of bytes for others.

    ``hosts`` are further emulator names besides loopback, with or without a port. A ``token`` is required by
    everything except the service's two paths. The checks raise `Refused`.
    """

    def __init__(self, *, max_body: int, hosts: Iterable[str] = (), token: str | None = None) -> None:
        self._names = {name.lower() for name in (*LOOPBACK, *hosts)}
        # Set by listen.
        self.port: int | None = None
        self._hosts: set[str] = set()
        self.max_body: int = max_body
        self.arriving: int = 0  # bytes of the requests that have not ended, kept by their connections
        self.needs_token: bool = token is not None
        self._token = token

    def listen(self, port: int) -> None:
        """Set the port, which requests name."""
        self.port = port
        self._hosts = {f"{name}:{port}" for name in self._names}
        self._hosts |= {name for name in self._names if port == 80 or name.rpartition(":")[2].isdigit()}

    def check_request(self, method: str, path: str, headers: Mapping[str, str]) -> None:
        """Check a request to the service."""
        self.check_origin(headers)
        if path not in ENDPOINTS:
            raise Refused(404, f"no such path; the paths are {' and '.join(ENDPOINTS)}")
        if method != "POST":
            raise Refused(405, "the method must be POST", {"Allow": "POST"})
        if not headers.get("Api-Key"):
            raise Refused(401, "the Api-Key header is missing or empty")
        _check_type(headers)

    def check_control(self, method: str, headers: Mapping[str, str]) -> None:
        """Check a control request. Writes must be JSON, which no form can send."""
        self.check_origin(headers)
        scheme, _, token = headers.get("Authorization", "").partition(" ")
        if self._token is not None and not (
            scheme.lower() == "bearer" and hmac.compare_digest(_bytes(token.strip()), _bytes(self._token))
        ):
            hint = {"WWW-Authenticate": "Bearer"}
            raise Refused(401, "a token is needed: send Authorization: Bearer TOKEN", hint)
        if method in {"POST", "PUT"}:
            _check_type(headers)

    def check_origin(self, headers: Mapping[str, str]) -> None:
        """Refuse requests from other sites, and to a false host name (DNS rebinding)."""
        if headers.get("Host", "").lower() not in self._hosts:
            names = ", ".join(sorted(self._names))
            raise Refused(403, f"Host must be {names} with the emulator's port: pass further names as `hosts`")
        origin = headers.get("Origin")
        is_foreign = origin is not None and origin.lower().partition("://")[2] not in self._hosts
        # Other ports on this machine are same-site, and refused as well.
        if is_foreign or headers.get("Sec-Fetch-Site", "none") not in {"none", "same-origin"}:
            raise Refused(403, "requests from other sites are refused: open the address in its own tab")


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")  # as headers are decoded


def _check_type(headers: Mapping[str, str]) -> None:
    if headers.get("Content-Type", "").partition(";")[0].strip().lower() != "application/json":
        raise Refused(415, "Content-Type must be application/json")
