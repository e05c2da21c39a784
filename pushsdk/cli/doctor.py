"""``pushsdk doctor``: everything that can be found wrong before anything is sent."""

from __future__ import annotations

import platform
from collections.abc import Iterator, Mapping
from importlib.metadata import version

import msgspec
from rich.console import Console
from rich.text import Text

from pushsdk._core.errors import ConfigurationError
from pushsdk._version import __version__
from pushsdk.cli._exit import Exit, in_shell
from pushsdk.cli._options import Flag, Pace, Patience, Service, given
from pushsdk.cli._probe import Finding, probe
from pushsdk.cli._terminal import print_json, visible
from pushsdk.cli.settings import KEYS, Found, Settings, check, find

__all__ = ["doctor"]

_STYLES = {"ok": "green", "warn": "yellow", "fail": "bold red"}


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
    checked = check(found)
    wrong = {} if isinstance(checked, Settings) else checked
    for name, each in found.items():
        if name not in wrong:
            yield Finding(check=name, state="ok", text=_shown(name, each))
    if "config" not in found:
        yield Finding(check="config", state="ok", text="no settings file")
    for name, text in wrong.items():
        yield Finding(check=name, state="fail", text=in_shell(text))
    if isinstance(checked, Settings):
        yield from probe(checked.base_url, checked.proxy)


def _shown(name: str, found: Found) -> str:
    if name in KEYS or name == "proxy":  # which may hold a password
        return f"set by {found.source}"
    return found.source if name == "config" else f"{found.value}, by {found.source}"


def _line(finding: Finding) -> Text:
    return Text.assemble(
        (f"{finding.state:<5}", _STYLES[finding.state]), (f"{finding.check:<20}", "bold"), visible(finding.text)
    )
