"""The outcome that an attempt's evidence proves, by one table, and the kept part of the answer."""

import zlib
from collections.abc import Callable, Collection, Mapping, Set
from contextlib import suppress
from itertools import accumulate

import msgspec

from pushsdk._core.outcome import (
    ACCEPTED,
    NEEDS_A_FIX,
    NO_HEADERS,
    NOT_SENT,
    PROVES_UNSENT,
    REJECTED,
    UNKNOWN,
    Attempt,
    Evidence,
    Headers,
    Outcome,
)
from pushsdk._core.secret import Secret, masker

BODY_KEPT, HEADERS_KEPT = 4096, 16 * 1024
_GZIP_OR_ZLIB = 47


def is_json(headers: Mapping[str, str]) -> bool:
    """Return True if the Content-Type is JSON, such as ``application/json`` or ``application/problem+json``."""
    return _media_type(headers).endswith(("/json", "+json"))


def _media_type(headers: Mapping[str, str]) -> str:
    return headers.get("Content-Type", "").partition(";")[0].strip().lower()


def _is_json_or_empty(evidence: Evidence) -> bool:
    # A JSON Content-Type is believed without reading the body, which may be cut off or stall. With another type, or
    # none, the first byte decides: PHP sends JSON as text/html by default.
    if evidence.status == 204 or is_json(evidence.headers) or evidence.body == b"":
        return True
    return evidence.body is not None and evidence.body.lstrip()[:1] in (b"{", b"[")


def _has_retry_after(evidence: Evidence) -> bool:
    return evidence.retry_after is not None


def _is_unsent(evidence: Evidence) -> bool:
    if evidence.started_writing:
        return False
    return evidence.touched or (evidence.status is None and evidence.failure in PROVES_UNSENT)


def _status_of(evidence: Evidence) -> int | None:
    # A response that arrived before the request was written answers nothing, as if it waited on a pooled connection.
    return None if _is_unsent(evidence) else evidence.status


class OutcomeRule(msgspec.Struct, frozen=True):
    """An outcome table row. Matches evidence if the status is in ``statuses`` and ``condition`` holds."""

    answer: str
    """The first column in the README table."""
    statuses: Collection[int | None]
    outcome: Outcome
    retryable: bool
    meaning: str
    condition: Callable[[Evidence], bool] = lambda _: True


NO_RESPONSE = (None,)

# The first row that matches decides. README shows the same rows in the same order.
TABLE = (
    OutcomeRule(
        "204", (204,), ACCEPTED, False, "accepted, whatever follows its head, if the whole request had been sent"
    ),
    OutcomeRule(
        "200-299 with JSON or no body",
        range(200, 300),
        ACCEPTED,
        False,
        "any other 2xx that is JSON by Content-Type or first byte, or empty, if the whole request had been sent",
        _is_json_or_empty,
    ),
    OutcomeRule("200-299", range(200, 300), UNKNOWN, False, "any other 2xx, such as a login page: is base_url right?"),
    OutcomeRule(
        "300-399", range(300, 400), REJECTED, False, "a redirect: never followed, the Api-Key would go elsewhere"
    ),
    OutcomeRule("408", (408,), REJECTED, True, "the service gave up waiting for the request"),
    OutcomeRule("425", (425,), REJECTED, True, "too early"),
    OutcomeRule("429", (429,), REJECTED, True, "throttled"),
    OutcomeRule("400-499", range(400, 500), REJECTED, False, "any other 4xx"),
    OutcomeRule("501", (501,), REJECTED, False, "not implemented"),
    OutcomeRule("503 with Retry-After", (503,), REJECTED, True, "the service asked for a retry", _has_retry_after),
    OutcomeRule("505", (505,), REJECTED, False, "HTTP version not supported"),
    OutcomeRule(
        "500-599", range(500, 600), UNKNOWN, False, "any other 5xx: the service or a gateway may have enqueued it"
    ),
    OutcomeRule(
        "no response, not sent, needs a fix",
        NO_RESPONSE,
        NOT_SENT,
        False,
        "a TLS, certificate or proxy failure, or a closed session: a retry would fail the same way",
        lambda evidence: _is_unsent(evidence) and evidence.failure in NEEDS_A_FIX,
    ),
    OutcomeRule(
        "no response, not sent",
        NO_RESPONSE,
        NOT_SENT,
        True,
        "proven that no byte left, or that none arrived: DNS, refused, connect timeout, deadline before the first byte",
        _is_unsent,
    ),
    OutcomeRule(
        "no response", NO_RESPONSE, UNKNOWN, False, "a timeout, reset, disconnect or garbage after the first byte"
    ),
    OutcomeRule("any other status", (), UNKNOWN, False, "below 200, 600 and above"),
)


