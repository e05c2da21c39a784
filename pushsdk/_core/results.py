"""Values that calls return: frozen, without user ids in their repr."""

import msgspec

from pushsdk._core.events import SendAbandoned
from pushsdk._core.outcome import Attempt, Outcome
from pushsdk._public import set_public_module

__all__ = ["ClientStats", "Counters", "DrainReport", "Receipt"]


class Receipt(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The result of a call whose users were all accepted. Not a delivery receipt.

    ``users`` is the number of distinct users, ``duplicates`` the number of ids left out because they occurred before,
    ``requests`` the number of requests for the call, ``attempts`` the tries on the wire, oldest first.
    ``already_accepted`` is the number of users accepted by an earlier call with the same ``idempotency_key``.
    """

    users: int
    duplicates: int = 0
    requests: int = 1
    attempts: tuple[Attempt, ...] = ()
    already_accepted: int = 0

    @property
    def outcome(self) -> Outcome:
        """Always ACCEPTED: any other outcome is raised."""
        return Outcome.ACCEPTED

    @property
    def status(self) -> int | None:
        """The HTTP status of the last attempt, usually 204; None if nothing was sent."""
        return self.attempts[-1].status if self.attempts else None


class DrainReport(msgspec.Struct, frozen=True, kw_only=True):
    """The outcomes of calls that ended during ``aclose``, as user ids.

    ``abandoned`` has the last 1000 sends that ended after their caller had stopped waiting.
    """

    accepted: tuple[str, ...] = ()
    rejected: tuple[str, ...] = ()
    not_sent: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()
    abandoned: tuple[SendAbandoned, ...] = ()

    def __repr__(self) -> str:
        return (
            f"DrainReport(accepted={len(self.accepted)}, rejected={len(self.rejected)}, "
            f"not_sent={len(self.not_sent)}, unknown={len(self.unknown)}, abandoned={len(self.abandoned)})"
        )

    def __rich_repr__(self) -> list[tuple[str, int]]:
        return [(name, len(getattr(self, name))) for name in self.__struct_fields__]


class ClientStats(msgspec.Struct, frozen=True, kw_only=True):
    """The counters of a client since its creation.

    Users by outcome; ``requests`` merged or single, ``attempts`` on the wire with ``retries`` among them,
    ``stale_connections`` replaced, ``abandoned`` sends. Current values: requests ``in_flight``, ``queued_users``,
    ``queued_bytes``, ``retry_tokens`` left of 500, and seconds until the pause of the client ends (``paused``).
    """

    accepted: int = 0
    rejected: int = 0
    not_sent: int = 0
    unknown: int = 0
    campaigns: int = 0
    requests: int = 0
    attempts: int = 0
    retries: int = 0
    splits: int = 0
    stale_connections: int = 0
    abandoned: int = 0
    in_flight: int = 0
    queued_users: int = 0
    queued_bytes: int = 0
    retry_tokens: int = 0
    paused: float = 0.0


class Counters:
    """The counters behind ``ClientStats``. Incremented by the shell; never reset."""

    __slots__ = (
        "abandoned",
        "attempts",
        "campaigns",
        "requests",
        "retries",
        "splits",
        "stale_connections",
        "users",
    )

    def __init__(self) -> None:
        self.users = dict.fromkeys(Outcome, 0)
        self.abandoned = 0
        self.attempts = 0
        self.campaigns = 0
        self.requests = 0
        self.retries = 0
        self.splits = 0
        self.stale_connections = 0


set_public_module(__name__)
