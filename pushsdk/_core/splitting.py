"""Splitting a rejected request, to isolate the user or call to blame and send to all others.

Decides which parts to send next; ``_io`` sends them and reports the verdicts. Only a REJECTED part is split: after an
UNKNOWN users could be pushed twice. This package assumes that a 4xx enqueued nothing; ``Batching.split_on`` can be
empty to switch splitting off.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence, Set, Sized
from itertools import accumulate, pairwise
from typing import Any, Generic, Protocol, Self, TypeVar

import msgspec

from pushsdk._core.batching import Call
from pushsdk._core.body import EncodedIds, encode_texts, join_ids
from pushsdk._core.learned_limit import LearnedLimit
from pushsdk._core.outcome import Attempt, GuardedValue, Outcome, Verdict

TOO_LARGE = 413
# Number of units that are sent alone before the message may be to blame.
PROBES = 8


class CallPart(GuardedValue, frozen=True, eq=False, gc=False):
    """Some users in one call."""

    call: Call
    users: tuple[str, ...]
    ids: EncodedIds

    @property
    def deadline(self) -> float:
        return self.call.deadline

    @property
    def ask(self) -> Any:
        return self.call.ask

    def settle(self, users: tuple[str, ...], verdict: Verdict, receipt: object = None) -> bool:
        """See ``Call.settle``."""
        return self.call.settle(users, verdict, receipt)


class BatchPart(GuardedValue, frozen=True, eq=False, gc=False):
    """One request's content: calls or call parts, and the attempts of the larger parts it was split from."""

    units: Sequence[Call | CallPart]
    users: int
    ids: EncodedIds
    history: tuple[Attempt, ...] = ()

    @classmethod
    def of(cls, units: Sequence[Call | CallPart], history: tuple[Attempt, ...] = ()) -> BatchPart:
        """Return a part with these calls or call parts."""
        users = sum([len(unit.users) for unit in units])
        return cls(units, users, join_ids([unit.ids for unit in units]), history)

    def bisect(self, history: tuple[Attempt, ...] = ()) -> list[BatchPart]:
        """Return two parts with about half the users each, or this one user. A call is cut only if it is alone."""
        if len(self.units) > 1:
            ends = list(accumulate([len(unit.users) for unit in self.units[:-1]]))
            middle = min(ends, key=lambda users: abs(2 * users - self.users))
            return self.split(history, [ends.index(middle) + 1])
        (unit,) = self.units
        middle = (self.users + 1) // 2
        halves = (unit.users[:middle], unit.users[middle:])
        return [BatchPart.of([CallPart(unit.call, users, encode_texts(users))], history) for users in halves if users]

    def split(self, history: tuple[Attempt, ...], at: Sequence[int]) -> list[BatchPart]:
        """Return the parts between these positions among the units."""
        return [BatchPart.of(self.units[start:stop], history) for start, stop in pairwise((0, *at, len(self.units)))]


class MessageRecord(msgspec.Struct, eq=False, gc=False):
    """One message's results so far."""

    accepted: bool = False
    """Set once the service accepted the message for any user: from then on the message is never to blame."""
    is_rejected: bool = False
    """Set once the message itself, not a user, seems to be rejected. Means nothing if ``accepted`` is set."""


class Splittable(Protocol):
    """One request's content that can be split: a ``BatchPart``, or a run's ``ChunkRequest``.

    A rejection can be traced to these units: calls, or users.
    """

    @property
    def users(self) -> int: ...

    @property
    def ids(self) -> EncodedIds: ...

    @property
    def units(self) -> Sized: ...

    def bisect(self, history: tuple[Attempt, ...] = ()) -> list[Self]: ...

    def split(self, history: tuple[Attempt, ...], at: Sequence[int]) -> list[Self]: ...


P = TypeVar("P", bound=Splittable)


Rejected = tuple[P, Verdict]
"""A part, and the verdict on the last request that contained it."""


