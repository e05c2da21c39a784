"""Chunks made from the rows of a plan. Errors name the column and the chunk, never a user id or a value."""

import json
import re
from collections import Counter
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.arrow_plans import MESSAGE, counts, plan, reported, user

from pushsdk import ValidationError
from pushsdk._core.idempotency import digest_of, fingerprint_of
from pushsdk.arrow import outcome_schema, plan_schema, push_batches
from pushsdk.arrow._chunks import ChunkEncoder, PreparedChunk
from pushsdk.claims import ClaimStore
from pushsdk.testing import PushInbox

URL = "https://push.example"
SECRET = "user-s3cret"


def recipe(**options: Any) -> ChunkEncoder:
    options = {"personal": None, "custom_fields": None, "run": "spring", "base_url": URL, "max_users": 3, **options}
    return ChunkEncoder(
        options.pop("message", MESSAGE), options.pop("custom_fields"), options.pop("personal"), **options
    )


def chunks(batch: pa.RecordBatch, **options: Any) -> list[PreparedChunk]:
    return list(recipe(**options).chunks([batch]))


def batch(**columns: Any) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"chunk_id": ["one"], "user_ids": [[SECRET]], **columns})


# -- schemas ----------------------------------------------------------------------------------------------------------


def test_the_schemas_have_the_documented_columns() -> None:
    assert plan_schema(False).names == ["chunk_id", "user_ids"]
    assert plan_schema(True).names == ["chunk_id", "user_ids", "fields"]
    assert outcome_schema().names == ["user_id", "outcome", "status", "reason"]
    assert [str(type_) for type_ in outcome_schema().types] == ["string", "string", "int32", "string"]
    assert all(plan_schema(True).field(name).type.value_type == pa.string() for name in ("user_ids", "fields"))


# -- what is made of a row --------------------------------------------------------------------------------------------


def test_a_chunk_has_the_key_and_fingerprint_of_a_send_of_it() -> None:
    (pieces,) = chunks(batch(), custom_fields={"a": 1})
    message = json.dumps(MESSAGE, separators=(",", ":")).encode()
    assert pieces.key == digest_of("spring/one")
    assert pieces.payloads == ((b'"user-s3cret"', message, b'{"a":1}'),)
    assert pieces.fingerprint == fingerprint_of("spring/one", URL, [(b'"user-s3cret"', message, b'{"a":1}')])


@pytest.mark.parametrize(
    "other",
    [
        {"chunk_id": ["two"]},
        {"user_ids": [["another"]]},
        {"fields": [['{"name":"another"}']]},
    ],
    ids=lambda rows: next(iter(rows)),
)
def test_everything_sent_is_part_of_the_fingerprint(other: dict[str, Any]) -> None:
    base = batch(fields=[['{"name":"x"}']])
    (ours,) = chunks(base, personal="placeholders")
    (theirs,) = chunks(batch(**{"fields": [['{"name":"x"}']], **other}), personal="placeholders")
    assert ours.fingerprint != theirs.fingerprint


def test_users_in_another_order_are_another_chunk() -> None:
    ours, theirs = (chunks(batch(user_ids=[ids]))[0] for ids in (["a", "b"], ["b", "a"]))
    assert ours.fingerprint != theirs.fingerprint


@given(st.lists(st.text("ab{}|' 1é", max_size=6), min_size=1, max_size=3, unique=True))
def test_a_personal_chunk_has_a_request_for_each_user(names: list[str]) -> None:
    fields = [json.dumps({"name": name}) for name in names]
    ids = [f"user-{number}" for number in range(len(names))]
    (pieces,) = chunks(batch(user_ids=[ids], fields=[fields]), personal="placeholders")
    assert pieces.users == ids
    assert [json.loads(name) for name, _, _ in pieces.payloads] == ids
    assert [json.loads(message)["body"]["en"] for _, message, _ in pieces.payloads] == [
        f"Hello {name}" for name in names
    ]


