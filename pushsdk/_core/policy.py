"""A client's settings: retries, timeouts, batching, limits and rates.

Values and arithmetic only; the clock and the random draw are arguments. tenacity's strategies are stored, not
interpreted.
"""

from collections.abc import Callable, Mapping, Set
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self, TypedDict, Unpack

import msgspec
from msgspec.structs import force_setattr

from pushsdk._core.errors import ConfigurationError, warn_caller
from pushsdk._core.hints import warn_of_milliseconds
from pushsdk._core.judging import RETRYABLE, find_rule
from pushsdk._core.kinds import (
    Count,
    Delay,
    Duration,
    PerSecond,
    RefusedStatus,
    Rule,
    Status,
    check_fields,
    kinds_of,
)
from pushsdk._core.outcome import Attempt, Evidence, Outcome

Seconds = float | timedelta


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """Base class for the settings. A ``timedelta`` is taken wherever seconds are."""

    def __post_init__(self) -> None:
        for name, kind in kinds_of(type(self)).items():
            value = getattr(self, name)
            if kind not in (Delay, Duration, Duration | None):
                continue
            if isinstance(value, timedelta):
                force_setattr(self, name, value.total_seconds())
            else:
                warn_of_milliseconds(f"{type(self).__name__}.{name}", value)
        check_fields(self)


Unknown = Literal["raise", "retry_if_collapsible", "retry"]
Strategy = Callable[..., Any] | None
Meaning = Annotated[
    Outcome, Rule("Outcome.ACCEPTED, REJECTED or UNKNOWN", lambda outcome: outcome is not Outcome.NOT_SENT)
]


def _strategy(part: str, example: str) -> Rule:
    def is_strategy(value: object) -> bool:
        module = type(value).__module__  # tenacity.stop, tenacity.wait, tenacity.retry, tenacity.asyncio.retry
        is_other = module.startswith("tenacity.") and not module.endswith(part)
        return callable(value) and not is_other and not isinstance(value, type)

    return Rule(f"a strategy of tenacity, for example tenacity.{example}", is_strategy)


Stop = Annotated[Any, _strategy("stop", "stop_after_attempt(3)")]
Wait = Annotated[Any, _strategy("wait", "wait_random(0, 2)")]
Retry = Annotated[Any, _strategy("retry", "retry_if_exception_type(NotSentError)")]


class RetryOptions(TypedDict, total=False):
    """The options that every RetryPolicy preset accepts: policy fields."""

    max_attempts: int
    """Attempts for a request, the first one included. Default: 4."""
    initial_delay: float
    """Upper bound for the first delay, in seconds. It doubles with each attempt. Default: 0.1."""
    max_delay: float
    """Upper bound for every delay, in seconds. Default: 5.0."""
    throttle_delay: float
    """Value in place of ``initial_delay`` after a 429 without Retry-After, in seconds. Default: 1.0."""
    max_retry_after: float
    """Longest Retry-After that is waited for, in seconds. A longer one ends the call. Default: 60.0."""
    statuses: Mapping[int, Outcome]
    """Outcomes for statuses that differ from the outcome table, for example ``{500: Outcome.REJECTED}``."""
    retry_on: Set[int]
    """Statuses to retry, by default 408, 425 and 429. Each must mean REJECTED, by the table or by ``statuses``."""


