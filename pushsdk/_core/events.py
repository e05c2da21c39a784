"""Events for ``on_event``. Without texts and key; user ids only in ``SendAbandoned``."""

import msgspec

from pushsdk._core.operations import Endpoint
from pushsdk._core.outcome import Attempt, GuardedValue, Outcome


class AttemptEnded(msgspec.Struct, frozen=True, kw_only=True):
    """A request's attempt ended."""

    endpoint: Endpoint
    users: int
    """Users in the request; 0 for a campaign."""
    number: int
    """The attempt's number within this request, from 1."""
    attempt: Attempt
    """The attempt: its outcome, status and duration."""


class RetryScheduled(msgspec.Struct, frozen=True, kw_only=True):
    """A request is retried after a delay."""

    endpoint: Endpoint
    users: int
    number: int
    """The failed attempt's number, from 1."""
    wait: float
    """Seconds until the next attempt."""
    attempt: Attempt
    """The failed attempt."""


class ClientPaused(msgspec.Struct, frozen=True, kw_only=True):
    """The service asked to wait: no request starts for ``seconds``."""

    seconds: float


class SendNotBegun(msgspec.Struct, frozen=True, kw_only=True):
    """A send was not begun: its deadline came, or came too near for an answer, or a pause ends after it."""

    users: int
    seconds_left: float
    """Seconds to the deadline of the send."""
    seconds_needed: float
    """Seconds in which an attempt is answered in all likelihood; 0 while unknown."""
    throttled: bool = False
    """True if the send waited as the service had answered 429, or 503 with Retry-After."""


class RequestSplit(msgspec.Struct, frozen=True, kw_only=True):
    """A rejected request is split and sent in parts."""

    status: int
    """The rejection's status."""
    users: int
    """Number of users in the request."""
    calls: int
    """Number of ``send()`` calls that share the request."""


class SendAbandoned(GuardedValue, frozen=True, kw_only=True):
    """A send ended after its caller had stopped waiting (cancelled, past the deadline), or a submitted send failed."""

    outcome: Outcome
    user_ids: tuple[str, ...]
    attempts: tuple[Attempt, ...] = ()

    def __rich_repr__(self) -> list[tuple[str, object]]:
        return [("outcome", self.outcome), ("users", len(self.user_ids)), ("attempts", len(self.attempts))]


Event = AttemptEnded | RetryScheduled | ClientPaused | SendNotBegun | RequestSplit | SendAbandoned
