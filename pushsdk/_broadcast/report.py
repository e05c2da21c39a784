"""What a broadcast reports: while it runs, at its end, and user by user."""

from __future__ import annotations

from typing import Literal

import msgspec

from pushsdk._core.outcome import Outcome

__all__ = ["Progress", "Row", "Tally"]


class Tally(msgspec.Struct, kw_only=True):
    """Users by what is known of them; together they are the plan's users, but for ``resent``."""

    accepted: int = 0
    rejected: int = 0
    unknown: int = 0
    not_sent: int = 0
    resent: int = 0
    """Users of requests that were sent again although the first try was UNKNOWN. Each may have been pushed twice."""


class Row(msgspec.Struct, frozen=True, gc=False):
    """One planned user: the columns of every report."""

    user_id: str
    outcome: Outcome
    status: int | None = None
    """The HTTP status of the last answer; None where there was none."""
    reason: str = ""
    """Why it was not accepted, in words."""

    def __repr__(self) -> str:
        return f"Row({self.outcome.value}, status={self.status}, reason={self.reason!r})"


class Progress(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """How far a broadcast is, as ``on_progress`` is told about twice a second."""

    stage: Literal["planning", "sending", "waiting"]
    """``waiting`` while nothing may be sent: a pause that the service asked for, or the wait after a failure."""
    planned: int = 0
    accepted: int = 0
    rejected: int = 0
    unknown: int = 0
    not_sent: int = 0
    """Users who wait for their turn."""
    in_flight: int = 0
    """Users of the requests that are on their way."""
    seconds: float = 0.0
    """Since this process took the run up."""
    rate: float = 0.0
    """Users settled per second, over the last seconds."""
    eta: float | None = None
    """Seconds until the end at this rate; None where it can't be told."""
    trouble: str = ""
    """What the last failure was, in words, where nothing was accepted since."""
    paused: float = 0.0
    """Seconds until the service's pause ends."""
