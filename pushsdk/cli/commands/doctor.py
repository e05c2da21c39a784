"""``pushsdk doctor``: everything that can be found wrong before anything is sent."""

from __future__ import annotations

import platform
import socket
import ssl
import time
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Literal
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct
from rich.console import Console
from rich.text import Text

from pushsdk._core.address import is_loopback
from pushsdk._core.errors import ConfigurationError
from pushsdk._version import __version__
from pushsdk.cli.exit import Exit, in_shell
from pushsdk.cli.options import Flag, Pace, Patience, Service, given
from pushsdk.cli.settings import KEYS, Found, check, find
from pushsdk.cli.terminal import print_json, visible

__all__ = ["doctor", "probe"]

_PATIENCE = 5.0  # seconds for a connection, as the client has
_SOON = 14  # days: a certificate that ends sooner should have been renewed by now
_DATE = "%b %d %H:%M:%S %Y %Z"  # as the certificates' dates are written by Python
_HINTS = {
    "WRONG_VERSION_NUMBER": "the port does not speak TLS: is it meant for http?",
    "RECORD_LAYER_FAILURE": "the port does not speak TLS: is it meant for http?",
    "UNEXPECTED_EOF_WHILE_READING": "the other side hung up: is something in between refusing TLS?",
}

Address = tuple[str, int]
_STYLES = {"ok": "green", "warn": "yellow", "fail": "bold red"}


class Finding(Struct, frozen=True, kw_only=True):
    """One line of the doctor: what was looked at, how it is, and what to do where it is not well."""

    check: str
    state: Literal["ok", "warn", "fail"]
    text: str


def probe(base_url: str, proxy: str | None = None) -> Iterator[Finding]:
    """Check each step on the way, up to the first that fails. With a proxy, as far as the proxy."""
    target = urlsplit(base_url if proxy is None else proxy)
    host = target.hostname or ""
    port = target.port or (443 if target.scheme == "https" else 80)
    started = time.perf_counter()
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or "not a host name"
        text = f"{host} has no address: {reason}; check the name and the network"
        yield Finding(check="dns", state="fail", text=text)
        return
    addresses = list(dict.fromkeys((str(address[0]), int(address[1])) for *_, address in found))
    shown = ", ".join(name for name, _ in addresses)
    yield Finding(check="dns", state="ok", text=f"{host} is {shown} ({_since(started)})")
    reached: list[Address] = []
    for address in addresses:
        yield _connect(address, reached)
    if reached and proxy is not None:
        yield Finding(check="tls", state="warn", text="not looked at: the way leads through a proxy")
    elif reached and target.scheme == "https":
        yield _handshake(host, reached[0])
    elif reached and not is_loopback(host):
        yield Finding(check="tls", state="warn", text="plain http: everybody on the way can read the Api-Key")


def _connect(address: Address, reached: list[Address]) -> Finding:
    shown = f"{address[0]} port {address[1]}"
    started = time.perf_counter()
    try:
        socket.create_connection(address, _PATIENCE).close()
    except OSError as error:
        # The client goes on to the next address, so one that fails beside one that works only costs time.
        state: Literal["warn", "fail"] = "warn" if reached else "fail"
        text = f"{shown}: {_reason(error)}; is the service up, and does a firewall let you through?"
        return Finding(check="tcp", state=state, text=text)
    reached.append(address)
    return Finding(check="tcp", state="ok", text=f"{shown} answers ({_since(started)})")


def _handshake(host: str, address: Address) -> Finding:
    started = time.perf_counter()
    try:
        # As the client does: the system's certificates, the host name checked.
        context = ssl.create_default_context()
        opened = socket.create_connection(address, _PATIENCE)
        with opened, context.wrap_socket(opened, server_hostname=host) as secured:
            certificate, version = secured.getpeercert() or {}, secured.version()
    except ssl.SSLCertVerificationError as error:
        text = f"the certificate can't be trusted: {error.verify_message}; it needs a person, never a switch"
        return Finding(check="tls", state="fail", text=text)
    except ssl.SSLError as error:
        return Finding(check="tls", state="fail", text=_HINTS.get(error.reason or "", f"TLS failed: {error.reason}"))
    except OSError as error:
        return Finding(check="tls", state="fail", text=f"TLS failed: {_reason(error)}")
    ends = datetime.strptime(str(certificate["notAfter"]), _DATE).replace(tzinfo=UTC)
    days = (ends - datetime.now(UTC)).days
    text = f"{version}, certificate valid until {ends:%Y-%m-%d}, {days} days ({_since(started)})"
    return Finding(check="tls", state="ok" if days >= _SOON else "warn", text=text)


def _reason(error: OSError) -> str:
    return "no answer" if isinstance(error, TimeoutError) else (error.strerror or type(error).__name__)


def _since(started: float) -> str:
    return f"{(time.perf_counter() - started) * 1e3:.0f} ms"


def doctor(
    *, json: Flag = False, service: Service | None = None, patience: Patience | None = None, pace: Pace | None = None
) -> int:
    """Check settings, name, connection and certificate; nothing is sent.

    Parameters
    ----------
    json
        Print one JSON object per line: check, state, text.
    """
    console = Console(highlight=False, soft_wrap=True)
    failed = False
    for finding in _findings(given(service, patience, pace)):
        failed = failed or finding.state == "fail"
        if json:
            print_json(msgspec.structs.asdict(finding))
        else:
            console.print(_line(finding))
    return Exit.CANNOT_RUN if failed else Exit.DONE


def _findings(options: Mapping[str, object]) -> Iterator[Finding]:
    versions = f"pushsdk {__version__}, aiohttp {version('aiohttp')}, Python {platform.python_version()}"
    yield Finding(check="versions", state="ok", text=versions)
    try:
        found = find(options)
    except ConfigurationError as error:
        yield Finding(check="settings", state="fail", text=str(error))
        return
    settings, wrong = check(found)
    for name, each in found.items():
        if name not in wrong:
            yield Finding(check=name, state="ok", text=_shown(name, each))
    if "config" not in found:
        yield Finding(check="config", state="ok", text="no settings file")
    for name, text in wrong.items():
        yield Finding(check=name, state="fail", text=in_shell(text))
    if settings is not None:
        yield from probe(settings["base_url"], settings.get("proxy"))


def _shown(name: str, found: Found) -> str:
    if name in KEYS or name == "proxy":  # which may hold a password
        return f"set by {found.source}"
    return found.source if name == "config" else f"{found.value}, by {found.source}"


def _line(finding: Finding) -> Text:
    return Text.assemble(
        (f"{finding.state:<5}", _STYLES[finding.state]), (f"{finding.check:<20}", "bold"), visible(finding.text)
    )
