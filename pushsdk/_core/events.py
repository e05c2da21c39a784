"""Events for ``on_event``. Without texts and key; user ids only in ``SendAbandoned``."""

import msgspec

from pushsdk._core.operations import Endpoint
from pushsdk._core.outcome import Attempt, Outcome
from pushsdk._public import set_public_module

__all__ = ["AttemptEnded", "ClientPaused", "Event", "RequestSplit", "RetryScheduled", "SendAbandoned"]


class AttemptEnded(msgspec.Struct, frozen=True, kw_only=True):
    """An attempt ended. ``number`` is the attempt of the request, from 1; ``users`` is the number of its users."""

    endpoint: Endpoint
    users: int
    number: int
    attempt: Attempt


class RetryScheduled(msgspec.Struct, frozen=True, kw_only=True):
    """The request is retried after ``wait`` seconds; ``attempt`` is the failed attempt."""

    endpoint: Endpoint
    users: int
    number: int
    wait: float
    attempt: Attempt


class ClientPaused(msgspec.Struct, frozen=True, kw_only=True):
    """The service asked to wait: no request starts for ``seconds``."""

    seconds: float


class RequestSplit(msgspec.Struct, frozen=True, kw_only=True):
    """A rejected request with ``users`` users of ``calls`` calls is split and sent in parts."""

    status: int
    users: int
    calls: int


class SendAbandoned(msgspec.Struct, frozen=True, kw_only=True):
    """A send ended after its caller had stopped waiting: cancelled, or past the deadline."""

    outcome: Outcome
    user_ids: tuple[str, ...]
    attempts: tuple[Attempt, ...] = ()

    def __repr__(self) -> str:
        return f"SendAbandoned(outcome={self.outcome!s}, users={len(self.user_ids)}, attempts={len(self.attempts)})"

    def __rich_repr__(self) -> list[tuple[str, object]]:
        return [("outcome", self.outcome), ("users", len(self.user_ids))]


Event = AttemptEnded | RetryScheduled | ClientPaused | RequestSplit | SendAbandoned


set_public_module(__name__)
