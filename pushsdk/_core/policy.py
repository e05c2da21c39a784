"""The settings: what may be repeated, how long things may take, what is merged, what is held back.

Values and arithmetic only; the clock and the random draw come in as arguments. tenacity's strategies pass through
opaquely: only the shell interprets them.
"""

from collections.abc import Mapping, Set
from typing import Any, Literal, Self

import msgspec

from pushsdk._core.errors import ConfigurationError
from pushsdk._core.outcome import RETRYABLE, Attempt, Evidence, Outcome, find_rule
from pushsdk._public import set_public_module

__all__ = ["Batching", "Limits", "Rate", "RetryPolicy", "Share", "Timeout", "check_seconds"]

# A number above it is a mistake: in seconds, 30 years.
FOREVER = 1e9

Unknown = Literal["raise", "retry_if_collapsible", "retry"]


class RetryPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """What is repeated after a failed attempt, how often, and after which wait.

    The n-th wait is drawn from 0 to ``min(initial_delay * 2**(n-1), max_delay)`` seconds (full jitter). After a 429
    without Retry-After, ``throttle_delay`` replaces ``initial_delay``. A Retry-After is a minimum, with that jitter on
    top; one above ``max_retry_after`` seconds ends the call. ``max_attempts`` counts the first attempt. The defaults
    are
    those on which AWS and gRPC agree.

    ``statuses`` is your own reading of a status, as ``{500: Outcome.REJECTED}``; ``retry_on`` the statuses that may be
    repeated, each of which has to mean REJECTED by the table or by ``statuses``. ``unknown`` says what follows an
    outcome UNKNOWN: ``"raise"`` (never repeated), ``"retry_if_collapsible"`` (only for a message with a
    ``collapse_id``) or ``"retry"`` (may push twice).

    ``stop``, ``wait`` and ``retry`` are tenacity strategies that replace ``max_attempts``, the wait and the decision
    what to retry; see ``from_tenacity``. Raises ConfigurationError for a number that makes no sense.
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
        _whole("RetryPolicy.max_attempts", self.max_attempts)
        for name in ("initial_delay", "max_delay", "throttle_delay", "max_retry_after"):
            _positive(f"RetryPolicy.{name}", getattr(self, name))
        if self.unknown not in ("raise", "retry_if_collapsible", "retry"):
            raise ConfigurationError("RetryPolicy.unknown is 'raise', 'retry_if_collapsible' or 'retry'")
        _statuses("RetryPolicy.retry_on", self.retry_on)
        # Copies: a frozen policy must not change under the requests that were merged by it.
        msgspec.structs.force_setattr(self, "statuses", _readings(self.statuses))
        msgspec.structs.force_setattr(self, "retry_on", frozenset(self.retry_on))
        if self.retry_on != RETRYABLE:
            for status in sorted(self.retry_on):
                self._check_repeated(status)

    def _check_repeated(self, status: int) -> None:
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
    def safe(cls, **numbers: Any) -> Self:
        """Repeat only what can't push twice: what was never sent, and what the table marks 'may be repeated'."""
        return cls(unknown="raise", **numbers)

    @classmethod
    def collapsible(cls, **numbers: Any) -> Self:
        """``safe``, and an UNKNOWN where the message has a ``collapse_id``.

        A repeat replaces the banner, but may alert again: best effort, the interface does not define it.
        """
        return cls(unknown="retry_if_collapsible", **numbers)

    @classmethod
    def at_least_once(cls, **numbers: Any) -> Self:
        """``safe``, and every UNKNOWN: nobody is left out, somebody may be pushed twice."""
        return cls(unknown="retry", **numbers)

    @classmethod
    def none(cls, **numbers: Any) -> Self:
        """Repeat nothing (a stale pooled connection is still replaced: nothing had been sent on it)."""
        return cls(max_attempts=1, **numbers)

    @classmethod
    def from_tenacity(cls, *, stop: Any = None, wait: Any = None, retry: Any = None, **numbers: Any) -> Self:
        """A policy with tenacity's own strategies, as ``stop_after_attempt(3)`` or ``wait_random(0, 2)``.

        ``retry`` sees this package's exceptions, and decides alone: one that repeats OutcomeUnknownError may push
        twice. Without ``stop``, ``max_attempts`` holds. Deadline, budget and Retry-After hold in any case.
        """
        return cls(stop=stop, wait=wait, retry=retry, **numbers)

    def should_retry(self, attempt: Attempt, *, collapsible: bool) -> bool:
        """Whether this attempt's outcome may be followed by another attempt."""
        if attempt.outcome is Outcome.UNKNOWN:
            return self.unknown == "retry" or (self.unknown == "retry_if_collapsible" and collapsible)
        return attempt.retryable

    def backoff(self, number: int, attempt: Attempt, draw: float) -> float:
        """Seconds to wait after attempt ``number`` (from 1), with ``draw`` a random number from 0 to 1."""
        throttled = attempt.status == 429 and attempt.retry_after is None
        base = self.throttle_delay if throttled else self.initial_delay
        # The exponent is bounded: 2.0**1100 is an OverflowError.
        jitter = draw * min(self.max_delay, base * 2.0 ** min(number - 1, 60))
        return (attempt.retry_after or 0.0) + jitter


