"""When a campaign starts, sans-IO: its schedule and the time, read into a moment and the words for how it was read.

The interface shows one type, START_NOW, and neither the unit of ``startTs`` nor how the two go together (2.3, 2.10):
all of this is simulated, hence the words.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime

from msgspec import Struct

__all__ = ["Start", "start_of"]

_START_NOW = "START_NOW"
# Seconds reach it in the year 5138, milliseconds reached it in 1973.
_MILLISECONDS = 100_000_000_000
_AHEAD = 10 * 366 * 86_400  # seconds; nobody plans for longer, but a wrong unit looks like it


class Start(Struct, frozen=True):
    """When a campaign starts, in seconds since the epoch: ``at``, None where it waits to be started by hand.

    ``reading`` says in words how type and startTs were read.
    """

    at: float | None
    reading: str


def start_of(type: str | None, start_ts: int | None, now: float) -> Start:  # noqa: A002 - the field's name
    """Read a campaign's schedule at the time it came, ``now``. None is a field that was left out.

    A startTs is when it starts, at once where that is past; START_NOW waits for a later one too. Without a startTs
    START_NOW starts at once, and so does a campaign without a type; any other type waits until it is started by hand,
    and so does what can't be meant: a negative startTs, or one more than ten years ahead.
    """
    if start_ts is None:
        return _without_time(type, now)
    if start_ts < 0:
        return Start(None, "startTs is negative: waits until it is started by hand")
    unit, divisor = ("milliseconds", 1000) if start_ts >= _MILLISECONDS else ("seconds", 1)
    if start_ts // divisor > now + _AHEAD:
        return Start(
            None,
            f"startTs read as {unit} is over ten years ahead, give it in seconds or milliseconds: "
            "waits until it is started by hand",
        )
    at = start_ts / divisor
    told = f"startTs read as {unit}: {datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M} UTC"
    if at <= now:
        past = "" if type == _START_NOW or now - at < 60 else ", which is past"
        return Start(now, f"{told}{past}: starts at once")
    waits = f"{_START_NOW} waits for it" if type == _START_NOW else "waits for it"
    return Start(at, f"{told}: {waits}")


def _without_time(type: str | None, now: float) -> Start:  # noqa: A002
    if type == _START_NOW:
        return Start(now, f"{_START_NOW}: starts at once")
    if type is None:
        return Start(now, "neither a type nor a startTs: starts at once")
    return Start(None, f"{_called(type)} without a startTs: waits until it is started by hand")


def _called(type: str) -> str:  # noqa: A002
    return f"type {type}" if re.fullmatch(r"[A-Z][A-Z0-9_]{0,39}", type) else "another type"
