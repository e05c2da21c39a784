"""When the next request may start: the pause that the service asked for, and the fixed rates.

The seam for adaptive pacing: what changes a rate while running belongs into ``Gate``, told by ``charge`` and ``pause``.
"""

from __future__ import annotations

import math
from datetime import UTC
from email.utils import parsedate_to_datetime

from pushsdk._core.policy import Rate

__all__ = ["Gate", "parse_retry_after"]


class Gate:
    """Says how long the next request has to wait. Times are seconds on the caller's clock."""

    __slots__ = ("_per_request", "_per_user", "not_before", "paused_until")

    def __init__(self, rate: Rate) -> None:
        self._per_request = 1.0 / rate.requests_per_second if rate.requests_per_second else 0.0
        self._per_user = 1.0 / rate.users_per_second if rate.users_per_second else 0.0
        #: Set by ``pause``: nothing starts before it.
        self.paused_until = -math.inf
        #: When the pause and the rates allow the next request. Set by ``pause`` and ``charge``.
        self.not_before = -math.inf

    def delay(self, now: float) -> float:
        """Seconds until the next request may start; 0 or less is now."""
        return self.not_before - now

    def charge(self, now: float, users: int) -> None:
        """A request with this many users starts now.

        Its cost is paid afterwards, by the wait of the next: so a request larger than a second's worth still leaves.
        """
        if self._per_request or self._per_user:
            cost = max(self._per_request, self._per_user * users)
            self.not_before = max(self.not_before, now) + cost

    def pause(self, until: float) -> None:
        """Start nothing before ``until``; a shorter pause never shortens a longer one."""
        self.paused_until = max(self.paused_until, until)
        self.not_before = max(self.not_before, until)


def parse_retry_after(value: str | None, *, wall_clock: float) -> float | None:
    """Seconds to wait by a Retry-After header (RFC 9110, 10.2.3): seconds, or an HTTP date.

    ``wall_clock`` is seconds since the epoch. None where it is absent, unparsable or negative; a date that has passed
    is 0. Never raises.
    """
    if value is None:
        return None
    text = value.strip()
    if text.isascii() and text.isdigit():
        # The bound keeps float() finite and fast on a header of digits only.
        return float(text) if len(text) <= 15 else math.inf
    try:
        when = parsedate_to_datetime(text)
        if when.tzinfo is None:
            when = when.replace(tzinfo=UTC)
        return max(0.0, when.timestamp() - wall_clock)
    except (ValueError, OverflowError, TypeError, IndexError):
        return None
