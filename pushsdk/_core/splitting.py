"""How a rejected merged request is split, so that a culprit is found and its neighbours are not punished.

Decides which pieces to send next; the shell sends them and reports the verdicts. Only a piece whose verdict is
REJECTED is split: behind an UNKNOWN somebody would be pushed twice. That a 4xx enqueued nobody is an assumption of
this package; ``Batching.split_on`` switches it off.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence, Set, Sized
from itertools import pairwise
from typing import TYPE_CHECKING, Generic, Protocol, Self, TypeVar

import msgspec

from pushsdk._core import wire
from pushsdk._core.outcome import Attempt, Outcome, Verdict

if TYPE_CHECKING:
    from pushsdk._core.batching import Call

__all__ = [
    "BatchPart",
    "CallPart",
    "LearnedSizes",
    "MessageRecord",
    "MessageRecords",
    "Rejected",
    "Splittable",
    "Splitter",
    "attempts_of",
    "call_of",
    "split_calls",
]

TOO_LARGE = 413
# Units sent alone, from spread corners, before a message may be to blame.
PROBES = 8


class CallPart(msgspec.Struct, frozen=True, eq=False, gc=False):
    """Some of the users of one call, and their ids as JSON without the brackets. A whole call is its own segment."""

    call: Call
    users: tuple[str, ...]
    ids: bytes

    def __repr__(self) -> str:
        return f"CallPart(users={len(self.users)})"

    @property
    def deadline(self) -> float:
        """That of its call."""
        return self.call.deadline


class BatchPart(msgspec.Struct, frozen=True, eq=False, gc=False):
    """What one request carries: segments of one or more calls, and the attempts of the pieces it was cut from."""

    units: Sequence[Call | CallPart]
    users: int
    ids: bytes
    history: tuple[Attempt, ...] = ()

    @classmethod
    def of(cls, segments: Sequence[Call | CallPart], history: tuple[Attempt, ...] = ()) -> BatchPart:
        """A piece of these segments."""
        if len(segments) == 1:
            alone = segments[0]
            return cls(segments, len(alone.users), alone.ids, history)
        users = sum([len(segment.users) for segment in segments])
        return cls(segments, users, b",".join([segment.ids for segment in segments]), history)

    def __repr__(self) -> str:
        return f"BatchPart(calls={len(self.units)}, users={self.users})"

    def bisect(self, history: tuple[Attempt, ...]) -> list[BatchPart]:
        """Two pieces of about half the users."""
        parts = _cut(self.units, max_users=(self.users + 1) // 2, max_bytes=None)
        return [BatchPart.of(part, history) for part in parts]

    def split(self, history: tuple[Attempt, ...], at: Sequence[int]) -> list[BatchPart]:
        """The pieces between these places among the calls."""
        return [BatchPart.of(self.units[start:stop], history) for start, stop in pairwise((0, *at, len(self.units)))]


class LearnedSizes:
    """Bounds learned from 413: half of the smallest request that was too large. They only shrink."""

    __slots__ = ("bytes", "users")

    def __init__(self) -> None:
        #: The largest request to merge from now on, in users and in bytes of its body; None until a 413.
        self.users: int | None = None
        self.bytes: int | None = None

    def fits(self, users: int, frame: int, ids: int) -> bool:
        """Return True if a request of this size is within the bounds, or if fewer ids would not make it fit."""
        if self.users is None or users == 1 or ids < frame:
            return True
        max_bytes = self.bytes_for(frame)
        return users <= self.users and (max_bytes is None or frame + ids <= max_bytes)

    def learn(self, users: int, frame: int, ids: int) -> None:
        """A request of this size was too large. Its frame can't be made smaller, its ids can."""
        # The larger half has one user more, and some bytes.
        half, size = (users + 1) // 2, frame + ids // 2 + ids // 16
        self.users, self.bytes = min(self.users or half, half), min(self.bytes or size, size)

    def bytes_for(self, frame: int) -> int | None:
        """The bound on a body with this frame; None if the frame alone is most of what the bound was learned for."""
        return None if self.bytes is None or frame * 2 > self.bytes else self.bytes


class MessageRecord(msgspec.Struct, eq=False):
    """The answers to one message so far."""

    accepted: bool = False
    """Set once the service accepted the message for any user: from then on the message is never to blame."""
    is_rejected: bool = False
    """Set once the message itself, not a user, seems to be rejected. Means nothing if ``accepted`` is set."""


