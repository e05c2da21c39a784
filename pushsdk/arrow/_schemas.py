"""The columns that come in and go out."""

from __future__ import annotations

import pyarrow as pa

__all__ = ["CHUNK_ID", "FIELDS", "USER_IDS", "outcome_schema", "plan_schema"]

CHUNK_ID, USER_IDS, FIELDS = "chunk_id", "user_ids", "fields"


def plan_schema(personal: bool) -> pa.Schema:
    """The columns of a plan, a row for each chunk: ``chunk_id``, ``user_ids`` and, where ``personal``, ``fields``.

    ``fields`` has a JSON object for each of the ``user_ids``, in their order.
    """
    columns = [
        pa.field(CHUNK_ID, pa.string(), nullable=False),
        pa.field(USER_IDS, pa.list_(pa.field("element", pa.string(), nullable=False)), nullable=False),
    ]
    if personal:
        columns.append(pa.field(FIELDS, pa.list_(pa.field("element", pa.string(), nullable=False)), nullable=False))
    return pa.schema(columns)


def outcome_schema() -> pa.Schema:
    """The columns of the outcomes, a row for each user: ``user_id``, ``outcome``, ``status`` and ``reason``.

    ``outcome`` is the name of an ``Outcome``, ``status`` the HTTP status behind it, null where there is none, and
    ``reason`` says in words why it was not accepted.
    """
    return pa.schema(
        [
            pa.field("user_id", pa.string(), nullable=False),
            pa.field("outcome", pa.string(), nullable=False),
            pa.field("status", pa.int32()),
            pa.field("reason", pa.string(), nullable=False),
        ]
    )