class Splitter(Generic[P]):
    """A splitter for one batch. Send the parts from ``next_wave`` and ``report`` each verdict, until a wave is empty.

    The parts in a wave may be sent at the same time. Until the message is accepted once, 8 units are sent alone first
    (one unit, if the message was to blame before): if all are rejected, the message is to blame and the rest is not
    sent. Otherwise the blocks between those units are sent and bisected: one culprit among n units takes at most
    2*ceil(log2 n) requests.
    """

    def __init__(
        self, parts: Iterable[P], *, split_on: Set[int], learned: LearnedLimit, frame: int, message: MessageRecord
    ) -> None:
        self._learned = learned
        self._split_on = split_on
        # Request body bytes without ids.
        self._frame = frame
        #: The message's record, shared by all its requests.
        self.message = message
        self._ready = list(parts)
        # Parts that were too large, blocks that contain a culprit, and blocks between the units that were sent alone.
        self._large: list[Rejected[P]] = []
        self._suspects: list[Rejected[P]] = []
        self._left_out: list[Rejected[P]] = []
        self._smallest_failed = False
        # The users in requests that were too large. Learned once the message is accepted: it was not to blame.
        self._refused: list[int] = []
        # Set when units are sent alone; unset when one of them is not rejected.
        self._probes_failed = False

    def report(self, part: P, verdict: Verdict) -> bool:
        """Record the verdict on a part. Return False if the part will be split.

        A part whose users have all left tells nothing.
        """
        if not part.units or verdict.outcome is not Outcome.REJECTED or verdict.status not in self._split_on:
            self._probes_failed = False
            self.message.accepted |= verdict.outcome is Outcome.ACCEPTED
            return True
        if verdict.status != TOO_LARGE:
            if len(part.units) == 1:
                return True
            self._suspects.append((part, verdict))
            return False
        # If the message is most of the bytes, fewer users don't make it fit.
        if part.users == 1 or len(part.ids) < self._frame:
            self._smallest_failed = True
            return True
        self._refused.append(part.users)
        self._large.append((part, verdict))
        return False

    def next_wave(self) -> list[P]:
        """Return the parts to send now; none when nothing is left to send (then see ``rest``)."""
        self._learn()
        message = self.message
        if not self._ready and (message.accepted or not message.is_rejected):
            self._bisect_large()
        if not self._ready and (message.accepted or not self._probes_failed):
            self._bisect_suspects()
        wave, self._ready = self._ready, []
        return wave

    def _learn(self) -> None:
        """Learn from the last wave, about sizes and about the message."""
        while self.message.accepted and self._refused:
            self._learned.learn(self._refused.pop())
        # The message was too large for a single user, or was rejected for every unit that was sent alone.
        if (self._large and self._smallest_failed) or (self._left_out and self._probes_failed):
            self.message.is_rejected = True

    def rest(self) -> list[Rejected[P]]:
        """Return the parts that are not sent again, each with its last verdict."""
        rest = [*self._large, *self._suspects, *self._left_out]
        for parts in (self._large, self._suspects, self._left_out):
            parts.clear()
        return rest

    def narrow(self, left: Callable[[P, Verdict], P]) -> None:
        """Replace each part that waits by ``left``, which may leave units out; a part without units goes."""
        for parts in (self._large, self._suspects, self._left_out):
            narrowed = [(left(part, verdict), verdict) for part, verdict in parts]
            parts[:] = [waiting for waiting in narrowed if waiting[0].units]

    def _bisect_large(self) -> None:
        """Bisect one part until a request is accepted, then all."""
        for _ in range(len(self._large) if self.message.accepted else min(1, len(self._large))):
            part, verdict = self._large.pop()
            self._ready += part.bisect(verdict.attempts)

    def _bisect_suspects(self) -> None:
        """Send units alone while the message may be to blame, then bisect all blocks that contain a culprit."""
        if self._suspects and not (self.message.accepted or self._left_out):
            self._probe(1 if self.message.is_rejected else PROBES)
            return
        self._ready = [part for part, _ in self._left_out]
        for part, verdict in self._suspects:
            middle = len(part.units) // 2
            # Of a part with a culprit, all but one unit may have left: it may not be the culprit.
            self._ready += part.split(verdict.attempts, [middle] if middle else [])
        self._left_out.clear()
        self._suspects.clear()

    def _probe(self, count: int) -> None:
        """Split blocks into units that are sent alone, spread evenly, and the blocks between them."""
        self._probes_failed = True
        blocks, self._suspects = self._suspects[:count], self._suspects[count:]
        for block, verdict in blocks:
            units = len(block.units)
            # Both ends and positions between them, or all units if there are fewer.
            share = -(-count // len(blocks))
            alone = {number * (units - 1) // max(1, share - 1) for number in range(share)}
            edges = sorted({edge for position in alone for edge in (position, position + 1)} - {0, units})
            # Any call in a block may be to blame.
            verdict = msgspec.structs.replace(verdict, shared=True)
            for start, part in zip((0, *edges), block.split(verdict.attempts, edges), strict=True):
                if start in alone:
                    self._ready.append(part)
                else:
                    self._left_out.append((part, verdict))


def within(part: P, users: int) -> Iterator[P]:
    """Yield the part, halved until none has more users."""
    if part.users <= users:
        yield part
        return
    for half in part.bisect():
        yield from within(half, users)