def find_rule(evidence: Evidence) -> OutcomeRule:
    """Return the table row that decides on this evidence."""
    status = _status_of(evidence)
    return next((rule for rule in TABLE if status in rule.statuses and rule.condition(evidence)), TABLE[-1])


RETRYABLE = frozenset(
    status
    for rule in TABLE
    if rule.retryable
    for status in rule.statuses
    if status and find_rule(Evidence(status=status)).retryable
)
"""Statuses that are retryable with any headers: the default for ``RetryPolicy.retry_on``."""


def judge(
    evidence: Evidence,
    *,
    statuses: Mapping[int, Outcome],
    retry_on: Set[int],
    started: float,
    seconds: float,
    key: Secret,
) -> Attempt:
    """Return the attempt that this evidence proves; UNKNOWN if nothing is proven.

    ``statuses`` and ``retry_on`` come from the RetryPolicy and override the table. ``key`` is redacted from what the
    service answered.
    """
    if evidence.written and evidence.status == 204 and not statuses:
        # Nearly every push, decided without reading the table.
        return plain_attempt(started, seconds)
    outcome, retryable = decide(evidence, statuses, retry_on)
    headers, body = NO_HEADERS, b""
    if evidence.status is not None and (outcome is not ACCEPTED or evidence.body):
        mask = masker(key)
        headers, body = _kept_headers(evidence.headers, mask), _kept_body(evidence, mask)
    return Attempt(
        outcome=outcome,
        status=_status_of(evidence),
        reason=_reason_of(evidence),
        retryable=retryable,
        retry_after=evidence.retry_after,
        started=started,
        seconds=seconds,
        headers=headers,
        body=body,
    )


def plain_attempt(started: float, seconds: float) -> Attempt:
    """Return the attempt for a request that was written and answered by a 204."""
    return Attempt(outcome=ACCEPTED, status=204, reason="HTTP 204", started=started, seconds=seconds)


def decide(evidence: Evidence, statuses: Mapping[int, Outcome], retry_on: Set[int] = RETRYABLE) -> tuple[Outcome, bool]:
    """Return the outcome by the table and the policy, and if it is retryable."""
    rule = find_rule(evidence)
    if evidence.status is None or rule.outcome is NOT_SENT:
        return rule.outcome, rule.retryable
    outcome = statuses.get(evidence.status, rule.outcome)
    if outcome is ACCEPTED and evidence.touched and not evidence.written:
        return UNKNOWN, False
    return outcome, outcome is REJECTED and (rule.condition is _has_retry_after or evidence.status in retry_on)


def _kept_headers(headers: Mapping[str, str], mask: Callable[[str], str]) -> Headers:
    """Copy the headers without the Api-Key, the shortest first, as many as are kept."""
    # A copy: the HTTP library's mapping may keep the whole response alive.
    items = sorted(Headers(headers).items(), key=_size_of)
    sizes = accumulate(map(_size_of, items))
    kept = zip(items, sizes, strict=True)
    return Headers({mask(name): mask(value) for (name, value), size in kept if size <= HEADERS_KEPT})


def _size_of(header: tuple[str, str]) -> int:
    return sum(map(len, header))


def _kept_body(evidence: Evidence, mask: Callable[..., str]) -> bytes:
    """Return the body's start without the Api-Key: decompressed, or else its compression's name."""
    body = (evidence.body or b"")[:BODY_KEPT]
    # Masked before it is shortened: the service may have put the key there.
    coding = mask(evidence.headers.get("Content-Encoding", "")).strip().lower()
    if body and coding not in ("", "identity"):
        body = _decompressed(body, coding)
    return mask(body.decode("latin-1"), is_cut=True).encode("latin-1")[:BODY_KEPT]


def _decompressed(body: bytes, coding: str) -> bytes:
    if coding in ("gzip", "x-gzip", "deflate"):
        with suppress(zlib.error):
            return zlib.decompressobj(_GZIP_OR_ZLIB).decompress(body, BODY_KEPT)
    return f"(not readable here, Content-Encoding: {coding[:50]})".encode()


def _reason_of(evidence: Evidence) -> str:
    if evidence.failure is not None:
        return f"{evidence.failure}: {evidence.reason}" if evidence.reason else str(evidence.failure)
    status = evidence.status or 0
    if 200 <= status < 300 and not _is_json_or_empty(evidence):
        # Fixed texts: the media type is the server's text.
        body = "text/html" if _media_type(evidence.headers) == "text/html" else "with a body that is not JSON"
        return f"HTTP {status} {body}: is base_url right?"
    return f"HTTP {status}"