def test_the_repr_of_a_chunk_shows_no_user() -> None:
    (pieces,) = chunks(batch())
    assert repr(pieces) == "PreparedChunk(users=1)"


# -- what is refused --------------------------------------------------------------------------------------------------


def lists(*values: Any, kind: pa.DataType | None = None) -> pa.Array:
    return pa.array(values, pa.list_(kind or pa.string()))


BAD: list[tuple[str, dict[str, Any], str]] = [
    ("no chunk ids", {"chunk_id": None}, "column chunk_id is missing: the columns are user_ids"),
    ("no user ids", {"user_ids": None}, "column user_ids is missing: the columns are chunk_id"),
    ("numbers", {"chunk_id": [1]}, "column chunk_id is of type int64: a string is needed"),
    ("a null", {"chunk_id": pa.array([None], pa.string())}, "column chunk_id: row 0 of its batch has none"),
    ("an empty name", {"chunk_id": [""]}, "column chunk_id: row 0 of its batch has none"),
    ("a long name", {"chunk_id": ["x" * 600]}, r"column chunk_id, chunk x{57}\.\.\.: use at most 255 bytes"),
    ("a NUL", {"chunk_id": ["a\0b"]}, r"column chunk_id, chunk a\?b: use at most 255 bytes of UTF-8, without NUL"),
    ("texts", {"user_ids": [SECRET]}, "column user_ids is of type string: a list of strings is needed"),
    ("lists of numbers", {"user_ids": [[1]]}, r"column user_ids is of type list<item: int64>: a list of strings"),
    ("lists of lists", {"user_ids": [[[SECRET]]]}, "column user_ids is of type list<item: list<item: string>>: a list"),
    ("null ids", {"user_ids": [["a", None, None]]}, "column user_ids, chunk one: 2 of 3 values are null"),
    ("no list", {"user_ids": lists(None)}, "column user_ids, chunk one: it is null"),
    ("nobody", {"user_ids": lists([])}, "column user_ids, chunk one: it is empty: leave a chunk without users out"),
    ("an empty id", {"user_ids": [["a", ""]]}, r"chunk one: user_ids\[1\]: the user id is empty"),
    ("too many", {"user_ids": [list("abcd")]}, "chunk one: 4 users, and batching.max_users is 3: plan smaller ones"),
    ("the same twice", {"user_ids": [["a", "a"]]}, "chunk one: an id comes more than once: plan distinct ids"),
]  # fmt: skip
BAD_FIELDS: list[tuple[str, dict[str, Any], str]] = [
    ("no fields", {}, "column fields is missing: the columns are chunk_id, user_ids"),
    ("texts", {"fields": ["{}"]}, "column fields is of type string: a list of strings is needed"),
    ("too few", {"fields": [["{}"]], "user_ids": [["a", "b"]]}, "chunk one: values: 1, user ids: 2; one value"),
    ("nothing", {"fields": lists(None)}, "column fields, chunk one: it is null"),
    ("a null", {"fields": lists([None])}, "column fields, chunk one: 1 of 1 values are null"),
    ("no JSON", {"fields": [["s3cret"]]}, "column fields, chunk one: the value at 0 is no JSON object"),
    ("no object", {"fields": [["[1]"]]}, "column fields, chunk one: the value at 0 is no JSON object"),
    ("deep", {"fields": [['{"a":' * 9999]]}, "column fields, chunk one: the value at 0 is no JSON object"),
    ("NaN", {"fields": [['{"a":1e999}']]}, "column fields, chunk one: the value at 0 is no JSON object"),
    ("too large", {"fields": [['{"a":99999999999999999999}']]}, r"chunk one: custom_fields.a: the integer does not"),
]


