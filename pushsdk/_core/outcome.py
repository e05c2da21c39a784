"""What became of an attempt: the outcome table, the evidence it reads, and the join of attempts.

Rules only. What the evidence is and where it comes from is the transport's business; what is done about an
outcome (repeat, split, raise) is decided in ``policy``, ``splitting`` and ``errors``.
"""

from collections.abc import Iterable, Mapping, Sequence, Set
from enum import StrEnum

import msgspec

from pushsdk._public import set_public_module

__all__ = [
    "TABLE",
    "Attempt",
    "Evidence",
    "Failure",
    "Outcome",
    "Rule",
    "Verdict",
    "is_json",
    "join",
    "judge",
    "read_status",
    "verdict_of",
]


class Outcome(StrEnum):
    """What is known of a push (or of a campaign) to one user."""

    ACCEPTED = "ACCEPTED"
    """The service took it: a 2xx without a body or with JSON came back for a request that had been sent whole."""
    REJECTED = "REJECTED"
    """The service answered that it did not take it."""
    NOT_SENT = "NOT_SENT"
    """Proven: nothing of it left this process, so the service never saw it."""
    UNKNOWN = "UNKNOWN"
    """It may have been enqueued. Sending it again may push twice."""


class Failure(StrEnum):
    """Why an attempt got no response. The value is the text that errors show."""

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


# Looked up once: a member of an enumeration costs more to reach than a global.
_ACCEPTED = Outcome.ACCEPTED

NEEDS_A_FIX = frozenset({Failure.TLS, Failure.CERTIFICATE, Failure.PROXY, Failure.SESSION})
"""Proven not sent, and yet not repeated: the next try would fail the same way until somebody changes something."""

PROVES_UNSENT = frozenset(
    {
        Failure.DNS,
        Failure.REFUSED,
        Failure.CONNECT_TIMEOUT,
        Failure.TLS,
        Failure.CERTIFICATE,
        Failure.PROXY,
        Failure.CREDENTIALS,
        Failure.UNCLAIMED,
    }
)
"""Failures that prove by themselves that no connection was had, also where a mock stands in for the transport."""


