"""Plans in record batches, and the outcomes of their users."""

import json
from collections import Counter
from typing import NamedTuple

import pyarrow as pa

from pushsdk.arrow import outcome_schema, plan_schema

MESSAGE = {"iosEnabled": True, "title": {"en": "Spring"}, "body": {"en": "Hello {{ name | 'you' }}"}}


class ReportedUser(NamedTuple):
    """The reported result of a user."""

    outcome: str
    status: int | None
    reason: str


def user(number):
    return f"user-{number}"


def plan(users, *, size=10, rows=3, personal=False, name="user-{}"):
    """Chunks of ``size`` users, ``rows`` of them in each batch."""
    chunks = []
    for number, start in enumerate(range(0, users, size)):
        ids = [name.format(row) for row in range(start, min(start + size, users))]
        chunk = {"chunk_id": f"chunk-{number}", "user_ids": ids}
        if personal:
            chunk["fields"] = [json.dumps({"name": f"name of {row}"}) for row in ids]
        chunks.append(chunk)
    return batches_of(chunks, rows, plan_schema(personal))


def batches_of(chunks, rows, schema):
    return [pa.RecordBatch.from_pylist(list(chunks[at : at + rows]), schema) for at in range(0, len(chunks), rows)]


def rebatched(batches, rows):
    """Return the same chunks in reverse order, a number of them per batch."""
    chunks = [chunk for batch in batches for chunk in batch.to_pylist()]
    return batches_of(chunks[::-1], rows, batches[0].schema)


def reported(batches):
    """Return the reported result of each user."""
    return dict(_rows(batches))


def counts(batches):
    """Return the number of users of each outcome."""
    return Counter(row.outcome for row in reported(batches).values())


def _rows(batches):
    names = set()
    for batch in batches:
        assert batch.schema == outcome_schema()
        batch.validate(full=True)
        for user_id, *values in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            assert user_id not in names
            names.add(user_id)
            yield user_id, ReportedUser(*values)
