"""Audiences from Parquet files and SQL: types of ids, values of columns, permissions of DuckDB."""

import os
import stat
import sys
import tempfile

import duckdb
import pytest
from support.audiences import ids_of, made, refused, rows_of
from support.memory import peak_of

from pushsdk import ValidationError
from pushsdk._audience import duckdb_reader
from pushsdk._audience.audience import Audience, AudienceSummary
from pushsdk._core import wire


def parquet(path, sql):
    """A Parquet file of what the query gives."""
    with duckdb.connect() as db:
        name = str(path).replace("'", "''")
        db.execute(f"COPY ({sql}) TO '{name}' (FORMAT parquet)")
    return path


def columns_of(sql):
    """The other columns of the one row of the query."""
    [(_, fields)] = rows_of(Audience.query(f"SELECT 'a' AS user_id, {sql}"))
    return fields


# -- ids --------------------------------------------------------------------------------------------------------------

BIG = 2**127 - 1
UUID = "6ba7b810-9dad-11d1-80b4-00c04fd430c8"
TYPES = {
    "' a '": " a ",
    "'a' || chr(0) || 'é\U0001f600'": "a\0é\U0001f600",
    "-5::TINYINT": "-5",
    "18446744073709551615::UBIGINT": "18446744073709551615",
    "12345678901234567890::DECIMAL(20,0)": "12345678901234567890",
    f"'{UUID}'::UUID": UUID,
    "'b'::ENUM('a', 'b')": "b",
    f"{BIG}::HUGEINT": str(BIG),
    "'\"a\\u0000\"'::JSON": "a\0",
    "'12345678901234567890123'::JSON": "12345678901234567890123",
}


def test_ids_are_the_text_of_the_stored_value():
    for value, expected in TYPES.items():
        audience = Audience.query(f"SELECT 1 AS n, {value} AS user_id")
        assert ids_of(audience, distinct=True) == [expected]
        assert rows_of(audience) == [(expected, {"n": 1})]


@pytest.mark.parametrize(
    ("value", "kind", "advice"),
    [
        (
            "1.0::DOUBLE",
            "DOUBLE",
            'CAST("user_id" AS BIGINT) in a query, Int64 in pandas, if all are whole and have at most 15 digits',
        ),
        ("1.5::DECIMAL(4,1)", "DECIMAL(4,1)", 'CAST("user_id" AS HUGEINT) in a query, if all are whole'),
        ("true", "BOOLEAN", "is this the right column?"),
        ("'secret'::BLOB", "BLOB", 'decode("user_id") in a query, if all are UTF-8'),
        ("['secret']", "VARCHAR[]", 'unnest("user_id") in a query'),
        ("{'a': 1}", "STRUCT(a INTEGER)", 'write "user_id".field in a query, for the field that holds the id'),
    ],
)
def test_a_column_that_holds_no_ids_is_an_error_with_its_type_and_the_fix(value, kind, advice):
    expected = f"the query: user_id is of type {kind}; user ids are texts or whole numbers: {advice}"
    assert refused(lambda: Audience.query(f"SELECT {value} AS user_id")) == expected


@pytest.mark.parametrize(("value", "text"), [("NULL", "user_id is NULL"), ("''", "user_id is empty")])
def test_a_row_without_an_id_is_an_error_with_its_number(tmp_path, value, text):
    sql = f"SELECT CASE WHEN i = 10500 THEN {value} ELSE i::VARCHAR END AS user_id FROM range(12000) t(i)"
    path = parquet(tmp_path / "u.parquet", sql)
    parquet(tmp_path / "a.parquet", "SELECT 'a' AS user_id FROM range(10)")
    assert refused(lambda: Audience.read(tmp_path / "*.parquet")) == f"{path}, row 10501: {text}"


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("(VALUES ('1'::JSON), ('null'::JSON)) t(user_id)", "row 2: user_id is NULL"),
        ("(VALUES ('1'::JSON), ('\"\"'::JSON)) t(user_id)", "row 2: user_id is empty"),
        (
            "(VALUES ('1'::JSON), ('[\"secret\"]'::JSON)) t(user_id)",
            "row 2: user_id is JSON of type ARRAY: a text or an integer is needed",
        ),
    ],
)
def test_a_value_that_is_not_an_id_is_an_error_with_its_row(source, expected):
    assert refused(lambda: Audience.query(f"FROM {source}")) == f"the query, {expected}"


