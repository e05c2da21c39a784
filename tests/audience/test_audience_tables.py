"""Audiences from Parquet files and SQL: types of ids, values of columns, permissions of DuckDB."""

import os
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest
from support.audiences import ids_of, made, refused, rows_of

from pushsdk import ValidationError
from pushsdk._audience import duckdb_reader
from pushsdk._audience.audience import Audience, AudienceSummary
from pushsdk._core import wire
from pushsdk._core.body import encode_user_ids
from pushsdk._runs.plan import chunks_of


def parquet(path: Path, sql: str) -> Path:
    """A Parquet file of what the query gives."""
    with duckdb.connect() as db:
        name = str(path).replace("'", "''")
        db.execute(f"COPY ({sql}) TO '{name}' (FORMAT parquet)")
    return path


def columns_of(sql: str) -> dict[str, Any]:
    """The other columns of the one row of the query."""
    [(_, fields)] = rows_of(Audience.query(f"SELECT 'a' AS user_id, {sql}"))
    return fields


# -- ids ------------------------------------------------------------------------------------------------------------

BIG = 2**127 - 1
TYPES = [
    ("' a '", " a "),
    ("'a' || chr(0) || 'é\U0001f600'", "a\0é\U0001f600"),
    ("-5::TINYINT", "-5"),
    ("255::UTINYINT", "255"),
    ("-5::SMALLINT", "-5"),
    ("7::USMALLINT", "7"),
    ("7", "7"),
    ("7::UINTEGER", "7"),
    ("9007199254740993::BIGINT", "9007199254740993"),
    ("18446744073709551615::UBIGINT", "18446744073709551615"),
    ("12345678901234567890::DECIMAL(20,0)", "12345678901234567890"),
    ("'6ba7b810-9dad-11d1-80b4-00c04fd430c8'::UUID", "6ba7b810-9dad-11d1-80b4-00c04fd430c8"),
    ("'b'::ENUM('a', 'b')", "b"),
]
# Those that Parquet has no type for.
SQL_TYPES = [
    (f"{BIG}::HUGEINT", str(BIG)),
    (f"{BIG}::UHUGEINT", str(BIG)),
    ("'\"a\\u0000\"'::JSON", "a\0"),
    ("'12345678901234567890123'::JSON", "12345678901234567890123"),
]


@pytest.mark.parametrize(("value", "expected"), TYPES)
def test_ids_of_parquet_are_the_text_of_the_stored_value(tmp_path: Path, value: str, expected: str) -> None:
    audience = Audience.read(parquet(tmp_path / "u.parquet", f"SELECT 1 AS n, {value} AS user_id"))
    for distinct in (True, False):
        assert ids_of(audience, distinct=distinct) == [expected]
        assert rows_of(audience, distinct=distinct) == [(expected, {"n": 1})]


@pytest.mark.parametrize(("value", "expected"), TYPES + SQL_TYPES)
def test_ids_of_a_query_are_the_text_of_the_value(value: str, expected: str) -> None:
    audience = Audience.query(f"SELECT {value} AS user_id")
    assert ids_of(audience, distinct=True) == ids_of(audience) == [expected]


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        ("1.0::DOUBLE", "DOUBLE"),
        ("1.0::FLOAT", "FLOAT"),
        ("1.5::DECIMAL(4,1)", "DECIMAL(4,1)"),
        ("true", "BOOLEAN"),
        ("DATE '2024-01-01'", "DATE"),
        ("now()", "TIMESTAMP WITH TIME ZONE"),
        ("'secret'::BLOB", "BLOB"),
        ("['secret']", "VARCHAR[]"),
        ("['1', '2']::VARCHAR[2]", "VARCHAR[2]"),
        ("{'a': 1}", "STRUCT(a INTEGER)"),
        ("INTERVAL 1 DAY", "INTERVAL"),
    ],
)
def test_a_column_that_holds_no_ids_is_an_error_with_its_type(value: str, kind: str) -> None:
    message = refused(lambda: Audience.query(f"SELECT {value} AS user_id"))
    assert message.startswith(f"the query: user_id is of type {kind}; user ids are texts or whole numbers")
    assert "secret" not in message


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("NULL", "user_id is NULL"),
        ("''", "user_id is empty"),
    ],
)
def test_a_row_without_an_id_is_an_error_with_its_number(tmp_path: Path, value: str, text: str) -> None:
    sql = f"SELECT CASE WHEN i = 30000 THEN {value} ELSE i::VARCHAR END AS user_id FROM range(50000) t(i)"
    path = parquet(tmp_path / "u.parquet", sql)
    assert refused(lambda: Audience.read(path)) == f"{path}, row 30001: {text}"
    assert refused(lambda: Audience.query(sql)) == f"the query, row 30001: {text}"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("1.0", "JSON of type DOUBLE: a text or an integer is needed"),
        ("true", "JSON of type BOOLEAN: a text or an integer is needed"),
        ('["secret"]', "JSON of type ARRAY: a text or an integer is needed"),
        ("null", "NULL"),
        ('""', "empty"),
    ],
)
def test_json_that_is_not_an_id_is_an_error_with_its_type(value: str, text: str) -> None:
    message = refused(lambda: Audience.query(f"FROM (VALUES ('1'::JSON), ('{value}'::JSON)) t(user_id)"))
    assert message == f"the query, row 2: user_id is {text}"


