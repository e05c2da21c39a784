"""How a rejected merged request is split, so that a culprit is found and its neighbours are not punished.

Decides which pieces to send next; the shell sends them and reports the verdicts. Only a piece whose verdict is
REJECTED is split: behind an UNKNOWN somebody would be pushed twice. That a 4xx enqueued nobody is an assumption of
this package; ``Batching.split_on`` switches it off.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterable, Sequence, Set, Sized
from typing import TYPE_CHECKING, Generic, NamedTuple, Protocol, Self, TypeVar

import msgspec

from pushsdk._core import wire
from pushsdk._core.outcome import Attempt, Outcome, Verdict

if TYPE_CHECKING:
    from pushsdk._core.batching import Call

__all__ = [
    "Cuttable",
    "Hopeless",
    "LearnedSizes",
    "Piece",
    "Segment",
    "Settled",
    "Splitter",
    "attempts_of",
    "call_of",
    "pieces_of",
]

TOO_LARGE = 413
# When so many single calls failed, in different corners of the batch, and none was accepted, it is the message.
GIVE_UP_AFTER = 3
# Accepted requests near a learned bound before a larger one is tried; doubled by each trial that fails.
TRIAL_AFTER, TRIAL_AFTER_AT_MOST = 128, 4096


class Segment(msgspec.Struct, frozen=True, eq=False, gc=False):
    """Some of the users of one call, and their ids as JSON without the brackets. A whole call is its own segment."""

    call: Call
    users: tuple[str, ...]
    ids: bytes

    def __repr__(self) -> str:
        return f"Segment(users={len(self.users)})"

    @property
    def deadline(self) -> float:
        """That of its call."""
        return self.call.deadline


class Piece(msgspec.Struct, frozen=True, eq=False, gc=False):
    """What one request carries: segments of one or more calls, and the attempts of the pieces it was cut from."""

    segments: Sequence[Call | Segment]
    users: int
    ids: bytes
    history: tuple[Attempt, ...] = ()

    @classmethod
    def of(cls, segments: Sequence[Call | Segment], history: tuple[Attempt, ...] = ()) -> Piece:
        """A piece of these segments."""
        if len(segments) == 1:
            alone = segments[0]
            return cls(segments, len(alone.users), alone.ids, history)
        users = sum([len(segment.users) for segment in segments])
        return cls(segments, users, b",".join([segment.ids for segment in segments]), history)

    def __repr__(self) -> str:
        return f"Piece(calls={len(self.segments)}, users={self.users})"

    def halves(self, history: tuple[Attempt, ...], *, within_calls: bool) -> list[Piece]:
        """Two pieces of about half the users (``within_calls``) or half the calls."""
        if not within_calls:
            middle = len(self.segments) // 2
            return [Piece.of(self.segments[:middle], history), Piece.of(self.segments[middle:], history)]
        return [
            Piece.of(part, history) for part in _cut(self.segments, max_users=(self.users + 1) // 2, max_bytes=None)
        ]


class LearnedSizes:
    """What the service was too small for: requests stay at half of a size that failed with 413.

    From time to time one request may be up to twice as large: what was halved is tried whole again, so three such
    trials undo three halvings. A trial comes after 128 accepted requests near the bound; one that fails doubles that
    number, up to 4096, and one that succeeds sets it back. So less than 1 % of the requests are trials that fail, and
    where the limit is raised it is found out within some 4096 requests. More bytes are tried before more users: which
    of them was too many is not known, and ids differ in length.
    """

    __slots__ = ("_accepted", "_every", "_passed_on", "_proven", "_trial", "bytes", "users")

    def __init__(self) -> None:
        #: The largest request to merge from now on, in users and in bytes of its body; None until a 413. Twice what
        #: is proven while a trial is due.
        self.users: int | None = None
        self.bytes: int | None = None
        # What ``users`` and ``bytes`` are without the trial that is due; None while none is.
        self._proven: tuple[int | None, int | None] | None = None
        # Accepted requests near the bound since the last trial, and how many there have to be before the next.
        self._accepted = 0
        self._every = TRIAL_AFTER
        # Whether one with more users was asked for since the trial is due, and was not granted.
        self._passed_on = False
        # The users and bytes of the trial on its way.
        self._trial: tuple[int, int] | None = None

    @property
    def proven(self) -> tuple[int | None, int | None]:
        """The bounds in users and bytes without any trial; None until a 413."""
        return self._proven or (self.users, self.bytes)

    def fits(self, users: int, frame: int, ids: int) -> bool:
        """Whether a request of this size may be sent now. It may be granted as the trial: ask once, then send it."""
        size = frame + ids
        max_users, max_bytes = self.proven
        if max_users is None or max_bytes is None:
            return True
        # Where the frame is most of the bound or of the request, fewer ids would not make it fit.
        if users <= max_users and (size <= max_bytes or frame * 2 > max_bytes):
            return True
        if users == 1 or ids * 2 < size:
            return True
        if self._proven is None or users > 2 * max_users or size > 2 * max_bytes:
            return False
        if users > max_users and not self._passed_on:
            self._passed_on = True
            return False
        self._trial = (users, size)
        self.forget(max_users, max_bytes)
        return True

    def accepted(self, users: int, size: int) -> None:
        """A request of this size, its frame included, was accepted."""
        max_users, max_bytes = self.proven
        if max_users is None or max_bytes is None:
            return
        if (users, size) == self._trial:
            self._trial = None
            self._every = TRIAL_AFTER
            self.forget(max(max_users, users), max(max_bytes, size))
        elif self._proven is None and (users * 2 > max_users or size * 2 > max_bytes):
            self._accepted += 1
            if self._accepted >= self._every:
                self._proven = (max_users, max_bytes)
                self.users, self.bytes = max_users * 2, max_bytes * 2

    def learn(self, users: int, frame: int, ids: int) -> None:
        """A request of this size was too large. Its frame can't be made smaller, its ids can."""
        if (users, frame + ids) == self._trial:
            self._trial = None
            self._every = min(self._every * 2, TRIAL_AFTER_AT_MOST)
            return
        # The larger half has one user more, and some bytes.
        half, size = (users + 1) // 2, frame + ids // 2 + ids // 16
        max_users, max_bytes = self.proven
        self.forget(min(max_users or half, half), min(max_bytes or size, size))

    def bytes_for(self, frame: int) -> int | None:
        """The bound on a body with this frame; None where the frame alone is most of what the bound was learned for."""
        return None if self.bytes is None or frame * 2 > self.bytes else self.bytes

    def forget(self, users: int | None, size: int | None) -> None:
        """Back to these bounds, as after a size that was not to blame; the next trial is a while away."""
        self.users, self.bytes = users, size
        self._proven = None
        self._passed_on = False
        self._accepted = 0


