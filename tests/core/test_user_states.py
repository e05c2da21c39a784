"""UserStates against a plain list of statuses, and its JSON."""

from __future__ import annotations

from collections.abc import Callable
from itertools import groupby

import hypothesis.strategies as st
import pytest
from hypothesis import given
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from pushsdk._core.user_states import UserState, UserStates, UserStatus

STATES = st.sets(st.sampled_from(UserState))
STATUSES = st.builds(
    UserStatus,
    st.sampled_from(UserState),
    st.sampled_from([None, 204, 429]),
    st.sampled_from(["", "throttled"]),
    st.booleans(),
)
PENDING = UserStatus(UserState.PENDING)

Run = tuple[int, int, UserStatus]


def runs_of(users: list[UserStatus], start: int = 0) -> list[Run]:
    """Equal neighbors of a plain list, counted from ``start``."""
    runs = []
    for status, equal in groupby(users):
        stop = start + len(list(equal))
        runs.append((start, stop, status))
        start = stop
    return runs


class UserStatesMachine(RuleBasedStateMachine):
    @initialize(users=st.integers(0, 12))
    def make(self, users: int) -> None:
        self.states, self.users = UserStates(users), [PENDING] * users

    @rule(users=st.integers(0, 5))
    def extend(self, users: int) -> None:
        self.states.extend(users)
        self.users += [PENDING] * users

    @rule(data=st.data(), status=STATUSES)
    def set(self, data: st.DataObject, status: UserStatus) -> None:
        if self.users:
            start = data.draw(st.integers(0, len(self.users) - 1))
            self.set_all(start, data.draw(st.integers(start + 1, len(self.users))), status)

    def set_all(self, start: int, stop: int, status: UserStatus) -> None:
        """Set the users in both. A user who was resent once stays so."""
        self.states.set(start, stop, status)
        for number in range(start, stop):
            self.users[number] = status._replace(resent=status.resent or self.users[number].resent)

    @rule()
    def go_on_with_a_copy(self) -> None:
        before, self.states = self.states, self.states.copy()
        before.extend(1)
        before.set(0, before.users, UserStatus(UserState.REJECTED, resent=True))

    @rule()
    def go_on_with_what_json_keeps(self) -> None:
        self.states = UserStates.from_json(self.states.to_json())

    @rule(data=st.data())
    def look_between(self, data: st.DataObject) -> None:
        start = data.draw(st.integers(0, len(self.users)))
        stop = data.draw(st.integers(start, len(self.users)))
        assert list(self.states.runs(start, stop)) == runs_of(self.users[start:stop], start)

    @rule(states=STATES, start=st.integers(0, 30))
    def look_for_the_next(self, states: set[UserState], start: int) -> None:
        later = runs_of(self.users[start:], start)
        assert self.states.next(states, start) == next((run for run in later if run[2].state in states), None)

    @rule(states=STATES, status=STATUSES)
    def change_while_looking(self, states: set[UserState], status: UserStatus) -> None:
        start = 0
        while (run := self.states.next(states, start)) is not None:
            first, start, old = run
            assert old.state in states
            self.set_all(first, start, status)

    @invariant()
    def the_same(self) -> None:
        assert self.states.users == len(self.users)
        assert list(self.states.runs()) == runs_of(self.users)
        assert [self.states.at(number) for number in range(len(self.users))] == self.users
        for state in UserState:
            assert self.states.count(state) == sum(status.state is state for status in self.users)
        assert self.states.resent == sum(status.resent for status in self.users)


TestUserStates = UserStatesMachine.TestCase


def test_json_leaves_defaults_out() -> None:
    states = UserStates(10)
    states.set(0, 4, UserStatus(UserState.ACCEPTED, 204))
    states.set(4, 5, UserStatus(UserState.UNKNOWN, None, "HTTP 500", True))
    assert states.to_json() == b'[["ACCEPTED",4,204],["UNKNOWN",1,null,"HTTP 500",true],["PENDING",5]]'


@pytest.mark.parametrize(
    "data",
    [
        *(b"", b"{}", b"[[]]", b'[["PENDING"]]', b'[["PENDING",0]]', b'[["PENDING",true]]', b'[["GONE",1]]'),
        *(b'[["PENDING",1,"204"]]', b'[["PENDING",1,null,"",false,1]]', b"\xff", b"[" * 100_000),
    ],
    ids=repr,
)
def test_what_is_no_json_of_states_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError):
        UserStates.from_json(data)


@given(start=st.integers(-2, 5), stop=st.integers(-2, 5))
def test_a_range_has_users(start: int, stop: int) -> None:
    states = UserStates(3)
    if not 0 <= start < stop <= 3:
        with pytest.raises(ValueError):
            states.set(start, stop, PENDING)
    if not 0 <= start <= stop <= 3:
        with pytest.raises(ValueError):
            list(states.runs(start, stop))


@pytest.mark.parametrize("wrong", [lambda: UserStates(3).at(-1), lambda: UserStates(3).at(3), lambda: UserStates(-1)])
def test_a_position_has_a_user_and_a_number_of_users_is_not_negative(wrong: Callable[[], object]) -> None:
    with pytest.raises((IndexError, ValueError)):
        wrong()
