"""The outcome of an attempt and of a request.

- *Evidence* is what the transport observed in one attempt: bytes written, status, failure. Judging never changes it.
- An *attempt* is one try on the wire. ``judge`` finds the ``TABLE`` row that its evidence matches.
- An *outcome* is what is known about a push: ACCEPTED, REJECTED, NOT_SENT or UNKNOWN.
- A *verdict* is the joined outcome of all attempts for a request, with the last response. ``decisions`` and
  ``splitting`` choose the next step from the verdict, ``error_mapping`` the error.
"""

import zlib
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import suppress
from enum import StrEnum
from itertools import accumulate

import msgspec

from pushsdk._core.secret import Secret, mask


class Outcome(StrEnum):
    """The outcome of a push to one user, or of a campaign."""

    ACCEPTED = "ACCEPTED"
    """The service accepted a request that had been sent whole."""
    REJECTED = "REJECTED"
    """The service answered that it did not accept the request."""
    NOT_SENT = "NOT_SENT"
    """Proven: no request byte left this process, or none arrived."""
    UNKNOWN = "UNKNOWN"
    """The service may have accepted the request. Sending again may push twice."""


class Failure(StrEnum):
    """The reason why an attempt got no response. The value is the text that errors show."""

    DNS = "the host name could not be resolved"
    REFUSED = "the connection could not be opened"
    CONNECT_TIMEOUT = "no connection in time"
    TLS = "the TLS handshake failed"
    CERTIFICATE = "the server's certificate was not accepted"
    PROXY = "the proxy could not be used"
    STALE = "the connection had ended, or had input waiting, before the request"
    NO_KEY = "the api_key callable returned no valid key"
    KEY_FAILED = "the api_key callable failed"
    KEY_BUG = "the api_key callable has a bug"
    CLOSED = "the client was closed before the call ended"
    SESSION = "the session is closed"
    DEADLINE = "the deadline passed"
    NO_TIME = "too little time was left for an answer"
    ATTEMPT_TIMEOUT = "no answer within the attempt timeout"
    CANCELLED = "the call was cancelled"
    DISCONNECTED = "the connection was closed without an answer"
    RESET = "the connection broke"
    UNREADABLE = "the answer could not be parsed as HTTP"
    QUEUE_FULL = "the client's queue is full"
    PAUSED = "the service asked for a pause that ends after the call's deadline"
    TOO_LONG = "the service asked to wait longer than max_retry_after"
    TOO_LATE = "the next wait would pass the deadline"
    BUDGET = "the retry budget is used up"
    UNCLAIMED = "the claim was refused or could not be made"
    REKEYED = "its calls have different keys now"
    NOT_LISTED = "not among the users that pushes are limited to"
    OTHER = "the transport failed"


NEEDS_A_FIX = frozenset(
    {Failure.TLS, Failure.CERTIFICATE, Failure.PROXY, Failure.SESSION, Failure.NO_KEY, Failure.KEY_BUG}
)
"""Failures that every retry would meet again until the setup is fixed."""

PROVES_UNSENT = (NEEDS_A_FIX - {Failure.SESSION}) | {
    *(Failure.DNS, Failure.REFUSED, Failure.CONNECT_TIMEOUT, Failure.KEY_FAILED, Failure.UNCLAIMED)
}
"""Failures that prove by themselves that there was no connection, even if a mock replaces the transport."""


class Headers(Mapping[str, str]):
    """Response headers with case-insensitive names. If several headers have the same name, the first counts."""

    def __init__(self, headers: Mapping[str, str]) -> None:
        self._items: dict[str, tuple[str, str]] = {}
        for name, value in headers.items():
            self._items.setdefault(name.lower(), (str(name), value))

    def __getitem__(self, name: str) -> str:
        return self._items[name.lower()][1]

    def __iter__(self) -> Iterator[str]:
        return (name for name, _ in self._items.values())

    def __len__(self) -> int:
        return len(self._items)

    def __hash__(self) -> int:
        return hash(frozenset(self._items))

    def __repr__(self) -> str:
        return repr(dict(self))


NO_HEADERS: Mapping[str, str] = Headers({})
BODY_KEPT, HEADERS_KEPT = 4096, 16 * 1024
_GZIP_OR_ZLIB = 47
_REQUEST_IDS = ("X-Request-Id", "Request-Id", "X-Correlation-Id", "X-Amzn-Requestid", "X-Amzn-Trace-Id")


class Answered:
    """A service answer, as part of an attempt or an error."""

    __slots__ = ()
    headers: Mapping[str, str]
    body: bytes

    @property
    def answer(self) -> str:
        """The body's start as one line that is safe for a terminal: at most 300 characters, or ``""``."""
        text = self.body.decode(errors="replace")
        return " ".join("".join(char if char.isprintable() else " " for char in text).split())[:300]

    @property
    def request_id(self) -> str | None:
        """The id that the service gave to the request, from X-Request-Id or a similar header."""
        return next((self.headers[name] for name in _REQUEST_IDS if name in self.headers), None)