class Hopeless:
    """The messages that were rejected for everybody: not worth splitting. Bounded; an acceptance clears one."""

    __slots__ = ("_keys",)

    def __init__(self) -> None:
        self._keys: dict[Hashable, None] = {}

    def __contains__(self, key: Hashable) -> bool:
        return key in self._keys

    def add(self, key: Hashable) -> None:
        """This message was rejected for everybody."""
        if len(self._keys) >= 256:
            del self._keys[next(iter(self._keys))]
        self._keys[key] = None

    def discard(self, key: Hashable) -> None:
        """This message was accepted for somebody."""
        if self._keys:
            self._keys.pop(key, None)


class Cuttable(Protocol):
    """What one request carries, and can be cut: a ``Piece`` of calls, or a part of a broadcast."""

    @property
    def users(self) -> int:
        """How many."""
        ...

    @property
    def ids(self) -> bytes:
        """They as JSON without the brackets."""
        ...

    @property
    def segments(self) -> Sized:
        """The units that a rejection is pinned down to: calls, or users."""
        ...

    def halves(self, history: tuple[Attempt, ...], *, within_calls: bool) -> list[Self]:
        """Two of about half the users (``within_calls``) or half the units."""
        ...


P = TypeVar("P", bound=Cuttable)


class Settled(NamedTuple, Generic[P]):
    """A piece that is through, and how it ended."""

    piece: P
    verdict: Verdict


