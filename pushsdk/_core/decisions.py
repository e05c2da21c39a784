"""The decision on a verdict: the next step, and the users' state. The same for runs, chunks and single calls."""

from collections.abc import Callable, Mapping, Set
from enum import Enum
from typing import NamedTuple

from pushsdk._core.outcome import ACCEPTED, NOT_SENT, UNKNOWN, Failure, Outcome, Verdict, is_retryable
from pushsdk._core.user_states import UserState, UserStatus

# Statuses about a request's key, address or size, never about its users.
REFUSED = frozenset({401, 403})
REDIRECTS = range(300, 400)
TOO_LARGE = 413

OUTCOMES = {
    UserState.PENDING: Outcome.NOT_SENT,
    UserState.CLAIMED: Outcome.UNKNOWN,
    UserState.ACCEPTED: Outcome.ACCEPTED,
    UserState.REJECTED: Outcome.REJECTED,
    UserState.UNKNOWN: Outcome.UNKNOWN,
}
"""The outcome that a report shows for each state."""
LEFT_IN_FLIGHT = "in flight when its process ended: the push may have been enqueued"
IN_FLIGHT = {True: "in flight", False: LEFT_IN_FLIGHT}
"""The reason for a claimed user, by whether a process is sending the run."""


def reason_of(status: UserStatus, unsent: str = "not sent yet", *, claimed: str) -> str:
    """Return the reason that a report shows for a user; ``unsent`` if never tried, ``claimed`` if not settled."""
    if status.state is UserState.CLAIMED:
        return claimed
    return status.reason or (unsent if status.state is UserState.PENDING else "")


class Step(Enum):
    """The next step with a request."""

    SETTLE = "the state of the users is final, unless unknown users are resent on request"
    RETRY = "nothing took effect: wait, then try again"
    SPLIT = "nothing took effect, and requests with fewer users may be accepted"
    RESEND = "the request may have taken effect, and resending was asked for: wait, then send again"
    LEAVE = "nothing took effect, and this request never will: leave its users pending"
    STOP = "nothing took effect, and no other request would succeed: stop"


SETTLE, RETRY, SPLIT, RESEND, LEAVE, STOP = Step


class Decision(NamedTuple):
    """The next step, and the users' status until then."""

    step: Step
    status: UserStatus


#: The decision on nearly every request.
DELIVERED = Decision(SETTLE, UserStatus(UserState.ACCEPTED, 204))


def decide(
    verdict: Verdict, *, in_doubt: bool = False, may_resend: bool = False, split_on: Set[int] = frozenset()
) -> Decision:
    """Return the next step for a request, and its users' status until then.

    ``in_doubt`` is True after an UNKNOWN attempt: the users stay UNKNOWN until an attempt is ACCEPTED, and the
    request is never split. ``may_resend`` is True if it is sent again after an UNKNOWN attempt.
    """
    if verdict.outcome is ACCEPTED and verdict.status == 204:
        return DELIVERED
    status, reason = _decisive(verdict)
    case = _Case(verdict, status, in_doubt, may_resend, split_on)
    step, state = next((step, state) for step, state, holds in _ROWS if holds(case))
    if state is _ACCEPTED:
        reason = ""
    elif in_doubt:
        state = _UNKNOWN
    return Decision(step, UserStatus(state, status, reason))


class _Case(NamedTuple):
    verdict: Verdict
    status: int | None
    in_doubt: bool
    may_resend: bool
    split_on: Set[int]


_PENDING, _ACCEPTED = UserState.PENDING, UserState.ACCEPTED
_REJECTED, _UNKNOWN = UserState.REJECTED, UserState.UNKNOWN
# The first row that holds decides. From the fourth on the last attempt took no effect; if in doubt, users stay UNKNOWN.
_ROWS: tuple[tuple[Step, UserState, Callable[[_Case], bool]], ...] = (
    (SETTLE, _ACCEPTED, lambda case: case.verdict.outcome is ACCEPTED),
    (RESEND, _UNKNOWN, lambda case: case.verdict.outcome is UNKNOWN and case.may_resend),
    (SETTLE, _UNKNOWN, lambda case: case.verdict.outcome is UNKNOWN),
    (STOP, _PENDING, lambda case: case.verdict.failure is Failure.CLOSED),
    (RETRY, _PENDING, lambda case: is_retryable(case.verdict)),
    (STOP, _PENDING, lambda case: bool(case.verdict.attempts) and case.verdict.attempts[-1].outcome is NOT_SENT),
    (STOP, _PENDING, lambda case: case.status in REFUSED or case.status in REDIRECTS),
    (SETTLE, _UNKNOWN, lambda case: case.in_doubt),
    (SPLIT, _PENDING, lambda case: case.status in case.split_on),
    (LEAVE, _PENDING, lambda case: case.status == TOO_LARGE),
    # If several calls shared the request, the rejected call is unknown.
    (LEAVE, _PENDING, lambda case: case.verdict.shared),
    (SETTLE, _REJECTED, lambda case: True),
)


def stop_reason(verdict: Verdict) -> str:
    """Return the reason why a run stops after this verdict, with a fix."""
    status, reason = _decisive(verdict)
    return f"{reason}: {_FIXES.get(status, 'no request would succeed. Fix the cause, then resume')}"


_NEW_RUN = "; a new run pushes to all of its users again"
_FIXES: Mapping[int | None, str] = {
    401: "the service does not accept the Api-Key. Check the key, then resume",
    403: "the Api-Key is not allowed to send this. Check its rights, then resume",
    TOO_LARGE: (
        "the request is too large for the service. Start a new run with a smaller message or batching.max_users"
        + _NEW_RUN
    ),
    **dict.fromkeys(
        REDIRECTS,
        "a redirect, which is never followed. Check base_url, then resume, or start a new run with the right one"
        + _NEW_RUN,
    ),
}


def _decisive(verdict: Verdict) -> tuple[int | None, str]:
    """Return status and reason from the attempt that decided. Both are fixed texts: a body may quote user ids."""
    decisive = verdict.decisive
    return (verdict.status, str(verdict.failure or "")) if decisive is None else (decisive.status, decisive.reason)
