"""UserStates: its JSON and its bounds. What they add up to is in ``runs/test_journal_model``."""

import pytest

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


@pytest.mark.parametrize(
    "wrong",
    [
        lambda states: states.at(-1),
        lambda states: states.at(3),
        lambda states: states.set(1, 1, PENDING),
        lambda states: list(states.runs(0, 4)),
        lambda states: UserStates(-1),
    ],
)
def test_positions_and_ranges_have_users(wrong):
    with pytest.raises((IndexError, ValueError)):
        wrong(UserStates(3))