class MessageRecords:
    """The records of the last 256 messages."""

    __slots__ = ("_records",)

    def __init__(self) -> None:
        self._records: dict[Hashable, MessageRecord] = {}

    def record(self, key: Hashable) -> MessageRecord:
        """Return the record of this message, a new one if there is none."""
        record = self._records.get(key)
        if record is None:
            if len(self._records) >= 256:
                del self._records[next(iter(self._records))]
            record = self._records[key] = MessageRecord()
        return record


class Splittable(Protocol):
    """What one request carries, and can be cut: a ``BatchPart`` of calls, or a part of a broadcast."""

    @property
    def users(self) -> int:
        """How many."""
        ...

    @property
    def ids(self) -> bytes:
        """They as JSON without the brackets."""
        ...

    @property
    def units(self) -> Sized:
        """The units that a rejection is pinned down to: calls, or users."""
        ...

    def bisect(self, history: tuple[Attempt, ...]) -> list[Self]:
        """Two of about half the users."""
        ...

    def split(self, history: tuple[Attempt, ...], at: Sequence[int]) -> list[Self]:
        """The parts between these places among the units."""
        ...


P = TypeVar("P", bound=Splittable)


Rejected = tuple[P, Verdict]
"""A piece, and the verdict on the last request that carried it."""


