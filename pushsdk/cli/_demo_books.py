"""The client's books against the service's: pure functions over what each of the two says, and what came of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct

from pushsdk import Outcome

__all__ = ["Comparison", "Result", "compare"]


class Comparison(Struct, frozen=True, kw_only=True):
    """What the client reported of the users, and what the service knows of the same users."""

    reported: Mapping[Outcome, int]
    """Users by the outcome that the client reported."""
    taken: Mapping[Outcome, int]
    """How many of these the service accepted, once or more often."""
    doubled: int
    """Users that the service accepted more than once."""
    strangers: int
    """Users that the service accepted and nobody reported."""
    retold: int
    """Users of whom the client reported more than one outcome."""

    @property
    def lost(self) -> int:
        """Users reported as ACCEPTED that the service never accepted."""
        return self.reported[Outcome.ACCEPTED] - self.taken[Outcome.ACCEPTED]

    @property
    def served(self) -> int:
        """Users that the service accepted, each counted once."""
        return sum(self.taken.values()) + self.strangers

    @property
    def denied(self) -> int:
        """Users reported as REJECTED or NOT_SENT that the service accepted all the same."""
        return self.taken[Outcome.REJECTED] + self.taken[Outcome.NOT_SENT]

    @property
    def complaints(self) -> list[str]:
        """Where the two disagree, in words; empty where they agree.

        Without any, the service's users are those reported ACCEPTED and the UNKNOWN that it did take.
        """
        counts = (
            (self.lost, "lost"),
            (self.doubled, "doubled"),
            (self.denied, "accepted, yet reported REJECTED or NOT_SENT"),
            (self.strangers, "accepted, yet never reported"),
            (self.retold, "reported twice"),
        )
        return [f"{count:,} {what}" for count, what in counts if count]


def compare(reported: Sequence[tuple[str, Outcome]], oracle: Mapping[str, int]) -> Comparison:
    """Hold what the client reported of each user against the service's count of acceptances of each."""
    ended = dict(reported)
    taken = [outcome for user, outcome in ended.items() if oracle.get(user)]
    return Comparison(
        reported=_count(outcome for _, outcome in reported),
        taken=_count(taken),
        doubled=sum(1 for times in oracle.values() if times > 1),
        strangers=len(oracle.keys() - ended.keys()),
        retold=len(reported) - len(ended),
    )


def _count(outcomes: Iterable[Outcome]) -> dict[Outcome, int]:
    counts = Counter(outcomes)
    return {outcome: counts[outcome] for outcome in Outcome}


class Result(Struct, frozen=True, kw_only=True):
    """What the demo found: the comparison, and what else the service knows of its own."""

    users: Comparison
    created: Sequence[str]
    """The uuids of the campaigns that the client reported as created."""
    campaigns: Sequence[str]
    """Those of the campaigns that the service has."""
    pushes: int
    """Requests that the service accepted."""
    faults: Mapping[str, int]
    """How often each rule acted."""
    seconds: float

    @property
    def complaints(self) -> list[str]:
        """Where the two sides disagree, in words; empty where they agree."""
        campaigns = [] if self.created == self.campaigns else ["the campaigns differ"]
        return self.users.complaints + campaigns

    def as_json(self) -> dict[str, object]:
        """The result as plain data: what ``pushsdk demo --json`` prints."""
        return {
            "client": {outcome.value: count for outcome, count in self.users.reported.items()},
            "service": {"users": self.users.served, "pushes": self.pushes, "campaigns": len(self.campaigns)},
            "faults": dict(self.faults),
            "lost": self.users.lost,
            "doubled": self.users.doubled,
            "seconds": round(self.seconds, 3),
        }
