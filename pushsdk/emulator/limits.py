"""What a service may refuse that is no fault of its line, sans-IO: sizes, rates, quotas, ids it doesn't know.

The interface shows no limit at all (section 8), nor an error (section 7): every number and status here is simulated.
A limit is tried in the order of ``LimitStatuses``. Each request takes a token of the rate first, whatever becomes of it
then; one that finds no token takes none. The quota counts what was accepted, and nothing else: see ``Limiter.took``.
"""

import math
from collections.abc import Sequence
from typing import Annotated, TypeAlias, get_type_hints

import msgspec
from msgspec import Meta, Struct

from pushsdk.emulator.guard import Refusal

__all__ = ["LimitStatuses", "Limiter", "ServiceLimits"]

_DAY = 86_400
_MOST_USERS = 100_000  # of one request, whatever the limits: to count them takes a quarter of a second
# Clocks round: who waited as told, and yet is early by so little, has a token.
_BLINK = 1e-6
Status: TypeAlias = Annotated[int, Meta(ge=400, le=599)]
Count: TypeAlias = Annotated[int, Meta(ge=1)]


def _check(limits: Struct) -> None:
    """Check every field as decoding does: a Struct's own __init__ checks nothing."""
    for name, kind in get_type_hints(type(limits), include_extras=True).items():
        try:
            msgspec.convert(getattr(limits, name), kind)
        except msgspec.ValidationError as error:
            raise ValueError(f"{name} can't be used: {error}") from None


class LimitStatuses(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The status with which each limit refuses, in the order they are tried. A bad one raises ValueError."""

    rate: Status = 429
    body: Status = 413
    users: Status = 413
    invalid: Status = 400
    quota: Status = 429

    def __post_init__(self) -> None:
        _check(self)


class ServiceLimits(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What an inbox takes. None is no limit; a number that makes no sense raises ValueError.

    ``max_users`` of one request and ``max_body_bytes``; ``rate`` in requests a second, with a ``burst`` (by default
    one second's worth) that may come at once; ``retry_after`` in seconds, which is otherwise when the next request
    has a token; ``quota`` of users in all; ``invalid_user_ids``, who are refused; ``strict`` refuses what the
    interface does not show (see ``strict``); ``statuses`` are what they are refused with.
    """

    max_users: Count | None = None
    max_body_bytes: Count | None = None
    rate: Annotated[float, Meta(ge=1 / _DAY, le=1e9)] | None = None  # a slower one would be a wait of over a day
    burst: Count | None = None
    retry_after: Annotated[float, Meta(ge=0, le=_DAY)] | None = None
    quota: Annotated[int, Meta(ge=0)] | None = None
    invalid_user_ids: Sequence[str] = ()
    strict: bool = False
    statuses: LimitStatuses = LimitStatuses()

    def __post_init__(self) -> None:
        _check(self)
        if self.burst is not None and self.rate is None:
            raise ValueError("burst is of a rate: give one")
        msgspec.structs.force_setattr(self, "invalid_user_ids", tuple(self.invalid_user_ids))  # frozen: no list

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
    """Judges the requests of one inbox by its limits. ``now`` is of any clock that does not run backwards."""

    def __init__(self, limits: ServiceLimits) -> None:
        self.limits = limits
        self.used: int = 0  # users of the quota, set by took
        self._invalid = frozenset(limits.invalid_user_ids)
        self._bucket = None if limits.rate is None else _Bucket(limits.rate, limits.burst)

    def judge(self, *, endpoint: str, user_ids: Sequence[str], size: int, now: float) -> Refusal | None:
        """The first limit that the request of ``size`` bytes is over, or None. Ids are never in the text."""
        headers: dict[str, str] = {}
        limit, error = "rate", self._over_rate(now, headers)
        if error is None:
            limit, error = self._over_size(user_ids, size)
        if error is None:
            limit, error = "quota", self._over_quota(endpoint, len(user_ids))
        if error is None:
            return None
        return Refusal(getattr(self.limits.statuses, limit), error, headers)

    def took(self, users: int) -> None:
        """Count the users of an accepted request against the quota, a campaign's once it has run."""
        self.used += users

    def _over_rate(self, now: float, headers: dict[str, str]) -> str | None:
        wait = self._bucket.take(now) if self._bucket is not None else 0.0
        if wait <= 0:
            return None
        told = wait if self.limits.retry_after is None else self.limits.retry_after
        headers["Retry-After"] = str(math.ceil(told))  # RFC 9110, 10.2.3: whole seconds
        return f"over the rate of {self.limits.rate:g} requests a second: try again in {math.ceil(told)} s"

    def _over_size(self, user_ids: Sequence[str], size: int) -> tuple[str, str | None]:
        most_bytes, most_users = self.limits.max_body_bytes, self.limits.max_users
        if most_bytes is not None and size > most_bytes:
            return "body", f"the body is {size} bytes, at most {most_bytes} are taken"
        most_users = _MOST_USERS if most_users is None else min(most_users, _MOST_USERS)
        if len(user_ids) > most_users:
            return "users", f"the request has {len(user_ids)} users, at most {most_users} are taken - at `$.userIds`"
        if self._invalid.isdisjoint(user_ids):
            return "invalid", None
        invalid = [position for position, user_id in enumerate(user_ids) if user_id in self._invalid]
        return "invalid", f"{len(invalid)} of {len(user_ids)} user ids are invalid - at `$.userIds[{invalid[0]}]`"

    def _over_quota(self, endpoint: str, users: int) -> str | None:
        quota = self.limits.quota
        needed = users if endpoint == "push" else 1  # whom a campaign reaches is known later
        if quota is None or self.used + needed <= quota:
            return None
        return f"the quota is {quota} users, {self.used} of them are used: {users} more are over it"


class _Bucket:
    """A token bucket: ``rate`` tokens a second, at most ``burst`` of them, full at first."""

    def __init__(self, rate: float, burst: int | None) -> None:
        self._rate = rate
        self._most = float(max(1, math.ceil(rate)) if burst is None else burst)
        self._tokens = self._most
        self._filled: float | None = None  # when the tokens were last counted

    def take(self, now: float) -> float:
        """Take a token and return 0, or the seconds until there is one."""
        before = now if self._filled is None else self._filled
        self._filled = max(before, now)
        self._tokens = min(self._most, self._tokens + (self._filled - before) * self._rate)
        wait = (1 - self._tokens) / self._rate
        if wait > _BLINK:
            return wait
        self._tokens = max(0.0, self._tokens - 1)
        return 0.0
