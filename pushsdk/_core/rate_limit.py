"""Limits on sending: pauses that the service asks for, fixed rates, and the retry budget."""

import math
import re
from collections.abc import Mapping
from datetime import UTC
from email.utils import parsedate_to_datetime
from functools import partial

from pushsdk._core.outcome import REJECTED, Attempt
from pushsdk._core.policy import Rate

# The service wants fewer requests. A 503 is retryable only with a Retry-After.
THROTTLES = frozenset({429, 503})
# The retry quota of the AWS SDKs in standard mode, since 2026-11-10 (botocore, retries/standard.py).
CAPACITY = 500
COST = 14
THROTTLED_COST = 5
REFUND = 1
# Seconds. A service that asks for more is broken, or hostile.
DAY = 86_400.0
# Some services send fractions, which RFC 9110 does not have.
_is_number = partial(re.fullmatch, r"(?a)\d+(\.\d*)?")


class RateLimiter:
    """A delay before the next request: pauses and fixed rates. Times are seconds on the caller's clock."""

    def __init__(self, rate: Rate) -> None:
        self._per_request = 1.0 / rate.requests_per_second if rate.requests_per_second else 0.0
        self._per_user = 1.0 / rate.users_per_second if rate.users_per_second else 0.0
        #: End of the pause. Set by ``pause``.
        self.paused_until = -math.inf
        #: The time at which the pause and the rates allow the next request. Set by ``pause`` and ``charge``.
        self.not_before = -math.inf

    def charge(self, now: float, users: int) -> None:
        """Charge a request that starts now.

        The next request waits for the cost of this request, so a request larger than the rate per second is still sent.
        """
        if self._per_request or self._per_user:
            self.not_before = max(self.not_before, now) + self._cost(users)

    def begin(self, now: float, users: int, part: float) -> None:
        """Delay the first request as if this part of its cost had been charged before."""
        self.not_before = max(self.not_before, now + part * self._cost(users))

    def refund(self, users: int) -> None:
        """Give the fixed rates back their charge for a request that did not start."""
        self.not_before = max(self.paused_until, self.not_before - self._cost(users))

    def pause(self, until: float) -> None:
        """Start nothing before ``until``; a shorter pause never shortens a longer one."""
        self.paused_until = max(self.paused_until, until)
        self.not_before = max(self.not_before, until)

    def pause_left(self, now: float) -> float:
        """Return the seconds until the pause ends, rounded up as a Retry-After that is passed on has no fractions."""
        return float(math.ceil(max(0.0, self.paused_until - now)))

    def _cost(self, users: int) -> float:
        return max(self._per_request, self._per_user * users)


def retry_cost(attempt: Attempt) -> int:
    """Return the tokens that a retry of this attempt costs."""
    return THROTTLED_COST if attempt.outcome is REJECTED and attempt.status in THROTTLES else COST


class RetryBudget:
    """A token bucket that keeps retries from adding load during an outage.

    It counts like the AWS SDKs in standard mode, since 2026-11-10: 500 tokens are full, a retry costs 14, or 5 after a
    throttled attempt. A request accepted on its first try gives 1 back, and a retried one its last cost.

    Compared with 5 for every retry, in simulations of 100 requests per second: an outage raises the load to 1.002x
    instead of 1.005x, and half the attempts failing to 1.07x instead of 1.21x. If 1 attempt of 5 fails, 99.9 % of
    the requests are accepted with both. The price is fewer retries, 35, in an interruption. See docs/retries.md.
    """

    def __init__(self) -> None:
        #: Tokens left, 0 to 500.
        self.tokens = CAPACITY

    def spend(self, cost: int) -> None:
        """Pay for one retry. The caller has checked that enough tokens are left."""
        self.tokens -= cost

    def refund(self, tokens: int = REFUND) -> None:
        """Count a request that was accepted: on its first try, or by a retry with this cost."""
        if self.tokens < CAPACITY:
            self.tokens = min(CAPACITY, self.tokens + tokens)


def parse_retry_after(headers: Mapping[str, str], *, wall_clock: float) -> float | None:
    """Return the seconds to wait by a Retry-After header (RFC 9110, 10.2.3): seconds, or an HTTP date.

    Whole seconds, rounded up, from 0 to a day. A date counts from the answer's Date, as clocks may differ, or without
    one from ``wall_clock``, in seconds since the epoch. Returns None if the header is absent, unparsable or negative.
    """
    text = headers.get("Retry-After", "").strip()
    if _is_number(text):
        seconds = float(text)
    elif (until := _time_of(text)) is not None:
        now = _time_of(headers.get("Date", ""))
        seconds = max(0.0, until - (wall_clock if now is None else now))
    else:
        return None
    return float(math.ceil(min(seconds, DAY)))


def _time_of(date: str) -> float | None:
    """Return the seconds since the epoch for an HTTP date, or None if it is unparsable."""
    try:
        when = parsedate_to_datetime(date)
        return (when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError, TypeError, IndexError):
        return None
