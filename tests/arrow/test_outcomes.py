"""The rows of a chunk's users."""

import pyarrow as pa
from support.arrow_plans import ReportedUser, reported

from pushsdk._core.user_states import UserState, UserStates, UserStatus
from pushsdk.arrow import outcome_schema
from pushsdk.arrow._dispatcher import batch_of

IDS = ["a", "b", "c", "d", "e", "f"]


def batch(*statuses: UserStatus) -> pa.RecordBatch:
    states = UserStates(len(statuses))
    for place, status in enumerate(statuses):
        states.set(place, place + 1, status)
    return batch_of(pa.array(IDS[: len(statuses)]), states, "stopped")


def test_each_state_becomes_a_row() -> None:
    table = batch(
        UserStatus(UserState.ACCEPTED, 204),
        UserStatus(UserState.REJECTED, 404, "HTTP 404"),
        UserStatus(UserState.UNKNOWN, None, "the connection broke"),
        UserStatus(UserState.CLAIMED),
        UserStatus(UserState.PENDING),
        UserStatus(UserState.PENDING, 401, "HTTP 401"),
    )
    assert table.schema == outcome_schema()
    assert reported([table]) == {
        "a": ReportedUser("ACCEPTED", 204, ""),
        "b": ReportedUser("REJECTED", 404, "HTTP 404"),
        "c": ReportedUser("UNKNOWN", None, "the connection broke"),
        "d": ReportedUser("UNKNOWN", None, "claimed by another process, and not settled so far"),
        "e": ReportedUser("NOT_SENT", None, "stopped"),
        "f": ReportedUser("NOT_SENT", 401, "HTTP 401"),
    }
