"""What the head of a request alone is refused for, sans-IO: a table of checks over method, path and headers.

A loopback port is open to every web page of its machine (DNS rebinding, cross-site requests): hence Host, Origin.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

__all__ = ["ENDPOINTS", "HOST", "PREFIX", "Guard", "Refusal"]

HOST = "127.0.0.1"  # explicitly: asyncio's default is every interface
PREFIX = "/external/api"
ENDPOINTS = {f"{PREFIX}/v1/push": "push", f"{PREFIX}/v1/campaigns": "campaigns"}


class Refusal(Struct, frozen=True):
    """An answer that refuses: its status, its text, its extra headers."""

    status: int
    error: str
    headers: Mapping[str, str] = {}


_HOST = Refusal(403, "Host must be localhost, 127.0.0.1 or [::1] with the emulator's port")
_ORIGIN = Refusal(403, "requests from other sites are refused")
_PATH = Refusal(404, f"no such path; there are {' and '.join(ENDPOINTS)}")
_METHOD = Refusal(405, "the method must be POST", {"Allow": "POST"})
_KEY = Refusal(401, "the Api-Key header is missing or empty")
_TYPE = Refusal(415, "Content-Type must be application/json")


class Guard:
    """Judges heads for the emulator on ``port``; bodies longer than ``max_body`` bytes are refused unread."""

    def __init__(self, *, port: int, max_body: int) -> None:
        names = ("localhost", "127.0.0.1", "[::1]")
        self._hosts = {f"{name}:{port}" for name in names} | (set(names) if port == 80 else set())
        self._max_body = max_body
        self.too_large: Refusal = Refusal(413, f"the body is over {max_body} bytes")

    def judge(self, method: str, path: str, headers: Mapping[str, str]) -> Refusal | None:
        """The first reason to refuse this head, or None. The rows are in the order they count."""
        checks = (
            (headers.get("Host", "").lower() not in self._hosts, _HOST),
            (self._foreign(headers), _ORIGIN),
            (path not in ENDPOINTS, _PATH),
            (method != "POST", _METHOD),
            (not headers.get("Api-Key"), _KEY),
            (not _is_json(headers.get("Content-Type", "")), _TYPE),
            (int(headers.get("Content-Length", 0)) > self._max_body, self.too_large),
        )
        return next((refusal for refused, refusal in checks if refused), None)

    def _foreign(self, headers: Mapping[str, str]) -> bool:
        if headers.get("Sec-Fetch-Site", "") == "cross-site":
            return True
        origin = headers.get("Origin")
        return origin is not None and origin.lower().removeprefix("http://") not in self._hosts


def _is_json(content_type: str) -> bool:
    return content_type.partition(";")[0].strip().lower() == "application/json"
