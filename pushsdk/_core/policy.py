"""The settings of a client: retries, timeouts, batching, limits and rates.

Values and arithmetic only; the clock and the random draw are arguments. tenacity's strategies are stored, not
interpreted.
"""

from collections.abc import Mapping, Set
from typing import Any, Literal, Self, TypedDict, Unpack

import msgspec

from pushsdk._core.errors import ConfigurationError, must_be
from pushsdk._core.outcome import RETRYABLE, Attempt, Evidence, Outcome, find_rule
from pushsdk._public import set_public_module

__all__ = ["Batching", "Limits", "Rate", "RetryPolicy", "Share", "Timeout", "check_seconds"]

# A larger number is a mistake: in seconds, 30 years.
MAX_NUMBER = 1e9

Unknown = Literal["raise", "retry_if_collapsible", "retry"]


class RetryOptions(TypedDict, total=False):
    """The options that every preset of RetryPolicy accepts."""

    max_attempts: int
    initial_delay: float
    max_delay: float
    throttle_delay: float
    max_retry_after: float
    statuses: Mapping[int, Outcome]
    retry_on: Set[int]


class RetryPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """Rules for retrying a failed attempt.

    The n-th delay is drawn from 0 to ``min(initial_delay * 2**(n-1), max_delay)`` seconds (full jitter). After a 429
    without Retry-After, ``throttle_delay`` replaces ``initial_delay``. A Retry-After is a minimum, with that jitter on
    top; a Retry-After above ``max_retry_after`` seconds ends the call. ``max_attempts`` includes the first attempt. The
    defaults are those on which AWS and gRPC agree.

    ``statuses`` overrides the outcome of a status, as in ``{500: Outcome.REJECTED}``. ``retry_on`` lists statuses to
    retry; each must mean REJECTED, by the table or by ``statuses``. ``unknown`` says what follows an UNKNOWN outcome:
    ``"raise"`` (never retried), ``"retry_if_collapsible"`` (retried if the message has a ``collapse_id``) or
    ``"retry"`` (may push twice).

    ``stop``, ``wait`` and ``retry`` are tenacity strategies that replace ``max_attempts``, the delay and the choice of
    what to retry; see ``from_tenacity``. Raises ConfigurationError if a value is out of range.
    """

    max_attempts: int = 4
    initial_delay: float = 0.1
    max_delay: float = 5.0
    throttle_delay: float = 1.0
    max_retry_after: float = 60.0
    statuses: Mapping[int, Outcome] = {}
    retry_on: Set[int] = RETRYABLE
    unknown: Unknown = "raise"
    stop: Any = None
    wait: Any = None
    retry: Any = None

    def __post_init__(self) -> None:
        _check_count("RetryPolicy.max_attempts", self.max_attempts)
        for name in ("initial_delay", "max_delay", "throttle_delay", "max_retry_after"):
            _check_positive(f"RetryPolicy.{name}", getattr(self, name))
        if self.unknown not in ("raise", "retry_if_collapsible", "retry"):
            raise must_be("RetryPolicy.unknown", "'raise', 'retry_if_collapsible' or 'retry'", self.unknown)
        _check_statuses("RetryPolicy.retry_on", self.retry_on)
        # Copies: requests merged under this policy rely on it not to change.
        msgspec.structs.force_setattr(self, "statuses", _checked_outcomes(self.statuses))
        msgspec.structs.force_setattr(self, "retry_on", frozenset(self.retry_on))
        if self.retry_on != RETRYABLE:
            for status in sorted(self.retry_on):
                self._check_rejected(status)

    def _check_rejected(self, status: int) -> None:
        outcome = self.statuses.get(status, find_rule(Evidence(status=status)).outcome)
        if outcome is not Outcome.REJECTED:
            raise ConfigurationError(
                f"RetryPolicy.retry_on: {status} does not mean REJECTED, so it would not be retried; add "
                f"statuses={{{status}: Outcome.REJECTED}} if it enqueues nothing, or take {status} out of retry_on "
                "(a 503 with Retry-After is retried in any case)"
            )

    def __hash__(self) -> int:
        return hash((self.max_attempts, self.initial_delay, self.max_delay, self.unknown, self.retry_on))

    @classmethod
    def safe(cls, **options: Unpack[RetryOptions]) -> Self:
        """Retry only if a retry can't push twice: NOT_SENT, and the retryable statuses of the outcome table."""
        return cls(unknown="raise", **options)

    @classmethod
    def collapsible(cls, **options: Unpack[RetryOptions]) -> Self:
        """Retry like ``safe``, and also after UNKNOWN if the message has a ``collapse_id``.

        The second push replaces the banner, but may alert again: best effort, the interface does not define it.
        """
        return cls(unknown="retry_if_collapsible", **options)

    @classmethod
    def at_least_once(cls, **options: Unpack[RetryOptions]) -> Self:
        """Retry like ``safe``, and also after every UNKNOWN: some users may be pushed twice."""
        return cls(unknown="retry", **options)

    @classmethod
    def none(cls, **options: Unpack[RetryOptions]) -> Self:
        """Never retry. A stale pooled connection is still replaced: nothing was sent on it."""
        return cls(max_attempts=1, **options)  # type: ignore[misc] # max_attempts= is a TypeError

    @classmethod
    def from_tenacity(
        cls, *, stop: Any = None, wait: Any = None, retry: Any = None, **options: Unpack[RetryOptions]
    ) -> Self:
        """Return a policy with tenacity's own strategies, such as ``stop_after_attempt(3)`` or ``wait_random(0, 2)``.

        ``retry`` receives the exceptions of this package and decides alone: to retry OutcomeUnknownError may push
        twice. Without ``stop``, ``max_attempts`` holds. Deadline, retry budget and Retry-After hold in any case.
        """
        return cls(stop=stop, wait=wait, retry=retry, **options)

    def should_retry(self, attempt: Attempt, *, collapsible: bool) -> bool:
        """Return True if this policy allows another attempt after this attempt."""
        if attempt.outcome is Outcome.UNKNOWN:
            return self.unknown == "retry" or (self.unknown == "retry_if_collapsible" and collapsible)
        return attempt.retryable

    def backoff(self, number: int, attempt: Attempt, draw: float) -> float:
        """Return the seconds to wait after attempt ``number`` (from 1); ``draw`` is a random number from 0 to 1."""
        throttled = attempt.status == 429 and attempt.retry_after is None
        base = self.throttle_delay if throttled else self.initial_delay
        # The exponent is bounded: 2.0**1100 is an OverflowError.
        jitter = draw * min(self.max_delay, base * 2.0 ** min(number - 1, 60))
        return (attempt.retry_after or 0.0) + jitter


