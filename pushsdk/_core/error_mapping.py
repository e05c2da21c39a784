"""The result of a call: its receipt, or the exception with class, text and data.

Each caller gets its own object. Texts are made of fixed phrases, statuses and class names: a response may quote user
ids or texts, so a text has what the service answered only if ``Target.shows_answers`` is set.
"""

import math
import re
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from http.client import responses
from urllib.parse import urlsplit

import msgspec

from pushsdk._core import errors
from pushsdk._core.address import is_loopback
from pushsdk._core.decisions import is_retryable
from pushsdk._core.operations import PUSH, Target
from pushsdk._core.outcome import Attempt, Failure, Outcome, Verdict
from pushsdk._core.policy import Options
from pushsdk._core.results import Receipt
from pushsdk._core.splitting import attempts_of
from pushsdk._core.words import count

_REJECTIONS: dict[int, type[errors.RejectedError]] = {
    401: errors.AuthenticationError,
    403: errors.AuthenticationError,
    413: errors.PayloadTooLargeError,
    429: errors.RateLimitedError,
}
_NOT_SENT: dict[Failure, type[errors.NotSentError]] = {
    Failure.CLOSED: errors.ClientClosedError,
    Failure.SESSION: errors.ClientClosedError,
    Failure.QUEUE_FULL: errors.QueueFullError,
}
_WRONG_URL = "base_url is probably wrong: check its host and its path, which must end before /v1"
_AGAIN = "Call again{later}"
_WRONG_KEY = "Check the api_key, and that it belongs to this base_url"
_FIX_OF_STATUS = {
    401: _WRONG_KEY,
    403: _WRONG_KEY,
    404: _WRONG_URL,
    405: _WRONG_URL,
    413: "Shorten the message: fewer users would not make the request much smaller",
    429: f"{_AGAIN}, or set a rate, for example rate=Rate(users_per_second=100); see: pushsdk docs timeouts-and-limits",
}
_LINT = "Check the message: pushsdk message lint, or lint(message)"
_UNSEEN = "The answer is in .body; with PUSHSDK_SHOW_ANSWERS=1 it is shown here"
_PLAIN = "base_url says http://: does the service speak https? See: pushsdk docs troubleshooting"
_SLOW = "Raise the timeout if the service needs longer; see: pushsdk docs timeouts-and-limits"
_FIX_OF_FAILURE = {
    Failure.DNS: "Check the host in base_url, and the DNS of this machine",
    Failure.REFUSED: "Is the service up?",
    Failure.CONNECT_TIMEOUT: "Is the host reachable from here, past firewalls and proxies?",
    Failure.TLS: "Does the service speak TLS on this port?",
    Failure.UNREADABLE: "Is base_url right? A port for TLS needs https; see: pushsdk docs troubleshooting",
    Failure.CERTIFICATE: "For a private CA pass ssl=ssl.create_default_context(cafile=...)",
    Failure.PROXY: "Check proxy=, and that the proxy is up",
    Failure.CREDENTIALS: "The callable must return the key as a str",
    Failure.SESSION: "Keep the session open for as long as the client",
    Failure.DEADLINE: _SLOW,
    Failure.ATTEMPT_TIMEOUT: _SLOW,
    Failure.QUEUE_FULL: "Call again later, or raise Limits(queued_users=..., queued_bytes=...)",
    Failure.PAUSED: "Call again after this pause; see: pushsdk docs retries",
    Failure.BUDGET: "The service fails too often; see: pushsdk docs retries",
}
_FIX_OF_CERTIFICATE = {
    "mismatch": "base_url must have a name that the certificate is for",
    "expired": "Renew the service's certificate, or set the clock of this machine",
}


def error_for(
    verdict: Verdict,
    *,
    target: Target | None = None,
    options: Options | None = None,
    user_ids: tuple[str, ...] = (),
    external_id: str | None = None,
) -> errors.PushError:
    """Return the error for a verdict that is not ACCEPTED: where the request went, and the options of the call."""
    attempts = verdict.attempts
    decisive = next((attempt for attempt in reversed(attempts) if attempt.outcome is verdict.outcome), None)
    cause, fix = _cause(verdict, decisive, target, options), "" if target is None else _fix(verdict, decisive, target)
    error: errors.PushError
    if verdict.outcome is Outcome.UNKNOWN:
        fix = (PUSH if target is None else target.operation).in_doubt + fix
        error = errors.OutcomeUnknownError(f"outcome unknown: {cause}; {fix}", attempts=attempts, user_ids=user_ids)
        error.external_id = external_id
    elif verdict.outcome is Outcome.REJECTED and decisive is not None:
        throttled = decisive.retry_after is not None and decisive.retryable
        rejection = _REJECTIONS.get(429 if throttled else decisive.status or 0, errors.RejectedError)
        error = rejection(f"rejected: {cause}{fix}", attempts=attempts, user_ids=user_ids)
        if rejection is errors.RateLimitedError:
            error.retry_after = decisive.retry_after
    else:
        kind = _NOT_SENT.get(verdict.failure, errors.NotSentError) if verdict.failure else errors.NotSentError
        error = kind(f"not sent: {cause}{fix}", attempts=attempts, user_ids=user_ids)
        error.retry_after = verdict.retry_after
    error.retryable = retryable(verdict)
    if decisive is not None:
        set_answer(error, decisive)
        if verdict.error is not None and decisive is attempts[-1]:
            error.__cause__ = verdict.error
    return error


