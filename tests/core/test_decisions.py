"""Decisions on a verdict: the step, and the status of the users."""

import pytest

from pushsdk._core.decisions import MAX_RESENDS, OUTCOMES, Decision, Step, decide, is_retryable, stop_reason
from pushsdk._core.outcome import Attempt, Failure, Outcome, Verdict
from pushsdk._core.user_states import UserState, UserStatus

SPLIT_ON = frozenset({400, 413, 422})
PENDING, CLAIMED, ACCEPTED, REJECTED, UNKNOWN = UserState


def attempt(outcome: Outcome, status: int | None = None, *, retryable: bool = False, reason: str = "") -> Attempt:
    reason = reason or ("no answer" if status is None else f"HTTP {status}")
    return Attempt(outcome=outcome, status=status, retryable=retryable, reason=reason)


def verdict(*attempts: Attempt, failure: Failure | None = None, shared: bool = False) -> Verdict:
    outcome = max((attempt.outcome for attempt in attempts), key=[Outcome.NOT_SENT, *Outcome][::-1].index)
    return Verdict(outcome=outcome, attempts=attempts, status=attempts[-1].status, failure=failure, shared=shared)


def rejected(status: int, **options: bool) -> Verdict:
    return verdict(attempt(Outcome.REJECTED, status), **options)


TAKEN = verdict(attempt(Outcome.ACCEPTED, 204))
DOUBT = verdict(attempt(Outcome.UNKNOWN, 504))
THROTTLED = verdict(attempt(Outcome.REJECTED, 429, retryable=True))
NO_CONNECTION = verdict(attempt(Outcome.NOT_SENT, retryable=True), failure=Failure.REFUSED)
BAD_CERTIFICATE = verdict(attempt(Outcome.NOT_SENT), failure=Failure.CERTIFICATE)
CLOSED = Verdict(outcome=Outcome.NOT_SENT, failure=Failure.CLOSED)
UNTRIED = Verdict(outcome=Outcome.NOT_SENT, failure=Failure.DEADLINE)
CUT_OFF = verdict(attempt(Outcome.REJECTED, 413), failure=Failure.DEADLINE)
THROTTLED_THEN_UNSENT = verdict(attempt(Outcome.REJECTED, 429, retryable=True), attempt(Outcome.NOT_SENT))

FIRST = [
    (TAKEN, Step.SETTLE, UserStatus(ACCEPTED, 204)),
    (DOUBT, Step.SETTLE, UserStatus(UNKNOWN, 504, "HTTP 504")),
    (THROTTLED, Step.RETRY, UserStatus(PENDING, 429, "HTTP 429")),
    (rejected(400), Step.SPLIT, UserStatus(PENDING, 400, "HTTP 400")),
    (rejected(413), Step.SPLIT, UserStatus(PENDING, 413, "HTTP 413")),
    (rejected(404), Step.SETTLE, UserStatus(REJECTED, 404, "HTTP 404")),
    (rejected(410), Step.SETTLE, UserStatus(REJECTED, 410, "HTTP 410")),
    (rejected(404, shared=True), Step.LEAVE, UserStatus(PENDING, 404, "HTTP 404")),
    (rejected(401), Step.STOP, UserStatus(PENDING, 401, "HTTP 401")),
    (rejected(403), Step.STOP, UserStatus(PENDING, 403, "HTTP 403")),
    (rejected(302), Step.STOP, UserStatus(PENDING, 302, "HTTP 302")),
    (NO_CONNECTION, Step.RETRY, UserStatus(PENDING, None, "no answer")),
    (BAD_CERTIFICATE, Step.STOP, UserStatus(PENDING, None, "no answer")),
    (CLOSED, Step.STOP, UserStatus(PENDING, None, "the client was closed before the call ended")),
    (UNTRIED, Step.RETRY, UserStatus(PENDING, None, "the deadline passed")),
    (CUT_OFF, Step.RETRY, UserStatus(PENDING, 413, "HTTP 413")),
    (THROTTLED_THEN_UNSENT, Step.STOP, UserStatus(PENDING, 429, "HTTP 429")),
]


@pytest.mark.parametrize(("verdict", "step", "status"), FIRST)
def test_what_follows_a_first_verdict(verdict: Verdict, step: Step, status: UserStatus) -> None:
    assert decide(verdict, split_on=SPLIT_ON) == Decision(step, status)


@pytest.mark.parametrize(
    ("verdict", "step", "state"),
    [
        (TAKEN, Step.SETTLE, ACCEPTED),
        (THROTTLED, Step.RETRY, UNKNOWN),
        (rejected(400), Step.SETTLE, UNKNOWN),
        (rejected(404), Step.SETTLE, UNKNOWN),
        (rejected(413), Step.SETTLE, UNKNOWN),
        (rejected(401), Step.STOP, UNKNOWN),
        (NO_CONNECTION, Step.RETRY, UNKNOWN),
        (BAD_CERTIFICATE, Step.STOP, UNKNOWN),
    ],
)
def test_a_doubt_stays_until_an_acceptance(verdict: Verdict, step: Step, state: UserState) -> None:
    decision = decide(verdict, in_doubt=True, resends=1, split_on=SPLIT_ON)
    assert (decision.step, decision.status.state) == (step, state)


@pytest.mark.parametrize(
    ("resends", "step"),
    [(None, Step.SETTLE), (0, Step.RESEND), (MAX_RESENDS - 1, Step.RESEND), (MAX_RESENDS, Step.SETTLE)],
)
def test_an_unknown_request_is_resent_only_if_asked_and_a_few_times(resends: int | None, step: Step) -> None:
    decision = decide(DOUBT, in_doubt=True, resends=resends, split_on=SPLIT_ON)
    assert (decision.step, decision.status.state) == (step, UNKNOWN)


def test_nothing_is_split_with_splitting_off() -> None:
    assert decide(rejected(400)) == Decision(Step.SETTLE, UserStatus(REJECTED, 400, "HTTP 400"))


def test_a_request_too_large_that_can_not_be_split_leaves_its_users_pending() -> None:
    assert decide(rejected(413)) == Decision(Step.LEAVE, UserStatus(PENDING, 413, "HTTP 413"))


@pytest.mark.parametrize(
    ("verdict", "expected"),
    [(verdict, step is Step.RETRY) for verdict, step, _ in FIRST if verdict is not CLOSED]
    + [(CLOSED, True), (Verdict(outcome=Outcome.REJECTED, status=404), False)],
)
def test_what_is_retryable_is_retried_but_by_a_client_that_is_closed(verdict: Verdict, expected: bool) -> None:
    assert is_retryable(verdict) is expected


@pytest.mark.parametrize(
    ("verdict", "words"),
    [
        (rejected(401), "HTTP 401: the service does not accept the Api-Key"),
        (rejected(403), "HTTP 403: the Api-Key is not allowed"),
        (rejected(413), "HTTP 413: the request is too large"),
        (rejected(308), "HTTP 308: a redirect"),
        (BAD_CERTIFICATE, "no answer: no request would succeed"),
    ],
)
def test_why_a_run_stops_says_what_to_fix(verdict: Verdict, words: str) -> None:
    assert stop_reason(verdict).startswith(words)


def test_every_state_has_an_outcome() -> None:
    assert set(OUTCOMES) == set(UserState)
