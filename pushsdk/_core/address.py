"""Checks for base URL, proxy, headers and Api-Key. No error quotes a URL or a key."""

import ipaddress
import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple
from urllib.parse import SplitResult, urlsplit

from pushsdk._core.errors import ConfigurationError
from pushsdk._core.kinds import must_be
from pushsdk._core.secret import Secret

EXPOSED = "a proxy would read the Api-Key of plain http: use https, or set allow_insecure"
_MISSING = {
    ("base_url",): "no base_url: pass it, or set PUSHSDK_BASE_URL",
    ("api_key",): "no api_key: pass it, or set PUSHSDK_API_KEY",
    ("base_url", "api_key"): (
        "no base_url and no api_key: pass them, or set PUSHSDK_BASE_URL and PUSHSDK_API_KEY; for a local service, "
        "pushsdk emulator prints both"
    ),
}
_is_enclosed = re.compile(r"""["'\s].*|.*\s""", re.DOTALL).fullmatch
_STRIP = "strip the quotation marks or white space around it"
_is_key = re.compile(r"[\x21-\x7e]{1,4096}").fullmatch
_KEY_RULE = "must be 1 to 4096 visible ASCII characters, no spaces or line ends"
_KEY_FAULTS = (
    (lambda key: not key, f"{_KEY_RULE}: it is empty"),
    (re.compile(r"<.*>|\$\{.*|\{\{.*").fullmatch, f"{_KEY_RULE}: it is a placeholder, put the key in its place"),
    (re.compile("https?://").match, f"{_KEY_RULE}: it is a URL: did you swap base_url and api_key?"),
    (_is_enclosed, f"{_KEY_RULE}: {_STRIP}"),
    (lambda key: not _is_key(key), _KEY_RULE),
)
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
# A domain name, or an IPv6 address in brackets, with or without a zone; and a port.
_AUTHORITY = re.compile(r"((?:[\w-]{1,63}\.)*[\w-]{0,63}|\[[0-9a-fA-F:.]+(?:%[\w.~-]+)?\])(?::\d*)?", re.ASCII)
_FIELD_VALUE = re.compile(r"[\x20-\x7e\t]*")
# The service requires the first two; the others frame the body, and changing them would change the request.
_OURS = frozenset({"api-key", "content-type", "content-length", "content-encoding", "transfer-encoding", "expect"})


def missing(*names: str) -> ConfigurationError:
    """Return the error for missing settings."""
    return ConfigurationError(_MISSING[names])


def check_key(key: object, name: str = "api_key") -> Secret:
    """Return the key as a secret. Raises ConfigurationError unless 1 to 4096 visible ASCII characters."""
    key = Secret.of(key)
    if error := _key_error(name, key.reveal()):
        raise error
    return key


def check_base_url(url: object, *, allow_insecure: bool, name: str = "base_url") -> str:
    """Return the base URL without a trailing slash; a path prefix is kept.

    Raises ConfigurationError unless absolute, https (or http to a literal loopback address, or ``allow_insecure``),
    without userinfo, query and fragment, and without ``/v1`` at the end.
    """
    url = Secret.of(url)
    faults = _BASE_URL_FAULTS if allow_insecure else (*_BASE_URL_FAULTS, _PLAIN_FAULT)
    if error := _url_error(name, "https://push.example/api", "https:// (http:// for localhost)", faults, url.reveal()):
        raise error
    scheme, _, rest = url.reveal().rstrip("/").partition(":")
    return f"{scheme.lower()}:{rest}"


def check_proxy(url: object, *, base_url: str, allow_insecure: bool) -> Secret:
    """Return the proxy URL, which may have a password. Raises ConfigurationError if the proxy would see the Api-Key."""
    url = Secret.of(url)
    if error := _url_error("proxy", "http://proxy.example:3128", "http:// or https://", _URL_FAULTS, url.reveal()):
        raise error
    if base_url.startswith("http:") and not allow_insecure:
        raise ConfigurationError(f"proxy: {EXPOSED}")
    return url


def check_headers(headers: object) -> Secret:
    """Return a copy of the headers. Raises ConfigurationError for invalid headers and for those the client sets."""
    headers = Secret.of(headers)
    if error := _headers_error(headers.reveal()):
        raise error
    return Secret.of({**headers.reveal()})


def host_and_port(url: str) -> tuple[str, int]:
    """Return the host and the port in a URL that was checked."""
    parts = urlsplit(url)
    return parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)


