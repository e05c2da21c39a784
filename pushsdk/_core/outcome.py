"""The outcome of an attempt and of a request.

- *Evidence* is what the transport observed of one attempt: bytes written, status, failure. Judging never changes it.
- An *attempt* is one try on the wire. ``judge`` finds the row of ``TABLE`` that its evidence matches.
- An *outcome* is what is known of a push: ACCEPTED, REJECTED, NOT_SENT or UNKNOWN.
- A *verdict* is the joined outcome of all attempts of a request, with the last response. ``decisions`` and
  ``splitting`` choose the next step from the verdict, ``error_mapping`` the error.
"""

from collections.abc import Callable, Container, Iterable, Mapping, Sequence, Set
from enum import StrEnum

import msgspec

from pushsdk._public import set_public_module

__all__ = [
    "NO_RESPONSE",
    "TABLE",
    "Attempt",
    "Evidence",
    "Failure",
    "Outcome",
    "Rule",
    "Verdict",
    "find_rule",
    "is_json",
    "join",
    "judge",
    "verdict_of",
]


class Outcome(StrEnum):
    """The outcome of a push to one user, or of a campaign."""

    ACCEPTED = "ACCEPTED"
    """The service accepted a request that had been sent whole."""
    REJECTED = "REJECTED"
    """The service answered that it did not accept the request."""
    NOT_SENT = "NOT_SENT"
    """Proven: no byte of the request left this process."""
    UNKNOWN = "UNKNOWN"
    """The service may have accepted the request. Sending again may push twice."""


class Failure(StrEnum):
    """The reason why an attempt got no response. The value is the text that errors show."""

    DNS = "the host name could not be resolved"
    REFUSED = "the connection could not be opened"
    CONNECT_TIMEOUT = "no connection within the connect timeout"
    TLS = "the TLS handshake failed"
    CERTIFICATE = "the server's certificate was not accepted"
    PROXY = "the proxy could not be used"
    STALE = "the connection had ended, or had input waiting, before the request"
    CREDENTIALS = "the api_key callable gave no usable key"
    CLOSED = "the client is closed"
    SESSION = "the session is closed"
    DEADLINE = "the deadline passed"
    ATTEMPT_TIMEOUT = "no answer within the attempt timeout"
    CANCELLED = "the call was cancelled"
    DISCONNECTED = "the connection was closed without an answer"
    RESET = "the connection broke"
    UNREADABLE = "the answer could not be parsed as HTTP"
    QUEUE_FULL = "the client's queue is full"
    PAUSED = "the service asked to wait longer than the call can"
    BUDGET = "the retry budget is used up"
    UNCLAIMED = "the claim was refused or could not be made"
    OTHER = "the transport failed"


NEEDS_A_FIX = frozenset({Failure.TLS, Failure.CERTIFICATE, Failure.PROXY, Failure.SESSION})
"""Failures that every retry would meet again until the setup is fixed."""

PROVES_UNSENT = (NEEDS_A_FIX - {Failure.SESSION}) | {
    *(Failure.DNS, Failure.REFUSED, Failure.CONNECT_TIMEOUT, Failure.CREDENTIALS, Failure.UNCLAIMED)
}
"""Failures that prove by themselves that there was no connection, even if a mock replaces the transport."""