class Splitter(Generic[P]):
    """The splitting of one batch. Send what ``next_wave`` gives, ``report`` each verdict, until a wave is empty.

    The pieces of a wave may be sent at the same time. While nothing with this message was accepted, 8 units are sent
    alone first (one, if the message was to blame before): if all are rejected, the message is to blame and the rest is
    not sent. Else the blocks between those units are sent and bisected: for one culprit among n units that takes at
    most 2*ceil(log2 n) requests.
    """

    __slots__ = (
        "_frame",
        "_large",
        "_left_out",
        "_message",
        "_probes_failed",
        "_ready",
        "_refused",
        "_sizes",
        "_smallest_failed",
        "_split_on",
        "_suspects",
    )

    def __init__(
        self, pieces: Iterable[P], *, split_on: Set[int], sizes: LearnedSizes, frame: int, message: MessageRecord
    ) -> None:
        self._sizes = sizes
        self._split_on = split_on
        # Bytes of a body that are not ids.
        self._frame = frame
        # Shared with whatever else is sent with this message.
        self._message = message
        self._ready = list(pieces)
        # Pieces that were too large, blocks that hold a culprit, and blocks between the units that were sent alone.
        self._large: list[Rejected[P]] = []
        self._suspects: list[Rejected[P]] = []
        self._left_out: list[Rejected[P]] = []
        self._smallest_failed = False
        # Sizes that were too large, until something with this message is accepted: only then it was the size.
        self._refused: list[tuple[int, int, int]] = []
        # Set when units are sent alone, until one of them ends in another way than rejected.
        self._probes_failed = False

    def report(self, piece: P, verdict: Verdict) -> bool:
        """Take the verdict on a piece. False if the piece is to be split."""
        if verdict.outcome is not Outcome.REJECTED or verdict.status not in self._split_on:
            self._probes_failed = False
            self._message.accepted |= verdict.outcome is Outcome.ACCEPTED
            return True
        if verdict.status != TOO_LARGE:
            if len(piece.units) == 1:
                return True
            self._suspects.append((piece, verdict))
            return False
        # If the message is most of the bytes, fewer users don't make it fit.
        if piece.users == 1 or len(piece.ids) < self._frame:
            self._smallest_failed = True
            return True
        self._refused.append((piece.users, self._frame, len(piece.ids)))
        self._large.append((piece, verdict))
        return False

    def next_wave(self) -> list[P]:
        """Return the pieces to send now; none when nothing is left to send (then see ``rest``)."""
        message = self._message
        while message.accepted and self._refused:
            self._sizes.learn(*self._refused.pop())
        # A message is too large for a single user, or for each user who was sent to alone.
        if (self._large and self._smallest_failed) or (self._left_out and self._probes_failed):
            message.is_rejected = True
        if not self._ready and (message.accepted or not message.is_rejected):
            self._halve()
        if not self._ready and (message.accepted or not self._probes_failed):
            self._bisect()
        wave, self._ready = self._ready, []
        return wave

    def rest(self) -> list[Rejected[P]]:
        """Return the pieces that are not sent again, rejected as they were when last sent."""
        rest = [*self._large, *self._suspects, *self._left_out]
        for pieces in (self._large, self._suspects, self._left_out):
            pieces.clear()
        return rest

    def _halve(self) -> None:
        """Cut pieces that were too large in halves: one piece until something fits, then all."""
        for _ in range(len(self._large) if self._message.accepted else min(1, len(self._large))):
            piece, verdict = self._large.pop()
            self._ready += piece.bisect(verdict.attempts)

    def _bisect(self) -> None:
        """Send units alone while the message may be to blame, else all blocks that hold a culprit, in halves."""
        if self._suspects and not (self._message.accepted or self._left_out):
            self._probe(1 if self._message.is_rejected else PROBES)
            return
        self._ready = [piece for piece, _ in self._left_out]
        for piece, verdict in self._suspects:
            self._ready += piece.split(verdict.attempts, [len(piece.units) // 2])
        self._left_out.clear()
        self._suspects.clear()

    def _probe(self, count: int) -> None:
        """Cut some blocks into units that are sent alone, from spread corners, and the blocks between them."""
        self._probes_failed = True
        blocks, self._suspects = self._suspects[:count], self._suspects[count:]
        for piece, verdict in blocks:
            units = len(piece.units)
            # Both ends and places between them, or all if there are no more.
            share = -(-count // len(blocks))
            alone = {place * (units - 1) // max(1, share - 1) for place in range(share)}
            edges = sorted({edge for place in alone for edge in (place, place + 1)} - {0, units})
            # Nobody can tell which of the calls of a block was to blame.
            verdict = msgspec.structs.replace(verdict, shared=True)
            for start, part in zip((0, *edges), piece.split(verdict.attempts, edges), strict=True):
                if start in alone:
                    self._ready.append(part)
                else:
                    self._left_out.append((part, verdict))


def split_calls(calls: Sequence[Call], sizes: LearnedSizes, frame: int) -> list[BatchPart]:
    """The requests that carry these calls: one, unless that is larger than the service was found to take."""
    whole = BatchPart.of(calls)
    if sizes.fits(whole.users, frame, len(whole.ids)):
        return [whole]
    max_bytes = sizes.bytes_for(frame)
    room = None if max_bytes is None else max_bytes - frame
    return [BatchPart.of(part) for part in _cut(calls, max_users=sizes.users or whole.users, max_bytes=room)]


def _cut(segments: Iterable[Call | CallPart], *, max_users: int, max_bytes: int | None) -> list[list[Call | CallPart]]:
    """The segments in groups within the bounds, in order; a single user may be over ``max_bytes``."""
    groups: list[list[Call | CallPart]] = [[]]
    users = size = 0
    for segment in segments:
        for part in _shares(segment, max_users, max_bytes):
            # ``size`` counts a comma after each.
            if groups[-1] and (
                users + len(part.users) > max_users or (max_bytes is not None and size + len(part.ids) > max_bytes)
            ):
                groups.append([])
                users = size = 0
            groups[-1].append(part)
            users += len(part.users)
            size += len(part.ids) + 1
    return groups


def _shares(segment: Call | CallPart, max_users: int, max_bytes: int | None) -> Sequence[Call | CallPart]:
    """The segment, cut where it alone is over the bounds."""
    if len(segment.users) <= max_users and (max_bytes is None or len(segment.ids) <= max_bytes):
        return [segment]
    call = call_of(segment)
    ids = [wire.encode_user_ids((user,))[1:-1] for user in segment.users]
    shares: list[CallPart] = []
    start = size = 0
    for end, one in enumerate(ids):
        if end > start and (end - start >= max_users or (max_bytes is not None and size + len(one) > max_bytes)):
            shares.append(CallPart(call, segment.users[start:end], b",".join(ids[start:end])))
            start, size = end, 0
        size += len(one) + 1
    shares.append(CallPart(call, segment.users[start:], b",".join(ids[start:])))
    return shares


def call_of(segment: Call | CallPart) -> Call:
    """The call that the segment is of."""
    return segment.call if isinstance(segment, CallPart) else segment


def attempts_of(parts: Iterable[tuple[tuple[str, ...], Verdict]]) -> tuple[Attempt, ...]:
    """The attempts behind these verdicts, each once, oldest first."""
    seen: dict[int, Attempt] = {}
    for _, verdict in parts:
        for attempt in verdict.attempts:
            seen.setdefault(id(attempt), attempt)
    return tuple(sorted(seen.values(), key=lambda attempt: attempt.started))
