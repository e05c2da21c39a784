"""The question before something is sent to a service that is not on this machine."""

from __future__ import annotations

import sys
from urllib.parse import urlsplit

from pushsdk._core.endpoint import is_loopback
from pushsdk.cli._exit import CommandError, Exit, usage
from pushsdk.cli._terminal import visible
from pushsdk.cli.settings import Settings

__all__ = ["confirm"]


def confirm(question: str, settings: Settings, *, yes: bool) -> None:
    """Go on if the user wants to: asked on stderr, answered on stdin. Not asked with ``yes``, nor for loopback.

    Raises a usage error where nobody can be asked; ends with exit code 1, as nothing was sent, on any other answer.
    """
    ways = [settings.base_url, *([settings.proxy] if settings.proxy else [])]
    if yes or all(is_loopback(urlsplit(url).hostname or "") for url in ways):
        return
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise usage(f"{question} There is no terminal to ask on: add --yes. Nothing was sent.")
    sys.stderr.write(f"{visible(question)} [y/N] ")
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise CommandError("nothing was sent", Exit.INCOMPLETE)