class Attempt(Answered, msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One try at a request on the wire, with its outcome."""

    outcome: Outcome
    status: int | None = None
    """HTTP status; None if no response was received."""
    reason: str = ""
    """The status or the failure in words, without any text from the service."""
    retryable: bool = False
    """The last column of the outcome table: True if another try may be accepted and can't push twice."""
    retry_after: float | None = None
    """Seconds that the service asked to wait: whole seconds, at most a day."""
    started: float = 0.0
    """Start on the event loop's clock, in seconds."""
    seconds: float = 0.0
    """Duration in seconds."""
    headers: Mapping[str, str] = NO_HEADERS
    """Response headers, without the Api-Key: at most 16 KiB, the shortest first. Empty if the attempt was accepted."""
    body: bytes = b""
    """First 4 KiB of the response body, without the Api-Key; empty if the attempt was accepted. Decompressed, or the
    name of its compression."""

    def __repr__(self) -> str:
        return f"Attempt({self.outcome}, {self.reason}, {self.seconds:.3f} s)"

    def __rich_repr__(self) -> list[tuple[str, object]]:
        return [("outcome", self.outcome), ("reason", self.reason), ("seconds", self.seconds)]


class Guarded:
    """Structs that hold ids, texts or bodies: the repr shows only numbers, flags and enums."""

    __slots__ = ()
    __struct_fields__: tuple[str, ...]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value}' for name, value in self.__rich_repr__())})"

    def __rich_repr__(self) -> list[tuple[str, object]]:
        values = [(name, getattr(self, name)) for name in self.__struct_fields__]
        return [(name, value) for name, value in values if isinstance(value, (int, float, StrEnum))]


class Evidence(Guarded, msgspec.Struct, eq=False, gc=False):
    """Facts about one attempt. The transport records each fact when it happens, so evidence survives a cancellation."""

    touched: bool = False
    """Set when a real transport takes the body. Never set by a mock, which answers above the socket."""
    started_writing: bool = False
    """Set just before the first byte is written to the connection. Unset if it is proven that no byte arrived."""
    written: bool = False
    """Set after the whole request is written. Unset if a response arrives before the peer's kernel had all of it."""
    reused: bool = False
    """Set if the connection had carried an earlier request."""
    latency: float | None = None
    """Seconds from opening a new connection to the head of a 2xx; None on a reused connection."""
    status: int | None = None
    """Status of a received response, never one that the HTTP library made up."""
    headers: Mapping[str, str] = NO_HEADERS
    """Response headers; empty for a plain 204."""
    retry_after: float | None = None
    """Valid Retry-After from the response, in seconds since the response was received."""
    body: bytes | None = None
    """First part of the body, if it was wanted and readable; ``b""`` if the body was empty."""
    failure: Failure | None = None
    """Set if ``status`` is None."""
    reason: str = ""
    """Failure detail: the reason from the operating system or from TLS, a setting, or an exception class."""
    error: Exception | None = None
    """The reason from the operating system or from TLS, without a traceback; or the api_key callable's exception."""


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


class OutcomeRule(msgspec.Struct, frozen=True):
    """An outcome table row. Matches evidence if the status is in ``statuses`` and ``condition`` holds."""

    answer: str
    """The first column in the README table."""
    statuses: Container[int | None]
    outcome: Outcome
    retryable: bool
    meaning: str
    condition: Callable[[Evidence], bool] = lambda _: True


NO_RESPONSE = (None,)
# On Python 3.11, an enum member takes 0.2 us to look up, and a global 0.01 us.
ACCEPTED, REJECTED, NOT_SENT, UNKNOWN = Outcome

