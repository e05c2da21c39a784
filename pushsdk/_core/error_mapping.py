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
_AGAIN = "Call again{later}"
_FIX_OF_STATUS = {
    **dict.fromkeys((401, 403), "Check the api_key, and that it belongs to this base_url"),
    **dict.fromkeys((404, 405), "base_url is probably wrong: check its host and its path, which must end before /v1"),
    413: "Shorten the message, or send to fewer users per call if the service limits their number",
    429: f"{_AGAIN}, or set a rate, for example rate=Rate(users_per_second=100); see: pushsdk docs timeouts-and-limits",
}
_LINT = "Check the message: pushsdk message lint, or lint(message)"
_UNSEEN = "The answer is in .body; with PUSHSDK_SHOW_ANSWERS=1 it is shown here"
_SLOW = (Failure.DEADLINE, Failure.ATTEMPT_TIMEOUT)
# The first row counts of whose failures one begins the reason, and whose words are in the reason.
_FIX_OF_FAILURE = (
    (Failure.DNS, "", "Check the host in base_url, and the DNS of this machine"),
    (Failure.REFUSED, "", "Is the service up?"),
    ((Failure.CONNECT_TIMEOUT, Failure.TLS), "TLS handshake", "Does the service speak TLS on this port?"),
    (Failure.CONNECT_TIMEOUT, "", "Is the host reachable from here, past firewalls and proxies?"),
    (Failure.UNREADABLE, "", "Is base_url right? A port for TLS needs https; see: pushsdk docs troubleshooting"),
    (Failure.CERTIFICATE, "mismatch", "base_url must have a name that the certificate is for"),
    (Failure.CERTIFICATE, "expired", "Renew the service's certificate, or set the clock of this machine"),
    (Failure.CERTIFICATE, "", "For a private CA pass ssl=ssl.create_default_context(cafile=...)"),
    (Failure.PROXY, "", "Check proxy=, and that the proxy is up"),
    (Failure.CREDENTIALS, "", "Call again once it works"),
    (Failure.BUG, "", "Fix the callable: __cause__ is what it raised. It is called again after an OSError only"),
    (Failure.SESSION, "", "Keep the session open for as long as the client"),
    (_SLOW, "", "Raise the timeout if the service needs longer; see: pushsdk docs timeouts-and-limits"),
    (Failure.NO_TIME, "", "Send fewer at a time, or raise the timeout; see: pushsdk docs timeouts-and-limits"),
    (Failure.QUEUE_FULL, "", "Call again later, or raise Limits(queued_users=..., queued_bytes=...)"),
    (Failure.PAUSED, "", "Call again after this pause; see: pushsdk docs retries"),
    (Failure.BUDGET, "", "The service fails too often; see: pushsdk docs retries"),
)


def error_for(
    verdict: Verdict,
    *,
    target: Target | None = None,
    options: Options | None = None,
    user_ids: tuple[str, ...] = (),
    external_id: str | None = None,
    requests: Sequence[Verdict] = (),
) -> errors.PushError:
    """Return the error for a verdict that is not ACCEPTED. ``requests``: the verdicts of which this is the join."""
    attempts = verdict.attempts
    decisive = next((attempt for attempt in reversed(attempts) if attempt.outcome is verdict.outcome), None)
    cause = _why(verdict, decisive, target, options, len(user_ids))
    fix = "" if target is None else _fix(verdict, decisive, target)
    error: errors.PushError
    if verdict.outcome is Outcome.UNKNOWN:
        sent = max(sum(attempt.outcome is Outcome.UNKNOWN for attempt in v.attempts) for v in requests or (verdict,))
        times, again = (f" up to {sent} times", "once more") if sent > 1 else ("", "twice")
        fix = (PUSH if target is None else target.operation).in_doubt.format(times=times, again=again) + fix
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
    error.retryable = is_retryable(verdict)
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
    requests = [verdict for _, verdict in sent]
    error = error_for(whole, target=target, options=options, user_ids=users, requests=requests)
    error.retryable = any(map(is_retryable, requests))
    raise error


def set_answer(error: errors.PushError, attempt: Attempt) -> None:
    """Give the error what the service answered in this attempt."""
    if attempt.status is not None:
        error.status, error.headers, error.body = attempt.status, attempt.headers, attempt.body


def closed_error() -> errors.ClientClosedError:
    """Return the error for a call on a client that was closed before."""
    error = errors.ClientClosedError(
        "the client is closed, as are those of its with_options: finish its calls inside its `with` block, before it "
        "is closed, or make a new client"
    )
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
    open_verdicts = [verdict for _, verdict in parts if is_retryable(verdict)]
    error._open = bool(open_verdicts)
    error.retryable = error._open and not (counts[Outcome.ACCEPTED] or counts[Outcome.UNKNOWN])
    error.retry_after = max((v.retry_after for v in open_verdicts if v.retry_after is not None), default=None)
    return error


def recorded_error(verdict: Verdict, *, user_ids: tuple[str, ...]) -> errors.PushError:
    """Return the error for a call that sent nothing: another call with its idempotency key had the verdict."""
    if verdict.outcome is Outcome.UNKNOWN:
        return errors.OutcomeUnknownError(
            "outcome unknown: an earlier call with this idempotency_key ended without a known outcome (its process "
            "died or its answer was lost); this call sent nothing; to push again, perhaps a second time, release the "
            "claim (pushsdk claims list, then pushsdk claims release KEY); see: pushsdk docs idempotency",
            user_ids=user_ids,
        )
    status = verdict.status or 0
    error = _REJECTIONS.get(status, errors.RejectedError)(
        f"rejected: HTTP {status}, as an earlier delivery with this idempotency_key was; this call sent nothing",
        user_ids=user_ids,
    )
    error.status, error.retryable = status, False
    return error


