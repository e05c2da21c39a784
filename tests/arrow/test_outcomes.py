"""Who of a chunk is where: kept by runs, and the same as if each user was kept by himself."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pushsdk._core.dedupe import Mark, Position, Record, begin
from pushsdk._core.user_states import UserState, UserStatus
from pushsdk.arrow import outcome_schema
from pushsdk.arrow._outcomes import Ended, Places, batch_of

COUNT = 6
KINDS = [UserState.PENDING, UserState.ACCEPTED, UserState.REJECTED, UserState.UNKNOWN]
MARKS = {
    UserState.PENDING: Mark.OPEN,
    UserState.ACCEPTED: Mark.ACCEPTED,
    UserState.REJECTED: Mark.REJECTED,
    UserState.UNKNOWN: Mark.CLAIMED,
}
SPANS = st.tuples(st.integers(0, COUNT - 1), st.integers(1, COUNT)).map(lambda at: (min(at), max(max(at), min(at) + 1)))
NOTES = st.tuples(st.just("note"), SPANS, st.sampled_from(KINDS), st.sampled_from([None, 204, 400]))
POSITIONS = st.lists(
    st.sampled_from(
        [Position(Mark.OPEN), Position(Mark.CLAIMED), Position(Mark.ACCEPTED, 204), Position(Mark.REJECTED, 400)]
    ),
    min_size=COUNT,
    max_size=COUNT,
)
LEARNED = st.tuples(st.just("learn"), POSITIONS)


def record_of(positions: list[Position]) -> Record:
    return begin("f" * 64, len(positions), 1.0).with_positions(positions)


def told_of(position: Position) -> Ended:
    if position.mark is Mark.CLAIMED:
        return Ended(Mark.CLAIMED, None, "claimed by another delivery, and never settled")
    if position.mark is Mark.ACCEPTED:
        return Ended(Mark.ACCEPTED, 204, "")
    return Ended(Mark.REJECTED, 400, "HTTP 400, to an earlier delivery")


@given(st.lists(st.one_of(NOTES, LEARNED), max_size=8), POSITIONS, st.sets(st.integers(0, COUNT - 1)))
def test_any_sequence_does_as_a_list_of_users_would(steps: list[Any], before: list[Position], sent: set[int]) -> None:
    places, truth = Places(COUNT), [Ended(Mark.OPEN)] * COUNT
    for what, *rest in steps:
        if what == "note":
            (start, stop), kind, status = rest
            places.note(start, stop, UserStatus(kind, status, "why"))
            truth[start:stop] = [Ended(MARKS[kind], status, "why")] * (stop - start)
        else:
            places.learn(record_of(rest[0]))
            for place, position in enumerate(rest[0]):
                if truth[place].mark is Mark.OPEN and position.mark is not Mark.OPEN:
                    truth[place] = told_of(position)
    assert [places.at(place) for place in range(COUNT)] == truth
    assert places.open() is any(each.mark is Mark.OPEN for each in truth)
    runs = places.runs("stopped")
    assert [ended for ended, count in runs for _ in range(count)] == [
        Ended(Mark.OPEN, None, "stopped") if each == Ended(Mark.OPEN) else each for each in truth
    ]
    after = places.after(record_of(before), sorted(sent))
    final = (Mark.ACCEPTED, Mark.REJECTED)
    assert after.positions() == [
        Position(truth[place].mark, truth[place].status if truth[place].mark in final else None)
        if place in sent
        else there
        for place, there in enumerate(before)
    ]


@given(
    st.lists(st.tuples(st.sampled_from(Mark), st.sampled_from([None, 204]), st.integers(1, 3)), min_size=1, max_size=4)
)
def test_the_rows_say_of_each_user_what_is_known(runs: list[tuple[Mark, int | None, int]]) -> None:
    ended = [(Ended(mark, status, mark.name), count) for mark, status, count in runs]
    users = [f"user-{number}" for number in range(sum(count for *_, count in runs))]
    made = batch_of(pa.array(users), ended)
    made.validate(full=True)
    assert made.schema == outcome_schema()
    names = {Mark.CLAIMED: "UNKNOWN", Mark.OPEN: "NOT_SENT", Mark.ACCEPTED: "ACCEPTED", Mark.REJECTED: "REJECTED"}
    each = [(names[mark], status, mark.name) for mark, status, count in runs for _ in range(count)]
    assert list(zip(*(column.to_pylist() for column in made.columns), strict=True)) == [
        (user, *rest) for user, rest in zip(users, each, strict=True)
    ]


@pytest.mark.parametrize("status", [None, 204])
def test_a_chunk_that_ended_alike_is_as_long_as_its_users(status: int | None) -> None:
    made = batch_of(pa.array(["a", "b"]), [(Ended(Mark.ACCEPTED, status), 2)])
    assert made.column("status").to_pylist() == [status, status]