def test_a_null_integer_is_an_error_with_its_row() -> None:
    audience = Audience.query("SELECT nullif(i, 7) AS user_id FROM range(9) t(i)")
    assert refused(lambda: audience) == "the query, row 8: user_id is NULL"


def test_a_column_of_nulls_is_an_error_with_its_first_row() -> None:
    assert refused(lambda: Audience.query("SELECT NULL AS user_id")) == "the query, row 1: user_id is NULL"


def test_a_bad_row_that_is_not_found_again_is_an_error_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, columns = parquet(tmp_path / "u.parquet", "SELECT NULL::INTEGER AS user_id"), duckdb_reader.id_columns

    def replace_file(*arguments: Any) -> str:
        parquet(path, "SELECT 7 AS user_id")
        return columns(*arguments)

    # The search for the row begins with this.
    monkeypatch.setattr(duckdb_reader, "id_columns", replace_file)
    with pytest.raises(ValidationError) as excinfo:
        ids_of(Audience.read(path))
    assert str(excinfo.value) == f"{path}: user_id is NULL or empty in a row"


def test_a_missing_column_is_an_error_that_lists_the_columns(tmp_path: Path) -> None:
    path = parquet(tmp_path / "u.parquet", 'SELECT 1 AS "User ID", 2 AS n')
    message = refused(lambda: Audience.read(path))
    assert message == f"{path}: no column 'user_id', only User ID, n; did you mean primary_key='User ID'?"
    assert ids_of(Audience.read(path, primary_key="User ID")) == ["1"]


def test_the_columns_of_a_query_are_those_beside_the_ids() -> None:
    assert Audience.query("SELECT 'a' AS city, 1 AS user_id, 2 AS n").columns == ("city", "n")


def test_a_column_may_have_any_name() -> None:
    audience = Audience.query('SELECT 1 AS "a""b; DROP", 2 AS "{0}", 3 AS "c\'"', primary_key='a"b; DROP')
    assert rows_of(audience) == [("1", {"{0}": 2, "c'": 3})]


# -- once each, in order, counted -----------------------------------------------------------------------------------


def test_parquet_gives_each_id_once_or_all_in_their_order(tmp_path: Path) -> None:
    audience = Audience.read(
        parquet(tmp_path / "u.parquet", "SELECT 'user-' || (i % 30000) AS user_id, i AS n FROM range(45000) t(i)")
    )
    ids = [f"user-{i % 30000}" for i in range(45000)]
    assert ids_of(audience) == ids
    assert audience.summary == AudienceSummary(read=45000, users=45000)
    assert sorted(ids_of(audience, distinct=True)) == sorted(set(ids))
    assert audience.summary == AudienceSummary(read=45000, users=30000, duplicates=15000)
    assert rows_of(audience) == [(user, {"n": i}) for i, user in enumerate(ids)]
    assert rows_of(audience, distinct=True) == [(user, {"n": i}) for i, user in enumerate(ids[:30000])]
    assert audience.summary == AudienceSummary(read=45000, users=30000, duplicates=15000)
    assert audience.count() == 45000


def test_a_query_counts_its_rows_and_duplicates() -> None:
    audience = Audience.query("SELECT i % 3 AS user_id FROM range(10) t(i) ORDER BY i")
    assert audience.count() is None
    assert ids_of(audience) == [str(i % 3) for i in range(10)]
    assert sorted(ids_of(audience, distinct=True)) == ["0", "1", "2"]
    assert audience.summary == AudienceSummary(read=10, users=3, duplicates=7)