class Splitter(Generic[P]):
    """The splitting of one batch. Send what ``next_wave`` gives, ``report`` each verdict, until a wave is empty.

    The pieces of a wave may be sent at the same time. For one culprit among n calls it takes at most 2*ceil(log2 n)
    extra requests: both halves of the block it is in, level by level.
    """

    __slots__ = (
        "_accepted",
        "_before",
        "_failed",
        "_frame",
        "_large",
        "_ready",
        "_smallest_failed",
        "_split_on",
        "_suspects",
        "_worth",
        "gave_up",
        "sizes",
    )

    def __init__(
        self,
        pieces: Iterable[P],
        *,
        split_on: Set[int],
        sizes: LearnedSizes,
        frame: int,
        worth: bool,
    ) -> None:
        self.sizes = sizes
        #: Set when the rest was rejected unseen, because the message fails for everybody.
        self.gave_up = False
        self._split_on = split_on
        # Bytes of a body that are not ids.
        self._frame = frame
        self._worth = worth
        self._ready = list(pieces)
        # Pieces that were too large, and blocks that hold a culprit.
        self._large: list[Settled[P]] = []
        self._suspects: deque[Settled[P]] = deque()
        self._smallest_failed = False
        self._before = sizes.proven
        self._accepted = False
        self._failed = 0

    def report(self, piece: P, verdict: Verdict) -> Settled[P] | None:
        """How a piece ended: settled, or None where it is to be split."""
        if verdict.outcome is Outcome.ACCEPTED:
            self._accepted = True
            self.sizes.accepted(piece.users, self._frame + len(piece.ids))
        elif verdict.outcome is Outcome.REJECTED and verdict.status in self._split_on:
            if verdict.status == TOO_LARGE:
                return self._too_large(piece, verdict)
            if len(piece.segments) > 1 and self._worth:
                self._suspects.append(Settled(piece, verdict))
                return None
            self._failed += 1
        return Settled(piece, verdict)

    def next_wave(self) -> list[P]:
        """The pieces to send now; empty when all are through (then see ``rest``)."""
        if not self._ready:
            self._halve()
        if not self._ready:
            self._bisect()
        wave, self._ready = self._ready, []
        return wave

    def rest(self) -> list[Settled[P]]:
        """The pieces that were given up, once ``next_wave`` is empty: rejected as they were when last sent."""
        left = [*self._large, *self._suspects]
        self._large.clear()
        self._suspects.clear()
        return left

    def _too_large(self, piece: P, verdict: Verdict) -> Settled[P] | None:
        # Where the message is most of the bytes, fewer users don't make it fit.
        if piece.users == 1 or len(piece.ids) * 2 < self._frame + len(piece.ids) or not self._worth:
            self._smallest_failed = True
            return Settled(piece, verdict)
        self.sizes.learn(piece.users, self._frame, len(piece.ids))
        self._large.append(Settled(piece, verdict))
        return None

    def _halve(self) -> None:
        """What was too large, in halves: one of them until something fits, then all."""
        if self._smallest_failed and not self._accepted:
            # Nothing is small enough: it is not the size, and nothing is learned from it.
            self.gave_up = True
            self.sizes.forget(*self._before)
            return
        count = len(self._large) if self._accepted else min(1, len(self._large))
        for _ in range(count):
            piece, verdict = self._large.pop()
            self._ready += piece.halves(verdict.attempts, within_calls=True)

    def _bisect(self) -> None:
        """The block that most likely holds a culprit, in halves along its calls."""
        # So many failed alone, and nobody was accepted: the message is to blame.
        self.gave_up = self.gave_up or (not self._accepted and self._failed >= GIVE_UP_AFTER)
        if self._suspects and not self.gave_up:
            # While nothing was accepted, look in the corner farthest from where the last one failed.
            far = self._failed and not self._accepted
            piece, verdict = self._suspects.popleft() if far else self._suspects.pop()
            self._ready = piece.halves(verdict.attempts, within_calls=False)


def pieces_of(calls: Sequence[Call], sizes: LearnedSizes, frame: int) -> list[Piece]:
    """The requests that carry these calls: one, unless that is larger than the service was found to take."""
    whole = Piece.of(calls)
    if sizes.fits(whole.users, frame, len(whole.ids)):
        return [whole]
    max_users, max_bytes = sizes.proven
    room = None if max_bytes is None or frame * 2 > max_bytes else max_bytes - frame
    return [Piece.of(part) for part in _cut(calls, max_users=max_users or whole.users, max_bytes=room)]


def _cut(segments: Iterable[Call | Segment], *, max_users: int, max_bytes: int | None) -> list[list[Call | Segment]]:
    """The segments in groups within the bounds, in order; a single user may be over ``max_bytes``."""
    groups: list[list[Call | Segment]] = [[]]
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


def _shares(segment: Call | Segment, max_users: int, max_bytes: int | None) -> Sequence[Call | Segment]:
    """The segment, cut where it alone is over the bounds."""
    if len(segment.users) <= max_users and (max_bytes is None or len(segment.ids) <= max_bytes):
        return [segment]
    call = call_of(segment)
    ids = [wire.encode_user_ids((user,))[1:-1] for user in segment.users]
    shares: list[Segment] = []
    start = size = 0
    for end, one in enumerate(ids):
        if end > start and (end - start >= max_users or (max_bytes is not None and size + len(one) > max_bytes)):
            shares.append(Segment(call, segment.users[start:end], b",".join(ids[start:end])))
            start, size = end, 0
        size += len(one) + 1
    shares.append(Segment(call, segment.users[start:], b",".join(ids[start:])))
    return shares


def call_of(segment: Call | Segment) -> Call:
    """The call that the segment is of."""
    return segment.call if isinstance(segment, Segment) else segment


def attempts_of(parts: Iterable[tuple[tuple[str, ...], Verdict]]) -> tuple[Attempt, ...]:
    """The attempts behind these verdicts, each once, oldest first."""
    seen: dict[int, Attempt] = {}
    for _, verdict in parts:
        for attempt in verdict.attempts:
            seen.setdefault(id(attempt), attempt)
    return tuple(sorted(seen.values(), key=lambda attempt: attempt.started))
