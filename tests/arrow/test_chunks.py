"""Chunks made from the rows of a plan. Errors name the column and the chunk, never a user id or a value."""

import json

import pyarrow as pa
import pytest
from support.arrow_plans import MESSAGE

from pushsdk import ValidationError
from pushsdk._core.idempotency import digest_of, fingerprint_of
from pushsdk.arrow import outcome_schema, plan_schema
from pushsdk.arrow._chunks import ChunkEncoder

URL = "https://push.example"
SECRET = "user-s3cret"


def chunks(batch, *, personal=None, custom_fields=None):
    encoder = ChunkEncoder(MESSAGE, custom_fields, personal, run="spring", base_url=URL, max_users=3)
    return list(encoder.chunks([batch]))


def batch(**columns):
    values = {"chunk_id": ["one"], "user_ids": [[SECRET]], **columns}
    return pa.RecordBatch.from_pydict({name: column for name, column in values.items() if column is not None})


def test_the_schemas_have_the_documented_columns():
    assert plan_schema(False).names == ["chunk_id", "user_ids"]
    assert plan_schema(True).names == ["chunk_id", "user_ids", "fields"]
    assert outcome_schema().names == ["user_id", "outcome", "status", "reason"]
    assert [str(type_) for type_ in outcome_schema().types] == ["string", "string", "int32", "string"]


# -- what is made of a row --------------------------------------------------------------------------------------------


def test_a_chunk_has_the_key_and_fingerprint_of_a_send_of_it():
    (chunk,) = chunks(batch(), custom_fields={"a": 1})
    payload = (b'"user-s3cret"', json.dumps(MESSAGE, separators=(",", ":")).encode(), b'{"a":1}')
    assert chunk.key == digest_of("spring/one")
    assert chunk.payloads == (payload,)
    assert chunk.fingerprint == fingerprint_of("spring/one", URL, [payload])
    assert repr(chunk) == "PreparedChunk()"


def test_a_personal_chunk_has_a_request_for_each_user():
    fields = [json.dumps({"name": name}) for name in ("é", "{}|'")]
    (chunk,) = chunks(batch(user_ids=[["a", "b"]], fields=[fields]), personal="placeholders")
    assert chunk.users == [json.loads(name) for name, _, _ in chunk.payloads] == ["a", "b"]
    texts = [json.loads(message)["body"]["en"] for _, message, _ in chunk.payloads]
    assert texts == ["Hello é", "Hello {}|'"]


# -- what is refused --------------------------------------------------------------------------------------------------


def lists(*values):
    return pa.array(values, pa.list_(pa.string()))


NO_OBJECT = "column fields, chunk one: a value is no JSON object"
#: The columns, and what the error says of them. With fields, they become custom fields.
BAD = [
    ({"user_ids": None}, "a plan has each column once: chunk_id, user_ids; the columns are chunk_id"),
    ({"chunk_id": [""]}, "column chunk_id, chunk : expected a str of length >= 1"),
    ({"chunk_id": ["x" * 600]}, f"column chunk_id, chunk {'x' * 57}...: use at most 255 bytes"),
    ({"chunk_id": ["a\0b"]}, "column chunk_id, chunk a?b: use at most 255 bytes of UTF-8, without NUL"),
    ({"user_ids": [[[SECRET]]]}, "column user_ids[0], chunk one: expected a str, got list"),
    ({"user_ids": [["a", None, None]]}, "column user_ids[1], chunk one: expected a str, got None"),
    ({"user_ids": lists([])}, "column user_ids, chunk one: expected a list of length >= 1"),
    ({"user_ids": [["a", ""]]}, "chunk one: user_ids[1]: the user id is empty"),
    ({"user_ids": [list("abcd")]}, "chunk one: 4 users, and batching.max_users is 3: plan smaller ones"),
    ({"user_ids": [["a", "a"]]}, "chunk one: an id comes more than once: plan distinct ids"),
    ({"fields": None}, "a plan has each column once: chunk_id, user_ids, fields; the columns are chunk_id, user_ids"),
    ({"fields": [["{}"]], "user_ids": [["a", "b"]]}, "chunk one: values: 1, user ids: 2; one value"),
    ({"fields": [['{"a":' * 9999]]}, NO_OBJECT),
    ({"fields": [['{"a":1e999}']]}, NO_OBJECT),
    ({"fields": [['{"a":99999999999999999999}']]}, "chunk one: custom_fields.a: the integer does not"),
]


@pytest.mark.parametrize(("columns", "reason"), BAD)
def test_a_row_that_is_not_a_chunk_is_an_error(columns, reason):
    with pytest.raises(ValidationError) as excinfo:
        chunks(batch(**columns), personal="custom_fields" if "fields" in columns else None)
    assert reason in str(excinfo.value)
    assert "s3cret" not in f"{excinfo.value!r} {excinfo.value.__cause__!r}"


def test_a_column_that_is_there_twice_is_an_error():
    ids = pa.array([["a"]])
    record_batch = pa.RecordBatch.from_arrays([pa.array(["one"]), ids, ids], ["chunk_id", "user_ids", "user_ids"])
    with pytest.raises(ValidationError, match="the columns are chunk_id, user_ids, user_ids"):
        chunks(record_batch)