def test_an_empty_table_has_no_users(tmp_path: Path) -> None:
    audience = Audience.read(parquet(tmp_path / "u.parquet", "SELECT 1 AS user_id, 2 AS n LIMIT 0"))
    assert ids_of(audience) == ids_of(audience, distinct=True) == rows_of(audience) == []
    assert audience.summary == AudienceSummary()
    assert audience.count() == 0


def test_chunks_of_parquet_are_encoded_as_the_wire_does(tmp_path: Path) -> None:
    sql = "SELECT i || '\"\\' || chr(7) || chr(8232) || chr(128512) || ' ' AS user_id FROM range(2500) t(i)"
    audience = Audience.read(parquet(tmp_path / "u.parquet", sql))
    (ids,) = audience.ids()
    chunks = list(chunks_of(ids, fixed=0, max_users=1000, max_bytes=10**6))
    assert [chunk.users for chunk in chunks] == [1000, 1000, 500]
    for chunk in chunks:
        assert chunk.ids == encode_user_ids(chunk.user_ids())
    users = [user for chunk in chunks for user in chunk.user_ids()]
    assert sorted(users) == sorted(f'{i}"\\\a\u2028\U0001f600 ' for i in range(2500))


# -- files ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["x'; DROP--", "x[1]", "x*", "x?", 'x"', "ü {a,b}", "k=1", "%20", "http:"])
def test_an_odd_parquet_file_name_is_not_a_pattern(tmp_path: Path, name: str) -> None:
    for other in ("x1", "xa", "ü a"):
        parquet(tmp_path / f"{other}.parquet", "SELECT 'other' AS user_id")
    audience = Audience.read(parquet(tmp_path / f"{name}.parquet", "SELECT 'it' AS user_id"))
    assert rows_of(audience) == [("it", {})]
    assert audience.count() == 1


def test_columns_of_several_parquet_files_are_matched_by_name(tmp_path: Path) -> None:
    (tmp_path / "day=1").mkdir()
    parquet(tmp_path / "day=1" / "a.parquet", "SELECT 'a' AS user_id, 1 AS n")
    parquet(tmp_path / "day=1" / "b.parquet", "SELECT 'x' AS m, 2 AS user_id")
    audience = Audience.read(tmp_path / "*" / "*.parquet")
    assert rows_of(audience) == [("a", {"n": 1}), ("2", {"m": "x"})]
    assert audience.count() == 2
    assert "(2 files, " in audience.source


def test_a_bad_row_of_several_parquet_files_names_its_file(tmp_path: Path) -> None:
    parquet(tmp_path / "a.parquet", "SELECT 'a' AS user_id FROM range(10)")
    bad = parquet(tmp_path / "b.parquet", "FROM (VALUES ('a'), (NULL)) t(user_id)")
    assert refused(lambda: Audience.read(tmp_path / "*.parquet")) == f"{bad}, row 2: user_id is NULL"


@pytest.mark.parametrize("content", [b"", b"user_id\nsecret\n", b"PAR1secretPAR1"])
def test_a_file_that_is_not_parquet_is_an_error_without_its_content(tmp_path: Path, content: bytes) -> None:
    path = made(tmp_path, "u.parquet", content)
    assert refused(lambda: Audience.read(path)) == f"{path}: damaged, or no Parquet file"


def test_the_damaged_one_of_several_parquet_files_is_named(tmp_path: Path) -> None:
    parquet(tmp_path / "a.parquet", "SELECT 'a' AS user_id")
    bad = made(tmp_path, "b.parquet", b"PAR1")
    assert refused(lambda: Audience.read(tmp_path / "*.parquet")) == f"{bad}: damaged, or no Parquet file"


def test_damage_within_a_parquet_file_is_an_error(tmp_path: Path) -> None:
    path = parquet(tmp_path / "u.parquet", "SELECT i AS user_id FROM range(30000) t(i)")
    content = path.read_bytes()
    middle = len(content) // 2
    path.write_bytes(content[:middle] + bytes(100) + content[middle + 100 :])
    assert refused(lambda: Audience.read(path)) == f"{path}: damaged, or no Parquet file"


def test_a_parquet_file_that_changes_during_the_reading_is_an_error(tmp_path: Path) -> None:
    path = parquet(tmp_path / "u.parquet", "SELECT i AS user_id FROM range(30000) t(i)")
    reading = Audience.read(path).ids()
    next(reading)
    os.utime(path, ns=(0, 0))
    with pytest.raises(ValidationError, match="changed while it was read"):
        list(reading)


