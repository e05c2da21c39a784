"""Where requests go and with which key: both checked before anything is sent, neither ever echoed."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Iterator, Mapping
from functools import wraps
from typing import Any, NoReturn
from urllib.parse import urlsplit

from pushsdk._core.errors import ConfigurationError

__all__ = [
    "EXPOSED",
    "HeaderSecret",
    "check_base_url",
    "check_headers",
    "check_key",
    "check_proxy",
    "is_loopback",
    "redacted",
]

EXPOSED = "a proxy would read the Api-Key of plain http: use https, or set allow_insecure"
_VISIBLE_ASCII = re.compile(r"[\x21-\x7e]{1,4096}")
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_FIELD_VALUE = re.compile(r"[\x20-\x7e\t]*")
# Api-Key, Content-Type: interface, section 4. The others frame the body: changing them is sending another request.
_OURS = frozenset({"api-key", "content-type", "content-length", "content-encoding", "transfer-encoding", "expect"})


class HeaderSecret(str):
    """A header value that no repr shows, so that no traceback, log or debugger does.

    Texts made from it are sealed too: crash reporters cut a long text before they take its repr. ``__str__`` and
    ``__format__`` give the plain text, for aiohttp writes headers with one of them.
    """

    __slots__ = ()

    def __repr__(self) -> str:
        return "'***'"

    def __iter__(self) -> Iterator[str]:
        return map(HeaderSecret, super().__iter__())

    def __radd__(self, other: str) -> HeaderSecret:
        return HeaderSecret(str.__add__(other, self))

    def __reduce__(self) -> NoReturn:
        raise TypeError("an Api-Key is not pickled: give each process its own, by PUSHSDK_API_KEY or a callable")


def _seal(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return type(value)(map(_seal, value))
    return HeaderSecret(value) if isinstance(value, str) else value


def _sealing(method: Callable[..., Any]) -> Callable[..., Any]:
    return wraps(method)(lambda *args, **kwargs: _seal(method(*args, **kwargs)))


_PUBLIC = [name for name in dir(str) if not name.startswith("_")]
for _name in ("__add__", "__getitem__", "__mod__", "__mul__", "__rmul__", *_PUBLIC):
    setattr(HeaderSecret, _name, _sealing(getattr(str, _name)))


def check_key(key: object) -> HeaderSecret:
    """The key as a header value. Raises ConfigurationError unless it is 1 to 4096 visible ASCII characters."""
    if not isinstance(key, str) or not _VISIBLE_ASCII.fullmatch(key):
        raise ConfigurationError(
            "api_key is 1 to 4096 visible ASCII characters, without spaces or line ends "
            "(is it read from a file with its newline?)"
        )
    return HeaderSecret(key)


def check_base_url(url: object, *, allow_insecure: bool) -> str:
    """The base URL without a trailing slash; the path prefix is kept.

    Raises ConfigurationError unless it is absolute, https (or http to a literal loopback address, or
    ``allow_insecure``), without userinfo, query and fragment, and without ``/v1`` at its end.
    """
    url = text = redacted(url)
    wrong = _wrong_with_base_url(text, allow_insecure)
    if wrong is not None:
        raise ConfigurationError(wrong)
    scheme, _, rest = str.__str__(text).rstrip("/").partition(":")
    return f"{scheme.lower()}:{rest}"


def check_proxy(url: object, *, base_url: str, allow_insecure: bool) -> HeaderSecret:
    """The proxy's URL, which may hold a password. Raises ConfigurationError where it would see the Api-Key."""
    url = text = redacted(url)
    wrong = _wrong_with_url("proxy", text, userinfo=True)
    if wrong is not None:
        raise ConfigurationError(wrong)
    if base_url.startswith("http:") and not allow_insecure:
        raise ConfigurationError(f"proxy: {EXPOSED}")
    return HeaderSecret(text)


def check_headers(headers: object) -> dict[str, str]:
    """A copy of the caller's headers. Raises ConfigurationError for one of ours, or one that is not a header."""
    if headers is None:
        return {}
    if not isinstance(headers, Mapping):
        raise ConfigurationError("headers is a mapping of names to values, as {'X-Team': 'growth'}")
    taken: dict[str, str] = {}
    for name, value in headers.items():
        if not isinstance(name, str) or not _TOKEN.fullmatch(name):
            raise ConfigurationError("headers: a name is an HTTP token, as 'X-Team'")
        if name.lower() in _OURS:
            raise ConfigurationError(f"headers may not set {name}: the client sets it")
        if not isinstance(value, str) or not _FIELD_VALUE.fullmatch(value):
            raise ConfigurationError(f"headers: the value of {name} is printable ASCII text")
        taken[name] = value
    return taken


def is_loopback(host: str) -> bool:
    """Whether this is literally localhost, 127.0.0.0/8 or ::1. No name is resolved."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def redacted(value: object) -> Any:
    """The value as something that no traceback's locals show: only a callable and None pass as they are.

    What is not a text becomes an empty one, which no check lets through.
    """
    if value is None or callable(value):
        return value
    return HeaderSecret(value) if isinstance(value, str) else HeaderSecret()


# What is wrong is returned, not raised: a frame that raises must hold no piece of the URL, and these do.


def _wrong_with_base_url(url: str | None, allow_insecure: bool) -> str | None:
    wrong = _wrong_with_url("base_url", url)
    if wrong is not None or url is None:
        return wrong
    parts = urlsplit(url)
    if "?" in url or "#" in url:
        return "base_url has no query and no fragment: only scheme, host and path"
    if re.search(r"/v1(/push|/campaigns)?$", parts.path.rstrip("/")):
        return "base_url must end before /v1: the client adds /v1/push and /v1/campaigns"
    if parts.scheme == "http" and not allow_insecure and not is_loopback(parts.hostname or ""):
        return (
            "base_url is plain http: the Api-Key would be readable on the way. Use https, or set allow_insecure "
            "(localhost, 127.0.0.0/8 and ::1 need neither)"
        )
    return None


def _wrong_with_url(name: str, url: str | None, *, userinfo: bool = False) -> str | None:
    example = f"{name} is an absolute URL, as 'https://push.example/api'"
    if not isinstance(url, str) or not url:
        return f"{example}, or set PUSHSDK_BASE_URL" if name == "base_url" else example
    if re.search(r"[^\x21-\x7e]|\\", url):
        return f"{name} has a character that no URL has (a space, a line end, a backslash, ...)"
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return f"{example}: host or port can't be read"
    # Behind the bracket of an IPv6 address only a port may stand; urlsplit takes anything there on 3.11.
    if "]" in parts.netloc and not re.search(r"\](:\d+)?$", parts.netloc):
        return f"{example}: host or port can't be read"
    if parts.scheme not in ("http", "https") or not parts.hostname or port == 0:
        return f"{example}: it needs http(s)://, a host, and a port that is not 0 if any"
    if "@" in parts.netloc and not userinfo:
        return f"{name} has a user or password in it: the service takes the Api-Key header only"
    return _wrong_with_host(name, parts.hostname)


def _wrong_with_host(name: str, host: str) -> str | None:
    # '0x7f.1' and '2130706433' are loopback to some resolvers (facts D 5): what ends in a number is an address.
    last = host.rstrip(".").rpartition(".")[2]
    if ":" in host or not (last.isdigit() or last.lower().startswith("0x")):
        return None
    try:
        ipaddress.IPv4Address(host)
    except ValueError:
        return f"{name}: write an IPv4 address as four decimal numbers"
    return None
