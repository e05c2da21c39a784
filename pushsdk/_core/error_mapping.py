"""From a verdict to the error that a caller gets: its class, its words, its data.

Each caller gets an object of its own. The words come from fixed texts, statuses and class names only: a service's
answer may quote ids or texts, so it is data (``body``), never text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from urllib.parse import urlsplit

from pushsdk._core.decisions import is_retryable
from pushsdk._core.errors import (
    AuthenticationError,
    ClientClosedError,
    Headers,
    NotSentError,
    OutcomeUnknownError,
    PartialError,
    PayloadTooLargeError,
    PushError,
    QueueFullError,
    RateLimitedError,
    RejectedError,
)
from pushsdk._core.outcome import Attempt, Failure, Outcome, Verdict
from pushsdk._core.splitting import attempts_of

__all__ = ["closed_error", "error_for", "partial_error", "recorded_error", "retryable"]

BODY_KEPT = 4096

_REJECTIONS: dict[int, type[RejectedError]] = {
    401: AuthenticationError,
    403: AuthenticationError,
    413: PayloadTooLargeError,
    429: RateLimitedError,
}
_NOT_SENT: dict[Failure, type[NotSentError]] = {
    Failure.CLOSED: ClientClosedError,
    Failure.SESSION: ClientClosedError,
    Failure.QUEUE_FULL: QueueFullError,
}
_WHY_UNKNOWN = "it may have been enqueued, so sending it again may push twice"
_LOOK_UP = "it may have been created: look its externalId up before you create it again"


def error_for(verdict: Verdict, *, user_ids: tuple[str, ...] = (), external_id: str | None = None) -> PushError:
    """The error for a verdict that is not ACCEPTED."""
    if verdict.outcome is Outcome.REJECTED:
        return _rejected(verdict, user_ids)
    if verdict.outcome is Outcome.UNKNOWN:
        why = _LOOK_UP if external_id else _WHY_UNKNOWN
        unknown = OutcomeUnknownError(
            f"outcome unknown: {_cause(verdict)}; {why}{_tries(verdict.attempts)}",
            attempts=verdict.attempts,
            user_ids=user_ids,
        )
        unknown.status = _status_of(verdict.attempts, Outcome.UNKNOWN)
        unknown.external_id = external_id
        return unknown
    kind = _NOT_SENT.get(verdict.failure, NotSentError) if verdict.failure else NotSentError
    error = kind(f"not sent: {_cause(verdict)}{_tries(verdict.attempts)}", attempts=verdict.attempts, user_ids=user_ids)
    error.retry_after = verdict.retry_after
    error.retryable = retryable(verdict)
    return error


def closed_error() -> ClientClosedError:
    """Return the error for a call on a closed client: unlike a call that the close cut off, it fails alike again."""
    error = ClientClosedError("the client is closed: make a new one")
    error.retryable = False
    return error


def partial_error(users: Sequence[str], parts: Sequence[tuple[tuple[str, ...], Verdict]]) -> PartialError:
    """The error for a call whose users ended differently. ``users`` gives the order of its ``outcomes``."""
    ended = {user: verdict.outcome for part, verdict in parts for user in part}
    outcomes = {user: ended[user] for user in users}
    counts = {outcome: sum(1 for each in outcomes.values() if each is outcome) for outcome in Outcome}
    worst = next(each for each in (Outcome.UNKNOWN, Outcome.NOT_SENT, Outcome.REJECTED) if counts[each])
    told = ", ".join(f"{number} {outcome.value}" for outcome, number in counts.items() if number)
    error = PartialError(
        f"the call's users ended differently: {told}; see .outcomes",
        outcome=worst,
        attempts=attempts_of(parts),
        user_ids=tuple(users),
    )
    error.outcomes = outcomes
    again = [verdict for _, verdict in parts if retryable(verdict)]
    error._open = bool(again)
    error.retryable = error._open and not (counts[Outcome.ACCEPTED] or counts[Outcome.UNKNOWN])
    error.retry_after = max((each.retry_after for each in again if each.retry_after is not None), default=None)
    return error


def recorded_error(verdict: Verdict, *, user_ids: tuple[str, ...]) -> PushError:
    """The error for a delivery that sent nothing: the verdict is on an earlier one with the same idempotency key."""
    if verdict.outcome is Outcome.UNKNOWN:
        return OutcomeUnknownError(
            "outcome unknown: another call with this idempotency_key claimed the users and has not settled: it "
            "is still in flight, or its outcome is unknown; this call sent nothing",
            user_ids=user_ids,
        )
    status = verdict.status or 0
    error = _REJECTIONS.get(status, RejectedError)(
        f"rejected: HTTP {status}, as an earlier delivery with this idempotency_key was; this call sent nothing",
        user_ids=user_ids,
    )
    error.status = status
    error.retryable = False
    return error


def retryable(verdict: Verdict) -> bool:
    """Return True if the call may be made again as it is: its users are open, and no person has to fix a thing."""
    # A broken key callable was asked again by the call itself: a store of secrets may be down for a moment.
    keyless = bool(verdict.attempts) and verdict.attempts[-1].reason.startswith(Failure.CREDENTIALS)
    return is_retryable(verdict) and not keyless


def _rejected(verdict: Verdict, user_ids: tuple[str, ...]) -> RejectedError:
    said = next(each for each in reversed(verdict.attempts) if each.outcome is Outcome.REJECTED)
    status = said.status or 0
    throttled = said.retry_after is not None and said.retryable
    kind = RateLimitedError if throttled else _REJECTIONS.get(status, RejectedError)
    error = kind(
        f"rejected: HTTP {status}{_redirect(status, verdict.headers)}{_ended(verdict)}{_tries(verdict.attempts)}",
        attempts=verdict.attempts,
        user_ids=user_ids,
    )
    error.status = status
    error.retryable = retryable(verdict)
    # A copy: the HTTP library's own mapping may hold on to more than its items.
    error.headers = Headers(verdict.headers)
    error.body = (verdict.body or b"")[:BODY_KEPT]
    if isinstance(error, RateLimitedError):
        error.retry_after = said.retry_after
    return error


def _status_of(attempts: Sequence[Attempt], outcome: Outcome) -> int | None:
    """The status of the last attempt that ended so."""
    return next((each.status for each in reversed(attempts) if each.outcome is outcome), None)


def _cause(verdict: Verdict) -> str:
    decisive = next((each for each in reversed(verdict.attempts) if each.outcome is verdict.outcome), None)
    if decisive is None:
        return str(verdict.failure) if verdict.failure else "the call ended before its first attempt"
    return decisive.reason + _ended(verdict)


# Why a request ended while its last attempt might have been repeated: worth a word of its own.
_OUR_REASONS = frozenset({Failure.DEADLINE, Failure.PAUSED, Failure.BUDGET, Failure.CLOSED})


def _ended(verdict: Verdict) -> str:
    said = verdict.attempts[-1].reason if verdict.attempts else ""
    if verdict.failure in _OUR_REASONS and not said.startswith(str(verdict.failure)):
        return f"; not repeated: {verdict.failure}"
    return ""


def _tries(attempts: Sequence[Attempt]) -> str:
    return f" ({len(attempts)} attempts)" if len(attempts) > 1 else ""


def _redirect(status: int, headers: Mapping[str, str]) -> str:
    """The host that a redirect names: where to look for the right base_url. Nothing else of it is shown."""
    if not 300 <= status < 400:
        return ""
    host: str | None = None
    with suppress(ValueError):
        host = urlsplit(headers.get("Location", "")).hostname
    # 253 is the longest name that DNS has.
    named = f" to {host}" if host and len(host) <= 253 and host.isascii() and host.isprintable() else ""
    return f", a redirect{named}: not followed, set base_url to where the service is"
