"""The outcomes of a chunk's users, as a record batch."""

from __future__ import annotations

import pyarrow as pa

from pushsdk._core.decisions import OUTCOMES
from pushsdk._core.user_states import UserState, UserStates, UserStatus
from pushsdk.arrow._schemas import outcome_schema

__all__ = ["batch_of", "reason_of"]

_SCHEMA = outcome_schema()


def reason_of(status: UserStatus, unsent: str) -> str:
    """Return why a user was not accepted; ``unsent`` if nothing was tried."""
    if status.state is UserState.PENDING:
        return status.reason or unsent
    if status.state is UserState.CLAIMED:
        return "claimed by another process, and not settled so far"
    return status.reason


def batch_of(column: pa.Array, states: UserStates, unsent: str) -> pa.RecordBatch:
    """Return one row for each user. The ids are those that came in, not copied."""
    runs = [(stop - start, status) for start, stop, status in states.runs()]
    columns = [
        pa.concat_arrays([pa.repeat(OUTCOMES[status.state].value, users) for users, status in runs]),
        pa.concat_arrays([pa.repeat(pa.scalar(status.status, pa.int32()), users) for users, status in runs]),
        pa.concat_arrays([pa.repeat(reason_of(status, unsent), users) for users, status in runs]),
    ]
    return pa.RecordBatch.from_arrays([column, *columns], schema=_SCHEMA)