# -- the other columns ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("'é'", "é"),
        ("''", ""),
        ("true", True),
        ("-5::TINYINT", -5),
        ("18446744073709551615::UBIGINT", 2**64 - 1),
        ("sum(3)", 3),
        (f"{BIG}::HUGEINT", str(BIG)),
        (f"{BIG}::UHUGEINT", str(BIG)),
        ("0.5::FLOAT", 0.5),
        ("0.1::DOUBLE", 0.1),
        ("1.50::DECIMAL(4,2)", "1.50"),
        ("7::DECIMAL(4,0)", "7"),
        ("DATE '2024-02-29'", "2024-02-29"),
        ("TIME '10:00:00.5'", "10:00:00.5"),
        ("TIMESTAMP '2024-02-29 10:00:00.5'", "2024-02-29T10:00:00.5"),
        ("'2024-02-29 10:00:00.123456789'::TIMESTAMP_NS", "2024-02-29T10:00:00.123456789"),
        ("'2024-02-29 10:00:00'::TIMESTAMP_S", "2024-02-29T10:00:00"),
        ("'2024-02-29 10:00:00+02'::TIMESTAMPTZ", "2024-02-29T08:00:00Z"),
        ("INTERVAL 1 DAY", "1 day"),
        ("'6ba7b810-9dad-11d1-80b4-00c04fd430c8'::UUID", "6ba7b810-9dad-11d1-80b4-00c04fd430c8"),
        ("'b'::ENUM('a', 'b')", "b"),
        ("'101'::BIT", "101"),
        ("[1, NULL]", [1, None]),
        ("[1, 2]::INTEGER[2]", [1, 2]),
        ("{'a': DATE '2024-02-29', 'b': ['x']}", {"a": "2024-02-29", "b": ["x"]}),
        ("MAP {'k': 1}", {"k": 1}),
        (f"[{BIG}::HUGEINT]", [str(BIG)]),
        ("'{\"a\": [1, 12345678901234567890123]}'::JSON", {"a": [1, "12345678901234567890123"]}),
    ],
)
def test_a_column_becomes_plain_json(value: str, expected: object) -> None:
    fields = columns_of(f"{value} AS it")
    assert fields == {"it": expected}
    assert type(fields["it"]) is type(expected)
    wire.encode_custom_fields(fields)


@pytest.mark.parametrize(
    "value", ["NULL", "NULL::INTEGER[]", "NULL::HUGEINT", "'nan'::DOUBLE", "'nan'::FLOAT", "NULL::TIMESTAMPTZ"]
)
def test_null_and_nan_are_left_out(value: str) -> None:
    assert columns_of(f"{value} AS it, 1 AS n") == {"n": 1}


def test_a_column_without_a_form_in_json_is_an_error_with_its_type() -> None:
    with pytest.raises(
        ValidationError, match="the query: column it is of type BLOB, which JSON has no form for"
    ) as excinfo:
        columns_of("'secret'::BLOB AS it")
    assert "secret" not in str(excinfo.value)


def test_a_nan_in_a_list_is_refused_by_its_row() -> None:
    audience = Audience.query(
        "SELECT i AS user_id, [CASE WHEN i = 12000 THEN 'nan'::DOUBLE ELSE i END] AS it FROM range(20000) t(i)"
    )
    with pytest.raises(ValidationError, match="the query, row 12001: it can't be written as JSON"):
        rows_of(audience)


# -- queries --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT 1 AS user_id; -- all",
        "\n SELECT 1 AS user_id -- all",
        "FROM (VALUES (1)) t(user_id)",
        "WITH a AS (SELECT 1 AS user_id) FROM a;",
    ],
)
def test_a_query_is_any_one_select(sql: str) -> None:
    assert ids_of(Audience.query(sql)) == ["1"]