class Attempt(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One try of a request on the wire, with its outcome.

    ``started`` and ``seconds`` are seconds on the event loop's clock. ``status`` is None if no response was
    received; ``reason`` names the status or the failure. ``retryable`` comes from the outcome table.
    """

    outcome: Outcome
    status: int | None = None
    reason: str = ""
    retryable: bool = False
    retry_after: float | None = None
    started: float = 0.0
    seconds: float = 0.0


_NO_HEADERS: Mapping[str, str] = {}


class Evidence(msgspec.Struct, eq=False, gc=False):
    """Facts of one attempt. The transport records each fact when it happens, so evidence survives a cancellation."""

    touched: bool = False
    """Set when a real transport takes the body. Never set by a mock, which answers above the socket."""
    started_writing: bool = False
    """Set just before the first byte is written to the connection."""
    written: bool = False
    """Set after the whole request is written. Unset if a response arrives before the peer's kernel had all of it."""
    reused: bool = False
    """Set if the connection had carried an earlier request."""
    status: int | None = None
    """Status of a response that was received, never one that the HTTP library made up."""
    headers: Mapping[str, str] = _NO_HEADERS
    """Headers of the response; empty for a plain 204."""
    retry_after: float | None = None
    """Valid Retry-After of the response, in seconds since the response was received."""
    body: bytes | None = None
    """First part of the body, if it was wanted and readable; ``b""`` if the body was empty."""
    failure: Failure | None = None
    """Set if ``status`` is None."""
    reason: str = ""
    """Detail of the failure: the class name of an exception, never its text."""

    def __repr__(self) -> str:
        return f"Evidence(status={self.status}, failure={self.failure!r}, written={self.written})"


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


def _needs_a_fix(evidence: Evidence) -> bool:
    return _is_unsent(evidence) and evidence.failure in NEEDS_A_FIX


def _always(_: Evidence) -> bool:
    return True


class Rule(msgspec.Struct, frozen=True):
    """A row of the outcome table. Matches evidence if the status is in ``statuses`` and ``condition`` holds."""

    answer: str
    """The first column of the table in README."""
    statuses: Container[int | None]
    outcome: Outcome
    retryable: bool
    meaning: str
    condition: Callable[[Evidence], bool] = _always


NO_RESPONSE = (None,)
# Globals are faster to look up than enum members.
_ACCEPTED, _REJECTED, _NOT_SENT, _UNKNOWN = Outcome

# The first row that matches decides. README shows the same rows in the same order.
TABLE: tuple[Rule, ...] = (
    Rule("204", (204,), _ACCEPTED, False, "accepted, if the whole request had been sent"),
    Rule(
        "200-299 with JSON or no body",
        range(200, 300),
        _ACCEPTED,
        False,
        "any other 2xx whose body is JSON or empty, if the whole request had been sent",
        _is_json_or_empty,
    ),
    Rule("200-299", range(200, 300), _UNKNOWN, False, "any other 2xx, such as a login page: is base_url right?"),
    Rule("300-399", range(300, 400), _REJECTED, False, "a redirect: never followed, the Api-Key would go elsewhere"),
    Rule("408", (408,), _REJECTED, True, "the service gave up waiting for the request"),
    Rule("425", (425,), _REJECTED, True, "too early"),
    Rule("429", (429,), _REJECTED, True, "throttled"),
    Rule("400-499", range(400, 500), _REJECTED, False, "any other 4xx"),
    Rule("501", (501,), _REJECTED, False, "not implemented"),
    Rule("503 with Retry-After", (503,), _REJECTED, True, "the service asked for a retry", _has_retry_after),
    Rule("505", (505,), _REJECTED, False, "HTTP version not supported"),
    Rule("500-599", range(500, 600), _UNKNOWN, False, "any other 5xx: the service or a gateway may have enqueued it"),
    Rule(
        "no response, not sent, needs a fix",
        NO_RESPONSE,
        _NOT_SENT,
        False,
        "a TLS, certificate or proxy failure, or a closed session: a retry would fail the same way",
        _needs_a_fix,
    ),
    Rule(
        "no response, not sent",
        NO_RESPONSE,
        _NOT_SENT,
        True,
        "proven that no byte left: DNS, refused, connect timeout, deadline before the first byte",
        _is_unsent,
    ),
    Rule("no response", NO_RESPONSE, _UNKNOWN, False, "a timeout, reset, disconnect or garbage after the first byte"),
    Rule("any other status", (), _UNKNOWN, False, "below 200, 600 and above"),
)


def find_rule(evidence: Evidence) -> Rule:
    """Return the row of the table that decides on this evidence."""
    # A response that arrived before the request was written answers nothing: it waited on a pooled connection.
    status = None if _is_unsent(evidence) else evidence.status
    return next((rule for rule in TABLE if status in rule.statuses and rule.condition(evidence)), TABLE[-1])


RETRYABLE = frozenset(status for status in range(600) if find_rule(Evidence(status=status)).retryable)
"""Statuses that are retryable whatever their headers: the default of ``RetryPolicy.retry_on``."""


def judge(
    evidence: Evidence,
    *,
    statuses: Mapping[int, Outcome],
    retry_on: Set[int],
    started: float,
    seconds: float,
) -> Attempt:
    """Return the attempt that this evidence proves; UNKNOWN if nothing is proven.

    ``statuses`` and ``retry_on`` are those of the RetryPolicy and override the table.
    """
    if evidence.written and evidence.status == 204 and not statuses:
        # Nearly every push, decided without reading the table.
        return Attempt(outcome=_ACCEPTED, status=204, reason="HTTP 204", started=started, seconds=seconds)
    rule = find_rule(evidence)
    outcome, retryable = rule.outcome, rule.retryable
    if evidence.status is not None and outcome is not _NOT_SENT:
        outcome = statuses.get(evidence.status, outcome)
        retryable = outcome is _REJECTED and (rule.condition is _has_retry_after or evidence.status in retry_on)
        if outcome is _ACCEPTED and evidence.touched and not evidence.written:
            outcome = _UNKNOWN
    return Attempt(
        outcome=outcome,
        status=evidence.status,
        reason=_reason_of(evidence),
        retryable=retryable,
        retry_after=evidence.retry_after,
        started=started,
        seconds=seconds,
    )


def _reason_of(evidence: Evidence) -> str:
    if evidence.failure is not None:
        return f"{evidence.failure} ({evidence.reason})" if evidence.reason else str(evidence.failure)
    status = evidence.status or 0
    if 200 <= status < 300 and not _is_json_or_empty(evidence):
        # Fixed texts: the media type is the server's text.
        body = "text/html" if _media_type(evidence.headers) == "text/html" else "with a body that is not JSON"
        return f"HTTP {status} {body}: is base_url right?"
    return f"HTTP {status}"


class Verdict(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The outcome of a request: its attempts joined, and the last response."""

    outcome: Outcome
    attempts: tuple[Attempt, ...] = ()
    status: int | None = None
    headers: Mapping[str, str] = _NO_HEADERS
    body: bytes | None = None
    retry_after: float | None = None
    failure: Failure | None = None
    shared: bool = False
    """Set if the request was rejected and carried several calls: any of them may be to blame."""
    recorded: bool = False
    """Set if this call sent nothing to these users: the outcome comes from the claim store."""


# One accepted attempt is one push on the phone, whatever the other attempts were; then the worst outcome first.
_JOIN = (_ACCEPTED, _UNKNOWN, _REJECTED)


def join(outcomes: Iterable[Outcome]) -> Outcome:
    """Return the outcome of a request from the outcomes of its attempts; NOT_SENT if there were none."""
    seen = set(outcomes)
    return next((outcome for outcome in _JOIN if outcome in seen), _NOT_SENT)


def verdict_of(attempts: Sequence[Attempt], evidence: Evidence, failure: Failure | None = None) -> Verdict:
    """Return the verdict on a request from all attempts and the evidence of the last attempt.

    ``failure`` is set if this client ended the request, by a deadline or the retry budget.
    """
    return Verdict(
        outcome=attempts[0].outcome if len(attempts) == 1 else join([attempt.outcome for attempt in attempts]),
        attempts=tuple(attempts),
        status=evidence.status,
        headers=evidence.headers,
        body=evidence.body,
        retry_after=evidence.retry_after,
        failure=failure or evidence.failure,
    )


set_public_module(__name__)
