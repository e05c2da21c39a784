"""What ``on_event`` is told. No texts, no key; user ids only where the event is about them."""

import msgspec

from pushsdk._core.operations import Endpoint
from pushsdk._core.outcome import Attempt, Outcome
from pushsdk._public import set_public_module

__all__ = ["AttemptEnded", "ClientPaused", "Event", "RequestSplit", "RetryScheduled", "SendAbandoned"]


class AttemptEnded(msgspec.Struct, frozen=True, kw_only=True):
    """One try on the wire ended. ``number`` counts the request's attempts from 1, ``users`` its users."""

    endpoint: Endpoint
    users: int
    number: int
    attempt: Attempt


class RetryScheduled(msgspec.Struct, frozen=True, kw_only=True):
    """The request is tried again after ``wait`` seconds; ``attempt`` is the one that failed."""

    endpoint: Endpoint
    users: int
    number: int
    wait: float
    attempt: Attempt


class ClientPaused(msgspec.Struct, frozen=True, kw_only=True):
    """The service asked to wait: nothing starts for ``seconds``."""

    seconds: float


class RequestSplit(msgspec.Struct, frozen=True, kw_only=True):
    """A rejected request of ``users`` users in ``calls`` calls is sent again in parts."""

    status: int
    users: int
    calls: int


class SendAbandoned(msgspec.Struct, frozen=True, kw_only=True):
    """How a send ended whose caller had stopped waiting: cancelled, or past its deadline."""

    outcome: Outcome
    user_ids: tuple[str, ...]
    attempts: tuple[Attempt, ...] = ()

    def __repr__(self) -> str:
        return f"SendAbandoned(outcome={self.outcome!s}, users={len(self.user_ids)}, attempts={len(self.attempts)})"

    def __rich_repr__(self) -> list[tuple[str, object]]:
        return [("outcome", self.outcome), ("users", len(self.user_ids))]


Event = AttemptEnded | RetryScheduled | ClientPaused | RequestSplit | SendAbandoned


set_public_module(__name__)