@pytest.mark.parametrize(
    "sql",
    [
        "",
        "-- nothing",
        "SELECT 1 AS user_id; SELECT 2",
        "SELECT 1; DROP TABLE x",
        "COPY (SELECT 1) TO 'stolen.csv'",
        "CREATE TABLE a (i INTEGER)",
        "ATTACH 'other.db'",
        "INSTALL httpfs",
        "LOAD httpfs",
        "SET threads = 8",
        "EXPLAIN SELECT 1 AS user_id",
        "EXPORT DATABASE 'there'",
        "UPDATE EXTENSIONS",
    ],
)
def test_sql_that_is_not_one_select_is_an_error_at_once(
    sql: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValidationError, match="the query is not one SELECT statement"):
        Audience.query(sql)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("sql", "text"),
    [
        ("SELEC 1", 'the query: Parser Error: syntax error at or near "SELEC"'),
        ("SELECT * FROM nobody", "the query: Catalog Error: Table with name nobody does not exist!"),
        ("SELECT nobody FROM range(1)", "the query: Binder Error: "),
        ("FROM 'nobody.parquet'", "the query: IO Error: No files found that match"),
        ('SELECT "a\x1b[2J" FROM range(1)', "a?[2J"),
        ("SELECT $1 AS user_id", "the query: "),
    ],
)
def test_wrong_sql_is_refused_at_once_in_the_words_of_duckdb(sql: str, text: str) -> None:
    with pytest.raises(ValidationError) as excinfo:
        Audience.query(sql)
    message = str(excinfo.value)
    assert text in message
    assert "\x1b" not in message
    assert "\n" not in message
    assert excinfo.value.__suppress_context__


def test_the_words_of_duckdb_are_cut() -> None:
    with pytest.raises(ValidationError) as excinfo:
        Audience.query(f"SELECT {'x' * 1000} FROM range(1)")
    assert len(str(excinfo.value)) < 250
    assert str(excinfo.value).endswith("...")


@pytest.mark.parametrize("expression", ["'secret'::INTEGER", "error('secret')", "'secret'::JSON"])
def test_an_error_that_may_quote_a_value_shows_only_its_kind(expression: str) -> None:
    audience = Audience.query(
        f"SELECT CASE WHEN i = 5 THEN {expression}::VARCHAR ELSE i::VARCHAR END AS user_id FROM range(9) t(i)"
    )
    message = refused(lambda: audience)
    assert message.startswith("the query: DuckDB stopped with ")
    assert "secret" not in message


def test_a_query_reads_files(tmp_path: Path) -> None:
    parquet(tmp_path / "u.parquet", "SELECT 'a' AS user_id")
    made(tmp_path, "u.csv", "id\nb\n")
    sql = f"SELECT user_id FROM '{tmp_path}/u.parquet' UNION ALL SELECT id FROM '{tmp_path}/u.csv'"
    assert sorted(ids_of(Audience.query(sql))) == ["a", "b"]


def test_a_query_sees_no_variable_of_the_program_and_no_network() -> None:
    nobody = [1]
    assert nobody
    with pytest.raises(ValidationError, match="nobody does not exist"):
        Audience.query("SELECT * FROM nobody")
    with pytest.raises(ValidationError, match="the query: "):
        Audience.query("SELECT * FROM 'http://127.0.0.1:9/u.parquet'")


def test_the_source_of_a_query_is_its_sql() -> None:
    one, two = Audience.query("SELECT\n  1 AS user_id"), Audience.query("SELECT   1 AS user_id")
    assert one.source.startswith("query ")
    assert one.source.endswith(": SELECT 1 AS user_id")
    assert one.source != two.source
    assert len(Audience.query(f"SELECT 1 AS user_id -- {'x' * 1000}").source) < 250


# -- what DuckDB may do ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("autoinstall_known_extensions", False),
        ("autoload_known_extensions", False),
        ("allow_community_extensions", False),
        ("allow_persistent_secrets", False),
        ("python_enable_replacements", False),
        ("enable_progress_bar", False),
        ("lock_configuration", True),
    ],
)
def test_duckdb_is_set_up_to_read_local_data_only(setting: str, value: bool) -> None:
    with duckdb_reader.connection() as db:
        assert db.execute("SELECT current_setting(?)", [setting]).fetchall() == [(value,)]


def test_the_settings_can_not_be_changed_again() -> None:
    with duckdb_reader.connection() as db, pytest.raises(duckdb.Error, match="locked"):
        db.execute("SET memory_limit = '10GB'")


def test_one_processor_gets_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    for processors, threads in ((1, 1), (2, 2), (64, 2), (None, 1)):
        monkeypatch.setattr(os, "cpu_count", lambda processors=processors: processors)
        with duckdb_reader.connection() as db:
            assert db.execute("SELECT current_setting('threads')").fetchall() == [(threads,)]


def folders(parent: Path) -> list[Path]:
    return [path for path in parent.iterdir() if path.name.startswith("pushsdk-")]