class Attempt(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One try of a request on the wire, as it was judged.

    ``started`` and ``seconds`` are seconds on the event loop's clock. ``status`` is None where no response was
    returned; ``reason`` says in words what happened. ``retryable`` is the table's mark 'may be repeated'.
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
    """What one attempt left behind. The transport fills it in as things happen, so it survives a cancellation."""

    touched: bool = False
    """Set when a real transport laid hands on the body. Never set by a mock, which answers above the socket."""
    started_writing: bool = False
    """Set just before the first byte is handed to the connection."""
    written: bool = False
    """Set once the whole request was handed over. Unset if an answer came before the peer's kernel had all of it."""
    reused: bool = False
    """Set when the connection had carried an earlier request."""
    status: int | None = None
    """The status of a response that was returned, never one made up by the HTTP library."""
    headers: Mapping[str, str] = _NO_HEADERS
    """That response's headers, where they are wanted: not for a plain 204."""
    retry_after: float | None = None
    """A valid Retry-After of that response, in seconds from when it came."""
    body: bytes | None = None
    """The bounded body of the response, as far as it was wanted and could be read; ``b""`` if it ended at once."""
    failure: Failure | None = None
    """Why no response was returned; set where ``status`` is None."""
    reason: str = ""
    """A word on it for people: an exception's class name, never its text."""

    def __repr__(self) -> str:
        return f"Evidence(status={self.status}, failure={self.failure!r}, written={self.written})"


class Rule(msgspec.Struct, frozen=True):
    """One row of the outcome table: the statuses ``first`` to ``last``, both included."""

    first: int
    last: int
    outcome: Outcome
    retryable: bool
    meaning: str
    needs_retry_after: bool = False
    needs_json: bool = False
    """The row is for answers whose body is JSON or empty."""


# The one table (README's is tested against it). The first row that matches decides; the last two match everything.
TABLE: tuple[Rule, ...] = (
    Rule(204, 204, Outcome.ACCEPTED, False, "accepted, if the whole request had been sent"),
    Rule(
        200,
        299,
        Outcome.ACCEPTED,
        False,
        "any other 2xx whose body is JSON or empty, if the whole request had been sent",
        needs_json=True,
    ),
    Rule(200, 299, Outcome.UNKNOWN, False, "any other 2xx, such as a login page: is base_url right?"),
    Rule(300, 399, Outcome.REJECTED, False, "a redirect: never followed, the Api-Key would go elsewhere"),
    Rule(408, 408, Outcome.REJECTED, True, "the service gave up waiting for the request"),
    Rule(425, 425, Outcome.REJECTED, True, "too early"),
    Rule(429, 429, Outcome.REJECTED, True, "throttled"),
    Rule(400, 499, Outcome.REJECTED, False, "any other 4xx"),
    Rule(501, 501, Outcome.REJECTED, False, "not implemented"),
    Rule(
        503,
        503,
        Outcome.REJECTED,
        True,
        "unavailable with a valid Retry-After: the service asked for it",
        needs_retry_after=True,
    ),
    Rule(505, 505, Outcome.REJECTED, False, "HTTP version not supported"),
    Rule(500, 599, Outcome.UNKNOWN, False, "any other 5xx: the service or a gateway may have enqueued it"),
    Rule(0, 9999, Outcome.UNKNOWN, False, "anything else: below 200, 600 and above"),
)

RETRYABLE = frozenset(row.first for row in TABLE if row.retryable and not row.needs_retry_after)
"""The statuses that may be repeated whatever their headers say: the default of ``RetryPolicy.retry_on``."""


class Verdict(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What became of a request: the join of its attempts, and what its last attempt had to say."""

    outcome: Outcome
    attempts: tuple[Attempt, ...] = ()
    status: int | None = None
    headers: Mapping[str, str] = _NO_HEADERS
    body: bytes | None = None
    retry_after: float | None = None
    failure: Failure | None = None
    shared: bool = False
    """Set by the ledger where the request was rejected and carried other calls too: any of them may be to blame."""
    recorded: bool = False
    """This call sent nothing to these users: the claim store says what became of them."""


def read_status(
    status: int,
    *,
    retry_after: float | None,
    json: bool,
    statuses: Mapping[int, Outcome],
    retry_on: Set[int],
) -> tuple[Outcome, bool]:
    """Return the outcome of a status, and whether it may be repeated.

    ``json`` says that the body is JSON or empty. ``statuses`` is the caller's own reading, asked before the table;
    ``retry_on`` the statuses to repeat.
    """
    for row in TABLE:
        needs = (row.needs_retry_after and retry_after is None) or (row.needs_json and not json)
        if row.first <= status <= row.last and not needs:
            outcome = statuses.get(status, row.outcome)
            return outcome, outcome is Outcome.REJECTED and (row.needs_retry_after or status in retry_on)
    return statuses.get(status, Outcome.UNKNOWN), False


def is_json(headers: Mapping[str, str]) -> bool:
    """Return True if the Content-Type is JSON, such as ``application/json`` or ``application/problem+json``."""
    return _media_type(headers).endswith(("/json", "+json"))


def _media_type(headers: Mapping[str, str]) -> str:
    return headers.get("Content-Type", "").partition(";")[0].strip().lower()


def _is_json_or_empty(evidence: Evidence) -> bool:
    # The type is believed without a look at the body, which may be cut off or stall. With another type, or none, the
    # first byte decides: PHP sends JSON as text/html unless told otherwise.
    if evidence.status == 204 or is_json(evidence.headers) or evidence.body == b"":
        return True
    return evidence.body is not None and evidence.body.lstrip()[:1] in (b"{", b"[")


def judge(
    evidence: Evidence,
    *,
    statuses: Mapping[int, Outcome],
    retry_on: Set[int],
    started: float,
    seconds: float,
) -> Attempt:
    """Judge one attempt by what it left behind. Where nothing is proven, the answer is UNKNOWN."""
    if evidence.written and evidence.status == 204 and not statuses:
        # The table's answer for nearly every push, without reading the table.
        return Attempt(outcome=_ACCEPTED, status=204, reason="HTTP 204", started=started, seconds=seconds)
    outcome, retryable = _weigh(evidence, statuses, retry_on)
    return Attempt(
        outcome=outcome,
        status=evidence.status,
        reason=_in_words(evidence),
        retryable=retryable,
        retry_after=evidence.retry_after,
        started=started,
        seconds=seconds,
    )


def _weigh(evidence: Evidence, statuses: Mapping[int, Outcome], retry_on: Set[int]) -> tuple[Outcome, bool]:
    if evidence.status is not None:
        if evidence.touched and not evidence.started_writing:
            # An answer to nothing: it had been waiting on the pooled connection for whoever came next.
            return Outcome.NOT_SENT, True
        outcome, retryable = read_status(
            evidence.status,
            retry_after=evidence.retry_after,
            json=_is_json_or_empty(evidence),
            statuses=statuses,
            retry_on=retry_on,
        )
        if outcome is Outcome.ACCEPTED and evidence.touched and not evidence.written:
            return Outcome.UNKNOWN, False
        return outcome, retryable
    if evidence.started_writing or not (evidence.touched or evidence.failure in PROVES_UNSENT):
        return Outcome.UNKNOWN, False
    return Outcome.NOT_SENT, evidence.failure not in NEEDS_A_FIX


def _in_words(evidence: Evidence) -> str:
    if evidence.failure is not None:
        return f"{evidence.failure} ({evidence.reason})" if evidence.reason else str(evidence.failure)
    status = evidence.status or 0
    if 200 <= status < 300 and not _is_json_or_empty(evidence):
        # Fixed words: the media type is the server's text.
        body = "text/html" if _media_type(evidence.headers) == "text/html" else "with a body that is not JSON"
        return f"HTTP {status} {body}: is base_url right?"
    return f"HTTP {status}"


# Worst first: what a caller must not overlook. A request's attempts are joined by the same order but for ACCEPTED,
# which wins there: one accepted attempt is one push on the phone, whatever the others were.
_JOIN = (Outcome.ACCEPTED, Outcome.UNKNOWN, Outcome.REJECTED)


def join(outcomes: Iterable[Outcome]) -> Outcome:
    """The outcome of a request from those of its attempts; NOT_SENT where there was none."""
    seen = set(outcomes)
    return next((outcome for outcome in _JOIN if outcome in seen), Outcome.NOT_SENT)


def verdict_of(attempts: Sequence[Attempt], evidence: Evidence, failure: Failure | None = None) -> Verdict:
    """The verdict on a request from all of its attempts and what the last one left behind.

    ``failure`` is set where the request ended for a reason of ours (a deadline, the budget), not by its last attempt.
    """
    tried = tuple(attempts)
    return Verdict(
        outcome=tried[0].outcome if len(tried) == 1 else join([attempt.outcome for attempt in tried]),
        attempts=tried,
        status=evidence.status,
        headers=evidence.headers,
        body=evidence.body,
        retry_after=evidence.retry_after,
        failure=failure or evidence.failure,
    )


set_public_module(__name__)
