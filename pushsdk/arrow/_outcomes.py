"""What became of the users of a chunk: kept by place, recorded by mark, handed out as a record batch."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import NamedTuple

import pyarrow as pa

from pushsdk._core.dedupe import Mark, Position, Record
from pushsdk._core.outcome import Outcome
from pushsdk._core.user_states import UserState, UserStatus
from pushsdk.arrow._schemas import outcome_schema

__all__ = ["Ended", "Places", "batch_of"]

_MARKS = {
    UserState.PENDING: Mark.OPEN,
    UserState.ACCEPTED: Mark.ACCEPTED,
    UserState.REJECTED: Mark.REJECTED,
    UserState.UNKNOWN: Mark.CLAIMED,
}
_OUTCOMES = {
    Mark.CLAIMED: Outcome.UNKNOWN,
    Mark.OPEN: Outcome.NOT_SENT,
    Mark.ACCEPTED: Outcome.ACCEPTED,
    Mark.REJECTED: Outcome.REJECTED,
}
_SCHEMA = outcome_schema()


class Ended(NamedTuple):
    """What is known of a user, and why it is so."""

    mark: Mark
    status: int | None = None
    reason: str = ""


OPEN = Ended(Mark.OPEN)


class Places:
    """The users of a chunk, by their positions."""

    def __init__(self, count: int) -> None:
        # While the same is known of all, that alone.
        self._all: Ended | None = OPEN
        self._each = [OPEN]
        self.count = count

    def note(self, start: int, stop: int, status: UserStatus) -> None:
        """This is known of these now."""
        self._put(start, stop, Ended(_MARKS[status.state], status.status, status.reason))

    def learn(self, before: Record) -> None:
        """Take over what other deliveries recorded of those that are open here."""
        start = 0
        for run in before.runs:
            stop = start + run.users
            if run.mark is not Mark.OPEN:
                told = _recorded(run.mark, run.status)
                if self._all is OPEN:
                    self._put(start, stop, told)
                else:
                    for place in range(start, stop):
                        if self.at(place).mark is Mark.OPEN:
                            self._put(place, place + 1, told)
            start = stop

    def at(self, place: int) -> Ended:
        """What is known of this one."""
        return self._each[place] if self._all is None else self._all

    def open(self) -> bool:
        """Whether anybody is left to send to."""
        return any(each.mark is Mark.OPEN for each in (self._each if self._all is None else (self._all,)))

    def after(self, record: Record, places: Sequence[int]) -> Record:
        """The record, once these places are as they are known here."""
        if self._all is not None and len(places) == self.count:
            return record.all_at(_position(self._all))
        positions = record.positions()
        for place in places:
            positions[place] = _position(self.at(place))
        return record.with_positions(positions)

    def runs(self, unsent: str) -> list[tuple[Ended, int]]:
        """Who ended alike, in the order of the chunk. ``unsent`` is why the others were not sent to."""
        each = [(self._all, self.count)] if self._all is not None else _counted(self._each)
        return [(ended if ended != OPEN else Ended(Mark.OPEN, None, unsent), count) for ended, count in each]

    def _put(self, start: int, stop: int, ended: Ended) -> None:
        if stop - start == self.count:
            self._all = ended
            return
        if self._all is not None:
            self._each = [self._all] * self.count
            self._all = None
        self._each[start:stop] = [ended] * (stop - start)


def batch_of(column: pa.Array, runs: Sequence[tuple[Ended, int]]) -> pa.RecordBatch:
    """The rows of a chunk's users. The ids are those that came in, not copied."""
    if len(runs) == 1:
        ((ended, count),) = runs
        columns = [
            pa.repeat(_OUTCOMES[ended.mark].value, count),
            pa.nulls(count, pa.int32())
            if ended.status is None
            else pa.repeat(pa.scalar(ended.status, pa.int32()), count),
            pa.repeat(ended.reason, count),
        ]
    else:
        each = [ended for ended, count in runs for _ in range(count)]
        columns = [
            pa.array([_OUTCOMES[ended.mark].value for ended in each], pa.string()),
            pa.array([ended.status for ended in each], pa.int32()),
            pa.array([ended.reason for ended in each], pa.string()),
        ]
    return pa.RecordBatch.from_arrays([column, *columns], schema=_SCHEMA)


def _counted(each: Iterable[Ended]) -> list[tuple[Ended, int]]:
    return [(ended, len(list(alike))) for ended, alike in groupby(each)]


def _position(ended: Ended) -> Position:
    return Position(ended.mark, ended.status if ended.mark in (Mark.ACCEPTED, Mark.REJECTED) else None)


def _recorded(mark: Mark, status: int | None) -> Ended:
    if mark is Mark.CLAIMED:
        return Ended(mark, None, "claimed by another delivery, and never settled")
    return Ended(mark, status, "" if mark is Mark.ACCEPTED else f"HTTP {status}, to an earlier delivery")
