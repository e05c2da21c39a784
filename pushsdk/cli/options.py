"""Options that several commands share, and the question before a command sends."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import urlsplit

from cyclopts import Group, Parameter

from pushsdk._core.address import is_loopback
from pushsdk.cli.settings import ClientSettings, resolve
from pushsdk.cli.terminal import ask


def _refuse_option(_kind: object, value: str | None) -> None:
    if value is not None and value.startswith("-") and value != "-":
        raise ValueError("unknown option (write ./ in front of a file name that starts with -)")


# cyclopts would take a lone dash, which is standard input, for an option.
File = Annotated[str, Parameter(allow_leading_hyphen=True, validator=_refuse_option)]
_FLAG = Parameter(negative=(), show_default=False)
Flag = Annotated[bool, _FLAG]
Json = Annotated[bool, _FLAG, Parameter(help="Print the result as one JSON object.")]
JsonLines = Annotated[bool, _FLAG, Parameter(help="Print one JSON object per line.")]
Yes = Annotated[bool, _FLAG, Parameter(help="Don't ask for confirmation.")]


@Parameter(name="*", group=Group("Service", sort_key=10))
@dataclass(frozen=True, kw_only=True)
class ServiceOptions:
    """Options of the service and the speed. Each is also a variable, PUSHSDK_BASE_URL, and a key of a settings file."""

    base_url: str | None = None
    """Set the URL of the service, for example https://push.example/api."""
    api_key_file: Path | None = None
    """Read the Api-Key from this file instead of PUSHSDK_API_KEY."""
    api_key_command: str | None = None
    """Read the Api-Key from the output of this command, for example 'pass show push'."""
    proxy: str | None = None
    """Connect through the HTTP proxy with this URL."""
    allow_insecure: Annotated[bool | None, Parameter(negative=())] = None
    """Allow plain http to other machines; the Api-Key can be read on the way."""
    config: Path | None = None
    """Read settings from this file, not from your pushsdk/config.toml."""
    attempt_timeout: float | None = None
    """Limit each attempt to this many seconds. [default: 10]"""
    in_flight: int | None = None
    """Limit the number of requests in flight. [default: 64]"""
    rate: Annotated[float | None, Parameter(name=["--rate", "--users-per-second"])] = None
    """Limit the users per second. [default: no limit]"""
    requests_per_second: float | None = None
    """Limit the requests per second. [default: no limit]"""

    def given(self) -> dict[str, object]:
        """Return the options that were given, by the names of the settings."""
        return {name: value for name, value in asdict(self).items() if value is not None}

    def settings(self) -> ClientSettings:
        """Return the settings of the options, the variables and the settings file. Raises as `resolve` does."""
        return resolve(self.given())


@Parameter(name="*", group=Group("Service", sort_key=10))
@dataclass(frozen=True, kw_only=True)
class CallOptions(ServiceOptions):
    """Options of commands that make one call; runs decide themselves how long and how often to try."""

    timeout: float | None = None
    """Limit the call, with its waits and retries, to this many seconds. [default: 30]"""
    retry: Literal["safe", "collapsible", "at-least-once", "none"] | None = None
    """Retry failures that can't have pushed (safe), others too, or none. [default: safe]"""


def confirm(question: str, settings: ClientSettings, *, yes: bool) -> None:
    """Ask before a request goes to another machine, directly or through a proxy."""
    urls = [settings["base_url"], *filter(None, [settings.get("proxy")])]
    local = all(is_loopback(urlsplit(url).hostname or "") for url in urls)
    ask(question, yes=yes or local, declined="nothing was sent")
