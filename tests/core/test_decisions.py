"""Decisions on a verdict: the step, and the status of the users."""

import pytest

from pushsdk._core.decisions import OUTCOMES, Decision, Step, decide
from pushsdk._core.outcome import Attempt, Failure, Outcome, Verdict, is_retryable
from pushsdk._core.user_states import UserState, UserStatus

SPLIT_ON = frozenset({400, 413, 422})
PENDING, CLAIMED, ACCEPTED, REJECTED, UNKNOWN = UserState


def attempt(outcome, status=None, *, retryable=False):
    return Attempt(
        outcome=outcome, status=status, retryable=retryable, reason=f"HTTP {status}" if status else "no answer"
    )


def rejected(status, *later, retryable=False, **options):
    attempts = (attempt(Outcome.REJECTED, status, retryable=retryable), *later)
    return Verdict(outcome=Outcome.REJECTED, attempts=attempts, status=attempts[-1].status, **options)


def unsent(failure, *attempts):
    return Verdict(outcome=Outcome.NOT_SENT, attempts=attempts, failure=failure)


TAKEN = Verdict(outcome=Outcome.ACCEPTED, attempts=(attempt(Outcome.ACCEPTED, 204),), status=204)
DOUBT = Verdict(outcome=Outcome.UNKNOWN, attempts=(attempt(Outcome.UNKNOWN, 504),), status=504)
THROTTLED = rejected(429, retryable=True)
NO_CONNECTION = unsent(Failure.REFUSED, attempt(Outcome.NOT_SENT, retryable=True))
BAD_CERTIFICATE = unsent(Failure.CERTIFICATE, attempt(Outcome.NOT_SENT))
CLOSED = unsent(Failure.CLOSED)

# Verdict, step, state, status and reason, and the step and state if the users are in doubt.
TABLE = [
    (TAKEN, Step.SETTLE, (ACCEPTED, 204), (Step.SETTLE, ACCEPTED)),
    (DOUBT, Step.SETTLE, (UNKNOWN, 504, "HTTP 504"), (Step.RESEND, UNKNOWN)),
    (THROTTLED, Step.RETRY, (PENDING, 429, "HTTP 429"), (Step.RETRY, UNKNOWN)),
    (rejected(400), Step.SPLIT, (PENDING, 400, "HTTP 400"), (Step.SETTLE, UNKNOWN)),
    (rejected(413), Step.SPLIT, (PENDING, 413, "HTTP 413"), (Step.SETTLE, UNKNOWN)),
    (rejected(404), Step.SETTLE, (REJECTED, 404, "HTTP 404"), (Step.SETTLE, UNKNOWN)),
    (rejected(404, shared=True), Step.LEAVE, (PENDING, 404, "HTTP 404"), (Step.SETTLE, UNKNOWN)),
    (rejected(401), Step.STOP, (PENDING, 401, "HTTP 401"), (Step.STOP, UNKNOWN)),
    (rejected(403), Step.STOP, (PENDING, 403, "HTTP 403"), (Step.STOP, UNKNOWN)),
    (rejected(302), Step.STOP, (PENDING, 302, "HTTP 302"), (Step.STOP, UNKNOWN)),
    (NO_CONNECTION, Step.RETRY, (PENDING, None, "no answer"), (Step.RETRY, UNKNOWN)),
    (BAD_CERTIFICATE, Step.STOP, (PENDING, None, "no answer"), (Step.STOP, UNKNOWN)),
    (CLOSED, Step.STOP, (PENDING, None, "the client was closed before the call ended"), (Step.STOP, UNKNOWN)),
    (unsent(Failure.DEADLINE), Step.RETRY, (PENDING, None, "the deadline passed"), (Step.RETRY, UNKNOWN)),
    (rejected(413, failure=Failure.DEADLINE), Step.RETRY, (PENDING, 413, "HTTP 413"), (Step.RETRY, UNKNOWN)),
    (
        rejected(429, attempt(Outcome.NOT_SENT), retryable=True),
        Step.STOP,
        (PENDING, 429, "HTTP 429"),
        (Step.STOP, UNKNOWN),
    ),
]


@pytest.mark.parametrize(("verdict", "step", "status", "in_doubt"), TABLE)
def test_what_follows_a_verdict_and_a_doubt_stays_until_an_acceptance(verdict, step, status, in_doubt):
    assert decide(verdict, split_on=SPLIT_ON) == Decision(step, UserStatus(*status))
    decision = decide(verdict, in_doubt=True, may_resend=True, split_on=SPLIT_ON)
    assert (decision.step, decision.status.state) == in_doubt
    # A client that is closed stops, and another one may send the call.
    assert is_retryable(verdict) is (step is Step.RETRY or verdict is CLOSED)


def test_with_splitting_off_a_request_that_is_too_large_leaves_its_users_pending():
    assert decide(rejected(400)) == Decision(Step.SETTLE, UserStatus(REJECTED, 400, "HTTP 400"))
    assert decide(rejected(413)) == Decision(Step.LEAVE, UserStatus(PENDING, 413, "HTTP 413"))


def test_a_recorded_rejection_is_not_retried_and_every_state_has_an_outcome():
    assert not is_retryable(Verdict(outcome=Outcome.REJECTED, status=404))
    assert set(OUTCOMES) == set(UserState)
