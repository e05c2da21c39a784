"""Values that calls return: frozen, without user ids in their repr."""

from collections.abc import Iterator
from typing import Any

import msgspec

from pushsdk._core.events import SendAbandoned
from pushsdk._core.outcome import Attempt, GuardedValue, Outcome


class Receipt(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The result for a call whose users were all accepted. Not a delivery receipt."""

    users: int
    """Number of distinct users."""
    duplicates: int = 0
    """Number of ids left out because they occurred before."""
    requests: int = 1
    """Number of requests for the call."""
    attempts: tuple[Attempt, ...] = ()
    """Tries on the wire, oldest first."""
    already_accepted: int = 0
    """Number of users accepted by an earlier call with the same ``idempotency_key``."""

    def __repr__(self) -> str:
        unsent = [f", {name}={n}" for name in ("duplicates", "already_accepted") if (n := getattr(self, name))]
        counts = f"users={self.users}, requests={self.requests}, attempts={len(self.attempts)}"
        return f"Receipt({self.outcome}, {counts}{''.join(unsent)})"

    def __iter__(self) -> Iterator[tuple[str, Any]]:
        """Yield the outcome, the status and the counts, each with its name: for ``dict(receipt)``.

        So a web framework can answer with a receipt. The attempts, which quote the service, are left out.
        """
        counts = [(name, getattr(self, name)) for name in ("users", "duplicates", "requests", "already_accepted")]
        return iter([("outcome", str(self.outcome)), ("status", self.status), *counts])

    @property
    def outcome(self) -> Outcome:
        """Always ACCEPTED: any other outcome is raised."""
        return Outcome.ACCEPTED

    @property
    def status(self) -> int | None:
        """The HTTP status of the last attempt, usually 204; None if nothing was sent."""
        return self.attempts[-1].status if self.attempts else None


class DrainReport(GuardedValue, frozen=True, kw_only=True):
    """The outcomes of calls that ended during ``aclose``, as user ids."""

    accepted: tuple[str, ...] = ()
    rejected: tuple[str, ...] = ()
    not_sent: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()
    abandoned: tuple[SendAbandoned, ...] = ()
    """The last 1000 sends that ended after their caller had stopped waiting, or were submitted and failed."""

    def __rich_repr__(self) -> list[tuple[str, object]]:
        return [(name, len(getattr(self, name))) for name in self.__struct_fields__]


class ClientStats(msgspec.Struct, frozen=True, kw_only=True):
    """A client's counters since its creation, and its current state."""

    accepted: int = 0
    """Users by outcome, as in the next three."""
    rejected: int = 0
    not_sent: int = 0
    unknown: int = 0
    campaigns: int = 0
    """Campaigns created."""
    requests: int = 0
    """Requests, merged or single."""
    attempts: int = 0
    """Attempts on the wire, retries included."""
    retries: int = 0
    splits: int = 0
    """Rejected requests that were sent in parts."""
    stale_connections: int = 0
    """Pooled connections that were closed by the service and replaced."""
    not_begun: int = 0
    """Users in sends that were not begun, as too little time was left for an answer, or a pause ends too late."""
    throttled: int = 0
    """Users among these whose send waited because the service had answered 429, or 503 with Retry-After."""
    abandoned: int = 0
    """Sends that ended after their caller had stopped waiting, and submitted ones that failed."""
    in_flight: int = 0
    """Requests in flight now."""
    limit: int = 0
    """Most requests in flight that the client finds good for the service now; 0 before the first use."""
    queued_users: int = 0
    """Users that wait now."""
    queued_bytes: int = 0
    """Bytes of ids and messages that wait now."""
    seconds_needed: float = 0.0
    """Seconds in which an attempt is answered in all likelihood; 0 before the first answer. A send with less time left
    is not begun."""
    retry_tokens: int = 0
    """Tokens left in the retry budget, of 500."""
    paused: float = 0.0
    """Seconds until the client's pause ends."""


class Counters:
    """The counters behind ``ClientStats``. Incremented by the shell; never reset."""

    abandoned = attempts = campaigns = requests = retries = 0
    splits = not_begun = throttled = stale_connections = 0

    def __init__(self) -> None:
        self.users = dict.fromkeys(Outcome, 0)