@pytest.mark.parametrize("end", ["closed", "failed", "read"])
def test_the_spill_folder_is_private_and_always_removed(
    end: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(duckdb_reader, "MEMORY", "30MB")
    monkeypatch.setitem(duckdb_reader.SETTINGS, "memory_limit", "30MB")
    value = "CASE WHEN i = 899999 THEN NULL ELSE i END" if end == "failed" else "i"
    reading = Audience.query(f"SELECT 'user-' || ({value}) AS user_id FROM range(900000) t(i)").ids()
    assert folders(tmp_path) == []
    first = next(reading)
    [folder] = folders(tmp_path)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert list(folder.iterdir())
    if end == "closed":
        reading.close()
    elif end == "failed":
        with pytest.raises(ValidationError, match="row 900000: user_id is NULL"):
            list(reading)
    else:
        assert len(first) + sum(map(len, reading)) == 900_000
    assert folders(tmp_path) == []


@pytest.fixture
def no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """DuckDB has too little memory to find the distinct ids of many rows."""
    monkeypatch.setitem(duckdb_reader.SETTINGS, "memory_limit", "9MB")


@pytest.mark.usefixtures("no_room")
def test_distinct_ids_beyond_the_memory_of_duckdb_are_found() -> None:
    audience = Audience.query("SELECT 'user-' || (i % 200000) AS user_id FROM range(300000) t(i)")
    assert sorted(ids_of(audience, distinct=True)) == sorted(f"user-{i}" for i in range(200_000))
    assert audience.summary == AudienceSummary(read=300_000, users=200_000, duplicates=100_000)


@pytest.mark.usefixtures("no_room")
def test_a_query_that_needs_more_memory_is_an_error() -> None:
    audience = Audience.query("SELECT list(i::VARCHAR)[1] AS user_id FROM range(900000) t(i) GROUP BY i % 2")
    assert refused(lambda: audience) == "the query: DuckDB needs more than the 150MB it may use"


def test_without_memory_from_the_start_each_id_is_returned_once(monkeypatch: pytest.MonkeyPatch) -> None:
    select = duckdb_reader.SqlQuery._select

    def none(self: duckdb_reader.SqlQuery, *arguments: Any, tail: str = "") -> Iterator[list[Any]]:
        if tail:
            raise duckdb.OutOfMemoryException("no room")
        return select(self, *arguments)

    monkeypatch.setattr(duckdb_reader.SqlQuery, "_select", none)
    audience = Audience.query("SELECT unnest(['a', 'b', 'a']) AS user_id")
    assert ids_of(audience, distinct=True) == ["a", "b"]
    assert audience.summary == AudienceSummary(read=3, users=2, duplicates=1)


def test_running_out_of_memory_after_the_first_ids_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def some(*_: object, **__: object) -> Iterator[list[tuple[str, int]]]:
        yield [("a", 1)]
        raise duckdb.OutOfMemoryException("no room")

    monkeypatch.setattr(duckdb_reader.SqlQuery, "_select", some)
    with pytest.raises(ValidationError, match="the query: DuckDB needs more than"):
        ids_of(Audience.query("SELECT 'a' AS user_id"), distinct=True)


# The tests' own folder, for what measures.
ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
_MEASURE = """
import sys
from pushsdk._audience.audience import Audience
from support.memory import peak
users = 0
for ids in Audience.read(sys.argv[1]).ids():
    users += len(ids)
print(users, peak())
"""


def test_a_large_parquet_file_is_planned_in_bounded_memory(tmp_path: Path) -> None:
    path = parquet(tmp_path / "u.parquet", "SELECT 'user-' || (i * 7919 % 3000017) AS user_id FROM range(3000000) t(i)")
    command = [sys.executable, "-c", _MEASURE, str(path)]
    process = subprocess.run(command, capture_output=True, text=True, check=True, env=ENVIRONMENT)
    users, kilobytes = map(int, process.stdout.split())
    assert users == 3_000_000
    assert kilobytes < 300 * 1024


def test_a_missing_column_of_a_query_is_an_error_before_anything_is_read() -> None:
    with pytest.raises(ValidationError, match="the query: no column 'user_id', only usr_id; did you mean"):
        Audience.query("SELECT 'a' AS usr_id")


@pytest.mark.parametrize("url", ["s3://bucket/users.parquet", "https://push.example/users.parquet"])
def test_a_query_of_a_remote_file_says_to_download_it(url: str) -> None:
    with pytest.raises(ValidationError, match=r"only local files are read, download it first$"):
        Audience.query(f"SELECT user_id FROM '{url}'")
