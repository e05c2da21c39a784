"""When a run stops by itself: on too many failures, on an outage that lasts.

Told by the runner what every request came to; says in words why the run stops and what to do then.
"""

import math
from collections import Counter
from typing import Self

import msgspec

from pushsdk._core.errors import ConfigurationError
from pushsdk._core.outcome import Outcome
from pushsdk._core.policy import check_seconds
from pushsdk._public import set_public_module

__all__ = ["StopMonitor", "StopPolicy"]

# Fewer requests prove nothing: one bad gateway among the first two would be half of the users.
FEWEST_REQUESTS = 20
ADVICE = {
    Outcome.REJECTED: "Look at one of them in the report and mend the cause, then resume: the rest is still planned",
    Outcome.UNKNOWN: "See that the service is well, then resume: they are held back unless you have them sent again",
}


class StopPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """When a run stops by itself, so that what is left of it is still planned when somebody looks; None is never.

    ``rejected`` and ``unknown`` are shares of the users settled last: of at least ``after`` users in at least 20
    requests, and of at most twice as many. So what begins to fail after hours of success is noticed as soon as what
    fails from the start. A run that is smaller is not stopped by a share.

    Half rejected is more than stale ids make: where one id spoils a request, its neighbours go through without it. A
    message that the service does not take is rejected for everybody. A quarter unknown is a service that breaks down
    while it is being sent to, and each of them may not be sent to again; one gateway error in twenty requests stays
    below that.

    ``max_outage`` is seconds of sending without an acceptance; planning is no part of it, nor is the time in which the
    process was stopped. The service's pauses are, or one that always asks for another would hold the run for ever. But
    a run is not stopped while it waits as it was told: what stops it is a request after the pause that fails too, or
    gets no answer for that long.

    A 401 or 403 stops every run at once. Raises ConfigurationError for a number that makes no sense.
    """

    rejected: float | None = 0.5
    unknown: float | None = 0.25
    after: int = 2000
    max_outage: float | None = 600.0

    def __post_init__(self) -> None:
        for name in ("rejected", "unknown"):
            share = getattr(self, name)
            if share is not None and not (type(share) in (int, float) and 0 < share <= 1):
                raise ConfigurationError(
                    f"StopPolicy.{name} is a share greater than 0 and at most 1, as 0.5 for half of the users, or None"
                )
        if type(self.after) is not int or self.after < 1:
            raise ConfigurationError("StopPolicy.after is a whole number of users, 1 or more")
        if self.max_outage is not None:
            check_seconds("StopPolicy.max_outage", self.max_outage)

    @classmethod
    def off(cls) -> Self:
        """Stop on a 401 or 403 only."""
        return cls(rejected=None, unknown=None, max_outage=None)


class _Window(msgspec.Struct):
    """Settled requests and their users."""

    requests: int = 0
    users: int = 0
    failed: Counter[Outcome] = msgspec.field(default_factory=Counter)
    """Of the users, by how they failed."""


class StopMonitor:
    """Watches one run. Times are seconds of sending, on a clock that stands still while nothing can be sent."""

    __slots__ = ("_accepted_at", "_before", "_brake", "_filling", "_heard_at", "_last", "_verdict")

    def __init__(self, stop_policy: StopPolicy) -> None:
        self._brake = stop_policy
        # A window slides in steps: the one that is filling, and the one before it.
        self._filling, self._before = _Window(), _Window()
        # The status that came last with each outcome.
        self._last: dict[Outcome, int | None] = {}
        # When something was accepted last, and when a request ended last in any way; before that, when the run started.
        self._accepted_at = self._heard_at = math.inf
        self._verdict: str | None = None

    def started(self, now: float) -> None:
        """The run begins to send."""
        self._accepted_at = self._heard_at = now

    def settled(self, outcome: Outcome, users: int, status: int | None, now: float) -> None:
        """It is known for good what became of these users; ``status`` is None where there was no answer."""
        window = self._filling
        window.requests += 1
        window.users += users
        if outcome is Outcome.ACCEPTED:
            self._accepted_at = self._heard_at = now
        else:
            window.failed[outcome] += users
            self._last[outcome] = status
            self.released(status, now)
        if window.users >= self._brake.after and window.requests >= FEWEST_REQUESTS:
            self._before, self._filling = window, _Window()

    def released(self, status: int | None, now: float) -> None:
        """A request came to nothing and its users are planned again: throttled, never sent, or to be split."""
        self._heard_at = now
        if self._verdict is None:
            self._verdict = self._too_many() or self._outage(now, _in_words(status))

    def stop_reason(self, now: float, *, paused_until: float = -math.inf) -> str | None:
        """Why the run stops, and what to do; None while it goes on. The first reason stays."""
        limit = self._brake.max_outage
        if self._verdict is None and limit is not None and now - max(self._heard_at, paused_until) >= limit:
            self._verdict = self._outage(now, "no answer at all")
        return self._verdict

    def _too_many(self) -> str | None:
        before, filling = self._before, self._filling
        users = before.users + filling.users
        if users >= self._brake.after and before.requests + filling.requests >= FEWEST_REQUESTS:
            for outcome, limit in (
                (Outcome.REJECTED, self._brake.rejected),
                (Outcome.UNKNOWN, self._brake.unknown),
            ):
                failed = before.failed[outcome] + filling.failed[outcome]
                if limit is not None and failed >= limit * users:
                    return (
                        f"{failed / users * 100:.1f} % of the last {users:,} users are {outcome} (the last of them: "
                        f"{_in_words(self._last[outcome])}), the stop policy allows {limit * 100:.4g} %. "
                        f"{ADVICE[outcome]}"
                    )
        return None

    def _outage(self, now: float, last: str) -> str | None:
        limit, seconds = self._brake.max_outage, now - self._accepted_at
        if limit is None or seconds < limit:
            return None
        return (
            f"nothing was accepted for {seconds:,.0f} s (last: {last}), the stop policy allows {limit:,.0f} s. "
            "See that the service is up, then resume"
        )


def _in_words(status: int | None) -> str:
    return "no answer" if status is None else f"HTTP {status}"


set_public_module(__name__)