class RetryPolicy(Settings, frozen=True, kw_only=True):
    """Rules for retrying a failed attempt. Use a preset: ``RetryPolicy.safe(max_attempts=3)``.

    The n-th delay is drawn from 0 to ``min(initial_delay * 2**(n-1), max_delay)`` seconds (full jitter). A Retry-After
    is a minimum, with that jitter on top. The defaults are those on which AWS and gRPC agree.

    Attributes:
        max_attempts: Attempts for a request, the first one included.
        initial_delay: Upper bound for the first delay, in seconds. It doubles with each attempt.
        max_delay: Upper bound for every delay, in seconds.
        throttle_delay: Value in place of ``initial_delay`` after a 429 without Retry-After, in seconds.
        max_retry_after: Longest Retry-After that is waited for, in seconds. A longer one ends the call.
        statuses: Outcomes for statuses that differ from the outcome table, for example ``{500:
            Outcome.REJECTED}``.
        retry_on: Statuses to retry, by default 408, 425 and 429. Each must mean REJECTED, by the table or by
            ``statuses``.
        unknown: ``"raise"`` never retries an UNKNOWN outcome, ``"retry_if_collapsible"`` does if the message
            has a ``collapse_id``, ``"retry"`` always does and may push twice.
        stop: A tenacity strategy instead of ``max_attempts``: see ``from_tenacity``.
        wait: A tenacity strategy instead of the delays.
        retry: A tenacity strategy that chooses what to retry.

    Raises:
        ConfigurationError: A value is out of range.
    """

    max_attempts: Count = 4
    initial_delay: Duration = 0.1
    max_delay: Duration = 5.0
    throttle_delay: Duration = 1.0
    max_retry_after: Duration = 60.0
    statuses: Mapping[Status, Meaning] = {}
    retry_on: Set[Status] = RETRYABLE
    unknown: Unknown = "raise"
    stop: Stop | None = None
    wait: Wait | None = None
    retry: Retry | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.initial_delay > self.max_delay and self.initial_delay >= 1:
            warn_caller(
                f"RetryPolicy.initial_delay={self.initial_delay:g} is above max_delay={self.max_delay:g}, which bounds "
                "every delay; both are in seconds"
            )
        # Copies: requests merged under this policy rely on it not to change.
        force_setattr(self, "statuses", dict(self.statuses))
        force_setattr(self, "retry_on", frozenset(self.retry_on))
        chosen = () if self.retry_on == RETRYABLE else sorted(self.retry_on)
        for status in chosen:
            if self.statuses.get(status, find_rule(Evidence(status=status)).outcome) is not Outcome.REJECTED:
                raise ConfigurationError(
                    f"RetryPolicy.retry_on: {status} does not mean REJECTED, so it would not be retried; add "
                    f"statuses={{{status}: Outcome.REJECTED}} if it enqueues nothing, or take {status} out of "
                    "retry_on (a 503 with Retry-After is retried in any case)"
                )

    def __hash__(self) -> int:
        return hash((self.max_attempts, self.initial_delay, self.max_delay, self.unknown, self.retry_on))

    @classmethod
    def safe(cls, **options: Unpack[RetryOptions]) -> Self:
        """Retry only if a retry can't push twice: NOT_SENT, and the retryable statuses in the outcome table."""
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
        return cls(max_attempts=1, **options)  # type: ignore[misc] # a second max_attempts is a mistake

    @classmethod
    def from_tenacity(
        cls, *, stop: Strategy = None, wait: Strategy = None, retry: Strategy = None, **options: Unpack[RetryOptions]
    ) -> Self:
        """Return a policy with tenacity's strategies, such as ``stop_after_attempt(3)`` or ``wait_random(0, 2)``.

        ``retry`` receives this package's exceptions and decides alone: to retry OutcomeUnknownError may push
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
        # Bounded like the client's pause: a service that asks for a day may be broken.
        return min(attempt.retry_after or 0.0, self.max_retry_after) + jitter


# What to retry, when and how often: a run has other rules.
_OF_CALLS = ("max_attempts", "unknown", "stop", "wait", "retry")


def warn_of_unused(policy: RetryPolicy) -> None:
    """Warn about policy fields that were set but that a run does not use."""
    default = RetryPolicy()
    unused = [f"RetryPolicy.{name}" for name in _OF_CALLS if getattr(policy, name) != getattr(default, name)]
    if unused:
        warn_caller(
            f"a run does not use {' and '.join(unused)}: it retries throttled and unsent requests until stop_policy "
            "ends it; use another policy for runs, for example with_options(retry=RetryPolicy.safe())"
        )


class Timeout(Settings, frozen=True, kw_only=True):
    """Timeouts in seconds. None is no limit; the shortest timeout wins.

    Attributes:
        total: Seconds for a whole call: queueing, lingering, attempts and delays.
        attempt: Seconds for one attempt.
        connect: Seconds for the DNS, TCP and TLS of one attempt.
    """

    total: Duration | None = 30.0
    attempt: Duration | None = 10.0
    connect: Duration | None = 5.0

    if TYPE_CHECKING:

        def __init__(
            self, *, total: Seconds | None = 30.0, attempt: Seconds | None = 10.0, connect: Seconds | None = 5.0
        ) -> None: ...

    def named(self, name: str) -> str:
        """Return the timeout with this name as errors show it, or ``""`` if there is none."""
        value = getattr(self, name)
        return "" if value is None else f"{name} timeout {value:g} s"


TimeoutOrTotal = Annotated[
    Timeout | Seconds, Rule("the total in seconds, or a Timeout, for example Timeout(total=30, connect=5)")
]


class Options(msgspec.Struct, frozen=True, eq=False, gc=False):
    """Retry policy and timeouts for a request. Equal options are one object: quick to compare."""

    policy: RetryPolicy
    timeout: Timeout
    keyed: bool = False
    """True for calls with an idempotency key: their requests wait for a claim store, so they are merged separately."""
    is_urgent: bool = False
    """True for calls that go before all others, so they are merged separately."""


class Batching(Settings, frozen=True, kw_only=True):
    """Rules for merging concurrent sends into one request, and for splitting a rejected one.

    Attributes:
        max_users: Most users in a request, and in a call.
        linger: Seconds that a batch collects calls. With 0, a single call is sent immediately.
        max_bytes: Most bytes in a merged request's body. A larger call gets a separate request.
        split_on: Statuses on which a rejected request is split. This package assumes that a 4xx enqueued
            nothing; an empty set switches splitting off.
    """

    max_users: Count = 1000
    linger: Delay = 0.0
    max_bytes: Count = 1024 * 1024
    split_on: Set[RefusedStatus] = frozenset({413, 400, 422})

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.linger >= 10:
            warn_caller(f"Batching.linger={self.linger:g} is in seconds: a call may wait that long for others")
        force_setattr(self, "split_on", frozenset(self.split_on))


class Limits(Settings, frozen=True, kw_only=True):
    """Bounds on how much one client holds at a time. At most one call exceeds them; nothing is dropped.

    Attributes:
        in_flight: Cap on requests in flight. The client finds how many the service takes; without a cap, the
            pool and half of the process's file descriptors are the bound.
        queued_users: Most users that wait for a slot or for a retry.
        queued_bytes: Most bytes of user ids and messages that wait for a slot or for a retry.
        when_full: At these limits a new call waits before it is encoded (``"wait"``), or raises QueueFullError
            (``"raise"``).
    """

    in_flight: Count | None = None
    queued_users: Count = 100_000
    queued_bytes: Count = 64 * 1024 * 1024
    when_full: Literal["wait", "raise"] = "wait"


class Rate(Settings, frozen=True, kw_only=True):
    """Fixed limits on how much is sent per second; None is no limit.

    Attributes:
        requests_per_second: Most requests that start per second.
        users_per_second: Most users in these requests per second.
    """

    requests_per_second: PerSecond | None = None
    users_per_second: PerSecond | None = None


class Share(Rate, frozen=True, kw_only=True):
    """One client's share (``index`` of ``count``) of a rate that several clients divide.

    The clients start one after another: otherwise each would send its first request at the same moment.
    """

    index: int = 0
    count: int = 1


def shared(rate: Rate, count: int) -> Share:
    """Return the first of ``count`` equal shares."""
    caps = {name: getattr(rate, name) for name in Rate.__struct_fields__}
    return Share(**{name: value and value / count for name, value in caps.items()}, count=count)
