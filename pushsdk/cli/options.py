"""The options that several commands share, as cyclopts reads them; and the question before a command sends."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import urlsplit

from cyclopts import Group, Parameter

from pushsdk._core.address import is_loopback
from pushsdk.cli.settings import Settings, resolve
from pushsdk.cli.terminal import ask

__all__ = ["File", "Flag", "Pace", "Patience", "Service", "confirm", "given", "settings_of"]


def _no_option(_kind: object, value: str | None) -> None:
    if value is not None and value.startswith("-") and value != "-":
        raise ValueError("there is no such option (for a file of that name write ./ in front)")


# cyclopts takes a lone dash, which is standard input, for an option.
File = Annotated[str, Parameter(allow_leading_hyphen=True, validator=_no_option)]
Flag = Annotated[bool, Parameter(negative=(), show_default=False)]
OptionalFlag = Annotated[bool | None, Parameter(negative=())]
Retry = Literal["safe", "collapsible", "at-least-once", "none"]

_SERVICE = Group("Service", sort_key=10)


@Parameter(name="*", group=_SERVICE)
@dataclass(frozen=True, kw_only=True)
class Service:
    """Which service, with which key. Each is also a variable, as PUSHSDK_BASE_URL, and a key of the settings file."""

    base_url: str | None = None
    """The address, as https://push.example/api."""
    api_key_file: Path | None = None
    """A file that holds the key. Without it, and without a command: PUSHSDK_API_KEY."""
    api_key_command: str | None = None
    """A command that prints the key, as 'pass show push'. No shell reads it."""
    proxy: str | None = None
    """The URL of a proxy."""
    allow_insecure: OptionalFlag = None
    """Allow plain http to other machines than this one: the key can be read on the way."""
    config: Path | None = None
    """The settings file, instead of pushsdk/config.toml in your configuration folder."""


@Parameter(name="*", group=_SERVICE)
@dataclass(frozen=True, kw_only=True)
class Patience:
    """How long and how often one call is tried. A run goes on until it is through."""

    timeout: float | None = None
    """Seconds for a call as a whole, its waits and repeats included."""
    retry: Retry | None = None
    """What is repeated: only what can't push twice (safe), or more, or nothing."""


@Parameter(name="*", group=_SERVICE)
@dataclass(frozen=True, kw_only=True)
class Pace:
    """How fast."""

    attempt_timeout: float | None = None
    """Seconds for one try."""
    in_flight: int | None = None
    """Requests on the wire at a time."""
    rate: Annotated[float | None, Parameter(name=["--rate", "--users-per-second"])] = None
    """Users per second at most."""
    requests_per_second: float | None = None
    """Requests per second at most."""


def settings_of(*options: Service | Patience | Pace | None) -> Settings:
    """What the options, the variables and the settings file say. Raises as ``resolve`` does."""
    return resolve(given(*options))


def given(*options: Service | Patience | Pace | None) -> dict[str, object]:
    """The options that were given, by the names of their settings."""
    pairs = (pair for each in options if each is not None for pair in asdict(each).items())
    return {name: value for name, value in pairs if value is not None}


def confirm(question: str, settings: Settings, *, yes: bool) -> None:
    """Ask before something is sent to another machine, as ``ask`` does."""
    urls = [settings["base_url"], *filter(None, [settings.get("proxy")])]
    ask(question, yes=yes or all(is_loopback(urlsplit(url).hostname or "") for url in urls), nothing="nothing was sent")