def test_a_bad_row_that_is_not_found_again_is_an_error_all_the_same(monkeypatch):
    monkeypatch.setattr(duckdb_reader.DuckdbSource, "_parts", lambda *_: ())
    message = refused(lambda: Audience.query("SELECT NULL::INTEGER AS user_id"))
    assert message == "the query: user_id is NULL or empty in a row"


def test_a_name_in_a_second_column_is_refused_only_if_duckdb_may_have_numbered_it(tmp_path):
    assert Audience.query("SELECT 1 AS id, 2 AS id_2024, 3 AS id_12", primary_key="id").columns == ("id_2024", "id_12")
    error = refused(lambda: Audience.query("FROM range(1) a(user_id) JOIN range(1) b(USER_ID) ON true"))
    assert error.endswith("; in a query, name the columns, and join with USING")
    path = made(tmp_path, "bare.csv", "user_4711,Ann\n")
    error = refused(lambda: Audience.query(f"FROM '{path}'", primary_key="user"))
    assert error.startswith("the query: no column 'user', only ..., Ann;")


def test_a_column_may_have_any_name_and_a_missing_one_is_an_error_that_lists_the_columns():
    audience = Audience.query('SELECT 1 AS "a""b; DROP", 2 AS "{0}", 3 AS "c\'"', primary_key='a"b; DROP')
    assert rows_of(audience) == [("1", {"{0}": 2, "c'": 3})]
    assert audience.columns == ("{0}", "c'")
    with pytest.raises(ValidationError, match="no column 'user_id', only User ID, n; did you mean primary_key='User"):
        Audience.query('SELECT 1 AS "User ID", 2 AS n')


# -- files ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["x'; DROP--", "x[1]", "ü {a,b}", "k=1", "http:"])
def test_an_odd_parquet_file_name_is_not_a_pattern(tmp_path, name):
    for other in ("x1", "xa", "ü a"):
        parquet(tmp_path / f"{other}.parquet", "SELECT 'other' AS user_id")
    audience = Audience.read(parquet(tmp_path / f"{name}.parquet", "SELECT 'it' AS user_id"))
    assert rows_of(audience) == [("it", {})]


def test_columns_of_several_parquet_files_are_matched_by_name(tmp_path):
    (tmp_path / "day=1").mkdir()
    parquet(tmp_path / "day=1" / "a.parquet", "SELECT 'a' AS user_id, 1 AS n")
    parquet(tmp_path / "day=1" / "b.parquet", "SELECT 'x' AS m, 2 AS USER_ID")
    audience = Audience.read(tmp_path / "*" / "*.parquet")
    assert rows_of(audience) == [("a", {"n": 1}), ("2", {"m": "x"})]
    assert "(2 files, " in audience.source


@pytest.mark.parametrize(
    ("column", "text"),
    [
        ("1.5::DOUBLE AS user_id", "b.parquet: user_id is of type DOUBLE"),
        ("'a' AS uid", "b.parquet: no column 'user_id', only uid"),
        (f"'{UUID.upper()}' AS user_id", "user_id has types in these files that don't fit together"),
        ("7 AS user_id", "user_id has types in these files"),
        ("NULL::UUID AS user_id", "b.parquet, row 1: user_id is NULL"),
        ("'p' AS user_id, 'r' AS USER_ID", "b.parquet: user_id_1 may be a second user_id"),
    ],
)
def test_each_parquet_file_must_hold_ids_that_are_sent_as_they_are(tmp_path, column, text):
    for name, columns in (("a", f"'{UUID}'::UUID AS user_id"), ("b", column)):
        parquet(tmp_path / f"{name}.parquet", f"SELECT {columns}")
    assert text in refused(lambda: Audience.read(tmp_path / "*.parquet"))


@pytest.mark.parametrize("content", [b"", b"PAR1secretPAR1"])
def test_a_file_that_is_not_parquet_is_named_without_its_content(tmp_path, content):
    parquet(tmp_path / "a.parquet", "SELECT 'a' AS user_id")
    bad = made(tmp_path, "b.parquet", content)
    assert refused(lambda: Audience.read(tmp_path / "*.parquet")) == f"{bad}: damaged, or no Parquet file"


def test_a_parquet_file_that_is_damaged_or_changes_during_the_reading_is_an_error(tmp_path):
    path = parquet(tmp_path / "u.parquet", "SELECT i AS user_id FROM range(30000) t(i)")
    reading = Audience.read(path).ids()
    next(reading)
    os.utime(path, ns=(0, 0))
    with pytest.raises(ValidationError, match="changed while it was read"):
        list(reading)
    content = path.read_bytes()
    middle = len(content) // 2
    path.write_bytes(content[:middle] + bytes(100) + content[middle + 100 :])
    assert refused(lambda: Audience.read(path)) == f"{path}: damaged, or no Parquet file"


