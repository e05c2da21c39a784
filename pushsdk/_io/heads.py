"""Request heads: URL, headers, and the Api-Key, whose text is taken here."""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Self

import aiohttp
from aiohttp import hdrs
from aiohttp.http_writer import _serialize_headers
from multidict import CIMultiDict
from yarl import URL

from pushsdk._core.operations import PUSH, Operation
from pushsdk._core.secret import Secret

# The aiohttp releases that the contract test covers.
KNOWN_RELEASES = ("3.14.",)

# Most bodies have one of a few lengths.
_length_line = lru_cache(1024)(b"Content-Length: %d\r\n\r\n".__mod__)


class _HeaderText(str):
    """A secret as a header value: ``***`` to all code but aiohttp's writer, which takes ``str(value)`` of a value."""

    __slots__ = ("_secret",)
    _secret: Secret

    def __new__(cls, secret: Secret) -> Self:
        value = super().__new__(cls, "***")
        value._secret = secret
        return value

    def __str__(self) -> str:
        return str(self._secret.reveal())

    def __radd__(self, left: str) -> str:
        # aiohttp's writer if it runs without extensions.
        return f"{left}{self._secret.reveal()}"

    def __eq__(self, other: object) -> bool:
        return self._secret == Secret.of(str(other))

    def __hash__(self) -> int:
        return hash(self._secret)


def header_text(secret: Secret) -> str:
    """Return a secret as a header value for aiohttp, hidden from crash reporters that show aiohttp's frames."""
    # An unknown release might write the characters.
    return _HeaderText(secret) if aiohttp.__version__.startswith(KNOWN_RELEASES) else str(secret.reveal())


def _lines_of(headers: Mapping[str, str]) -> bytes:
    """Return header lines. Raises ValueError if a value would add another line."""
    return _serialize_headers("", CIMultiDict(headers)).removeprefix(b"\r\n").removesuffix(b"\r\n")


class RequestHead:
    """The constant part of a request: request line and headers. Contains the Api-Key; never log it."""

    def __init__(self, method: str, url: URL, headers: Mapping[str, str]) -> None:
        #: Tells the pool where to connect. Created by aiohttp, so the head is the one that aiohttp would send.
        self.request = aiohttp.ClientRequest(method, url, headers=headers)
        self.request.headers.popall(hdrs.CONTENT_LENGTH, None)
        text = _serialize_headers(f"{method} {url.raw_path_qs} HTTP/1.1", self.request.headers)
        text = text.removesuffix(b"\r\n")

        def write(transport: Any, body: bytes, extra: bytes) -> int:
            data = b"".join((text, extra, _length_line(len(body)), body))
            transport.write(data)
            return len(data)

        #: Writes the whole request with extra header lines to a transport, and returns its size. A closure: an
        #: attribute could be shown.
        self.write = write


class Heads:
    """The heads for requests to one base URL."""

    def __init__(self, base_url: URL, headers: Mapping[str, str]) -> None:
        self._headers = headers
        self._names = {name.lower() for name in headers}
        #: An operation's URL. Bounded, for paths with an id. Not ``join``, which would drop the path prefix.
        self.url = lru_cache(64)(lambda operation: base_url.joinpath(*operation.path.split("/")))
        #: A push's head by key; a client with tenants has many keys.
        self.of_push = lru_cache(1024)(lambda key: self._make(PUSH, key, None))
        # The latest key and its head: the table takes 700 instructions.
        self._key: Secret | None = None
        self._head: Any = None

    def of(self, operation: Operation, key: Secret, extra: Mapping[str, str] | None) -> tuple[RequestHead, bytes]:
        """Return a request's head, and the lines to add to it for these ``extra`` headers."""
        if operation is not PUSH or (extra and not self._names.isdisjoint(map(str.lower, extra))):
            return self._make(operation, key, extra), b""
        if key is not self._key:
            self._key, self._head = key, self.of_push(key)
        return self._head, _lines_of(extra) if extra else b""

    def headers(self, key: Secret, extra: Mapping[str, str] | None) -> Mapping[str, str]:
        """Return a request's headers."""
        merged = CIMultiDict({**self._headers, "Api-Key": header_text(key)})
        # Header names are case-insensitive: replace a caller's header, don't add a second one.
        merged.update(extra or {})
        return merged

    def _make(self, operation: Operation, key: Secret, extra: Mapping[str, str] | None) -> RequestHead:
        return RequestHead(operation.method, self.url(operation), self.headers(key, extra))
