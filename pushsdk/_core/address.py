"""Checks of base URL, proxy, headers and Api-Key. Errors quote at most a host without a scheme."""

import ipaddress
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import wraps
from typing import Any, NoReturn
from urllib.parse import urlsplit

from pushsdk._core.errors import ConfigurationError
from pushsdk._core.kinds import must_be
from pushsdk._core.words import WAYS, kind_of, near_word

EXPOSED = "a proxy would read the Api-Key of plain http: use https, or pass allow_insecure=True"
_KEY = re.compile(
    r"""(?!https?://|["']|\$\{|\$\w+$|\{\{|<.*>$|\*+$|/(?:run|etc|var|home)/|(?i:\w*api_?key=|(?:your[-_]?api[-_]?key|changeme|none|null|undefined)$))[\x21-\x7e]{1,4096}"""
)
# The first pattern that matches a key that is refused tells why.
_KEY_HINTS = (
    ("", "it is empty"),
    ("https?://.*", "it is a URL: did you swap base_url and api_key?"),
    (r"""["'].*""", "leave out the quotation marks around it"),
    ("/(run|etc|var|home)/.*", "it is a path: pass what the file contains"),
    (r"(\$|\{\{|<|\*).*|your[-_]?api[-_]?key|changeme", "it is a placeholder: put the key in its place"),
    ("none|null|undefined", "it is the text of a missing value: is a variable not set?"),
    (
        r"(bearer|basic|token|(export )?\w*api[-_]?key)[ :=].*",
        "leave out what is before it, such as Bearer or API_KEY=",
    ),
    (r"\s.*|.*\s", "strip spaces and line ends around it, such as the newline of a key that is read from a file"),
    (r".*[^\0-\x7f].*", "it has a character that is not ASCII, as a copied dash or quotation mark may be"),
    (r".*[^\x21-\x7e].*", "it has a space, a line end or a control character inside"),
)
_MISSING = {
    ("base_url",): "no base_url: pass it, or set PUSHSDK_BASE_URL",
    ("api_key",): "no api_key: pass it, or set PUSHSDK_API_KEY",
    ("base_url", "api_key"): "no base_url and no api_key: pass them, or set PUSHSDK_BASE_URL and PUSHSDK_API_KEY",
}
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
# A loopback host, or a domain with a port or a path; a key does not look like that, and a login has an @.
_HOST = re.compile(r"(localhost|127(?:\.\d+){3}|(?:[a-z0-9-]+\.)+[a-z]{2,24}(?=[:/]))(:\d+)?(/[a-z0-9/._-]*)?")
# A domain name, or an IPv6 address in brackets, with or without a zone; and a port.
_AUTHORITY = re.compile(r"((?:[\w-]{1,63}\.)*[\w-]{0,63}|\[[0-9a-fA-F:.]+(?:%[\w.~-]+)?\])(?::\d*)?", re.ASCII)
_FIELD_VALUE = re.compile(r"[\x20-\x7e\t]*")
# The service requires the first two; the others frame the body, and changing them would change the request.
_OURS = frozenset({"api-key", "content-type", "content-length", "content-encoding", "transfer-encoding", "expect"})


class HeaderSecret(str):
    """A str whose repr is ``'***'``, so that tracebacks, logs and debuggers don't show it.

    Parts and copies are redacted too: crash reporters cut a long str before they take its repr. ``__str__`` and
    ``__format__`` return the plain text, because aiohttp writes headers with one of them.
    """

    __slots__ = ()

    def __repr__(self) -> str:
        return "'***'"

    def __iter__(self) -> Iterator[str]:
        return map(HeaderSecret, super().__iter__())

    def __radd__(self, other: str) -> "HeaderSecret":
        return HeaderSecret(str.__add__(other, self))

    def __reduce__(self) -> NoReturn:
        raise TypeError("an Api-Key is not pickled: give each process its own, by PUSHSDK_API_KEY or a callable")


