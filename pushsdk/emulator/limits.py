"""The limits by which the service refuses requests, sans-IO: sizes, rate, quota, invalid user ids.

The interface document names no limits and no errors, so every number and status here is simulated. Each request takes a
rate token first, even if another limit then refuses the request. The quota counts accepted users only.
"""

import math
from collections.abc import Sequence

import msgspec
from msgspec import Struct

from pushsdk._core.kinds import Count, CountOrZero, Delay, PerSecond, check_fields
from pushsdk.emulator.guard import Refused

__tracebackhide__ = True  # by pytest: a failure shows the line in the test
_MAX_USERS = 100_000  # per request, with any limits: counting takes a quarter of a second
_DAY = 86_400  # seconds
_CLOCK_ERROR = 1e-6  # seconds; a client that waited for Retry-After must not be early by rounding


class ServiceLimits(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The limits for an inbox; None is no limit. Raises ValueError for invalid values."""

    max_users: Count | None = None
    """Most users per request; more are refused with 413."""
    max_body_bytes: Count | None = None
    """Most bytes per request body; more are refused with 413."""
    rate: PerSecond | None = None
    """Requests per second; more are refused with 429."""
    burst: Count | None = None
    """Requests at once; by default one second's worth of the rate."""
    retry_after: Delay | None = None
    """Retry-After for a throttled request, in seconds; by default until the next token."""
    quota: CountOrZero | None = None
    """Most users in all; more are refused with 429."""
    invalid_user_ids: Sequence[str] = ()
    """Ids that are refused, with 400."""
    strict: bool = False
    """Refuse values that the interface document does not show."""

    def __post_init__(self) -> None:
        check_fields(self, ValueError)
        if self.burst is not None and self.rate is None:
            raise ValueError("burst needs a rate, for example rate=100")
        msgspec.structs.force_setattr(self, "invalid_user_ids", tuple(self.invalid_user_ids))  # a list could change

    def __repr__(self) -> str:
        values = msgspec.structs.asdict(self) | {"invalid_user_ids": (ids := self.invalid_user_ids) and f"<{len(ids)}>"}
        fields = zip(values.items(), self.__struct_defaults__, strict=True)
        return f"ServiceLimits({', '.join(f'{name}={value}' for (name, value), default in fields if value != default)})"


class Limiter:
    """Applies the limits for one inbox. ``now`` comes from any monotonic clock."""

    def __init__(self, limits: ServiceLimits) -> None:
        self.limits = limits
        # Accepted users, which count against the quota. Added by callers.
        self.used: int = 0
        self._invalid = frozenset(limits.invalid_user_ids)
        # A token bucket, full at first
        self._burst = float(limits.burst or math.ceil(limits.rate or 1))
        self._tokens = self._burst
        self._filled = -math.inf  # when the tokens were last counted

    def check(self, *, user_ids: Sequence[str], size: int, now: float) -> None:
        """Raise `Refused` for the first exceeded limit; the error contains no user id. ``size`` is in bytes.

        ``user_ids`` is empty for a campaign, whose users are unknown.
        """
        limits = self.limits
        self._check_rate(now)
        if limits.max_body_bytes is not None and size > limits.max_body_bytes:
            raise Refused(413, f"the body is {size} bytes, at most {limits.max_body_bytes} are allowed")
        self._check_users(user_ids)
        users = len(user_ids)
        if limits.quota is not None and self.used + max(1, users) > limits.quota:
            error = f"the quota is {limits.quota} users, {self.used} are used: {users} more exceed the quota"
            raise Refused(429, error)

    def _check_rate(self, now: float) -> None:
        limits = self.limits
        wait = self._take_token(now)
        if wait > 0:
            # RFC 9110, 10.2.3: whole seconds. For a tiny rate the wait is endless.
            delay = math.ceil(min(_DAY, wait) if limits.retry_after is None else limits.retry_after)
            error = f"over the rate of {limits.rate:g} requests a second: try again in {delay} s"
            raise Refused(429, error, {"Retry-After": str(delay)})

    def _check_users(self, user_ids: Sequence[str]) -> None:
        users, max_users = len(user_ids), min(self.limits.max_users or _MAX_USERS, _MAX_USERS)
        if users > max_users:
            error = f"the request has {users} users, at most {max_users} are allowed - at `$.userIds`"
            raise Refused(413, error)
        if not self._invalid.isdisjoint(user_ids):
            invalid = [position for position, user_id in enumerate(user_ids) if user_id in self._invalid]
            error = f"{len(invalid)} of {users} user ids are invalid - at `$.userIds[{invalid[0]}]`"
            raise Refused(400, error)

    def _take_token(self, now: float) -> float:
        """Take a rate token and return 0, or return the seconds until the next token."""
        if self.limits.rate is None:
            return 0.0
        before, self._filled = self._filled, max(self._filled, now)
        self._tokens = min(self._burst, self._tokens + (self._filled - before) * self.limits.rate)
        wait = (1 - self._tokens) / self.limits.rate
        if wait > _CLOCK_ERROR:
            return wait
        self._tokens = max(0.0, self._tokens - 1)
        return 0.0
