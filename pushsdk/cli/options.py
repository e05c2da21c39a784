"""Options that several commands share, and the question before a command sends."""

import shlex
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Group, Parameter

from pushsdk._core.address import is_loopback
from pushsdk._core.secret import Secret
from pushsdk.cli.settings import ClientSettings, RetryName, resolve, shown
from pushsdk.cli.terminal import ask, visible

Json = Annotated[bool, Parameter(help="Print the result as one JSON object.")]
JsonLines = Annotated[bool, Parameter(help="Print one JSON object per line.")]
Yes = Annotated[bool, Parameter(help="Don't ask for confirmation.")]
SERVICE = Group(
    "Service",
    help="Each is also a variable, for example PUSHSDK_BASE_URL, and a key of config.toml: see pushsdk docs cli.",
    sort_key=10,
)


@Parameter(name="*", group=SERVICE)
@dataclass(frozen=True, kw_only=True)
class ServiceOptions:
    """Service and speed options."""

    base_url: str | None = None
    """Set the service URL, for example https://push.example/api."""
    api_key_file: Path | None = None
    """Read the Api-Key from this file instead of PUSHSDK_API_KEY."""
    api_key_command: str | None = None
    """Read the Api-Key from this command's output, for example 'pass show push'."""
    proxy: str | None = None
    """Connect through the HTTP proxy with this URL."""
    allow_insecure: bool | None = None
    """Allow plain http to other machines; the Api-Key can be read on the way."""
    config: Path | None = None
    """Read settings from this file, not from your pushsdk/config.toml."""
    profile: str | None = None
    """Use the settings in the table [profiles.NAME] of that file."""
    only_users: str | None = None
    """Push only to these users, whose ids have commas between them. Everybody else is NOT_SENT."""
    attempt_timeout: float | None = None
    """Limit each attempt to this many seconds. [default: 10]"""
    # As it is written: cyclopts would round 1.5.
    in_flight: Annotated[int | None, Parameter(converter=lambda _, tokens: tokens[0].value)] = None
    """Limit the number of requests in flight. [default: as many as the service takes]"""
    rate: Annotated[float | None, Parameter(name=["--rate", "--users-per-second"])] = None
    """Limit the users per second. [default: no limit]"""
    requests_per_second: float | None = None
    """Limit the requests per second. [default: no limit]"""
    verbose: Annotated[int, Parameter(name="-v", count=True, show_default=False)] = 0
    """Log retries and pauses to stderr, as PUSHSDK_LOG=info does; -vv logs every request, as PUSHSDK_LOG=debug."""

    def given(self) -> dict[str, object]:
        """Return the options that were given, by the names of the settings."""
        return {name: value for name, value in asdict(self).items() if value is not None and name != "verbose"}

    def settings(self, *, dry_run: bool = False) -> ClientSettings:
        """Return the settings from the options, the variables and the settings file. Raises as `resolve` does."""
        if self.verbose:
            from pushsdk._io.sender import log_to_stderr  # imported late: --help does not need it

            log_to_stderr("info" if self.verbose == 1 else "debug")
        return resolve(self.given(), key_needed=not dry_run)


@Parameter(name="*", group=SERVICE)
@dataclass(frozen=True, kw_only=True)
class CallOptions(ServiceOptions):
    """Options for commands that make one call; runs decide themselves how long and how often to try."""

    timeout: float | None = None
    """Limit the call, with its waits and retries, to this many seconds. [default: 30]"""
    retry: RetryName | None = None
    """Retry what can't have pushed (safe), unknown outcomes too (at-least-once), or none. [default: safe]"""


def command_line(words: Iterable[object], options: Mapping[str, Any]) -> str:
    """Return a command with these options, quoted for a shell. URLs with a password are left out."""
    line = ["pushsdk", *map(str, words)]
    for name, value in options.items():
        option = f"--{name.replace('_', '-')}"
        if value is True:
            line.append(option)
        elif value is not False and not (name in ("proxy", "claims") and shown(name, value) != value):
            line += [option, f"{value:.15g}" if isinstance(value, float) else str(value)]
    return visible(shlex.join(line))


def title_of(message: Mapping[str, Any]) -> str:
    """Return the first title or body in a message."""
    return str(next(iter((message.get("title") or message.get("body") or {}).values()), ""))


def quoted(title: str) -> str:
    """Return a title in quotes after a space; empty if it is empty."""
    return f' "{title if len(title) <= 50 else title[:49] + "…"}"' if title else ""


def confirm(action: Callable[[], str], settings: ClientSettings, *, yes: bool) -> None:
    """Ask before a request goes to another machine, directly or through a proxy, unless ``yes`` is set."""
    urls = filter(None, (settings["base_url"], settings.get("proxy")))
    local = all(is_loopback(Secret.of(url).reveal()) for url in urls)
    if not (yes or local):
        ask(f"{action()} at {settings['base_url']}?", declined="nothing was sent")
