"""A run's failure threshold: too many failed users, or an outage that lasts.

Unlike a circuit breaker, a stop policy never closes again by itself: the run ends, and its rest stays planned for a
resume.
"""

import math
from collections import Counter
from typing import Self

import msgspec

from pushsdk._core.kinds import Count, Duration, Share
from pushsdk._core.outcome import ACCEPTED, Outcome
from pushsdk._core.policy import Settings

# Fewer requests prove nothing: one bad gateway among the first two would be half of the users.
FEWEST_REQUESTS = 20
ADVICE = {
    Outcome.REJECTED: "Fix the cause in the report, then resume; another message needs a new run, which pushes to all",
    Outcome.UNKNOWN: "Check the service, then resume: unknown users are skipped unless you resend them",
}


class StopPolicy(Settings, frozen=True, kw_only=True):
    """A run's failure threshold: the run stops by itself, and the users left stay planned. None switches a rule off.

    A 401 or 403 stops every run at once. A share is that of the users settled last: of at least ``after`` users in at
    least 20 requests, and of at most twice as many. So a failure that begins after hours of success is noticed as soon
    as a failure from the start. A smaller run is never stopped by a share.

    Attributes:
        rejected: The share of rejected users that stops a run. Half is more than stale ids cause: if one id spoils a
            request, the users beside it are sent without it. A message that the service does not accept is rejected
            for all users.
        unknown: The share of users with an unknown outcome that stops a run. A quarter is a service that breaks down
            during the run; one gateway error in twenty requests stays below.
        after: Fewest users of which a share is taken.
        max_outage: The seconds of sending without an accepted user that stop a run. Planning does not count, nor does
            the time in which the process was stopped. Pauses that the service asks for count, but a run never stops
            during such a pause: it stops if a request after the pause fails too, or gets no response for that long.

    Raises:
        ConfigurationError: A value is out of range.
    """

    rejected: Share | None = 0.5
    unknown: Share | None = 0.25
    after: Count = 2000
    max_outage: Duration | None = 600.0

    @classmethod
    def off(cls) -> Self:
        """Stop on a 401 or 403 only."""
        return cls(rejected=None, unknown=None, max_outage=None)


class _Window(msgspec.Struct):
    """Number of settled requests and users."""

    requests: int = 0
    users: int = 0
    failed: Counter[Outcome] = msgspec.field(default_factory=Counter)
    """Users by outcome, other than ACCEPTED."""


class StopMonitor:
    """The stop policy applied to one run. Times are seconds of sending; that clock stops while nothing can be sent."""

    def __init__(self, stop_policy: StopPolicy, now: float) -> None:
        self._policy = stop_policy
        # The window slides in steps: the part being filled, and the part before it.
        self._filling, self._before = _Window(), _Window()
        # The last status for each outcome.
        self._last_status: dict[Outcome, int | None] = {}
        # Times of the last acceptance and of the last response; at first, the time when the run started to send.
        self._accepted_at = self._last_response_at = now
        self._stop_reason: str | None = None

    def settled(self, outcome: Outcome, users: int, status: int | None, now: float, trouble: str = "") -> None:
        """Record the final outcome for a request and its users; ``status`` is None if there was no response."""
        window = self._filling
        window.requests += 1
        window.users += users
        if outcome is ACCEPTED:
            self._accepted_at = self._last_response_at = now
        else:
            window.failed[outcome] += users
            self._last_status[outcome] = status
            self.released(status, now, trouble)
        if window.users >= self._policy.after and window.requests >= FEWEST_REQUESTS:
            self._before, self._filling = window, _Window()

    def released(self, status: int | None, now: float, trouble: str = "") -> None:
        """Record a request whose users stay pending, and why: throttled, not sent, or to be split."""
        self._last_response_at = now
        if self._stop_reason is None:
            self._stop_reason = self._too_many() or self._outage(now, _show_status(status, trouble))

    def stop_reason(self, now: float, *, paused_until: float = -math.inf) -> str | None:
        """Return the reason why the run stops, with a fix; None while the run goes on. The first reason stays."""
        limit = self._policy.max_outage
        if self._stop_reason is None and limit is not None and now - max(self._last_response_at, paused_until) >= limit:
            self._stop_reason = self._outage(now, "no answer at all")
        return self._stop_reason

    def _too_many(self) -> str | None:
        before, filling = self._before, self._filling
        users = before.users + filling.users
        if users >= self._policy.after and before.requests + filling.requests >= FEWEST_REQUESTS:
            for outcome, limit in ((Outcome.REJECTED, self._policy.rejected), (Outcome.UNKNOWN, self._policy.unknown)):
                failed = before.failed[outcome] + filling.failed[outcome]
                if limit is not None and failed >= limit * users:
                    return (
                        f"{failed / users * 100:.1f} % of the last {users:,} users are {outcome} (the last of them: "
                        f"{_show_status(self._last_status[outcome])}), the stop policy stops at {limit * 100:.4g} %. "
                        f"{ADVICE[outcome]}"
                    )
        return None

    def _outage(self, now: float, last: str) -> str | None:
        limit, seconds = self._policy.max_outage, now - self._accepted_at
        if limit is None or seconds < limit:
            return None
        return (
            f"nothing was accepted for {seconds:,.0f} s (last: {last}), the stop policy stops at {limit:,.0f} s. "
            "Check that the service is up, then resume"
        )


def _show_status(status: int | None, trouble: str = "") -> str:
    return trouble or "no answer" if status is None else f"HTTP {status}"