def is_loopback(url: str) -> bool:
    """Return True if the host in a URL is literally localhost, 127.0.0.0/8 or ::1. No name is resolved."""
    host = urlsplit(url).hostname or ""
    address = _address(host)
    return host == "localhost" or (address is not None and address.is_loopback)


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


class _Url(NamedTuple):
    text: str
    parts: SplitResult | None
    """None if host or port can't be parsed."""

    @property
    def host(self) -> str:
        return (self.parts and self.parts.hostname) or ""


def _parse(text: str) -> _Url:
    try:
        parts = urlsplit(text)
        parts.port  # noqa: B018 - raises ValueError
    except ValueError:
        return _Url(text, None)
    # ``urlsplit`` accepts more than aiohttp does.
    return _Url(text, parts if _AUTHORITY.fullmatch(parts.netloc.rpartition("@")[2]) else None)


def _is_odd_ipv4(url: _Url) -> bool:
    # Some resolvers read '0x7f.1' and '2130706433' as loopback: a host that ends in a number is an address.
    last = url.host.rstrip(".").rpartition(".")[2]
    is_number = ":" not in url.host and (last.isdigit() or last.lower().startswith("0x"))
    return is_number and _address(url.host) is None


# The first test that holds gives the error. In this order: later tests rely on the earlier ones.
_Fault = tuple[Callable[[Any], object], str]
_URL_FAULTS: tuple[_Fault, ...] = (
    (lambda url: not url.text, "{rule}; it is empty"),
    (lambda url: _is_enclosed(url.text), f"{{rule}}; {_STRIP}"),
    (
        lambda url: re.search(r"[^\x21-\x7e]|\\", url.text),
        "must not contain a space, a line end, a backslash or another character that no URL has",
    ),
    (lambda url: url.parts is None, "{rule}: host or port can't be parsed"),
    (lambda url: not re.match("https?://", url.text, re.IGNORECASE), "{rule}; it must begin with {start}"),
    (lambda url: not url.host or url.parts.port == 0, "{rule}; it has no host, or the port 0"),
    (_is_odd_ipv4, "must write an IPv4 address as four decimal numbers"),
)
_BASE_URL_FAULTS: tuple[_Fault, ...] = (
    (
        lambda url: re.fullmatch(r"[\x21-\x7e]+", url.text) and not re.search("[.:/]", url.text),
        "{rule}; it must begin with {start}; if it is the key, pass it as api_key=",
    ),
    *_URL_FAULTS,
    (lambda url: "@" in url.parts.netloc, "must have no user or password: the service accepts the Api-Key header only"),
    (lambda url: {*"?#"} & {*url.text}, "must have no query and no fragment: only scheme, host and path"),
    (
        lambda url: re.search(r"/v1(/push|/campaigns)?/*$", url.parts.path),
        "must end before /v1: the client adds /v1/push and /v1/campaigns",
    ),
)
_PLAIN_FAULT: _Fault = (
    lambda url: url.parts.scheme == "http" and not is_loopback(url.text),
    (
        "must not be plain http, which would expose the Api-Key: use https, or set allow_insecure "
        "(localhost, 127.0.0.0/8 and ::1 need neither)"
    ),
)


# Errors are returned, not raised: a traceback may show these frames' locals.


def _key_error(name: str, key: object) -> Exception | None:
    if not isinstance(key, str):
        return must_be(name, "a str, or a callable that returns one", key)
    text = next((text for is_fault, text in _KEY_FAULTS if is_fault(key)), None)
    return None if text is None else ConfigurationError(f"{name} {text}")


def _headers_error(headers: object) -> Exception | None:
    if not isinstance(headers, Mapping):
        return must_be("headers", "a mapping of names to values, for example {'X-Team': 'growth'}", headers)
    for name, value in headers.items():
        if not isinstance(name, str) or not _TOKEN.fullmatch(name):
            return ConfigurationError("headers: a name must be an HTTP token, for example 'X-Team'")
        if name.lower() in _OURS:
            return ConfigurationError(f"headers must not set {name}: the client sets it")
        if not isinstance(value, str) or not _FIELD_VALUE.fullmatch(value):
            return ConfigurationError(f"headers: the value of {name} must be a str, printable ASCII text")
    return None


def _url_error(name: str, example: str, start: str, faults: tuple[_Fault, ...], url: object) -> Exception | None:
    rule = f"an absolute URL, for example {example!r}"
    if not isinstance(url, str):
        return must_be(name, rule, url)
    parsed = _parse(url)
    text = next((text for is_fault, text in faults if is_fault(parsed)), None)
    if text is None:
        return None
    return ConfigurationError(f"{name} {text.format(rule=f'must be {rule}', start=start)}")
