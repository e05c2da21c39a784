"""A call's result: its receipt, or the exception with its class and its data.

Each caller gets another object. An exception holds `Facts`, from which its text is made when it is read.
"""

from collections import Counter
from collections.abc import Sequence

import msgspec

from pushsdk._core.error_texts import Facts, Parts
from pushsdk._core.errors import (
    AuthenticationError,
    ClientClosedError,
    NotSentError,
    OutcomeUnknownError,
    PartialError,
    PayloadTooLargeError,
    PushError,
    QueueFullError,
    RateLimitedError,
    RejectedError,
)
from pushsdk._core.operations import Target
from pushsdk._core.outcome import Attempt, Failure, Outcome, Verdict, attempts_of, is_retryable
from pushsdk._core.policy import Options
from pushsdk._core.results import Receipt

Verdicts = Sequence[tuple[tuple[str, ...], Verdict]]
"""Verdicts on the parts of a call, each after its users."""
_REJECTIONS: dict[int, type[RejectedError]] = {
    401: AuthenticationError,
    403: AuthenticationError,
    413: PayloadTooLargeError,
    429: RateLimitedError,
}
_NOT_SENT: dict[Failure | None, type[NotSentError]] = {
    Failure.CLOSED: ClientClosedError,
    Failure.SESSION: ClientClosedError,
    Failure.QUEUE_FULL: QueueFullError,
}


def error_for(
    verdict: Verdict,
    *,
    target: Target | None = None,
    options: Options | None = None,
    user_ids: tuple[str, ...] = (),
    external_id: str | None = None,
    requests: Sequence[Verdict] = (),
    look: str = "",
) -> PushError:
    """Return the error for a verdict that is not ACCEPTED. ``requests``: the verdicts joined into this one.

    ``look`` says how to look at the claim of a call with an idempotency key.
    """
    requests = requests or (verdict,)
    # Without the exception that a callable raised: an error is pickled, and that may not be.
    known = msgspec.structs.replace(verdict, error=None)
    facts = Facts(known, target, len(user_ids), _most_unknown(requests), _bound(verdict.failure, options), look)
    decisive = verdict.decisive
    error = _kind_of(verdict, decisive)(facts, attempts=verdict.attempts, user_ids=user_ids)
    error.retryable = any(map(is_retryable, requests))
    if isinstance(error, OutcomeUnknownError):
        error.external_id = external_id
    if isinstance(error, NotSentError):
        error.retry_after = verdict.retry_after
    if decisive is not None:
        set_answer(error, decisive)
        if isinstance(error, RateLimitedError):
            error.retry_after = decisive.retry_after
        if verdict.error is not None and decisive is verdict.attempts[-1]:
            error.__cause__ = verdict.error
    return error


def _kind_of(verdict: Verdict, decisive: Attempt | None) -> type[PushError]:
    if verdict.outcome is Outcome.UNKNOWN:
        return OutcomeUnknownError
    if verdict.outcome is Outcome.NOT_SENT or decisive is None:
        return _NOT_SENT.get(verdict.failure, NotSentError)
    is_throttled = decisive.retry_after is not None and decisive.retryable
    return RateLimitedError if is_throttled else _REJECTIONS.get(decisive.status or 0, RejectedError)


def conclude(
    users: tuple[str, ...],
    duplicates: int,
    parts: Verdicts,
    target: Target,
    options: Options | None = None,
    *,
    look: str = "",
) -> Receipt:
    """Return a call's receipt from the verdicts on its users, or raise its PushError.

    ``look`` says how to look at the claim of a call with an idempotency key.
    """
    # The verdicts on other users come from the claim store.
    sent = [part for part in parts if not part[1].recorded]
    outcomes = {verdict.outcome for _, verdict in parts}
    if len(outcomes) > 1:
        raise partial_error(users, parts, target, is_keyed=bool(look))
    attempts = attempts_of(sent)
    if outcomes == {Outcome.ACCEPTED}:
        already = len(users) - sum([len(part) for part, _ in sent])
        return Receipt(
            users=len(users), duplicates=duplicates, requests=len(sent), attempts=attempts, already_accepted=already
        )
    if not sent:
        raise recorded_error(parts[-1][1], user_ids=users, look=look)
    _, requests = zip(*sent, strict=True)
    whole = msgspec.structs.replace(requests[-1], attempts=attempts)
    raise error_for(whole, target=target, options=options, user_ids=users, requests=requests, look=look)


