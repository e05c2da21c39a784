"""Limits on sending: pauses that the service asks for, fixed rates, the rate after a throttle, and the retry budget."""

from __future__ import annotations

import math
from datetime import UTC
from email.utils import parsedate_to_datetime

from pushsdk._core.policy import Rate

# Lowest rate in requests per second: without requests nothing would notice the end of an outage.
FLOOR = 1.0
# Lowest rate that the first throttle is assumed to have hit: an idle client has measured nothing, and one stray
# throttle must not spread the next burst over a minute.
BEGIN_AT_LEAST = 500.0
# The share of the rate that is left after a throttle, and the growth per second: back at the old rate after 10 s. With
# these a hard limit is used to 90 %.
DECREASE, INCREASE = 0.8, 0.025
# Seconds without a throttle after which the rate is free again. Bounds every recovery.
OFF_AFTER = 30.0
# Seconds between two decreases: a used-up quota throttles until its window ends, whatever the rate.
ONE_EVENT = 1.0
# Seconds of lateness that are made up for: timers have a resolution of a millisecond, a fast rate needs less.
SLACK = 0.01

# The shape of AWS (botocore, standard mode): the load stays at 1.0x in an outage, nothing is lost at 10 % failures.
CAPACITY = 500
COST = 5
REFUND = 1


class RateLimiter:
    """Delays the next request. Times are seconds on the caller's clock.

    The rate after a throttle follows AIMD: a throttle leaves four fifths of the rate, once for all requests in flight;
    then the rate grows by a fixed amount per second. The first throttle measures the rate: the starts in the busier
    of the last two seconds, at least 500. Only requests are counted: a throttle names no unit, and if the service
    counts users, a lower rate lets queued batches grow to ``max_users`` and no further.
    """

    __slots__ = (
        "_before",
        "_decreased",
        "_lowest",
        "_per_request",
        "_per_user",
        "_second_ends",
        "_since",
        "_starts",
        "not_before",
        "paused_until",
    )

    def __init__(self, rate: Rate) -> None:
        self._per_request = 1.0 / rate.requests_per_second if rate.requests_per_second else 0.0
        self._per_user = 1.0 / rate.users_per_second if rate.users_per_second else 0.0
        #: End of the pause. Set by ``pause``.
        self.paused_until = -math.inf
        #: The time at which the pause and the rates allow the next request. Set by ``pause`` and ``charge``.
        self.not_before = -math.inf
        # The starts in this second and in the one before. Counted by ``charge``.
        self._starts = self._before = 0
        self._second_ends = -math.inf
        # Requests per second after the last decrease; 0 if there is no adaptive rate. Set by ``throttled``.
        self._lowest = 0.0
        # The time of the last decrease, and the time since which the rate grows: the same, or the end of a pause.
        self._decreased = self._since = -math.inf

    def delay(self, now: float) -> float:
        """Return the seconds until the next request may start; 0 or less is now."""
        return self.not_before - now

    def charge(self, now: float, users: int) -> None:
        """Charge a request that starts now.

        The next request waits for the cost of this request, so a request larger than the rate per second is still sent.
        """
        if now >= self._second_ends:
            self._before = self._starts if now < self._second_ends + 1.0 else 0
            self._starts = 0
            self._second_ends = now + 1.0
        self._starts += 1
        before = self.not_before
        if self._per_request or self._per_user:
            self.not_before = max(before, now) + self._cost(users)
        if self._lowest:
            rate = self.rate(now)
            if rate is None:
                self._lowest = 0.0
            else:
                self.not_before = max(self.not_before, max(before, now - SLACK) + 1.0 / rate)

    def begin(self, now: float, users: int, part: float) -> None:
        """Delay the first request as if this part of its cost had been charged before."""
        self.not_before = max(self.not_before, now + part * self._cost(users))

    def refund(self, users: int) -> None:
        """Return the charge of a request that did not start to the fixed rates."""
        self.not_before = max(self.paused_until, self.not_before - self._cost(users))

    def pause(self, until: float) -> None:
        """Start nothing before ``until``; a shorter pause never shortens a longer one."""
        self.paused_until = max(self.paused_until, until)
        self.not_before = max(self.not_before, until)
        self._since = max(self._since, until)

    def throttled(self, started: float, now: float) -> None:
        """Record a 429, or a 503 with Retry-After, for a request that started at ``started``."""
        rate = self.rate(now)
        if rate is None:
            rate = max(BEGIN_AT_LEAST, self._before, self._starts)
        elif started < self._since or now < self._decreased + ONE_EVENT:
            # In flight at the last decrease: the same event.
            return
        self._lowest = max(FLOOR, rate * DECREASE)
        self._decreased = now
        self._since = max(now, self.paused_until)

    def rate(self, now: float) -> float | None:
        """Return the adaptive rate in requests per second; None if there is none."""
        seconds = max(0.0, now - self._since)
        if not self._lowest or seconds >= OFF_AFTER:
            return None
        return self._lowest * (1.0 + INCREASE * seconds)

    def _cost(self, users: int) -> float:
        return max(self._per_request, self._per_user * users)


class RetryBudget:
    """A token bucket that keeps retries from adding load during an outage.

    A retry costs 5 tokens, a success on the first try gives 1 back, 500 are full.
    """

    __slots__ = ("tokens",)

    def __init__(self) -> None:
        #: Tokens left, 0 to 500.
        self.tokens = CAPACITY

    def spend(self) -> bool:
        """Pay for one retry. Return False, and take nothing, if too few tokens are left."""
        if self.tokens < COST:
            return False
        self.tokens -= COST
        return True

    def refund(self) -> None:
        """Count a request that was accepted on its first try."""
        if self.tokens < CAPACITY:
            self.tokens += REFUND


def parse_retry_after(value: str | None, *, wall_clock: float) -> float | None:
    """Return the seconds to wait by a Retry-After header (RFC 9110, 10.2.3): seconds, or an HTTP date.

    ``wall_clock`` is seconds since the epoch. Returns None if the header is absent, unparsable or negative, and 0 for a
    date in the past. Never raises.
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
