"""``pushsdk config``: every setting and its source. ``pushsdk doctor``: checks for all else before a request."""

import platform
import socket
import ssl
import time
from collections.abc import Generator, Iterator, Mapping
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any, Literal

from msgspec import Struct
from rich.console import Console
from rich.text import Text

from pushsdk._core.address import host_and_port, is_loopback
from pushsdk._core.errors import ConfigurationError
from pushsdk._core.policy import Limits
from pushsdk._core.secret import SHORTEST_MASKED, Secret
from pushsdk._io.transport import most_in_flight
from pushsdk._version import __version__
from pushsdk.claims import store_at
from pushsdk.cli.commands.claims import with_store
from pushsdk.cli.exit import CommandError, Exit, text_of
from pushsdk.cli.options import CallOptions, Json, JsonLines, command_line
from pushsdk.cli.settings import ClientSettings, InForce, Layer, checked, find, in_force, no_file, unknown_variables
from pushsdk.cli.terminal import print_json, say, visible, warn

_CONNECT_TIMEOUT = 5.0  # seconds, as in the client
_RENEWAL_DAYS = 14  # certificates are usually renewed before this many days are left
_HINTS = {
    **dict.fromkeys(
        ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE"), "the port does not speak TLS: is it meant for http?"
    ),
    "UNEXPECTED_EOF_WHILE_READING": "the other side closed the connection: does a firewall or proxy refuse TLS?",
}

_UNSET = {"in_flight": "as many as the service takes", "rate": "no limit", "requests_per_second": "no limit"}
_WIDEST = 40  # longer values don't widen their column
_STYLES = {"ok": "green", "warn": "yellow", "fail": "bold red", "skip": "dim"}
State = Literal["ok", "warn", "fail", "skip"]
Addresses = list[tuple[Any, ...]]


class Finding(Struct, frozen=True):
    """One check's result, with the fix if it failed."""

    check: str
    state: State
    text: str


def probe(base_url: str, proxy: str | Secret | None = None) -> Iterator[Finding]:
    """Yield the result of each connection step, to the proxy if there is one, up to the first failure."""
    host, port = host_and_port(base_url if proxy is None else Secret.of(proxy).reveal())
    addresses = yield from _look_up(host, port)
    reached = yield from _connect(addresses)
    if not reached:
        return
    if proxy is not None:
        yield Finding("tls", "warn", "not checked: the connection goes through a proxy")
    elif base_url.startswith("https:"):
        yield _handshake(host, reached[0])
    elif not is_loopback(base_url):
        yield Finding("tls", "warn", "plain http: the Api-Key can be read on the way; use https")


def _look_up(host: str, port: int) -> Generator[Finding, None, Addresses]:
    started = time.perf_counter()
    try:
        resolved = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or "not a host name"
        yield Finding("dns", "fail", f"{host} has no address: {reason}; check the name and the network")
        return []
    addresses: Addresses = list(dict.fromkeys(address[:2] for *_, address in resolved))
    yield Finding("dns", "ok", f"{host} is {', '.join(name for name, _ in addresses)} ({_elapsed(started)})")
    return addresses


def _connect(addresses: Addresses) -> Generator[Finding, None, Addresses]:
    """Yield the connection result for each address. Return the addresses that accept connections."""
    reached: Addresses = []
    for address in addresses:
        name, started = f"{address[0]} port {address[1]}", time.perf_counter()
        try:
            socket.create_connection(address, _CONNECT_TIMEOUT).close()
        except OSError as error:
            # The client tries the next address, so a failure beside an address that works only costs time.
            text = f"{name}: {_reason(error)}; is the service running, and does a firewall block the port?"
            yield Finding("tcp", "warn" if reached else "fail", text)
        else:
            reached.append(address)
            yield Finding("tcp", "ok", f"{name} accepts connections ({_elapsed(started)})")
    return reached


def _handshake(host: str, address: tuple[str, int]) -> Finding:
    started = time.perf_counter()
    try:
        # As in the client: the system's certificates, and a host name check.
        context = ssl.create_default_context()
        opened = socket.create_connection(address, _CONNECT_TIMEOUT)
        with opened, context.wrap_socket(opened, server_hostname=host) as secured:
            certificate, version = secured.getpeercert() or {}, secured.version()
    except ssl.SSLCertVerificationError as error:
        return Finding("tls", "fail", f"the certificate can't be trusted: {error.verify_message}; replace it")
    except ssl.SSLError as error:
        return Finding("tls", "fail", _HINTS.get(error.reason or "", f"TLS failed: {error.reason}"))
    except OSError as error:
        return Finding("tls", "fail", f"TLS failed: {_reason(error)}")
    ends = datetime.fromtimestamp(ssl.cert_time_to_seconds(str(certificate["notAfter"])), UTC)
    days = (ends - datetime.now(UTC)).days
    text = f"{version}, certificate valid until {ends:%Y-%m-%d}, {days} days ({_elapsed(started)})"
    return Finding("tls", "ok" if days >= _RENEWAL_DAYS else "warn", text)


