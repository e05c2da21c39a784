"""The columns of plans and of outcomes, and the rows of a chunk's outcomes."""

from __future__ import annotations

import pyarrow as pa

from pushsdk._core.decisions import OUTCOMES
from pushsdk._core.user_states import UserState, UserStates, UserStatus

CHUNK_ID, USER_IDS, FIELDS = "chunk_id", "user_ids", "fields"


def plan_schema(personal: bool) -> pa.Schema:
    """Return the columns of a plan, a row for each chunk: ``chunk_id``, ``user_ids`` and, if ``personal``, ``fields``.

    ``fields`` has a JSON object for each of the ``user_ids``, in their order.
    """
    texts = pa.list_(pa.field("element", pa.string(), nullable=False))
    columns = {CHUNK_ID: pa.string(), USER_IDS: texts, **({FIELDS: texts} if personal else {})}
    return pa.schema([pa.field(name, kind, nullable=False) for name, kind in columns.items()])


def outcome_schema() -> pa.Schema:
    """Return the columns of the outcomes, a row for each user: ``user_id``, ``outcome``, ``status`` and ``reason``.

    ``outcome`` is the name of an ``Outcome``, ``status`` the HTTP status or null, and ``reason`` says why a user was
    not accepted.
    """
    return pa.schema(
        [
            pa.field("user_id", pa.string(), nullable=False),
            pa.field("outcome", pa.string(), nullable=False),
            pa.field("status", pa.int32()),
            pa.field("reason", pa.string(), nullable=False),
        ]
    )


def batch_of(column: pa.Array, states: UserStates, unsent: str) -> pa.RecordBatch:
    """Return one row for each user. The ids are those of the plan, not copied."""
    runs = [(stop - start, status) for start, stop, status in states.runs()]
    columns = [
        pa.concat_arrays([pa.repeat(OUTCOMES[status.state].value, users) for users, status in runs]),
        pa.concat_arrays([pa.repeat(pa.scalar(status.status, pa.int32()), users) for users, status in runs]),
        pa.concat_arrays([pa.repeat(_reason(status, unsent), users) for users, status in runs]),
    ]
    return pa.RecordBatch.from_arrays([column, *columns], schema=outcome_schema())


def _reason(status: UserStatus, unsent: str) -> str:
    """Return why a user was not accepted; ``unsent`` if the user was never tried."""
    if status.state is UserState.PENDING:
        return status.reason or unsent
    if status.state is UserState.CLAIMED:
        return "claimed by another process, and not settled so far"
    return status.reason
