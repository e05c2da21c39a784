"""What follows a verdict in a run."""

from __future__ import annotations

import pytest

from pushsdk._broadcast.course import RESENDS, Course, Step, course_of
from pushsdk._broadcast.plan import Kind
from pushsdk._core.outcome import Attempt, Failure, Outcome, Verdict

SPLIT_ON = frozenset({400, 413, 422})


def verdict(
    outcome: Outcome, status: int | None = None, *, repeatable: bool = False, failure: Failure | None = None
) -> Verdict:
    attempt = Attempt(outcome=outcome, status=status, repeatable=repeatable)
    return Verdict(outcome=outcome, attempts=(attempt,), status=status, failure=failure)


ACCEPTED = verdict(Outcome.ACCEPTED, 204)
UNKNOWN = verdict(Outcome.UNKNOWN, 504)
THROTTLED = verdict(Outcome.REJECTED, 429, repeatable=True)
REFUSED = verdict(Outcome.REJECTED, 400)
GONE = verdict(Outcome.REJECTED, 404)
NO_KEY = verdict(Outcome.REJECTED, 401)
NO_CONNECTION = verdict(Outcome.NOT_SENT, failure=Failure.REFUSED, repeatable=True)
BAD_CERTIFICATE = verdict(Outcome.NOT_SENT, failure=Failure.CERTIFICATE)
CLOSED = Verdict(outcome=Outcome.NOT_SENT, failure=Failure.CLOSED)
CANCELLED = verdict(Outcome.NOT_SENT, failure=Failure.CANCELLED, repeatable=True)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (ACCEPTED, Course(Step.SETTLED, Kind.ACCEPTED)),
        (UNKNOWN, Course(Step.SETTLED, Kind.UNKNOWN)),
        (THROTTLED, Course(Step.AGAIN, Kind.RELEASED)),
        (REFUSED, Course(Step.SPLIT, Kind.RELEASED)),
        (GONE, Course(Step.SETTLED, Kind.REJECTED)),
        (NO_KEY, Course(Step.STOP, Kind.RELEASED)),
        (NO_CONNECTION, Course(Step.AGAIN, Kind.RELEASED)),
        (BAD_CERTIFICATE, Course(Step.STOP, Kind.RELEASED)),
        (CLOSED, Course(Step.STOP, Kind.RELEASED)),
        (CANCELLED, Course(Step.AGAIN, Kind.RELEASED)),
    ],
)
def test_what_follows_a_first_verdict(given: Verdict, expected: Course) -> None:
    assert course_of(given, doubtful=False, resends=None, split_on=SPLIT_ON) == expected


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (ACCEPTED, Course(Step.SETTLED, Kind.ACCEPTED)),
        (THROTTLED, Course(Step.AGAIN, Kind.UNKNOWN)),
        (REFUSED, Course(Step.SETTLED, Kind.UNKNOWN)),
        (GONE, Course(Step.SETTLED, Kind.UNKNOWN)),
        (NO_KEY, Course(Step.STOP, Kind.UNKNOWN)),
        (NO_CONNECTION, Course(Step.AGAIN, Kind.UNKNOWN)),
        (BAD_CERTIFICATE, Course(Step.STOP, Kind.UNKNOWN)),
    ],
)
def test_a_doubt_stays_until_an_acceptance(given: Verdict, expected: Course) -> None:
    assert course_of(given, doubtful=True, resends=1, split_on=SPLIT_ON) == expected


@pytest.mark.parametrize(
    ("resends", "step"), [(None, Step.SETTLED), (0, Step.RESEND), (RESENDS - 1, Step.RESEND), (RESENDS, Step.SETTLED)]
)
def test_an_unknown_is_sent_again_only_where_asked_and_not_for_ever(resends: int | None, step: Step) -> None:
    assert course_of(UNKNOWN, doubtful=True, resends=resends, split_on=SPLIT_ON) == Course(step, Kind.UNKNOWN)


def test_nothing_is_split_where_splitting_is_off() -> None:
    assert course_of(REFUSED, doubtful=False, resends=None, split_on=frozenset()).step is Step.SETTLED
