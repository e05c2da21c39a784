"""Whom a broadcast is for: a file, standard input, or what a query finds."""

from __future__ import annotations

import sys

from pushsdk._broadcast.audience import Audience
from pushsdk.cli._exit import usage
from pushsdk.cli._files import STDIN

__all__ = ["audience_of"]


def audience_of(source: str | None, query: str | None, primary_key: str, *, message: str) -> Audience:
    """The audience. Raises a usage error, or a ValidationError of what can't be read."""
    if (source is None) is (query is None):
        raise usage("name one source of users: a file, - for standard input, or --query SQL")
    if query is not None:
        return Audience.query(query, primary_key=primary_key)
    if source != STDIN:
        return Audience.read(str(source), primary_key=primary_key)
    if message == STDIN:
        raise usage("standard input can't be both the users and the message")
    return Audience.lines(sys.stdin.buffer)