def redact_texts(value: Any) -> Any:
    """Return a str, or those in a list, as HeaderSecrets. Any other value, such as a claim store, is unchanged."""
    if isinstance(value, (list, tuple)):
        return type(value)(map(redact_texts, value))
    return HeaderSecret(value) if isinstance(value, str) else value


def _redacting(method: Callable[..., Any]) -> Callable[..., Any]:
    return wraps(method)(lambda *args, **kwargs: redact_texts(method(*args, **kwargs)))


_PUBLIC = [name for name in dir(str) if not name.startswith("_")]
for _name in ("__add__", "__getitem__", "__mod__", "__mul__", "__rmul__", *_PUBLIC):
    setattr(HeaderSecret, _name, _redacting(getattr(str, _name)))


def missing(names: tuple[str, ...], environ: Iterable[str]) -> ConfigurationError:
    """Return the error for missing settings, with the variables that nearly have the right name."""
    text = _MISSING[names]
    variables = re.findall(r"PUSHSDK_\w+", text)
    near = " and ".join(own for own in sorted(environ) if near_word(own, variables))
    return ConfigurationError(f"{text}; the environment has {near}: not read here" if near else text)


def check_key(key: object, name: str = "api_key") -> HeaderSecret:
    """Return the key as a header value. Raises ConfigurationError unless 1 to 4096 visible ASCII characters."""
    if not isinstance(key, str):
        way = WAYS.get(("a key", kind := type(key).__name__)) or WAYS.get(("a str", kind))
        raise must_be("api_key", f"a str, or a callable that returns one{f': pass {way}' if way else ''}", key)
    if not _KEY.fullmatch(key):
        hints = (hint for pattern, hint in _KEY_HINTS if re.fullmatch(pattern, key, re.DOTALL | re.IGNORECASE))
        hint = next(hints, "it is too long")
        raise ConfigurationError(f"{name} must be 1 to 4096 visible ASCII characters, no spaces or line ends: {hint}")
    return HeaderSecret(key)


def check_base_url(url: object, *, allow_insecure: bool, name: str = "base_url") -> str:
    """Return the base URL without a trailing slash; a path prefix is kept.

    Raises ConfigurationError unless absolute, https (or http to a literal loopback address, or ``allow_insecure``),
    without userinfo, query and fragment, and without ``/v1`` at the end.
    """
    url = text = redacted(url)
    if error := _base_url_error(name, text, allow_insecure):
        raise ConfigurationError(error)
    scheme, _, rest = str.__str__(text).rstrip("/").partition(":")
    return f"{scheme.lower()}:{rest}"


def check_proxy(url: object, *, base_url: str, allow_insecure: bool) -> HeaderSecret:
    """Return the proxy URL, redacted for its password. Raises ConfigurationError if the proxy would see the Api-Key."""
    url = text = redacted(url)
    if error := _url_error("proxy", text, userinfo=True):
        raise ConfigurationError(error)
    if base_url.startswith("http:") and not allow_insecure:
        raise ConfigurationError(f"proxy: {EXPOSED}")
    return HeaderSecret(text)


def check_headers(headers: object) -> dict[str, str]:
    """Return a copy of the headers. Raises ConfigurationError for invalid headers and for those the client sets."""
    if headers is None:
        return {}
    if not isinstance(headers, Mapping):
        raise must_be("headers", "a mapping of names to values, for example {'X-Team': 'growth'}", headers)
    copy: dict[str, str] = {}
    for name, value in headers.items():
        if not isinstance(name, str) or not _TOKEN.fullmatch(name):
            raise ConfigurationError("headers: a name must be an HTTP token, for example 'X-Team'")
        if name.lower() in _OURS:
            raise ConfigurationError(f"headers must not set {name}: the client sets it")
        if not isinstance(value, str) or not _FIELD_VALUE.fullmatch(value):
            got = "" if isinstance(value, str) else f"; got {kind_of(value, 'a str')}"
            raise ConfigurationError(f"headers: the value of {name} must be printable ASCII text{got}")
        copy[name] = value
    return copy


def is_loopback(host: str) -> bool:
    """Return True if the host is literally localhost, 127.0.0.0/8 or ::1. No name is resolved."""
    address = _address(host)
    return host == "localhost" or (address is not None and address.is_loopback)