class Timeout(msgspec.Struct, frozen=True, kw_only=True):
    """How long things may take, in seconds; None is no limit, and the smallest wins.

    ``total`` covers a call as a whole: queueing, lingering, attempts and waits. ``attempt`` covers one try,
    ``connect`` its DNS, TCP and TLS.
    """

    total: float | None = 30.0
    attempt: float | None = 10.0
    connect: float | None = 5.0

    def __post_init__(self) -> None:
        for name in ("total", "attempt", "connect"):
            value = getattr(self, name)
            if value is not None:
                _positive(f"Timeout.{name}", value)


class Batching(msgspec.Struct, frozen=True, kw_only=True):
    """How concurrent sends are merged into one request.

    ``linger`` is the time in seconds that a batch waits for company (0: a lone send leaves at once). ``max_users``
    and ``max_bytes`` (of the request body) bound what is merged; a call that is larger alone travels alone.
    ``split_on`` names the statuses on which a rejected request is split: that a 4xx enqueued nobody is this
    package's assumption, and an empty set switches it off.
    """

    linger: float = 0.0
    max_users: int = 1000
    max_bytes: int = 1024 * 1024
    split_on: Set[int] = frozenset({413, 400, 422})

    def __post_init__(self) -> None:
        check_seconds("Batching.linger", self.linger, or_zero=True)
        _whole("Batching.max_users", self.max_users)
        _whole("Batching.max_bytes", self.max_bytes)
        _statuses("Batching.split_on", self.split_on)
        msgspec.structs.force_setattr(self, "split_on", frozenset(self.split_on))


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """How much one client holds at a time.

    ``in_flight`` is the number of requests in flight, ``queued_users`` and ``queued_bytes`` (of user ids and messages)
    what waits for a slot there, between two attempts too. At these limits a new call waits before it is encoded
    (``"wait"``) or fails with QueueFullError (``"raise"``): one call at most exceeds them. Nothing is dropped.
    """

    in_flight: int = 64
    queued_users: int = 100_000
    queued_bytes: int = 64 * 1024 * 1024
    when_full: Literal["wait", "raise"] = "wait"

    def __post_init__(self) -> None:
        for name in ("in_flight", "queued_users", "queued_bytes"):
            _whole(f"Limits.{name}", getattr(self, name))
        if self.when_full not in ("wait", "raise"):
            raise ConfigurationError("Limits.when_full is 'wait' or 'raise'")


class Rate(msgspec.Struct, frozen=True, kw_only=True):
    """Fixed caps on what leaves per second; None is no cap."""

    requests_per_second: float | None = None
    users_per_second: float | None = None

    def __post_init__(self) -> None:
        for name in ("requests_per_second", "users_per_second"):
            value = getattr(self, name)
            if value is not None:
                _positive(f"Rate.{name}", value)


class Share(Rate, frozen=True, kw_only=True):
    """One of so many equal parts of a rate, each of them held by a client of its own.

    They begin one after another: else what each sends first would leave at once, and go on doing so.
    """

    place: int = 0
    of: int = 1


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _positive(name: str, value: object, kind: str = "a number greater than 0") -> None:
    if not (isinstance(value, (int, float)) and _is_number(value) and 0 < value < FOREVER):
        raise ConfigurationError(f"{name} is {kind}")


def _whole(name: str, value: object) -> None:
    if not (isinstance(value, int) and _is_number(value) and value >= 1):
        raise ConfigurationError(f"{name} is a whole number, 1 or more")


def _readings(statuses: object) -> dict[int, Outcome]:
    if isinstance(statuses, Mapping) and all(type(status) is int for status in statuses):
        # By value: a text from a settings file means the outcome of that name.
        known = {outcome.value: outcome for outcome in Outcome if outcome is not Outcome.NOT_SENT}
        if all(isinstance(told, str) and told in known for told in statuses.values()):
            return {status: known[told] for status, told in statuses.items()}
    raise ConfigurationError(
        "RetryPolicy.statuses maps a status to Outcome.ACCEPTED, REJECTED or UNKNOWN, as {500: Outcome.REJECTED}"
    )


def _statuses(name: str, value: object) -> None:
    if not isinstance(value, Set) or not all(type(status) is int for status in value):
        raise ConfigurationError(f"{name} is a set of HTTP statuses, as {{413, 422}}")


def check_seconds(name: str, value: object, *, or_zero: bool = False) -> float:
    """The value as a number of seconds. Raises ConfigurationError unless it is finite and greater than 0."""
    if not (or_zero and _is_number(value) and value == 0):
        _positive(name, value, "a number of seconds, 0 or more" if or_zero else "a number of seconds greater than 0")
    return float(value)  # type: ignore[arg-type]


set_public_module(__name__)