def set_answer(error: PushError, source: Attempt | PushError) -> None:
    """Give the error the service's answer, if any, in this attempt or other error."""
    if source.status is not None:
        error.status, error.headers, error.body = source.status, source.headers, source.body


def closed_error() -> ClientClosedError:
    """Return the error for a call on a client that was closed before."""
    error = ClientClosedError(
        "the client is closed, and with it each client from its with_options: finish all calls inside its `with` "
        "block, or make a new client"
    )
    # Unlike a call that the close cut off: on the same client, the same call would fail again.
    error.retryable = False
    return error


def partial_error(
    users: Sequence[str],
    parts: Verdicts,
    target: Target | None = None,
    *,
    is_keyed: bool = False,
) -> PartialError:
    """Return the error for a call whose users have different outcomes. ``users`` is the order of ``outcomes``.

    ``is_keyed``: a retry sends only to users that no earlier call has reached.
    """
    outcomes = _in_order(users, parts)
    counts = Counter(outcomes.values())
    worst = max(counts, key=_FROM_BEST_TO_WORST.index)
    cause, number = _most_frequent([part for part in parts if part[1].outcome is worst], target)
    is_repeatable = is_keyed or {Outcome.ACCEPTED, Outcome.UNKNOWN}.isdisjoint(counts)
    error = PartialError(
        Parts(dict(counts), None if cause is None else cause.args[0], number, is_repeatable),
        outcome=worst,
        attempts=attempts_of(parts),
        user_ids=tuple(outcomes),
    )
    if cause is not None:
        set_answer(error, cause)
        error.__cause__ = cause.__cause__
    error.outcomes = outcomes
    _set_retry(error, [verdict for _, verdict in parts if is_retryable(verdict)], is_allowed=is_repeatable)
    return error


def _in_order(users: Sequence[str], parts: Verdicts) -> dict[str, Outcome]:
    """Return every user's outcome, in the call's order; last the users that are not in ``users``: NOT_LISTED."""
    unordered = {user: verdict.outcome for part, verdict in parts for user in part}
    return {user: unordered[user] for user in users} | unordered


def _set_retry(error: PartialError, verdicts: Sequence[Verdict], *, is_allowed: bool) -> None:
    """Say if the call may be retried, and when. ``verdicts``: those that may succeed later."""
    error.retryable = bool(verdicts) and is_allowed
    error.retry_after = max((v.retry_after for v in verdicts if v.retry_after is not None), default=None)


_FROM_BEST_TO_WORST = (Outcome.ACCEPTED, Outcome.REJECTED, Outcome.NOT_SENT, Outcome.UNKNOWN)


def _most_frequent(parts: Verdicts, target: Target | None) -> tuple[PushError | None, int]:
    """Return an error with the status or failure that most users have, and how many. A recorded one has no attempts."""
    users: Counter[object] = Counter()
    examples: dict[object, Verdict] = {}
    for part, verdict in parts:
        if not verdict.recorded:
            decisive = verdict.decisive
            cause: object = (decisive and decisive.status) or verdict.failure
            users[cause] += len(part)
            examples.setdefault(cause, verdict)
    for cause, number in users.most_common(1):
        return error_for(examples[cause], target=target), number
    return None, 0


def recorded_error(verdict: Verdict, *, user_ids: tuple[str, ...], look: str) -> PushError:
    """Return the error for a call that sent nothing: another call with its idempotency key had the verdict."""
    if verdict.outcome is Outcome.UNKNOWN:
        return OutcomeUnknownError(
            "outcome unknown: an earlier call with this idempotency_key ended without a known outcome (its process "
            f"died or its answer was lost, unless the machines' clocks differ); this call sent nothing; {look}; see: "
            "pushsdk docs idempotency#claims-of-dead-processes",
            user_ids=user_ids,
        )
    status = verdict.status or 0
    error = _REJECTIONS.get(status, RejectedError)(
        f"rejected: HTTP {status}, as an earlier delivery with this idempotency_key was; this call sent nothing",
        user_ids=user_ids,
    )
    error.status, error.retryable = status, False
    return error


def _most_unknown(requests: Sequence[Verdict]) -> int:
    """Return how many attempts have an unknown outcome, in the request that has the most."""
    return max([[attempt.outcome for attempt in request.attempts].count(Outcome.UNKNOWN) for request in requests])


def _bound(failure: Failure | None, options: Options | None) -> float | None:
    if options is None:
        return None
    return options.policy.max_retry_after if failure is Failure.TOO_LONG else options.timeout.total