# The first row that matches decides. README shows the same rows in the same order.
TABLE: tuple[OutcomeRule, ...] = (
    OutcomeRule(
        "204", (204,), ACCEPTED, False, "accepted, whatever follows its head, if the whole request had been sent"
    ),
    OutcomeRule(
        "200-299 with JSON or no body",
        range(200, 300),
        ACCEPTED,
        False,
        "any other 2xx whose body is JSON or empty, if the whole request had been sent",
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
    # A response that arrived before the request was written answers nothing: it waited on a pooled connection.
    status = None if _is_unsent(evidence) else evidence.status
    return next((rule for rule in TABLE if status in rule.statuses and rule.condition(evidence)), TABLE[-1])


RETRYABLE = frozenset(status for status in range(600) if find_rule(Evidence(status=status)).retryable)
"""Statuses that are retryable with any headers: the default for ``RetryPolicy.retry_on``."""


def judge(
    evidence: Evidence,
    *,
    statuses: Mapping[int, Outcome],
    retry_on: Set[int],
    started: float,
    seconds: float,
    key: Secret | None = None,
) -> Attempt:
    """Return the attempt that this evidence proves; UNKNOWN if nothing is proven.

    ``statuses`` and ``retry_on`` come from the RetryPolicy and override the table. ``key`` is redacted from what the
    service answered.
    """
    if evidence.written and evidence.status == 204 and not statuses:
        # Nearly every push, decided without reading the table.
        return plain_attempt(started, seconds)
    outcome, retryable = _decide(evidence, statuses, retry_on)
    headers, body = NO_HEADERS, b""
    if evidence.status is not None and (outcome is not ACCEPTED or evidence.body):
        headers, body = _kept_headers(evidence.headers, key), _kept_body(evidence, key)
    return Attempt(
        outcome=outcome,
        status=evidence.status,
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


def _decide(evidence: Evidence, statuses: Mapping[int, Outcome], retry_on: Set[int]) -> tuple[Outcome, bool]:
    """Return the outcome by the table and the policy, and if it is retryable."""
    rule = find_rule(evidence)
    if evidence.status is None or rule.outcome is NOT_SENT:
        return rule.outcome, rule.retryable
    outcome = statuses.get(evidence.status, rule.outcome)
    if outcome is ACCEPTED and evidence.touched and not evidence.written:
        return UNKNOWN, False
    return outcome, outcome is REJECTED and (rule.condition is _has_retry_after or evidence.status in retry_on)


def _kept_headers(headers: Mapping[str, str], key: Secret | None) -> Headers:
    """Copy the headers without the Api-Key, only the shortest if they are too large to keep."""
    # A copy: the HTTP library's mapping may keep the whole response alive.
    items = sorted(Headers(headers).items(), key=_size_of)
    sizes = accumulate(map(_size_of, items))
    kept = {name for (name, _), size in zip(items, sizes, strict=True) if size <= HEADERS_KEPT}
    return Headers({mask(key, name): mask(key, value) for name, value in headers.items() if name in kept})


def _size_of(header: tuple[str, str]) -> int:
    return len(header[0]) + len(header[1])


def _kept_body(evidence: Evidence, key: Secret | None) -> bytes:
    """Return the body's start without the Api-Key: decompressed, or else its compression's name."""
    body, coding = (evidence.body or b"")[:BODY_KEPT], evidence.headers.get("Content-Encoding", "").strip().lower()
    if body and coding not in ("", "identity"):
        body = _decompressed(body, coding)
    return mask(key, body.decode("latin-1"), is_cut=True).encode("latin-1")[:BODY_KEPT]


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


class Verdict(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A request's outcome: its attempts joined, and the last response."""

    outcome: Outcome
    attempts: tuple[Attempt, ...] = ()
    status: int | None = None
    retry_after: float | None = None
    failure: Failure | None = None
    error: Exception | None = None
    """The last attempt's failure cause, as in its evidence."""
    is_first: bool = False
    """Set if no request had used the last attempt's connection before."""
    shared: bool = False
    """Set if the request was rejected and carried several calls: any of them may be to blame."""
    recorded: bool = False
    """Set if this call sent nothing to these users: the outcome comes from the claim store."""


# One accepted attempt is one push on the phone, whatever the other attempts were; then the worst outcome first.
_JOIN = (ACCEPTED, UNKNOWN, REJECTED)


def join(outcomes: Iterable[Outcome]) -> Outcome:
    """Return a request's outcome from its attempts' outcomes; NOT_SENT if there were none."""
    seen = set(outcomes)
    return next((outcome for outcome in _JOIN if outcome in seen), NOT_SENT)


def verdict_of(attempts: Sequence[Attempt], evidence: Evidence, failure: Failure | None = None) -> Verdict:
    """Return the verdict on a request from all attempts and the last attempt's evidence.

    ``failure`` is set if this client ended the request, by a deadline or the retry budget.
    """
    return Verdict(
        outcome=attempts[0].outcome if len(attempts) == 1 else join([attempt.outcome for attempt in attempts]),
        attempts=tuple(attempts),
        status=evidence.status,
        retry_after=evidence.retry_after,
        failure=failure or evidence.failure,
        error=evidence.error,
        is_first=not evidence.reused,
    )


def attempts_of(parts: Iterable[tuple[tuple[str, ...], Verdict]]) -> tuple[Attempt, ...]:
    """Return the attempts in these verdicts, each once, oldest first."""
    distinct = {id(attempt): attempt for _, verdict in parts for attempt in verdict.attempts}
    return tuple(sorted(distinct.values(), key=lambda attempt: attempt.started))
