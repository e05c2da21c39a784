"""The exception for a verdict: class, text and data.

Each caller gets its own object. Texts are made of fixed phrases, statuses and class names only: a response may quote
user ids or texts, so its body is data, never text.
"""

from __future__ import annotations

from collections import Counter
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
_PUSH_IN_DOUBT = "it may have been enqueued, so sending it again may push twice"
_CAMPAIGN_IN_DOUBT = "it may have been created: look its externalId up before you create it again"


def error_for(verdict: Verdict, *, user_ids: tuple[str, ...] = (), external_id: str | None = None) -> PushError:
    """Return the error for a verdict that is not ACCEPTED."""
    if verdict.outcome is Outcome.REJECTED:
        return _rejected(verdict, user_ids)
    if verdict.outcome is Outcome.UNKNOWN:
        doubt = _CAMPAIGN_IN_DOUBT if external_id else _PUSH_IN_DOUBT
        unknown = OutcomeUnknownError(
            f"outcome unknown: {_cause(verdict)}; {doubt}{_tries(verdict.attempts)}",
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
    """Return the error for a call on a client that was closed before."""
    error = ClientClosedError("the client is closed: make a new one")
    # Unlike a call that the close cut off: on the same client, the same call would fail again.
    error.retryable = False
    return error


def partial_error(users: Sequence[str], parts: Sequence[tuple[tuple[str, ...], Verdict]]) -> PartialError:
    """Return the error for a call whose users have different outcomes. ``users`` is the order of ``outcomes``."""
    unordered = {user: verdict.outcome for part, verdict in parts for user in part}
    outcomes = {user: unordered[user] for user in users}
    counts = Counter(outcomes.values())
    summary = ", ".join(f"{counts[outcome]} {outcome.value}" for outcome in Outcome if counts[outcome])
    error = PartialError(
        f"the call's users ended differently: {summary}; see .outcomes",
        outcome=next(outcome for outcome in (Outcome.UNKNOWN, Outcome.NOT_SENT, Outcome.REJECTED) if counts[outcome]),
        attempts=attempts_of(parts),
        user_ids=tuple(users),
    )
    error.outcomes = outcomes
    open_verdicts = [verdict for _, verdict in parts if retryable(verdict)]
    error._open = bool(open_verdicts)
    error.retryable = error._open and not (counts[Outcome.ACCEPTED] or counts[Outcome.UNKNOWN])
    error.retry_after = max((v.retry_after for v in open_verdicts if v.retry_after is not None), default=None)
    return error


def recorded_error(verdict: Verdict, *, user_ids: tuple[str, ...]) -> PushError:
    """Return the error for a call that sent nothing: another call with its idempotency key had the verdict."""
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
    """Return True if the same call may succeed later without a fix, and pushes no user twice."""
    # The call itself asked the key callable again: a store of secrets may be down for a moment.
    keyless = bool(verdict.attempts) and verdict.attempts[-1].reason.startswith(Failure.CREDENTIALS)
    return is_retryable(verdict) and not keyless


def _rejected(verdict: Verdict, user_ids: tuple[str, ...]) -> RejectedError:
    rejection = next(attempt for attempt in reversed(verdict.attempts) if attempt.outcome is Outcome.REJECTED)
    status = rejection.status or 0
    throttled = rejection.retry_after is not None and rejection.retryable
    kind = RateLimitedError if throttled else _REJECTIONS.get(status, RejectedError)
    error = kind(
        f"rejected: HTTP {status}{_redirect(status, verdict.headers)}{_ended(verdict)}{_tries(verdict.attempts)}",
        attempts=verdict.attempts,
        user_ids=user_ids,
    )
    error.status = status
    error.retryable = retryable(verdict)
    # A copy: the HTTP library's mapping may keep the whole response alive.
    error.headers = Headers(verdict.headers)
    error.body = (verdict.body or b"")[:BODY_KEPT]
    if isinstance(error, RateLimitedError):
        error.retry_after = rejection.retry_after
    return error


def _status_of(attempts: Sequence[Attempt], outcome: Outcome) -> int | None:
    """Return the status of the last attempt with this outcome."""
    return next((attempt.status for attempt in reversed(attempts) if attempt.outcome is outcome), None)


def _cause(verdict: Verdict) -> str:
    decisive = next((attempt for attempt in reversed(verdict.attempts) if attempt.outcome is verdict.outcome), None)
    if decisive is None:
        return str(verdict.failure) if verdict.failure else "the call ended before its first attempt"
    return decisive.reason + _ended(verdict)


# The text names these if they ended a request whose last attempt was retryable.
_OUR_REASONS = frozenset({Failure.DEADLINE, Failure.PAUSED, Failure.BUDGET, Failure.CLOSED})


def _ended(verdict: Verdict) -> str:
    reason = verdict.attempts[-1].reason if verdict.attempts else ""
    if verdict.failure in _OUR_REASONS and not reason.startswith(str(verdict.failure)):
        return f"; not retried: {verdict.failure}"
    return ""


def _tries(attempts: Sequence[Attempt]) -> str:
    return f" ({len(attempts)} attempts)" if len(attempts) > 1 else ""


def _redirect(status: int, headers: Mapping[str, str]) -> str:
    """Return the host of a redirect, a hint at the right base_url. The rest of the URL is not shown."""
    if not 300 <= status < 400:
        return ""
    host: str | None = None
    with suppress(ValueError):
        host = urlsplit(headers.get("Location", "")).hostname
    # DNS names have at most 253 characters.
    named = f" to {host}" if host and len(host) <= 253 and host.isascii() and host.isprintable() else ""
    return f", a redirect{named}: not followed, set base_url to where the service is"
