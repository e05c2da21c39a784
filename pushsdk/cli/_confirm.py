"""The question before something is done that can't be undone."""

from __future__ import annotations

import sys
from urllib.parse import urlsplit

from pushsdk._core.endpoint import is_loopback
from pushsdk.cli._exit import CommandError, Exit, usage
from pushsdk.cli._terminal import visible
from pushsdk.cli.settings import Settings

__all__ = ["ask", "confirm"]


def confirm(question: str, settings: Settings, *, yes: bool) -> None:
    """Ask before something is sent, as ``ask`` does; but not if the service is on this machine."""
    ways = [settings.base_url, *([settings.proxy] if settings.proxy else [])]
    ask(question, yes=yes or all(is_loopback(urlsplit(url).hostname or "") for url in ways), nothing="nothing was sent")


def ask(question: str, *, yes: bool, nothing: str) -> None:
    """Go on if the user wants to: asked on stderr, answered on stdin; not asked with ``yes``.

    Raises a usage error if nobody can be asked; ends with exit code 1 and the text ``nothing`` on any other answer.
    """
    if yes:
        return
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise usage(f"{question} There is no terminal to ask on: add --yes. {nothing.capitalize()}.")
    sys.stderr.write(f"{visible(question)} [y/N] ")
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise CommandError(nothing, Exit.INCOMPLETE)
