"""Hostile segment queries: each is refused, without any side effect."""

import signal
import sys
import tempfile
from pathlib import Path

import msgspec
import pytest
from support.programs import run_python

from pushsdk.emulator.campaigns import segment
from pushsdk.emulator.campaigns.segment import SegmentError, SegmentJob, Tables, run

SECRET = "sekret"
GOOD = "SELECT user_id FROM users"


@pytest.fixture
def folder(tmp_path):
    """A folder of tables, and other files around."""
    tables = tmp_path / "tables"
    tables.mkdir()
    (tables / "users.csv").write_text(f"user_id,lang\n1,{SECRET}\n")
    (tables / "notes.txt").write_text(SECRET)
    (tmp_path / "outside.csv").write_text(f"user_id\n{SECRET}\n")
    return tables


@pytest.fixture
def private(tmp_path, monkeypatch):
    """The parent of the private folders of queries."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def everything(folder):
    return {path: path.read_bytes() for path in folder.parent.rglob("*") if path.is_file()}


def failed(folder, query):
    """Return the error of the query; asserts that no file has changed."""
    before = everything(folder)
    query = query.format(outside=folder.parent, tables=folder)
    with tempfile.TemporaryDirectory() as private, pytest.raises(SegmentError) as excinfo:
        run(SegmentJob(Tables(folder).find(), query, "user_id", 1000), Path(private))
    assert everything(folder) == before
    return checked(str(excinfo.value))


def checked(text):
    assert "\n" not in text
    assert len(text) < 400
    assert SECRET not in text
    return text


# -- other statements ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "statement",
    [
        ";",
        "SELECT 1 AS user_id; DROP VIEW users",
        "ATTACH '{outside}/new.db'",
        "CALL range(1)",
        "COPY (SELECT 1) TO '{tables}/users.csv'",
        "COPY users FROM '{outside}/outside.csv'",
        "CREATE TABLE t AS SELECT 1 AS user_id",
        "EXPLAIN ANALYZE SELECT 1",
        "EXPORT DATABASE '{outside}/new'",
        "IMPORT DATABASE '{outside}'",
        "INSTALL httpfs",
        "PIVOT users ON lang",
        "PRAGMA enable_profiling",
        "SET lock_configuration = false",
        "UPDATE EXTENSIONS",
    ],
)
def test_anything_but_one_select_is_refused(folder, statement):
    # Older versions of DuckDB open the files of IMPORT when they parse.
    others = ("the query: Parser Error: ", "the query: Permission Error: ")
    assert failed(folder, statement).startswith(("the query is not one SELECT statement", *others))


@pytest.mark.parametrize(
    "query",
    [
        "WITH x AS (DELETE FROM users RETURNING *) FROM x",
        "WITH x AS (COPY users TO '{tables}/users.csv') FROM users",
        "WITH y AS (WITH x AS (COPY users TO '{outside}/new.csv') FROM users) FROM y",
    ],
)
def test_a_select_that_does_more_than_read_is_refused(folder, query):
    assert failed(folder, query).startswith(("the query: ", "the query is not one SELECT statement"))


# -- data outside the tables -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "query",
    [
        "SELECT * FROM '{tables}/../outside.csv'",
        "SELECT * FROM 'file://{outside}/outside.csv'",
        "SELECT * FROM 'https://127.0.0.1:1/users.csv'",
        "SELECT * FROM 's3://bucket/users.parquet'",
        "FROM read_csv_auto('{outside}/*.csv')",
        "FROM system.main.read_csv('{outside}/outside.csv')",
        "FROM READ_TEXT('{tables}/notes.txt')",
        "FROM read_json('{outside}/outside.csv')",
        "FROM read_parquet('{outside}/outside.csv')",
        "FROM sniff_csv('{outside}/outside.csv')",
        "FROM query('FROM read_text(''{outside}/outside.csv'')')",
        "FROM query_table(['{outside}/outside.csv'])",
        "SELECT (SELECT content FROM read_text('{outside}/outside.csv')) AS user_id",
        "FROM users LIMIT (SELECT count(*) FROM glob('{outside}/*'))",
        "SELECT sum(1) OVER (ORDER BY (SELECT count(*) FROM glob('{outside}/*'))) AS user_id FROM users",
        "WITH RECURSIVE t(user_id) AS (SELECT '' UNION SELECT file FROM glob('{outside}/*')) FROM t",
        "FROM (FROM glob('{outside}/*')) PIVOT (count(*) FOR file IN ('x'))",
    ],
)
def test_only_tables_are_read(folder, query):
    assert failed(folder, query).startswith("the query: ")


@pytest.mark.parametrize(
    "query",
    [
        "FROM (SHOW TABLES)",
        "FROM (DESCRIBE users)",
        "FROM information_schema.tables",
        "FROM sqlite_master",
        "FROM duckdb_settings()",
        "FROM segment",
        "FROM json_execute_serialized_sql(json_serialize_sql('SELECT 1'))",
        "SELECT 'HOME'.getenv() AS user_id",
        "SELECT $name AS user_id",
        "SELECT folder AS user_id",  # a Python variable
    ],
)
def test_nothing_about_the_engine_leaks(folder, query):
    assert str(folder) not in failed(folder, query)


@pytest.mark.parametrize(
    "query",
    [
        "SELECT * FROM memory.main.users",
        "SELECT current_setting('temp_directory') AS user_id",
        "SELECT current_query() AS user_id",
    ],
)
def test_readable_engine_facts_are_harmless(folder, query):
    before = everything(folder)
    with Tables(folder).run(query, "user_id") as (_, batches):
        rows = list(batches)
    assert everything(folder) == before
    assert tempfile.gettempdir() not in repr(rows)


@pytest.mark.parametrize(
    "value",
    [
        "CAST(lang AS INTEGER)",
        "lang::JSON",
        "error(lang)",
        "strptime(lang, '%Y')",
        "regexp_matches('a', '(' || lang)",
        "json_extract('{{}}', '$[' || lang)",
    ],
)
def test_an_error_contains_no_value_of_a_row(folder, value):
    failed(folder, f"SELECT {value} AS user_id FROM users")


# -- bombs -----------------------------------------------------------------------------------------------------------

ENDLESS = "WITH RECURSIVE t(user_id) AS (SELECT 1 UNION ALL SELECT user_id + 1 FROM t) FROM t"
BOMBS = {
    "open parentheses": "SELECT " + "(" * 10_000,
    "prefix operators": "SELECT " + "@ " * 10_000 + "1 AS user_id",
    "joins": "SELECT 1 FROM " + "(" * 1000 + "users" + " JOIN users USING (user_id))" * 1000,
    "a long text": "SELECT repeat('a', 4000000000) AS user_id",
    "deep json": "SELECT json_structure(repeat('[', 1000000) || i || repeat(']', 1000000)) AS user_id "
    "FROM range(1000000) t(i)",
}


@pytest.mark.parametrize("bomb", BOMBS)
def test_a_bomb_is_an_error_in_time(folder, private, bomb):
    run = Tables(folder).run(BOMBS[bomb], "user_id", timeout=1.0)
    with pytest.raises(SegmentError) as excinfo, run:
        pass
    checked(str(excinfo.value))
    assert list(private.glob("pushsdk-*")) == []


def test_a_query_that_needs_too_much_memory_says_so(folder):
    with pytest.raises(SegmentError, match="needs more than"), Tables(folder).run(BOMBS["a long text"], "user_id"):
        pass


@pytest.mark.parametrize("error", [MemoryError, RecursionError])
def test_a_query_too_large_for_python_is_reported(folder, error, monkeypatch):
    def fails(*args, **options):
        raise error(SECRET)

    monkeypatch.setattr(segment.reader, "check_select", fails)
    assert failed(folder, GOOD) == "the query is too large or too deep: make it simpler"


# -- the end of a process --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"timeout": 0.1}, r"^the query took over 0\.1 s: make it cheaper, or give it more time$"),
        ({"stopping": lambda: True}, "^the query was stopped$"),
    ],
)
def test_a_query_is_ended_in_time_or_on_request(folder, private, options, text):
    with pytest.raises(SegmentError, match=text), Tables(folder).run(ENDLESS, "user_id", **options):
        pass
    assert list(private.glob("pushsdk-*")) == []


@pytest.mark.parametrize(
    ("code", "cause"), [("raise SystemExit(7)", "with status 7"), ("import os; os.abort()", "by signal 6")]
)
def test_a_crashed_process_is_reported(folder, monkeypatch, code, cause):
    monkeypatch.setattr(segment, "_COMMAND", (sys.executable, "-c", code))
    text = rf"^the query crashed its process \({cause}\): make it simpler$"
    with pytest.raises(SegmentError, match=text), Tables(folder).run(GOOD, "user_id"):
        pass


def test_an_orphaned_process_ends_by_itself(folder, tmp_path):
    job = SegmentJob(Tables(folder).find(), ENDLESS, "user_id", 10**12, seconds=0)
    (tmp_path / "job").write_bytes(msgspec.json.encode(job))
    code = "from pushsdk.emulator.campaigns.segment import main; main()"
    assert run_python("-P", "-c", code, tmp_path).code == -signal.SIGALRM