def _address(host: str | None) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host or "")
    except ValueError:
        return None


def redacted(value: object) -> Any:
    """Return the value as a HeaderSecret, which tracebacks with local variables don't show.

    A callable and None are returned unchanged. A value of another type becomes an empty object whose class has the same
    name: every check rejects that object, and names its type.
    """
    if value is None or callable(value):
        return value
    return HeaderSecret(value) if isinstance(value, str) else type(type(value).__name__, (), {})()


# Errors are returned, not raised: the frames below hold parts of the URL, and a traceback may show local variables.


def _base_url_error(name: str, url: str, allow_insecure: bool) -> str | None:
    if error := _url_error(name, url):
        return error
    parts = urlsplit(url)
    if "?" in url or "#" in url:
        return f"{name} must have no query and no fragment: only scheme, host and path"
    if re.search(r"/v1(/push|/campaigns)?$", parts.path.rstrip("/")):
        return f"{name} must end before /v1: the client adds /v1/push and /v1/campaigns"
    if parts.scheme == "http" and not allow_insecure and not is_loopback(parts.hostname or ""):
        if (address := _address(parts.hostname)) and address.is_unspecified:
            return f"{name} must not be plain http to an address to listen on: this machine is http://127.0.0.1"
        return (
            f"{name} must not be plain http, which would expose the Api-Key: use https, or pass allow_insecure=True "
            "(localhost, 127.0.0.0/8 and ::1 need neither)"
        )
    return None


def _url_error(name: str, url: object, *, userinfo: bool = False) -> str | None:
    example = "https://push.example/api" if name != "proxy" else "http://proxy.example:3128"
    rule = f"{name} must be an absolute URL, for example {example!r}"
    if not isinstance(url, str):
        return f"{rule}; got {kind_of(url, '' if isinstance(url, int) else 'a str')}"
    if not url:
        return f"{rule}; it is empty"
    if url[0] in "\"'":
        return f"{rule}; leave out the quotation marks around it"
    if not userinfo and re.search(r"[{}<>]|\$[A-Z_]{2}|YOUR[-_]", url):
        return f"{rule}; it has a placeholder: put the address in its place"
    if url.strip() != url:
        return f"{name} must not begin or end with a space or a line end: strip it"
    if re.search(r"[^\x21-\x7e]|\\", url):
        return f"{name} must not contain a space, a line end, a backslash or another character that no URL has"
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return f"{rule}: host or port can't be parsed"
    # ``urlsplit`` accepts more than aiohttp does.
    if not _AUTHORITY.fullmatch(parts.netloc.rpartition("@")[2]):
        return f"{rule}: host or port can't be parsed"
    if host := _HOST.fullmatch(url):
        scheme = "http" if name == "proxy" or is_loopback(host[1]) else "https"
        return f"{rule}; did you mean {f'{scheme}://{host[0]}'!r}?"
    if not re.match("https?://", url, re.IGNORECASE):
        start = re.match("https?:?/*|[a-z]{2,8}:/+", url, re.IGNORECASE)
        is_key = name == "base_url" and not re.search("[.:/]", url)
        hint = f", not {start[0]!r}" if start else "; if it is the key, pass it as api_key=" if is_key else ""
        return f"{rule}; it must begin with {example.partition('//')[0]}//{hint}"
    if not parts.hostname or port == 0:
        return f"{rule}; it has no host, or the port 0"
    if "@" in parts.netloc and not userinfo:
        return f"{name} must have no user or password: the service accepts the Api-Key header only"
    # Some resolvers read '0x7f.1' and '2130706433' as loopback: a host that ends in a number is an address.
    last = parts.hostname.rstrip(".").rpartition(".")[2]
    if ":" not in parts.hostname and (last.isdigit() or last.lower().startswith("0x")):
        try:
            ipaddress.IPv4Address(parts.hostname)
        except ValueError:
            return f"{name} must write an IPv4 address as four decimal numbers"
    return None
