"""UserStates: its JSON and its bounds. What they add up to is in ``runs/test_journal_model``."""

import hypothesis.strategies as st
import pytest
from hypothesis import given

from pushsdk._core.user_states import UserState, UserStates, UserStatus

PENDING = UserStatus(UserState.PENDING)


def test_json_leaves_defaults_out():
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
def test_what_is_no_json_of_states_is_refused(data):
    with pytest.raises(ValueError):
        UserStates.from_json(data)


@given(start=st.integers(-2, 5), stop=st.integers(-2, 5))
def test_a_range_has_users(start, stop):
    states = UserStates(3)
    if not 0 <= start < stop <= 3:
        with pytest.raises(ValueError):
            states.set(start, stop, PENDING)
    if not 0 <= start <= stop <= 3:
        with pytest.raises(ValueError):
            list(states.runs(start, stop))


@pytest.mark.parametrize("wrong", [lambda: UserStates(3).at(-1), lambda: UserStates(3).at(3), lambda: UserStates(-1)])
def test_a_position_has_a_user_and_a_number_of_users_is_not_negative(wrong):
    with pytest.raises((IndexError, ValueError)):
        wrong()
