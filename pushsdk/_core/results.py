"""What calls return: plain frozen values, without user ids in their repr."""

import msgspec

from pushsdk._core.events import SendAbandoned
from pushsdk._core.outcome import Attempt, Outcome
from pushsdk._public import set_public_module

__all__ = ["ClientStats", "Counters", "DrainReport", "Receipt"]


class Receipt(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Every user of the call was accepted.

    ``users`` is how many, each counted once; ``duplicates`` how many ids of the call were repetitions and left out;
    ``requests`` how many requests carried them; ``attempts`` what was tried on the wire for them, oldest first.
    ``already_accepted`` is how many an earlier call with the same ``idempotency_key`` had reached.
    """

    users: int
    duplicates: int = 0
    requests: int = 1
    attempts: tuple[Attempt, ...] = ()
    already_accepted: int = 0

    @property
    def outcome(self) -> Outcome:
        """Always ACCEPTED: whatever else happened is raised."""
        return Outcome.ACCEPTED

    @property
    def status(self) -> int | None:
        """The HTTP status of the last attempt: 204 by the interface (section 4.2)."""
        return self.attempts[-1].status if self.attempts else None


class DrainReport(msgspec.Struct, frozen=True, kw_only=True):
    """What ``aclose`` left behind: whom the client was still asked to push to, and how that ended.

    The tuples hold user ids: of calls that ended while the client drained, and of sends whose caller had stopped
    waiting before (``abandoned``, the last 1000 of them in full).
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
    """A reading of the client's counters, since it was made.

    Users by outcome; ``requests`` merged or single, ``attempts`` on the wire, ``retries`` among them,
    ``stale_connections`` replaced; and as of now: requests ``in_flight``, ``queued_users`` and ``queued_bytes``,
    ``retry_tokens`` left of 500, seconds until the client's pause ends (``paused``), ``abandoned`` sends.
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
    """The counters behind ``ClientStats``. Counted up by the shell; never reset."""

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