def _reason(error: OSError) -> str:
    return "no response" if isinstance(error, TimeoutError) else (error.strerror or type(error).__name__)


def _elapsed(started: float) -> str:
    return f"{(time.perf_counter() - started) * 1e3:.0f} ms"


def doctor(*, json: JsonLines = False, options: CallOptions = CallOptions()) -> int:
    console = Console(highlight=False, soft_wrap=True)
    failed = False
    for finding in _findings(options.given()):
        failed |= finding.state == "fail"
        if json:
            print_json(finding)
        else:
            state = (f"{finding.state:<5}", _STYLES[finding.state])
            console.print(Text.assemble(state, (f"{visible(finding.check):<20}", "bold"), visible(finding.text)))
    return Exit.CANNOT_RUN if failed else Exit.DONE


def _findings(options: Mapping[str, object]) -> Iterator[Finding]:
    versions = f"pushsdk {__version__}, aiohttp {version('aiohttp')}, Python {platform.python_version()}"
    yield Finding("versions", "ok", versions)
    settings = yield from _settings(options)
    if settings is None:
        return
    if len(settings["api_key"].reveal()) < SHORTEST_MASKED:
        text = f"under {SHORTEST_MASKED} characters: it is not masked in answers that echo it; use a longer key"
        yield Finding("api_key", "warn", text)
    yield from probe(settings["base_url"], settings.get("proxy"))
    limits = settings["limits"] or Limits()
    bound = "at most --in-flight" if limits.in_flight else "at most half of the file descriptors"
    text = f"as many requests in flight as the service takes without queueing; {bound}: {most_in_flight(limits)}"
    yield Finding("limit", "ok", text)
    command = command_line(["send", "USER_ID", "--title", "Test"], options)
    text = f"not tried: the Api-Key, the path and a message; a push to yourself tries them:  {command}"
    yield Finding("request", "skip", f"{text}  (--dry-run prints the request instead)")


def _settings(options: Mapping[str, object]) -> Generator[Finding, None, ClientSettings | None]:
    """Yield each setting that is set and each problem. Return all settings if there is no problem."""
    try:
        found = find(options)
    except ConfigurationError as error:
        yield Finding("settings", "fail", text_of(error))
        return None
    settings, problems = checked(found)
    yield from _values(found, problems)
    if "claims" in found:
        location = str(found["claims"].value)
        try:
            # The settings of the store's server that can lose claims.
            for risk in with_store(location, lambda: store_at(location), lambda store: store.risks()):
                yield Finding("claims", "warn", risk)
        except (ConfigurationError, CommandError) as error:
            yield Finding("claims", "fail", text_of(error))
    return settings


def _values(found: Layer, problems: Mapping[str, str]) -> Iterator[Finding]:
    for name, (value, _, source) in in_force(found, problems).items():
        if name not in problems and (source or name == "config"):
            yield Finding(name, "ok", _text_of(name, value) + (f", set by {source}" if source else ""))
    for name, text in problems.items():
        yield Finding(name, "fail", text)
    yield from (Finding(name, "warn", text) for name, text in unknown_variables())


def config(*, json: Json = False, options: CallOptions = CallOptions()) -> int:
    found = find(options.given())
    _, problems = checked(found)
    settings = in_force(found, problems)
    if json:
        names = ("value", "source", "set_by")
        print_json({name: dict(zip(names, setting, strict=True)) for name, setting in settings.items()})
    else:
        _print_settings(settings, problems)
    for name, text in unknown_variables():
        warn(f"{name}: {text}")
    if problems:
        raise CommandError("\n".join(problems.values()), Exit.CANNOT_RUN)
    return Exit.DONE


def _print_settings(settings: InForce, problems: Mapping[str, str]) -> None:
    rows = [
        (name, _text_of(name, "not valid" if source and name in problems else value), source or layer)
        for name, (value, layer, source) in settings.items()
    ]
    width = max(len(text) for _, text, _ in rows if len(text) <= _WIDEST)
    for name, text, source in rows:
        say(f"{name:<19}  {text:<{width}}  {source}")


def _text_of(name: str, value: Any) -> str:
    """Return a setting's value, for people."""
    if value is None:
        return no_file() if name == "config" else _UNSET.get(name, "not set")
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:.15g}" if isinstance(value, float) else str(value)
