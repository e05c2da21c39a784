"""What the events add up to: the state of every user now, and its sums.

Memory only. A few bytes per chunk; only a chunk whose users are in different states has a list of ranges.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from pushsdk._broadcast.plan import Event, Kind, Piece
from pushsdk._broadcast.report import Tally
from pushsdk._core.outcome import Outcome

__all__ = ["NEVER_SETTLED", "NOT_SENT_YET", "Standing", "State"]

NOT_SENT_YET = "not sent yet"
NEVER_SETTLED = "claimed, and never settled"

# A state as one byte: 0 for planned and never touched, else the kind of the last event plus 1, and a bit for users
# that were ever sent again in doubt.
_RESENT = 8
_SPLIT = 255  # of a chunk: look into its ranges
_KINDS = (Kind.CLAIMED, Kind.RELEASED, Kind.ACCEPTED, Kind.REJECTED, Kind.UNKNOWN, Kind.RESENT)  # by their value
_CODES = tuple(kind + 1 | (_RESENT if kind is Kind.RESENT else 0) for kind in _KINDS)


def _outcome(code: int) -> Outcome:
    match code & ~_RESENT:
        case 0 | 2:
            return Outcome.NOT_SENT
        case 3:
            return Outcome.ACCEPTED
        case 4:
            return Outcome.REJECTED
        case _:
            return Outcome.UNKNOWN


_OUTCOMES = tuple(_outcome(code) for code in range(2 * _RESENT))
_FINAL = (Outcome.ACCEPTED, Outcome.REJECTED)
_UNSETTLED = frozenset(code for kind in (Kind.CLAIMED, Kind.RESENT) for code in (kind + 1, kind + 1 | _RESENT))

# start, stop, code, status, number of the reason
_Range = tuple[int, int, int, int, int]


class Standing(NamedTuple):
    """Neighbouring users of a chunk in the same state, as a report says it."""

    start: int
    stop: int
    outcome: Outcome
    status: int | None
    reason: str


class State:
    """Of every chunk: its users, and what the last events said of them."""

    def __init__(self) -> None:
        #: Users per chunk, in plan order.
        self.sizes = array("I")
        #: Users of all chunks.
        self.users = 0
        self._codes = bytearray()
        self._statuses = array("H")
        self._reasons = array("I")
        # The ranges of chunks whose code is _SPLIT; they cover the chunk.
        self._ranges: dict[int, list[_Range]] = {}
        # Users by code.
        self._counts = [0] * (2 * _RESENT)
        # Reasons are few, and are kept once.
        self._texts = [""]
        self._numbers = {"": 0}

    def extend(self, sizes: Sequence[int]) -> None:
        """More chunks at the end, all planned."""
        users = sum(sizes)
        self.sizes.extend(sizes)
        self.users += users
        self._counts[0] += users
        nothing = bytes(len(sizes))
        self._codes += nothing
        self._statuses.frombytes(nothing * self._statuses.itemsize)
        self._reasons.frombytes(nothing * self._reasons.itemsize)

    def check(self, events: Iterable[Event]) -> None:
        """Raise ``ValueError`` for an event that is about nothing here. What may follow what is not judged."""
        sizes, kinds, chunks = self.sizes, len(_CODES), len(self.sizes)
        for event in events:
            if not (
                0 <= event.chunk < chunks
                and 0 <= event.start < event.stop <= sizes[event.chunk]
                and 0 <= event.kind < kinds
                and 0 <= event.status <= 0xFFFF
            ):
                raise ValueError(
                    f"an event of kind {event.kind} about users {event.start} to {event.stop} of chunk {event.chunk}: "
                    "there are no such users, or no such kind"
                )

    def apply(self, events: Iterable[Event]) -> None:
        """The events happened, in this order. They have been checked."""
        sizes, codes, counts = self.sizes, self._codes, self._counts
        for event in events:
            chunk, stop = event.chunk, event.stop
            old = codes[chunk]
            if old == _SPLIT or stop - event.start != sizes[chunk]:
                self._split(event)
                continue
            code = _CODES[event.kind] | old & _RESENT
            counts[old] -= stop
            counts[code] += stop
            codes[chunk] = code
            self._statuses[chunk] = event.status
            self._reasons[chunk] = self._number(event.reason) if event.reason else 0

    def tally(self) -> Tally:
        """Users by what is known of them."""
        sums = dict.fromkeys(Outcome, 0)
        for outcome, users in zip(_OUTCOMES, self._counts, strict=True):
            sums[outcome] += users
        return Tally(
            accepted=sums[Outcome.ACCEPTED],
            rejected=sums[Outcome.REJECTED],
            unknown=sums[Outcome.UNKNOWN],
            not_sent=sums[Outcome.NOT_SENT],
            resent=sum(self._counts[_RESENT:]),
        )

    def pieces(self, outcome: Outcome) -> Iterator[Piece]:
        """Where ``outcome`` stands, in plan order: whole chunks, or what the last events left in one piece.

        Each is right when it is yielded, also when events are applied while it is iterated.
        """
        wanted = _wanted(outcome)
        for chunk, code in enumerate(self._codes):
            if code == _SPLIT:
                at = 0
                while (found := self._next(chunk, at, wanted)) is not None:
                    at = found.stop
                    yield found
            elif code in wanted:
                yield Piece(chunk, 0, self.sizes[chunk])

    def chunks(self, outcome: Outcome | None, start: int = 0) -> Iterator[int]:
        """The numbers from ``start`` of chunks in which ``outcome`` may stand (None: all)."""
        if outcome is None:
            yield from range(start, len(self._codes))
            return
        wanted = _wanted(outcome) | {_SPLIT}
        for chunk in range(start, len(self._codes)):
            if self._codes[chunk] in wanted:
                yield chunk

    def standings(self, chunk: int) -> list[Standing]:
        """All users of a chunk, in plan order."""
        return [self._standing(*found) for found in self._ranges_of(chunk)]

    def _standing(self, start: int, stop: int, code: int, status: int, reason: int) -> Standing:
        if code in _UNSETTLED:
            return Standing(start, stop, Outcome.UNKNOWN, None, NEVER_SETTLED)
        outcome, text = _OUTCOMES[code], self._texts[reason]
        if outcome is Outcome.NOT_SENT:
            text = text or NOT_SENT_YET
        return Standing(start, stop, outcome, status or None, text)

    def _ranges_of(self, chunk: int) -> list[_Range]:
        code = self._codes[chunk]
        if code == _SPLIT:
            return self._ranges[chunk]
        return [(0, self.sizes[chunk], code, self._statuses[chunk], self._reasons[chunk])]

    def _next(self, chunk: int, at: int, wanted: frozenset[int]) -> Piece | None:
        ranges = self._ranges_of(chunk)
        for start, stop, code, _, _ in ranges[bisect_left(ranges, (at,)) :]:
            if code in wanted:
                return Piece(chunk, start, stop)
        return None

    def _split(self, event: Event) -> None:
        """The event is about a part of a chunk, or about a chunk in parts."""
        chunk, start, stop = event.chunk, event.start, event.stop
        code, reason = _CODES[event.kind], self._number(event.reason)
        merged: list[_Range] = []
        fresh = -1  # where the event's own last range ends
        for old in self._ranges_of(chunk):
            low, high = max(old[0], start), min(old[1], stop)
            if low >= high:
                _append(merged, old)
                continue
            if old[0] < low:
                _append(merged, (old[0], low, *old[2:]))
            now = (low, high, code | old[2] & _RESENT, event.status, reason)
            self._counts[old[2]] -= high - low
            self._counts[now[2]] += high - low
            _append(merged, now, join=fresh == low)
            fresh = high
            if high < old[1]:
                _append(merged, (high, old[1], *old[2:]))
        self._keep(chunk, merged)

    def _keep(self, chunk: int, ranges: list[_Range]) -> None:
        if len(ranges) > 1:
            self._codes[chunk] = _SPLIT
            self._ranges[chunk] = ranges
            return
        self._ranges.pop(chunk, None)
        _, _, self._codes[chunk], self._statuses[chunk], self._reasons[chunk] = ranges[0]

    def _number(self, text: str) -> int:
        number = self._numbers.get(text)
        if number is None:
            number = self._numbers[text] = len(self._texts)
            self._texts.append(text)
        return number


def _wanted(outcome: Outcome) -> frozenset[int]:
    return frozenset(code for code, means in enumerate(_OUTCOMES) if means is outcome)


def _append(ranges: list[_Range], new: _Range, *, join: bool = False) -> None:
    """Equal neighbours become one where they are of one event, or final; else they are kept as they were sent."""
    if ranges and ranges[-1][2:] == new[2:] and (join or _OUTCOMES[new[2]] in _FINAL):
        ranges[-1] = (ranges[-1][0], *new[1:])
    else:
        ranges.append(new)
