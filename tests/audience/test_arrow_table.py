"""Audiences from tables in memory, read through their Arrow streams."""

import contextlib
import copy
import threading
from concurrent.futures import ThreadPoolExecutor

import duckdb
import pyarrow as pa
import pytest
from support.audiences import ids_of, refused, rows_of

from pushsdk import ConfigurationError, ValidationError
from pushsdk._audience.audience import Audience

TEXTS = ["00123", " a ", "A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11", "1e3", "é\U0001f600", "00123"]


@pytest.mark.parametrize(
    "kind", [pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int8(), pa.string())]
)
def test_texts_arrive_as_they_are(kind):
    table = pa.table({"uid": pa.array(TEXTS).cast(kind), "n": range(len(TEXTS))})
    audience = copy.deepcopy(Audience.table(table, primary_key="uid"))
    assert rows_of(audience) == [(user, {"n": n}) for n, user in enumerate(TEXTS)]
    assert sorted(ids_of(audience, distinct=True)) == sorted({*TEXTS})
    assert audience.columns == ("n",)
    assert audience.source == "a Table in memory"
    assert str(audience.summary) == "5 users, 1 duplicate"


@pytest.mark.parametrize(("value", "user"), [(f"{2**128 - 1}::UHUGEINT", str(2**128 - 1)), ("'\"a\"'::JSON", "a")])
def test_a_relation_has_the_ids_of_its_query(value, user):
    with duckdb.connect() as db:
        assert ids_of(Audience.table(db.sql(f"SELECT {value} AS user_id"))) == [user]


def test_a_value_without_an_arrow_stream_is_an_error_at_once():
    with pytest.raises(ValidationError, match=r"table must be a table with an Arrow stream, .*; got list"):
        Audience.table([1])


def test_a_reader_that_is_read_once_is_refused():
    table = pa.table({"user_id": ["a", "b"]})
    error = refused(lambda: Audience.table(table.to_reader()))
    assert error.startswith("the RecordBatchReader had 2 rows, and now has 0: pass a table that stays as it is")


def test_without_a_temporary_folder_the_error_names_the_fix(monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", "/none")
    with pytest.raises(ConfigurationError, match=r"\(No such file or directory\): set TMPDIR"):
        Audience.table(pa.table({"user_id": ["a"]}))


def test_two_threads_read_a_stream_one_after_the_other():
    class Frame:
        def __arrow_c_stream__(self, requested_schema=None):
            with contextlib.suppress(threading.BrokenBarrierError):
                meeting.wait(0.02)
                pytest.fail("both read the stream")
            return pa.table({"user_id": ["a"]}).__arrow_c_stream__(requested_schema)

    meeting = threading.Barrier(2)
    audience = Audience.table(Frame())
    with ThreadPoolExecutor(2) as threads:
        assert [*threads.map(ids_of, [audience] * 2)] == [["a"]] * 2


@pytest.mark.parametrize(
    ("error", "kind", "text"),
    [
        (
            ImportError("pyarrow"),
            ConfigurationError,
            "the Frame needs pyarrow for its Arrow stream: pip install pyarrow",
        ),
        (
            ValueError("secret"),
            ValidationError,
            "the Frame: its Arrow stream fails with ValueError: is it read only once",
        ),
    ],
)
def test_a_stream_that_fails_is_an_error_without_a_value(error, kind, text):
    class Frame:
        def __arrow_c_stream__(self, requested_schema=None):
            raise error

    with pytest.raises(kind, match=text) as excinfo:
        Audience.table(Frame())
    assert "secret" not in str(excinfo.value)