def conclude(
    users: tuple[str, ...],
    duplicates: int,
    parts: Sequence[tuple[tuple[str, ...], Verdict]],
    target: Target,
    options: Options | None = None,
) -> Receipt:
    """Return the receipt of a call from the verdicts on its users, or raise its PushError."""
    # The verdicts on other users come from the claim store.
    sent = [part for part in parts if not part[1].recorded]
    outcomes = {verdict.outcome for _, verdict in parts}
    if len(outcomes) > 1:
        raise partial_error(users, parts, target)
    attempts = attempts_of(sent)
    if outcomes == {Outcome.ACCEPTED}:
        already = len(users) - sum([len(part) for part, _ in sent])
        return Receipt(
            users=len(users), duplicates=duplicates, requests=len(sent), attempts=attempts, already_accepted=already
        )
    if not sent:
        raise recorded_error(parts[-1][1], user_ids=users)
    whole = msgspec.structs.replace(sent[-1][1], attempts=attempts)
    error = error_for(whole, target=target, options=options, user_ids=users)
    error.retryable = any(retryable(verdict) for _, verdict in sent)
    raise error


def set_answer(error: errors.PushError, attempt: Attempt) -> None:
    """Give the error what the service answered in this attempt."""
    if attempt.status is not None:
        error.status, error.headers, error.body = attempt.status, attempt.headers, attempt.body


def closed_error() -> errors.ClientClosedError:
    """Return the error for a call on a client that was closed before."""
    error = errors.ClientClosedError("the client is closed: make a new one")
    # Unlike a call that the close cut off: on the same client, the same call would fail again.
    error.retryable = False
    return error


def partial_error(
    users: Sequence[str], parts: Sequence[tuple[tuple[str, ...], Verdict]], target: Target | None = None
) -> errors.PartialError:
    """Return the error for a call whose users have different outcomes. ``users`` is the order of ``outcomes``."""
    unordered = {user: verdict.outcome for part, verdict in parts for user in part}
    outcomes = {user: unordered[user] for user in users}
    counts = Counter(outcomes.values())
    summary = ", ".join(f"{counts[outcome]} {outcome.value}" for outcome in Outcome if counts[outcome])
    worst = next(outcome for outcome in (Outcome.UNKNOWN, Outcome.NOT_SENT, Outcome.REJECTED) if counts[outcome])
    # The error of each user, by status or failure. A recorded outcome has no attempts.
    causes: dict[object, list[errors.PushError]] = {}
    for part, verdict in parts:
        if verdict.outcome is worst and verdict.attempts:
            example = error_for(verdict, target=target)
            causes.setdefault(example.status or verdict.failure, []).extend([example] * len(part))
    examples = max(causes.values(), key=len, default=[])
    error = errors.PartialError(
        f"the call's users ended differently: {summary}; see .outcomes"
        + (f". Most often ({count(len(examples))}): {examples[0]}" if examples else ""),
        outcome=worst,
        attempts=attempts_of(parts),
        user_ids=tuple(users),
    )
    if examples:
        error.status, error.headers, error.body = examples[0].status, examples[0].headers, examples[0].body
        error.__cause__ = examples[0].__cause__
    error.outcomes = outcomes
    open_verdicts = [verdict for _, verdict in parts if retryable(verdict)]
    error._open = bool(open_verdicts)
    error.retryable = error._open and not (counts[Outcome.ACCEPTED] or counts[Outcome.UNKNOWN])
    error.retry_after = max((v.retry_after for v in open_verdicts if v.retry_after is not None), default=None)
    return error


