"""Users become chunks: no user is lost or doubled, however the engine batches them."""

from itertools import pairwise

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from pushsdk._core.damage import damage_in
from pushsdk.spark._tasks import EMPTY, NULL, chunk_schema, cut


def batch(ids, rows=None, fields=None):
    arrays = {"user_id": pa.array(ids, pa.string()), "rows": pa.array(rows or [1] * len(ids), pa.int64())}
    if fields is not None:
        arrays["fields"] = pa.array(fields, pa.string())
    return pa.RecordBatch.from_pydict(arrays)


def chunks(batches, max_users=3):
    return [row for chunk in cut(batches, max_users=max_users, prefix="7-") for row in chunk.to_pylist()]


@given(st.integers(0, 60), st.sets(st.integers(0, 60)), st.integers(1, 9), st.booleans())
def test_every_user_is_in_one_chunk_with_its_fields_however_the_batches_are_cut(users, cuts, max_users, personal):
    ids = [f"user-{number}" for number in range(users)]
    bounds = sorted({0, users, *(chunk for chunk in cuts if chunk <= users)})
    batches = [
        batch(ids[start:stop], [2] * (stop - start), ids[start:stop] if personal else None)
        for start, stop in pairwise(bounds)
    ]
    cut_chunks = chunks(batches, max_users)
    assert [user for chunk in cut_chunks for user in chunk["user_ids"]] == ids
    assert all(len(chunk["user_ids"]) == max_users for chunk in cut_chunks[:-1])
    assert all(1 <= len(chunk["user_ids"]) <= max_users for chunk in cut_chunks)
    assert all(chunk["fields"] == (chunk["user_ids"] if personal else []) for chunk in cut_chunks)
    assert [chunk["rows"] for chunk in cut_chunks] == [2 * len(chunk["user_ids"]) for chunk in cut_chunks]
    assert [chunk["chunk_id"] for chunk in cut_chunks] == [f"7-{number:06}" for number in range(len(cut_chunks))]


def test_rows_without_an_id_are_counted_and_in_no_chunk_and_damaged_ids_are_counted():
    cut_chunks = chunks([batch([None, "1.0", ""], [4, 1, 2]), batch([None, "2.0"], [1, 1])])
    assert [(chunk["chunk_id"], chunk["user_ids"], chunk["rows"]) for chunk in cut_chunks] == [
        ("7-000000", ["1.0", "2.0"], 2),
        (NULL, [], 5),
        (EMPTY, [], 2),
        (damage_in("1.0"), [], 2),
    ]


def test_the_output_has_the_schema():
    source = batch(["a", "b", ""], fields=["{}"] * 3)
    large = source.cast(
        pa.schema([(name, pa.large_string() if name != "rows" else pa.int64()) for name in source.schema.names])
    )
    for each in (source, large):
        assert [chunk.schema for chunk in cut([each], max_users=2, prefix="")] == [chunk_schema()] * 2