# -- the other columns ------------------------------------------------------------------------------------------------

VALUES = {
    "''": "",
    "true": True,
    "-5::TINYINT": -5,
    "18446744073709551615::UBIGINT": 2**64 - 1,
    "sum(3)": 3,
    f"{BIG}::UHUGEINT": str(BIG),
    "19.99::FLOAT": 19.99,
    "1.50::DECIMAL(4,2)": "1.50",
    "DATE '2024-02-29'": "2024-02-29",
    "TIME '10:00:00.5'": "10:00:00.5",
    "'2024-02-29 10:00:00.123456789'::TIMESTAMP_NS": "2024-02-29T10:00:00.123456789",
    "'2024-02-29 10:00:00+02'::TIMESTAMPTZ": "2024-02-29T08:00:00Z",
    "INTERVAL 1 DAY": "1 day",
    f"'{UUID}'::UUID": UUID,
    "'b'::ENUM('a', 'b')": "b",
    "'101'::BIT": "101",
    "[1, NULL]": [1, None],
    "[1, 2]::INTEGER[2]": [1, 2],
    "{'a': DATE '2024-02-29', 'b': ['x']}": {"a": "2024-02-29", "b": ["x"]},
    "MAP {'k': 1}": {"k": 1},
    f"[{BIG}::HUGEINT]": [str(BIG)],
    "'{\"a\": [1, 12345678901234567890123]}'::JSON": {"a": [1, "12345678901234567890123"]},
}
LEFT_OUT = ["NULL", "NULL::INTEGER[]", "NULL::HUGEINT", "'nan'::DOUBLE", "NULL::TIMESTAMPTZ"]


def test_a_column_becomes_plain_json_and_null_and_nan_are_left_out():
    fields = columns_of(", ".join(f"{value} AS c{number}" for number, value in enumerate([*VALUES, *LEFT_OUT])))
    assert fields == {f"c{number}": value for number, value in enumerate(VALUES.values())}
    assert [type(value) for value in fields.values()] == [type(value) for value in VALUES.values()]
    wire.encode_custom_fields(fields)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("'secret'::BLOB", ": column it is of type BLOB, which JSON has no form for"),
        ("['nan'::DOUBLE]", ", row 12001: it holds a number that JSON lacks, such as NaN, or is nested too deeply"),
        ("'-inf'::FLOAT", ", row 12001: it holds"),
        ("'[inf]'::JSON", ", row 12001: a column holds"),
        ("(repeat('[', 2000) || repeat(']', 2000))::JSON", ", row 12001: "),  # Python 3.13 reads so deep a text
    ],
)
def test_a_value_without_a_form_in_json_is_an_error_with_its_place(value, text):
    columns = f"i AS user_id, 1 AS one, CASE WHEN i = 12000 THEN {value} END AS it"
    with pytest.raises(ValidationError, match=f"^the query{text}") as excinfo:
        rows_of(Audience.query(f"SELECT {columns} FROM range(20000) t(i)"))
    assert "secret" not in str(excinfo.value)


# -- queries ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "sql",
    [
        "-- nothing",
        "SELECT 1 AS user_id; SELECT 2",
        "COPY (SELECT 1) TO 'stolen.csv'",
    ],
)
def test_sql_that_is_not_one_select_is_an_error_at_once(sql, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValidationError, match=r"the query: it is not one SELECT statement$"):
        Audience.query(sql)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("sql", "text"),
    [
        ("SELEC 1", 'the query: syntax error at or near "SELEC"'),
        ("FROM read_csv()", "the query: Binder Error: No function matches"),
        ("FROM read_csv(path = 'u.csv')", "the query: Binder Error: No function matches"),
        ("FROM query('SELECT 1')", "the query: write the query or table itself, not in query"),
        ("FROM histogram('u.csv', n)", "the query: write the query or table itself, not in histogram"),
        # No variable of the program, which is here in ``text``, and no network.
        ("SELECT * FROM text", "the query: Catalog Error: Table with name text does not exist!"),
        ("SELECT 1 FROM 's3://bucket/users.parquet'", "only local files are read, download it first"),
        # More than Python's JSON can read before 3.13.
        (
            f"SELECT 1{'+ 1' * 500}",
            "the query: it has too many nested terms" if sys.version_info.minor < 13 else "the query: no column",
        ),
        (
            f'WITH "{__file__}" AS (SELECT 1 AS user_id) FROM "{__file__}"',
            ".py in WITH or REPLACE is a file: write another",
        ),
        ("FROM 'nobody.parquet'", "the query: IO Error: No files found that match"),
        ('SELECT "a\x1b[2J" FROM range(1)', "a?[2J"),
        (f"SELECT {'x' * 1000} FROM range(1)", "..."),
    ],
)
def test_wrong_sql_is_refused_at_once_in_the_words_of_duckdb(sql, text):
    message = refused(lambda: Audience.query(sql))
    assert text in message
    assert not {"\x1b", "\n"} & {*message}
    assert len(message) < 250