class Timeout(msgspec.Struct, frozen=True, kw_only=True):
    """Timeouts in seconds. None is no limit; the shortest timeout wins.

    ``total`` covers a whole call: queueing, lingering, attempts and delays. ``attempt`` covers one attempt,
    ``connect`` its DNS, TCP and TLS.
    """

    total: float | None = 30.0
    attempt: float | None = 10.0
    connect: float | None = 5.0

    def __post_init__(self) -> None:
        for name in ("total", "attempt", "connect"):
            value = getattr(self, name)
            if value is not None:
                _check_positive(f"Timeout.{name}", value)


class Batching(msgspec.Struct, frozen=True, kw_only=True):
    """Rules for merging concurrent sends into one request.

    ``linger`` is the time in seconds that a batch collects calls; with 0, a single call is sent immediately.
    ``max_users`` and ``max_bytes`` (of the request body) bound a merged request; a larger call gets a request of its
    own. ``split_on`` lists the statuses on which a rejected request is split. This package assumes that a 4xx enqueued
    nothing; an empty set switches splitting off.
    """

    linger: float = 0.0
    max_users: int = 1000
    max_bytes: int = 1024 * 1024
    split_on: Set[int] = frozenset({413, 400, 422})

    def __post_init__(self) -> None:
        check_seconds("Batching.linger", self.linger, or_zero=True)
        _check_count("Batching.max_users", self.max_users)
        _check_count("Batching.max_bytes", self.max_bytes)
        _check_statuses("Batching.split_on", self.split_on)
        msgspec.structs.force_setattr(self, "split_on", frozenset(self.split_on))


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Bounds on what one client holds at a time.

    ``in_flight`` is the number of requests in flight. ``queued_users`` and ``queued_bytes`` (user ids and messages)
    bound what waits for a slot or for a retry. At these limits a new call waits before it is encoded (``"wait"``) or
    raises QueueFullError (``"raise"``); at most one call exceeds them. Nothing is dropped.
    """

    in_flight: int = 64
    queued_users: int = 100_000
    queued_bytes: int = 64 * 1024 * 1024
    when_full: Literal["wait", "raise"] = "wait"

    def __post_init__(self) -> None:
        for name in ("in_flight", "queued_users", "queued_bytes"):
            _check_count(f"Limits.{name}", getattr(self, name))
        if self.when_full not in ("wait", "raise"):
            raise must_be("Limits.when_full", "'wait' or 'raise'", self.when_full)


class Rate(msgspec.Struct, frozen=True, kw_only=True):
    """Fixed limits on what is sent per second; None is no limit."""

    requests_per_second: float | None = None
    users_per_second: float | None = None

    def __post_init__(self) -> None:
        for name in ("requests_per_second", "users_per_second"):
            value = getattr(self, name)
            if value is not None:
                _check_positive(f"Rate.{name}", value)


class Share(Rate, frozen=True, kw_only=True):
    """One client's share (``index`` of ``count``) of a rate that several clients divide.

    The clients start one after another: otherwise each would send its first request at the same moment.
    """

    index: int = 0
    count: int = 1


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _check_positive(name: str, value: object, rule: str = "a number greater than 0") -> None:
    if not (isinstance(value, (int, float)) and _is_number(value) and 0 < value < MAX_NUMBER):
        raise must_be(name, rule, value)


def _check_count(name: str, value: object) -> None:
    if not (isinstance(value, int) and _is_number(value) and value >= 1):
        raise must_be(name, "a whole number, 1 or more", value)


def _checked_outcomes(statuses: object) -> dict[int, Outcome]:
    if isinstance(statuses, Mapping) and all(type(status) is int for status in statuses):
        # By value: a str from a settings file means the outcome of that name.
        outcomes = {outcome.value: outcome for outcome in Outcome if outcome is not Outcome.NOT_SENT}
        if all(isinstance(name, str) and name in outcomes for name in statuses.values()):
            return {status: outcomes[name] for status, name in statuses.items()}
    rule = "a mapping of statuses to Outcome.ACCEPTED, REJECTED or UNKNOWN, for example {500: Outcome.REJECTED}"
    raise must_be("RetryPolicy.statuses", rule, statuses)


def _check_statuses(name: str, value: object) -> None:
    if not isinstance(value, Set) or not all(type(status) is int for status in value):
        raise must_be(name, "a set of HTTP statuses, for example {413, 422}", value)


def check_seconds(name: str, value: object, *, or_zero: bool = False) -> float:
    """Return a number of seconds as a float. Raises ConfigurationError unless finite and greater than 0."""
    if not (or_zero and _is_number(value) and value == 0):
        rule = "a number of seconds, 0 or more" if or_zero else "a number of seconds greater than 0"
        _check_positive(name, value, rule)
    return float(value)  # type: ignore[arg-type]


set_public_module(__name__)
