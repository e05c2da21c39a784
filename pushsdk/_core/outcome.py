"""Outcomes: attempts, requests, and the facts that they rest on.

- *Evidence* is the facts observed by the transport in one attempt: bytes written, status, failure. Judging never
  changes it.
- An *attempt* is one try on the wire. ``judging`` says what its evidence proves.
- An *outcome* is what is known about a push: ACCEPTED, REJECTED, NOT_SENT or UNKNOWN.
- A *verdict* is the joined outcome of all attempts for a request, with the last response. ``decisions`` and
  ``splitting`` choose the next step from the verdict, ``error_mapping`` the error.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Any

import msgspec


class Outcome(StrEnum):
    """The outcome for one user, or for a campaign."""

    ACCEPTED = "ACCEPTED"
    """The service accepted a request that had been sent whole."""
    REJECTED = "REJECTED"
    """The service answered that it did not accept the request."""
    NOT_SENT = "NOT_SENT"
    """Proven: no request byte left this process, or none arrived."""
    UNKNOWN = "UNKNOWN"
    """The service may have accepted the request. Sending again may push twice."""


# On Python 3.11, an enum member takes 0.2 us to look up, and a global 0.01 us.
ACCEPTED, REJECTED, NOT_SENT, UNKNOWN = Outcome


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
    KEY_BUG = "the api_key callable raised an error that a retry would meet again"
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
    THROTTLED = "the service throttles the client past the call's deadline"
    RATE = "the client's rate gave it no turn in time"
    NO_SLOT = "as many requests as may be in flight were in flight until too little time was left"
    TOO_LONG = "the service asked to wait longer than max_retry_after"
    TOO_LATE = "the next wait would pass the deadline"
    BUDGET = "the retry budget is used up"
    UNCLAIMED = "the claim was refused or could not be made"
    REKEYED = "its calls have different keys now"
    NOT_LISTED = "not among the users that pushes are limited to"
    OTHER = "the transport failed"


OUT_OF_TIME = frozenset({Failure.THROTTLED, Failure.DEADLINE, Failure.NO_TIME, Failure.RATE, Failure.NO_SLOT})
"""Failures to begin a call in time."""

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
    """The outcome table's last column: True if another try may be accepted and can't push twice."""
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


class GuardedValue(Guarded, msgspec.Struct, frozen=True):
    """Base class for such structs that are frozen."""


def mutable(cls: Any) -> Any:
    """Let a struct that the cycle collector does not know set attributes as fast as a slotted class.

    msgspec asks at each write if the collector must know the struct from now on, which takes eight times as long.
    """
    cls.__setattr__, cls.__delattr__ = object.__setattr__, object.__delattr__
    return cls


@mutable
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
    """Status in a received response, never one that the HTTP library made up."""
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
    """The reason from the operating system or from TLS, or the api_key callable's exception. Without a traceback."""


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
    """Set if the request was rejected and carried several calls: any one may be to blame."""
    recorded: bool = False
    """Set if this call sent nothing to these users: the outcome comes from the claim store."""

    @property
    def decisive(self) -> Attempt | None:
        """The last attempt that has this outcome; None without one."""
        return next((attempt for attempt in reversed(self.attempts) if attempt.outcome is self.outcome), None)


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
        outcome=join([attempt.outcome for attempt in attempts]),
        attempts=tuple(attempts),
        status=evidence.status,
        retry_after=evidence.retry_after,
        failure=failure or evidence.failure,
        error=evidence.error,
        is_first=not evidence.reused,
    )


def is_retryable(verdict: Verdict) -> bool:
    """Return True if nothing took effect and the same request may succeed later without a fix."""
    if verdict.outcome not in (NOT_SENT, REJECTED):
        return False
    if not verdict.attempts:
        return verdict.outcome is NOT_SENT and verdict.failure is not Failure.NOT_LISTED
    last = verdict.attempts[-1]
    # The call ended before its next attempt. After a 413, some users were never sent a smaller request.
    return last.retryable or (last.outcome is REJECTED and verdict.failure is not None)


def attempts_of(parts: Iterable[tuple[tuple[str, ...], Verdict]]) -> tuple[Attempt, ...]:
    """Return the attempts in these verdicts, each once, oldest first."""
    distinct = {id(attempt): attempt for _, verdict in parts for attempt in verdict.attempts}
    return tuple(sorted(distinct.values(), key=lambda attempt: attempt.started))
