"""The limits by which the service refuses requests, sans-IO: sizes, rate, quota, invalid user ids.

The interface document names no limits and no errors, so every number and status here is simulated. Limits are tried in
the order of ``LimitStatuses``. Each request takes a token of the rate first, even if another limit then refuses
the request. The quota counts accepted users only, see `Limiter.count`.
"""

import math
from collections.abc import Sequence
from typing import Annotated, TypeAlias, get_type_hints

import msgspec
from msgspec import Meta, Struct

from pushsdk.emulator.guard import Refusal

_DAY = 86_400
_MAX_USERS = 100_000  # of one request, with any limits: counting takes a quarter of a second
_CLOCK_ERROR = 1e-6  # seconds; a client that waited for Retry-After must not be early by rounding
Status: TypeAlias = Annotated[int, Meta(ge=400, le=599)]
Count: TypeAlias = Annotated[int, Meta(ge=1)]


def _check(limits: Struct) -> None:
    """Check every field as decoding does; the __init__ of a Struct checks nothing."""
    for name, kind in get_type_hints(type(limits), include_extras=True).items():
        try:
            msgspec.convert(getattr(limits, name), kind)
        except msgspec.ValidationError as error:
            raise ValueError(f"{name} is invalid: {error}") from None


class LimitStatuses(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The status of each limit's refusal, in the order the limits are tried. Raises ValueError for an invalid one."""

    rate: Status = 429
    body: Status = 413
    users: Status = 413
    invalid: Status = 400
    quota: Status = 429

    def __post_init__(self) -> None:
        _check(self)


class ServiceLimits(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The limits of an inbox; None is no limit. Raises ValueError for invalid values.

    ``max_users`` and ``max_body_bytes`` bound one request; ``rate`` is in requests per second with a ``burst`` of
    requests at once (default: one second's worth); ``retry_after`` is in seconds (default: until the next token);
    ``quota`` bounds the users in all; ``invalid_user_ids`` are refused; ``strict`` refuses values that the interface
    document does not show; ``statuses`` are the statuses of the refusals.
    """

    max_users: Count | None = None
    max_body_bytes: Count | None = None
    rate: Annotated[float, Meta(ge=1 / _DAY, le=1e9)] | None = None  # at least one request a day
    burst: Count | None = None
    retry_after: Annotated[float, Meta(ge=0, le=_DAY)] | None = None
    quota: Annotated[int, Meta(ge=0)] | None = None
    invalid_user_ids: Sequence[str] = ()
    strict: bool = False
    statuses: LimitStatuses = LimitStatuses()

    def __post_init__(self) -> None:
        _check(self)
        if self.burst is not None and self.rate is None:
            raise ValueError("burst needs a rate, for example rate=100")
        msgspec.structs.force_setattr(self, "invalid_user_ids", tuple(self.invalid_user_ids))  # a list could change

    def __repr__(self) -> str:
        shown = [
            f"{name}={value!r}"
            for name, default in zip(self.__struct_fields__, self.__struct_defaults__, strict=True)
            if (value := getattr(self, name)) != default and name != "invalid_user_ids"
        ]
        if self.invalid_user_ids:
            shown.append(f"invalid_user_ids=<{len(self.invalid_user_ids)}>")
        return f"ServiceLimits({', '.join(shown)})"


class Limiter:
    """Applies the limits of one inbox. ``now`` comes from any monotonic clock."""

    def __init__(self, limits: ServiceLimits) -> None:
        self.limits = limits
        self.used: int = 0  # users counted against the quota; set by count
        self._invalid = frozenset(limits.invalid_user_ids)
        self._bucket = None if limits.rate is None else _Bucket(limits.rate, limits.burst)

    def judge(self, *, endpoint: str, user_ids: Sequence[str], size: int, now: float) -> Refusal | None:
        """Return the refusal of the first exceeded limit, or None. Contains no user id. ``size`` is in bytes."""
        headers: dict[str, str] = {}
        limit, error = "rate", self._over_rate(now, headers)
        if error is None:
            limit, error = self._over_size(user_ids, size)
        if error is None:
            limit, error = "quota", self._over_quota(endpoint, len(user_ids))
        if error is None:
            return None
        return Refusal(getattr(self.limits.statuses, limit), error, headers)

    def count(self, users: int) -> None:
        """Count accepted users against the quota; a campaign's users count when its segment has run."""
        self.used += users

    def _over_rate(self, now: float, headers: dict[str, str]) -> str | None:
        wait = self._bucket.take(now) if self._bucket is not None else 0.0
        if wait <= 0:
            return None
        delay = wait if self.limits.retry_after is None else self.limits.retry_after
        headers["Retry-After"] = str(math.ceil(delay))  # RFC 9110, 10.2.3: whole seconds
        return f"over the rate of {self.limits.rate:g} requests a second: try again in {math.ceil(delay)} s"

    def _over_size(self, user_ids: Sequence[str], size: int) -> tuple[str, str | None]:
        max_bytes, max_users = self.limits.max_body_bytes, self.limits.max_users
        if max_bytes is not None and size > max_bytes:
            return "body", f"the body is {size} bytes, at most {max_bytes} are allowed"
        max_users = _MAX_USERS if max_users is None else min(max_users, _MAX_USERS)
        if len(user_ids) > max_users:
            return "users", f"the request has {len(user_ids)} users, at most {max_users} are allowed - at `$.userIds`"
        if self._invalid.isdisjoint(user_ids):
            return "invalid", None
        invalid = [position for position, user_id in enumerate(user_ids) if user_id in self._invalid]
        return "invalid", f"{len(invalid)} of {len(user_ids)} user ids are invalid - at `$.userIds[{invalid[0]}]`"

    def _over_quota(self, endpoint: str, users: int) -> str | None:
        quota = self.limits.quota
        needed = users if endpoint == "push" else 1  # the users of a campaign are unknown until its segment has run
        if quota is None or self.used + needed <= quota:
            return None
        return f"the quota is {quota} users, {self.used} are used: {users} more exceed the quota"


class _Bucket:
    """A token bucket: ``rate`` tokens per second, at most ``burst``, full at first."""

    def __init__(self, rate: float, burst: int | None) -> None:
        self._rate = rate
        self._burst = float(max(1, math.ceil(rate)) if burst is None else burst)
        self._tokens = self._burst
        self._filled: float | None = None  # when the tokens were last counted

    def take(self, now: float) -> float:
        """Take a token and return 0, or return the seconds until the next token."""
        before = now if self._filled is None else self._filled
        self._filled = max(before, now)
        self._tokens = min(self._burst, self._tokens + (self._filled - before) * self._rate)
        wait = (1 - self._tokens) / self._rate
        if wait > _CLOCK_ERROR:
            return wait
        self._tokens = max(0.0, self._tokens - 1)
        return 0.0
