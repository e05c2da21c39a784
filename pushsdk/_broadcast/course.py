"""What follows a verdict in a run: what its journal notes, and whether the piece is tried again. Rules only."""

from __future__ import annotations

from collections.abc import Set
from enum import Enum
from typing import NamedTuple

from pushsdk._broadcast.plan import Kind
from pushsdk._core.outcome import NEEDS_A_PERSON, Failure, Outcome, Verdict

__all__ = ["Course", "Step", "course_of"]

# The service knows no such key, or it may not push: no other request would fare better.
REFUSED_FOR_ALL = frozenset({401, 403})
# How often an UNKNOWN piece is sent again by one process, where that was asked for.
RESENDS = 3


class Step(Enum):
    """What the runner does next with a piece."""

    SETTLED = "it is through"
    AGAIN = "nothing was taken: wait, then try again"
    SPLIT = "nothing was taken, and fewer users may fare better"
    RESEND = "it may have been taken, and a repeat was asked for: wait, then send it again"
    STOP = "nothing was taken, and nothing else would be: end the run"


class Course(NamedTuple):
    """The step, and what the journal notes before it."""

    step: Step
    note: Kind


def course_of(verdict: Verdict, *, doubtful: bool, resends: int | None, split_on: Set[int]) -> Course:
    """What follows the verdict on one attempt of a piece.

    ``doubtful`` where an earlier attempt of the piece was UNKNOWN: that stays so until one is ACCEPTED, and such a
    piece is never split. ``resends`` is how often it was sent again so far; None where nobody asked for that.
    """
    if verdict.outcome is Outcome.ACCEPTED:
        return Course(Step.SETTLED, Kind.ACCEPTED)
    if verdict.outcome is Outcome.UNKNOWN:
        may_resend = resends is not None and resends < RESENDS
        return Course(Step.RESEND if may_resend else Step.SETTLED, Kind.UNKNOWN)
    note = Kind.UNKNOWN if doubtful else Kind.RELEASED
    if verdict.attempts and verdict.attempts[-1].repeatable and verdict.failure is not Failure.CLOSED:
        return Course(Step.AGAIN, note)
    if verdict.outcome is Outcome.NOT_SENT:
        # TLS, a certificate, a proxy, or the client or its session was closed: the next request would fail alike.
        stops = verdict.failure is Failure.CLOSED or verdict.failure in NEEDS_A_PERSON
        return Course(Step.STOP if stops else Step.AGAIN, note)
    if verdict.status in REFUSED_FOR_ALL:
        return Course(Step.STOP, note)
    if doubtful:
        return Course(Step.SETTLED, Kind.UNKNOWN)
    if verdict.status in split_on:
        return Course(Step.SPLIT, Kind.RELEASED)
    return Course(Step.SETTLED, Kind.REJECTED)