@pytest.mark.parametrize("expression", ["'secret'::INTEGER", "error('secret')", "'secret'::JSON"])
def test_an_error_that_may_quote_a_value_shows_only_its_kind(expression):
    audience = Audience.query(
        f"SELECT CASE WHEN i = 5 THEN {expression}::VARCHAR ELSE i::VARCHAR END AS user_id FROM range(9) t(i)"
    )
    message = refused(lambda: audience)
    assert message.startswith("the query: DuckDB stopped with ")
    assert "secret" not in message


# -- what DuckDB may do -----------------------------------------------------------------------------------------------


def test_duckdb_is_set_up_to_read_local_data_only():
    off = [name for name, value in duckdb_reader.SETTINGS.items() if value is False]
    with duckdb_reader.connection() as db:
        settings = [db.execute("SELECT current_setting(?)", [name]).fetchall() for name in off]
        assert settings == [[(False,)]] * 5
        with pytest.raises(duckdb.Error, match="locked"):
            db.execute("SET memory_limit = '10GB'")


def folders(parent):
    return [path for path in parent.iterdir() if path.name.startswith("pushsdk-")]


@pytest.mark.parametrize("end", ["closed", "failed"])
def test_the_spill_folder_is_private_and_always_removed(end, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setitem(duckdb_reader.SETTINGS, "memory_limit", "30MB")
    value = "CASE WHEN i = 899999 THEN NULL ELSE i END" if end == "failed" else "i"
    reading = Audience.query(f"SELECT 'user-' || ({value}) AS user_id FROM range(900000) t(i)").ids()
    assert folders(tmp_path) == []
    next(reading)
    [folder] = folders(tmp_path)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert list(folder.iterdir())
    if end == "closed":
        reading.close()
    else:
        with pytest.raises(ValidationError, match="row 900000: user_id is NULL"):
            list(reading)
    assert folders(tmp_path) == []


@pytest.fixture
def no_room(monkeypatch):
    """DuckDB has too little memory to find the distinct ids of many rows."""
    monkeypatch.setitem(duckdb_reader.SETTINGS, "memory_limit", "9MB")


@pytest.mark.usefixtures("no_room")
def test_distinct_ids_beyond_the_memory_of_duckdb_are_found():
    audience = Audience.query("SELECT 'user-' || (i % 200000) AS user_id FROM range(300000) t(i)")
    assert sorted(ids_of(audience, distinct=True)) == sorted(f"user-{i}" for i in range(200_000))
    assert audience.summary == AudienceSummary(read=300_000, users=200_000, duplicates=100_000)


@pytest.mark.usefixtures("no_room")
def test_a_query_that_needs_more_memory_is_an_error():
    audience = Audience.query("SELECT list(i::VARCHAR)[1] AS user_id FROM range(900000) t(i) GROUP BY i % 2")
    assert refused(lambda: audience) == "the query: DuckDB needs more than the 150MB it may use"


def test_running_out_of_memory_after_the_first_ids_is_an_error(monkeypatch):
    def some(*_, **__):
        yield [("a", 1)]
        raise duckdb.OutOfMemoryException("no room")

    monkeypatch.setattr(duckdb_reader.DuckdbSource, "_select", some)
    with pytest.raises(ValidationError, match="the query: DuckDB needs more than"):
        ids_of(Audience.query("SELECT 'a' AS user_id"), distinct=True)


READ = """
from pushsdk._audience.audience import Audience
print(sum(len(ids) for ids in Audience.read(sys.argv[1]).ids()), peak())
"""


def test_a_large_parquet_file_is_planned_in_bounded_memory(tmp_path):
    sql = "SELECT 'user-' || (i * 7919 % 2000003) AS user_id FROM range(2000000) t(i)"
    users, kilobytes = peak_of(READ, parquet(tmp_path / "u.parquet", sql))
    assert users == 2_000_000
    assert kilobytes < 300 * 1024