def refusal(columns: dict[str, Any], **options: Any) -> str:
    values = {"chunk_id": ["one"], "user_ids": [[SECRET]], **columns}
    record_batch = pa.RecordBatch.from_pydict({name: column for name, column in values.items() if column is not None})
    with pytest.raises(ValidationError) as excinfo:
        chunks(record_batch, **options)
    assert "s3cret" not in f"{excinfo.value!r} {excinfo.value.__cause__!r}"
    return str(excinfo.value)


@pytest.mark.parametrize(("columns", "reason"), [case[1:] for case in BAD], ids=[name for name, *_ in BAD])
def test_a_row_that_is_not_a_chunk_is_an_error(columns: dict[str, Any], reason: str) -> None:
    assert re.search(reason, refusal(columns))


@pytest.mark.parametrize(
    ("columns", "reason"), [case[1:] for case in BAD_FIELDS], ids=[name for name, *_ in BAD_FIELDS]
)
def test_fields_that_are_not_objects_are_an_error(columns: dict[str, Any], reason: str) -> None:
    assert re.search(reason, refusal(columns, personal="custom_fields"))


def test_a_column_that_is_there_twice_is_an_error() -> None:
    ids = pa.array([["a"]])
    record_batch = pa.RecordBatch.from_arrays([pa.array(["one"]), ids, ids], ["chunk_id", "user_ids", "user_ids"])
    with pytest.raises(ValidationError, match="column user_ids is there twice"):
        chunks(record_batch)


def test_dictionary_encoded_lists_are_accepted() -> None:
    ids = pa.DictionaryArray.from_arrays(pa.array([1, 0, 1], pa.int8()), pa.array([["a"], ["b", "c"]]))
    record_batch = pa.RecordBatch.from_arrays([pa.array(["1", "2", "3"]), ids], ["chunk_id", "user_ids"])
    assert [chunk.users for chunk in chunks(record_batch)] == [["b", "c"], ["a"], ["b", "c"]]


# -- in the middle ----------------------------------------------------------------------------------------------------


def test_a_chunk_of_a_slice_holds_no_ids_of_other_slices() -> None:
    rows = [{"chunk_id": f"chunk-{number}", "user_ids": [f"user-{number}"]} for number in range(1000)]
    schema = pa.schema([("chunk_id", pa.large_string()), ("user_ids", pa.large_list(pa.large_string()))])
    table = pa.RecordBatch.from_pylist(rows, schema)
    for row in (0, 999):
        (chunk,) = chunks(table.slice(row, 1))
        assert chunk.users == [f"user-{row}"]
        assert chunk.column.get_total_buffer_size() < 1000


def test_a_bad_row_in_the_middle_loses_no_outcome(push_env: PushInbox, claims: Callable[[], ClaimStore]) -> None:
    batches = plan(200, rows=1)
    bad = pa.RecordBatch.from_pydict({"chunk_id": ["bad"], "user_ids": [[None]]}, schema=plan_schema(False))
    items: list[pa.RecordBatch] = []
    with pytest.raises(ValidationError, match="column user_ids, chunk bad: 1 of 1 values are null"):
        items.extend(push_batches([*batches, bad], MESSAGE, run="spring", claims=claims))
    accepted = {user for user, one in reported(items).items() if one.outcome == "ACCEPTED"}
    assert accepted == set(push_env.users())
    assert counts(push_batches(batches, MESSAGE, run="spring", claims=claims)) == {"ACCEPTED": 200}
    push_env.assert_no_duplicates()


def test_a_chunk_claimed_for_another_payload_is_an_error_and_not_sent(
    push_env: PushInbox, claims: Callable[[], ClaimStore]
) -> None:
    list(push_batches(plan(10), MESSAGE, run="spring", claims=claims))
    with pytest.raises(
        ValidationError, match="chunk chunk-0: it was claimed in this run for another payload"
    ) as excinfo:
        list(push_batches(plan(10), {"title": {"en": "Summer"}}, run="spring", claims=claims))
    assert user(0) not in str(excinfo.value)
    assert push_env.users() == Counter(user(number) for number in range(10))
