"""When the next request may start: the service's pause, the fixed rates, and the rate that it was found to take.

The adaptive rate counts requests, not users. A throttle names no unit; where the service counts users, a lower rate of
requests lets the batches that wait grow to ``max_users`` and no further, so that the users per second are held too.
"""

from __future__ import annotations

import math
from datetime import UTC
from email.utils import parsedate_to_datetime

from pushsdk._core.policy import Rate

__all__ = ["Gate", "parse_retry_after"]

# Requests per second that are tried in any case: how else would the end of an outage be noticed?
FLOOR = 1.0
# Where the adaptive rate begins at the lowest: what a client has sent so far says little about the service when it has
# just begun, or sends now and then. One stray throttle must not spread its next burst over a minute.
BEGIN_AT_LEAST = 500.0
# What a throttle leaves of the rate. AWS and CUBIC (RFC 9438) have 0.7; from 0.8 a hard limit is used to 95 %.
DECREASE = 0.8
# What one throttle leaves at the lowest: from 500 a second a limit of 20 is found in four seconds, and a client that
# happened to send nothing for a while is not down to nothing at once.
STEEPEST = 1 / 3
# Seconds until the rate is back where it was at the throttle, and until it is not held back at all.
BACK_AFTER, OFF_AFTER = 10.0, 30.0
# Seconds between two decreases: a quota that is used up throttles until its window ends, however slow one becomes.
ONE_EVENT = 1.0
# Lateness in seconds that may be made up for: timers have a resolution of a millisecond, a fast rate has not.
SLACK = 0.01


class Gate:
    """Says how long the next request has to wait. Times are seconds on the caller's clock.

    The first throttle engages the adaptive rate, from the starts of the busiest of the last two seconds, or from 500
    per second where they were fewer. From then on starts are spaced out. A throttle leaves four fifths of the rate,
    once for all requests that were under way then. A later one leaves less, down to a third, where less is sent or a
    smaller share of it went through.

    After 10 s the rate is a quarter higher: where it was, if four fifths were left. It rises slowly past that for
    another 10 s, then ever faster, to a thousandfold; and 30 s after the last throttle, or the end of the pause that
    came with it, nothing is held back any more. That bounds every recovery. The rate is never below one request per
    second; the fixed rates hold in any case.
    """

    __slots__ = (
        "_before",
        "_decreased",
        "_held",
        "_peak",
        "_per_request",
        "_per_user",
        "_refused",
        "_second_ends",
        "_since",
        "_started",
        "_starts",
        "not_before",
        "paused_until",
    )

    def __init__(self, rate: Rate) -> None:
        self._per_request = 1.0 / rate.requests_per_second if rate.requests_per_second else 0.0
        self._per_user = 1.0 / rate.users_per_second if rate.users_per_second else 0.0
        #: Set by ``pause``: nothing starts before it.
        self.paused_until = -math.inf
        #: When the pause and the rates allow the next request. Set by ``pause`` and ``charge``.
        self.not_before = -math.inf
        # Whether a start costs anything: by a fixed rate, or by the adaptive one.
        self._held = bool(self._per_request or self._per_user)
        # The starts of this second and of the one before, counted by ``charge``.
        self._starts = self._before = 0
        self._second_ends = -math.inf
        # Requests per second that the rate rises back to; 0 while not engaged. Set by ``throttled``.
        self._peak = 0.0
        # Starts and throttles since the last decrease. Counted by ``charge`` and ``throttled``.
        self._started = self._refused = 0
        # When it was decreased last, and since when it may rise: from then, or from the end of a pause.
        self._decreased = self._since = -math.inf

    def delay(self, now: float) -> float:
        """Seconds until the next request may start; 0 or less is now."""
        return self.not_before - now

    def charge(self, now: float, users: int) -> None:
        """A request with this many users starts now.

        Its cost is paid afterwards, by the wait of the next: so a request larger than a second's worth still leaves.
        """
        if now >= self._second_ends:
            self._before = self._starts if now < self._second_ends + 1.0 else 0
            self._starts = 0
            self._second_ends = now + 1.0
        self._starts += 1
        self._started += 1
        if self._held:
            self._pay(now, users)

    def begin(self, now: float, users: int, part: float) -> None:
        """The first request, with this many users, starts so late that it has paid this part of its cost."""
        self.not_before = max(self.not_before, now + part * self._cost(users))

    def refund(self, users: int) -> None:
        """A request that was charged did not start: the fixed rates have that to spare again."""
        self.not_before = max(self.paused_until, self.not_before - self._cost(users))

    def pause(self, until: float) -> None:
        """Start nothing before ``until``; a shorter pause never shortens a longer one."""
        self.paused_until = max(self.paused_until, until)
        self.not_before = max(self.not_before, until)
        self._since = max(self._since, until)

    def throttled(self, started: float, now: float) -> None:
        """A request that started then was answered now, with 429 or with 503 and Retry-After."""
        self._refused += 1
        rate = self.rate(now)
        if rate is None:
            self._peak = max(BEGIN_AT_LEAST, self._before, self._starts)
        elif started < self._since or now < self._decreased + ONE_EVENT:
            # It was under way when the rate was decreased: the same event.
            return
        else:
            self._peak = max(FLOOR, rate * self._left(rate, now) / DECREASE)
        self._held = True
        self._decreased = now
        self._since = max(now, self.paused_until)
        self._started = self._refused = 0

    def _left(self, rate: float, now: float) -> float:
        """The share of this rate that is left by a decrease now."""
        left = DECREASE
        through = self._started - self._refused
        # Where nothing went through, it is an outage or a quota that is used up, and tells no rate. (One start may be
        # under way still.)
        if through > 1:
            left = min(left, through / self._started)
        if now >= self._since + 2.0:
            # The rate may have risen far above what is sent at all.
            left *= min(1.0, max(self._before, self._starts) / rate)
        return max(STEEPEST, left)

    def rate(self, now: float) -> float | None:
        """The adaptive rate in requests per second; None while nothing is held back by it."""
        seconds = now - self._since
        if not self._peak or seconds >= OFF_AFTER:
            return None
        # CUBIC's curve, with a flatter middle, and as a factor: it recovers in the same time from however far below.
        return max(FLOOR, self._peak * math.pow(DECREASE, (1.0 - max(0.0, seconds) / BACK_AFTER) ** 5))

    def _pay(self, now: float, users: int) -> None:
        before = due = self.not_before
        cost = self._cost(users)
        if cost:
            due = max(before, now) + cost
        rate = self.rate(now)
        if rate is not None:
            due = max(due, max(before, now - SLACK) + 1.0 / rate)
        elif self._peak:
            self._peak = 0.0
            self._held = bool(cost)
        self.not_before = due

    def _cost(self, users: int) -> float:
        return max(self._per_request, self._per_user * users)


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