def recorded_error(verdict: Verdict, *, user_ids: tuple[str, ...]) -> errors.PushError:
    """Return the error for a call that sent nothing: another call with its idempotency key had the verdict."""
    if verdict.outcome is Outcome.UNKNOWN:
        return errors.OutcomeUnknownError(
            "outcome unknown: another call with this idempotency_key claimed the users and has not settled: it "
            "is still in flight, or its outcome is unknown; this call sent nothing; see: pushsdk docs idempotency",
            user_ids=user_ids,
        )
    status = verdict.status or 0
    error = _REJECTIONS.get(status, errors.RejectedError)(
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


def _cause(verdict: Verdict, decisive: Attempt | None, target: Target | None, options: Options | None) -> str:
    """Return the reason, the request, the answer if it is to be shown, and why the request was not retried."""
    failure = str(verdict.failure or "the call ended before its first attempt") + _bound(verdict, options)
    cause = failure if decisive is None else _with_phrase(decisive) + _redirect(decisive)
    requests = [str(target)] if target is not None and verdict.attempts else []
    if len(verdict.attempts) > 1:
        requests.append(f"{len(verdict.attempts)} attempts")
    if decisive is not None and _REQUEST_ID.fullmatch(decisive.request_id or ""):
        requests.append(f"request id {decisive.request_id}")
    if requests:
        cause += f" ({', '.join(requests)})"
    if decisive is None:
        return cause
    if target is not None and target.shows_answers and decisive.answer:
        cause += f": {decisive.answer}"
    last = verdict.attempts[-1].reason
    is_ours = verdict.failure in _OUR_REASONS and not last.startswith(str(verdict.failure))
    return f"{cause}; not retried: {failure}" if is_ours else cause


def _bound(verdict: Verdict, options: Options | None) -> str:
    """Return the pause that the service asked for, and the setting that is shorter; ``""`` if none ended the call."""
    if options is None or verdict.failure not in (Failure.DEADLINE, Failure.PAUSED, Failure.TOO_LONG):
        return ""
    if verdict.failure is Failure.DEADLINE:
        return f": {options.timeout.named('total')}"
    is_long = verdict.failure is Failure.TOO_LONG
    longest = f"RetryPolicy(max_retry_after={options.policy.max_retry_after:g})"
    pause = math.ceil(min(verdict.retry_after or 0, 1e9))  # a header may hold any number of digits
    return f": {pause} s, {longest if is_long else options.timeout.named('total')}"


# Nothing that steers a terminal, and no @: a service may put a user id into such a header.
_REQUEST_ID = re.compile(r"[\w.:;=/+-]{1,100}", re.ASCII)

# The text names these if they ended a request whose last attempt was retryable.
_OUR_REASONS = frozenset({Failure.DEADLINE, Failure.PAUSED, Failure.TOO_LONG, Failure.BUDGET, Failure.CLOSED})


def _with_phrase(attempt: Attempt) -> str:
    """Return the reason of the attempt, with the standard phrase of its status: the service's own may quote a user."""
    status = attempt.status
    phrase = responses.get(status or 0)
    return attempt.reason.replace(f"HTTP {status}", f"HTTP {status} {phrase}", 1) if phrase else attempt.reason


def _fix(verdict: Verdict, decisive: Attempt | None, target: Target) -> str:
    """Return a sentence on what to do, or ``""``."""
    reason = str(verdict.failure) if decisive is None else decisive.reason
    fix = next((fix for failure, fix in _FIX_OF_FAILURE.items() if reason.startswith(failure)), None)
    if fix == _FIX_OF_FAILURE[Failure.CERTIFICATE]:
        fix = next((fix for word, fix in _FIX_OF_CERTIFICATE.items() if word in reason), fix)
    if decisive is not None and decisive.outcome is Outcome.REJECTED:
        throttled = decisive.retry_after is not None and decisive.retryable
        later = f" after {decisive.retry_after:g} s" if throttled else " later"
        unseen = _UNSEEN if decisive.answer and not target.shows_answers else ""
        if decisive.status in (400, 422) and not decisive.answer:
            unseen = _LINT
        fix = _AGAIN if throttled and decisive.status != 429 else _FIX_OF_STATUS.get(decisive.status or 0, unseen)
        fix = fix.format(later=later)
    if fix == _FIX_OF_FAILURE[Failure.REFUSED] and is_loopback(urlsplit(target.base_url).hostname or ""):
        fix += " For a local one: pushsdk emulator"
    if _may_need_tls(verdict, decisive, target):
        fix = _PLAIN
    if verdict.outcome is Outcome.UNKNOWN and fix is None:
        return "; see: pushsdk docs outcomes"
    return f". {fix}" if fix else ""


def _may_need_tls(verdict: Verdict, decisive: Attempt | None, target: Target) -> bool:
    """Return True if the port may be one for TLS: no request was answered over http, or the answer says so."""
    if decisive is None or not target.base_url.startswith("http:"):
        return False
    if decisive.status is not None:
        return decisive.status == 400 and bool(_HTTP_TO_TLS.search(decisive.answer))
    return verdict.is_first and verdict.failure in (Failure.RESET, Failure.DISCONNECTED)


# As nginx, Apache, and Go's net/http answer.
_HTTP_TO_TLS = re.compile("plain HTTP|HTTP request to an HTTPS server")


def _redirect(attempt: Attempt) -> str:
    """Return the host of a redirect, a hint at the right base_url. The rest of the URL is not shown."""
    if attempt.status is None or not 300 <= attempt.status < 400:
        return ""
    host: str | None = None
    with suppress(ValueError):
        host = urlsplit(attempt.headers.get("Location", "")).hostname
    # DNS names have at most 253 characters.
    named = f" to {host}" if host and len(host) <= 253 and host.isascii() and host.isprintable() else ""
    return f", a redirect{named}: not followed, set base_url to where the service is"
