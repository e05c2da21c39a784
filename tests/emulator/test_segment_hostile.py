"""Hostile segment queries: each is refused, without any side effect."""

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import msgspec
import pytest

from pushsdk.emulator.campaigns import segment
from pushsdk.emulator.campaigns.segment import SegmentError, SegmentJob, Tables, run

SECRET = "sekret"
GOOD = "SELECT user_id FROM users"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder of tables, and other files around."""
    tables = tmp_path / "tables"
    tables.mkdir()
    (tables / "users.csv").write_text(f"user_id,lang\n1,{SECRET}\n")
    (tables / "notes.txt").write_text(SECRET)
    (tmp_path / "outside.csv").write_text(f"user_id\n{SECRET}\n")
    return tables


@pytest.fixture
def private(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The parent of the private folders of queries."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def everything(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.parent.rglob("*") if path.is_file()}


def failed(folder: Path, query: str) -> str:
    """Return the error of the query; asserts that no file has changed."""
    before = everything(folder)
    with tempfile.TemporaryDirectory() as private, pytest.raises(SegmentError) as excinfo:
        run(SegmentJob(Tables(folder).find(), query, "user_id", 1000), Path(private))
    assert everything(folder) == before
    return checked(str(excinfo.value))


def checked(text: str) -> str:
    assert "\n" not in text
    assert len(text) < 400
    assert SECRET not in text
    return text


# -- other statements ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "statement",
    [
        "",
        ";",
        "SELECT 1 AS user_id; SELECT 2",
        "SELECT 1 AS user_id; DROP VIEW users",
        "ATTACH '{outside}/new.db'",
        "BEGIN",
        "CALL range(1)",
        "CHECKPOINT",
        "COMMENT ON COLUMN users.lang IS 'x'",
        "COPY (SELECT 1) TO '{outside}/new.csv'",
        "COPY (SELECT 1) TO '{tables}/users.csv'",
        "COPY users FROM '{outside}/outside.csv'",
        "CREATE SECRET s (TYPE http)",
        "CREATE TABLE t AS SELECT 1 AS user_id",
        "CREATE MACRO f() AS 1",
        "DEALLOCATE x",
        "DELETE FROM users",
        "DETACH memory",
        "DROP VIEW users",
        "EXECUTE x",
        "EXPLAIN ANALYZE SELECT 1",
        "EXPORT DATABASE '{outside}/new'",
        "IMPORT DATABASE '{outside}'",
        "INSERT INTO users VALUES ('2', 'x')",
        "INSTALL httpfs",
        "LOAD '{outside}/outside.csv'",
        "PIVOT users ON lang",
        "PRAGMA enable_profiling",
        "PRAGMA version",
        "PREPARE x AS SELECT 1",
        "RESET lock_configuration",
        "SET lock_configuration = false",
        "UPDATE users SET lang = 'x'",
        "UPDATE EXTENSIONS",
        "USE memory",
        "VACUUM",
    ],
)
def test_anything_but_one_select_is_refused(folder: Path, statement: str) -> None:
    text = failed(folder, statement.format(outside=folder.parent, tables=folder))
    # Older versions of DuckDB open the files of IMPORT when they parse.
    others = ("the query: Parser Error: ", "the query: Permission Error: ")
    assert text.startswith(("the query is not one SELECT statement", *others))


@pytest.mark.parametrize(
    "query",
    [
        "WITH x AS (INSERT INTO users VALUES ('2', 'x') RETURNING *) FROM x",
        "WITH x AS (UPDATE users SET lang = 'x' RETURNING *) FROM x",
        "WITH x AS (DELETE FROM users RETURNING *) FROM x",
        "WITH x AS (COPY users TO '{tables}/users.csv') FROM users",
        "WITH x AS (COPY users TO '{outside}/new.csv') FROM users",
        "WITH x AS (COPY users TO '{outside}/outside.csv') FROM users",
        "WITH x AS (COPY users TO 'rows') FROM users",
        "WITH y AS (WITH x AS (COPY users TO '{outside}/new.csv') FROM users) FROM y",
    ],
)
def test_a_select_that_does_more_than_read_is_refused(folder: Path, query: str) -> None:
    text = failed(folder, query.format(outside=folder.parent, tables=folder))
    assert text.startswith(("the query: ", "the query is not one SELECT statement"))


# -- data outside the tables -----------------------------------------------------------------------------------------

OUTSIDE = [
    "SELECT * FROM '{outside}/outside.csv'",
    "SELECT * FROM '{tables}/../outside.csv'",
    "SELECT * FROM 'file://{outside}/outside.csv'",
    "SELECT * FROM 'https://127.0.0.1:1/users.csv'",
    "SELECT * FROM 's3://bucket/users.parquet'",
    "FROM read_csv('{outside}/outside.csv')",
    "FROM read_csv_auto('{outside}/*.csv')",
    "FROM system.main.read_csv('{outside}/outside.csv')",
    "FROM READ_TEXT('{tables}/notes.txt')",
    "FROM read_blob('{outside}/outside.csv')",
    "FROM read_json('{outside}/outside.csv')",
    "FROM read_ndjson_objects('{outside}/outside.csv')",
    "FROM read_parquet('{outside}/outside.csv')",
    "FROM parquet_metadata('{outside}/outside.csv')",
    "FROM sniff_csv('{outside}/outside.csv')",
    "FROM glob('{outside}/*')",
    "FROM query('FROM read_text(''{outside}/outside.csv'')')",
    "FROM query_table(['{outside}/outside.csv'])",
    "SELECT json_serialize_plan('FROM read_text(''{outside}/outside.csv'')') AS user_id FROM glob('{outside}/*')",
]
HIDDEN = [
    "SELECT (SELECT content FROM read_text('{outside}/outside.csv')) AS user_id",
    "FROM users WHERE EXISTS (FROM glob('{outside}/*'))",
    "FROM users ORDER BY (SELECT count(*) FROM glob('{outside}/*'))",
    "FROM users LIMIT (SELECT count(*) FROM glob('{outside}/*'))",
    "SELECT [x FOR x IN (SELECT list(file) FROM glob('{outside}/*'))] AS user_id",
    "SELECT sum(1) OVER (ORDER BY (SELECT count(*) FROM glob('{outside}/*'))) AS user_id FROM users",
    "SELECT DISTINCT ON ((SELECT count(*) FROM glob('{outside}/*'))) * FROM users",
    "FROM users, LATERAL (SELECT lang || file FROM glob('{outside}/*'))",
    "FROM (VALUES ((SELECT count(*) FROM glob('{outside}/*')))) t(user_id)",
    "WITH RECURSIVE t(user_id) AS (SELECT '' UNION SELECT file FROM glob('{outside}/*')) FROM t",
    "SELECT 1 AS user_id UNION ALL SELECT file FROM glob('{outside}/*')",
    "SELECT user_id FROM users GROUP BY ALL HAVING count(*) > (SELECT count(*) FROM glob('{outside}/*'))",
    "FROM users JOIN users v ON (SELECT count(*) > 0 FROM glob('{outside}/*'))",
    "FROM (FROM glob('{outside}/*')) PIVOT (count(*) FOR file IN ('x'))",
    "SELECT max(user_id) FILTER (EXISTS (FROM glob('{outside}/*'))) AS user_id FROM users",
    "SELECT CASE WHEN EXISTS (FROM glob('{outside}/*')) THEN 1 END AS user_id",
]


@pytest.mark.parametrize("query", OUTSIDE + HIDDEN)
def test_only_tables_are_read(folder: Path, query: str) -> None:
    text = failed(folder, query.format(outside=folder.parent, tables=folder))
    assert text.startswith("the query: ")


@pytest.mark.parametrize(
    "query",
    [
        "SELECT * FROM '{tables}/users.csv'",
        "FROM read_text('{tables}/users.csv')",
        "FROM (SHOW TABLES)",
        "FROM (DESCRIBE users)",
        "FROM (SUMMARIZE users)",
        "SHOW TABLES",
        "DESCRIBE users",
        "FROM information_schema.tables",
        "FROM pg_catalog.pg_class",
        "FROM pg_class",
        "FROM sqlite_master",
        "FROM duckdb_views",
        "WITH pg_settings AS (SELECT 1) FROM pg_settings",
        "FROM segment",
        "FROM pushsdk_result",
        "FROM duckdb_settings()",
        "FROM duckdb_secrets()",
        "FROM duckdb_temporary_files()",
        "FROM duckdb_functions()",
        "FROM which_secret('a', 'b')",
        "FROM pragma_version()",
        "FROM checkpoint()",
        "FROM test_all_types()",
        "FROM json_execute_serialized_sql(json_serialize_sql('SELECT 1'))",
        "SELECT getenv('HOME') AS user_id",
        "SELECT system.main.GETENV('HOME') AS user_id",
        "SELECT 'HOME'.getenv() AS user_id",
        "SELECT nextval('s') AS user_id",
        "SELECT list_transform(['HOME'], lambda x: getenv(x)) AS user_id",
        "SELECT ? AS user_id",
        "SELECT $name AS user_id",
        "SELECT folder AS user_id",  # a Python variable
        "FROM find_tables",
    ],
)
def test_nothing_about_the_engine_leaks(folder: Path, query: str) -> None:
    text = failed(folder, query.format(tables=folder))
    assert str(folder) not in text or "{tables}" in query


@pytest.mark.parametrize(
    "query",
    [
        "SELECT * FROM memory.main.users",
        "SELECT * FROM main.users",
        "SELECT current_setting('temp_directory') AS user_id",
        "SELECT getvariable('x') AS user_id",
        "SELECT current_query() AS user_id",
        "SELECT write_log('x') AS user_id",
        "SELECT sleep_ms(1) AS user_id",
        "SELECT pg_sleep(1) AS user_id",
    ],
)
def test_readable_engine_facts_are_harmless(folder: Path, query: str) -> None:
    before = everything(folder)
    with Tables(folder).run(query, "user_id") as (_, batches):
        rows = list(batches)
    assert everything(folder) == before
    assert tempfile.gettempdir() not in repr(rows)


@pytest.mark.parametrize(
    "value",
    [
        "CAST(lang AS INTEGER)",
        "lang::DATE",
        "lang::JSON",
        "error(lang)",
        "strptime(lang, '%Y')",
        "regexp_matches('a', '(' || lang)",
        "date_trunc(lang, now())",
        "lang::STRUCT(a INTEGER)",
        "list_value(1)[lang::INTEGER]",
        "json_extract('{}', '$[' || lang)",
        "(SELECT lang FROM users)::UUID",
        "enum_code(lang)",
        "strftime(now(), '%' || lang)::INTEGER",
    ],
)
def test_an_error_contains_no_value_of_a_row(folder: Path, value: str) -> None:
    failed(folder, f"SELECT {value} AS user_id FROM users")


# -- bombs -----------------------------------------------------------------------------------------------------------

N = 10_000
BOMBS = {
    "open parentheses": "SELECT " + "(" * N,
    "subqueries": "SELECT * FROM " + "(FROM " * N + "users" + ")" * N,
    "prefix operators": "SELECT " + "@ " * N + "1 AS user_id",
    "sums": "SELECT 1" + "+1" * N,
    "dots": "SELECT x" + ".x" * N,
    "unions": "VALUES (1)" + " UNION VALUES (1)" * (N // 2),
    "joins": "SELECT 1 FROM " + "(" * 1000 + "users" + " JOIN users USING (user_id))" * 1000,
    "pivots": "FROM " + "(PIVOT " * 1000 + "users" + " ON lang)" * 1000,
    "doubling": "WITH c0 AS (FROM range(2))"
    + "".join(f", c{at + 1} AS (SELECT a.* FROM c{at} a, c{at})" for at in range(9))
    + " SELECT count(*) AS user_id FROM c9",
    "endless recursion": "WITH RECURSIVE t(user_id) AS (SELECT 1 UNION ALL SELECT user_id + 1 FROM t) FROM t",
    "cross joins": "SELECT count(*) AS user_id FROM range(1000000) a, range(1000000) b, range(1000000) c",
    "a long range": "SELECT sum(hash(i)) AS user_id FROM range(1000000000000000000) t(i)",
    "too many rows": "SELECT i AS user_id FROM range(1000000000000000000) t(i)",
    "a long text": "SELECT repeat('a', 4000000000) AS user_id",
    "a long list": "SELECT range(10000000000) AS user_id",
    "an aggregate": "SELECT string_agg(repeat('a', 1000000), '') AS user_id FROM range(100000)",
    "a regular expression": "SELECT regexp_matches(repeat('a', 1000000), repeat('(a|aa)?', 1000) || 'b') AS user_id "
    "FROM range(1000000)",
    "deep json": "SELECT json_structure(repeat('[', 1000000) || i || repeat(']', 1000000)) AS user_id "
    "FROM range(1000000) t(i)",
    "many groups": "SELECT user_id FROM users GROUP BY CUBE(" + ", ".join(f"user_id || {at}" for at in range(15)) + ")",
}


@pytest.mark.parametrize("bomb", BOMBS)
def test_a_bomb_is_an_error_in_time(folder: Path, private: Path, bomb: str) -> None:
    run = Tables(folder).run(BOMBS[bomb], "user_id", timeout=1.0, max_rows=10_000)
    with pytest.raises(SegmentError) as excinfo, run:
        pass
    checked(str(excinfo.value))
    assert list(private.glob("pushsdk-*")) == []


def test_after_bombs_the_next_query_works(folder: Path) -> None:
    tables = Tables(folder)
    for bomb in ("prefix operators", "too many rows", "a long text"):
        with pytest.raises(SegmentError), tables.run(BOMBS[bomb], "user_id", max_rows=10_000):
            pass
    with tables.run(GOOD, "user_id") as (_, batches):
        assert list(batches) == [[("1", {})]]


@pytest.mark.parametrize("error", [MemoryError, RecursionError])
def test_a_query_too_large_for_python_is_reported(
    folder: Path, error: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*args: object, **options: object) -> None:
        raise error(SECRET)

    monkeypatch.setattr(segment, "_load", fails)
    assert failed(folder, GOOD) == "the query is too large or too deep: make it simpler"


# -- the end of a process --------------------------------------------------------------------------------------------

ENDLESS = BOMBS["endless recursion"]


def test_a_query_that_takes_too_long_is_ended(folder: Path, private: Path) -> None:
    with (
        pytest.raises(SegmentError, match=r"^the query took over 0\.1 s: make it cheaper, or give it more time$"),
        Tables(folder).run(ENDLESS, "user_id", timeout=0.1),
    ):
        pass
    assert list(private.glob("pushsdk-*")) == []


def test_a_query_stops_on_request(folder: Path, private: Path) -> None:
    with (
        pytest.raises(SegmentError, match=r"^the query was stopped$"),
        Tables(folder).run(ENDLESS, "user_id", stopping=lambda: True),
    ):
        pass
    assert list(private.glob("pushsdk-*")) == []


@pytest.mark.parametrize(
    ("code", "cause"), [("raise SystemExit(7)", "with status 7"), ("import os; os.abort()", "by signal 6")]
)
def test_a_crashed_process_is_reported(folder: Path, monkeypatch: pytest.MonkeyPatch, code: str, cause: str) -> None:
    monkeypatch.setattr(segment, "_COMMAND", (sys.executable, "-c", code))
    text = rf"^the query crashed its process \({cause}\): make it simpler$"
    with pytest.raises(SegmentError, match=text), Tables(folder).run(GOOD, "user_id"):
        pass


def test_an_orphaned_process_ends_by_itself(folder: Path, tmp_path: Path) -> None:
    job = SegmentJob(Tables(folder).find(), ENDLESS, "user_id", 10**12, seconds=0)
    (tmp_path / "job").write_bytes(msgspec.json.encode(job))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    result = subprocess.run((*segment._COMMAND, str(tmp_path)), env=environment, check=False, timeout=60)
    assert result.returncode == -signal.SIGALRM