def _why(verdict: Verdict, decisive: Attempt | None, target: Target | None, options: Options | None, users: int) -> str:
    """Return the reason, the request, the answer if it is to be shown, and why the request was not retried."""
    bound, attempts = _bound(verdict, options), len(verdict.attempts)
    cause = failure = f"{verdict.failure or 'the call ended before its first attempt'}{bound and ': '}{bound}"
    if decisive is not None:
        # The standard phrase of the status: the service's own may quote a user.
        status, phrase = f"HTTP {decisive.status}", responses.get(decisive.status or 0, "")
        cause = decisive.reason.replace(status, f"{status} {phrase}".strip(), 1) + _redirect(decisive)
    request = [] if target is None else [str(target) if attempts else "", count(users) if users else ""]
    request += [f"{attempts} attempts" if attempts > 1 else "", request_id_of(decisive)]
    if any(request):
        cause += f" ({', '.join(filter(None, request))})"
    if decisive is None:
        return cause
    if target is not None and target.shows_answers and decisive.answer:
        cause += f": {decisive.answer}"
    last = verdict.attempts[-1].reason
    if verdict.failure not in _OUR_REASONS or last.startswith(str(verdict.failure)) or (bound and bound in last):
        return cause
    return f"{cause}; {'given up: ' if attempts > 1 else 'not retried: '}{failure}"


def _bound(verdict: Verdict, options: Options | None) -> str:
    """Return the pause that the service asked for, and the setting that is shorter; ``""`` if none ended the call."""
    if options is None or verdict.failure is None:
        return ""
    total, longest = options.timeout.named("total"), f"RetryPolicy(max_retry_after={options.policy.max_retry_after:g})"
    pause = f"{math.ceil(min(verdict.retry_after or 0, 1e9))} s"  # a header may hold any number of digits
    bounds = {Failure.PAUSED: f"{pause}, {total}", Failure.TOO_LONG: f"{pause}, {longest}"}
    bounds |= dict.fromkeys((Failure.DEADLINE, Failure.NO_TIME, Failure.TOO_LATE), total)
    return bounds.get(verdict.failure, "")


def request_id_of(attempt: Attempt | None) -> str:
    """Return the id that the service gave to the request, as texts show it; ``""`` if there is no plain one."""
    request_id = attempt and attempt.request_id
    return f"request id {request_id}" if _REQUEST_ID.fullmatch(request_id or "") else ""


# Nothing that steers a terminal, and no @: a service may put a user id into such a header.
_REQUEST_ID = re.compile(r"[\w.:;=/+-]{1,100}", re.ASCII)

# The text names these if they ended a request whose last attempt was retryable.
_OUR_REASONS = (
    *(Failure.DEADLINE, Failure.NO_TIME, Failure.PAUSED, Failure.TOO_LONG, Failure.TOO_LATE, Failure.BUDGET),
    Failure.CLOSED,
)


def _fix(verdict: Verdict, decisive: Attempt | None, target: Target) -> str:
    """Return sentences on what to do, and where the answer is; ``""`` if there is nothing to say."""
    reason = str(verdict.failure) if decisive is None else decisive.reason
    fix = next((fix for failure, words, fix in _FIX_OF_FAILURE if reason.startswith(failure) and words in reason), "")
    if decisive is not None and decisive.outcome is Outcome.REJECTED:
        throttled = decisive.retry_after is not None and decisive.retryable
        later = f" after {math.ceil(min(decisive.retry_after or 0, 1e9))} s" if throttled else " later"
        lint = _LINT if decisive.status in (400, 422) and not decisive.answer else ""
        fix = _AGAIN if throttled and decisive.status != 429 else _FIX_OF_STATUS.get(decisive.status or 0, lint)
        fix = fix.format(later=later)
    if decisive is None and verdict.failure is Failure.DEADLINE:
        fix = "It waited for its turn: raise the timeout, the rate or in_flight; see: pushsdk docs timeouts-and-limits"
    if reason.startswith(Failure.REFUSED) and is_loopback(urlsplit(target.base_url).hostname or ""):
        fix += " For a local one: pushsdk emulator"
    if _may_need_tls(verdict, decisive, target):
        fix = "base_url says http://: does the service speak https? See: pushsdk docs troubleshooting"
    unseen = f". {_UNSEEN}" if decisive and decisive.answer and not target.shows_answers else ""
    if verdict.outcome is Outcome.UNKNOWN and not fix:
        default = "Don't retry unless a second push is acceptable" if target.operation is PUSH else ""
        advice = f"Don't retry: ask the service about {named}" if (named := request_id_of(decisive)) else default
        unseen = f"{'. ' if advice else ''}{advice}; see: pushsdk docs outcomes{unseen}"
    return f"{'. ' if fix else ''}{fix}{unseen}"


def _may_need_tls(verdict: Verdict, decisive: Attempt | None, target: Target) -> bool:
    """Return True if the port may be one for TLS: no request was answered over http, or the answer says so."""
    if decisive is None or not target.base_url.startswith("http:"):
        return False
    if decisive.status is not None:
        return decisive.status == 400 and bool(_HTTP_TO_TLS.search(decisive.answer))
    is_broken = verdict.is_first and verdict.failure in (Failure.RESET, Failure.DISCONNECTED)
    return is_broken and not is_loopback(urlsplit(target.base_url).hostname or "")


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
