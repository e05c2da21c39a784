"""Segment queries that mean harm: what each is refused with, and that nothing else comes of it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from pushsdk.emulator import segment, segment_child
from pushsdk.emulator.segment import Child, SegmentError, Tables
from pushsdk.emulator.segment_child import frames
from pushsdk.emulator.segment_frames import Failed, Job, packed
from pushsdk.emulator.segment_query import tables_in
from pushsdk.emulator.tables import find_tables

SECRET = "sekret"
GOOD = "SELECT user_id FROM users"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder of tables, with files around them that are none."""
    tables = tmp_path / "tables"
    tables.mkdir()
    (tables / "users.csv").write_text(f"user_id,lang\n1,{SECRET}\n")
    (tables / "notes.txt").write_text(SECRET)
    (tmp_path / "outside.csv").write_text(f"user_id\n{SECRET}\n")
    return tables


def everything(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.parent.rglob("*") if path.is_file()}


def failed(folder: Path, query: str) -> str:
    """What it is refused with, by the process's own words. Nothing on the disk is another afterwards."""
    before = everything(folder)
    [frame] = frames(Job(find_tables(folder), query, "user_id", 1000))
    assert isinstance(frame, Failed)
    assert everything(folder) == before
    return checked(frame.error)


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
def test_what_is_not_one_select_is_refused(folder: Path, statement: str) -> None:
    text = failed(folder, statement.format(outside=folder.parent, tables=folder))
    # An older DuckDB looks for the files of IMPORT when it parses it.
    others = ("the query: Parser Error: ", "the query: Permission Error: ")
    assert text.startswith(("the query is not one SELECT statement", *others))


@pytest.mark.parametrize(
    "query",
    [
        "FROM (SHOW TABLES)",
        "FROM (DESCRIBE users)",
        "FROM (SUMMARIZE users)",
        "SHOW TABLES",
        "DESCRIBE users",
        "WITH x AS (INSERT INTO users VALUES ('2', 'x') RETURNING *) FROM x",
        "WITH x AS (UPDATE users SET lang = 'x' RETURNING *) FROM x",
        "WITH x AS (DELETE FROM users RETURNING *) FROM x",
        "WITH x AS (COPY users TO '{tables}/users.csv') FROM users",
        "WITH x AS (COPY users TO '{outside}/new.csv') FROM users",
        "WITH y AS (WITH x AS (COPY users TO '{outside}/new.csv') FROM users) FROM y",
    ],
)
def test_a_select_that_does_more_than_read_is_refused(folder: Path, query: str) -> None:
    text = failed(folder, query.format(outside=folder.parent, tables=folder))
    older = ("the query: Parser Error: ", "the query: it fails on a value")  # they can't even parse some of these
    assert text.startswith(("a segment's query only reads tables: leave out ", *older))


# -- other data than the tables --------------------------------------------------------------------------------------

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
def test_nothing_but_tables_is_read(folder: Path, query: str) -> None:
    text = failed(folder, query.format(outside=folder.parent, tables=folder))
    assert "there is no table" in text or "can't be read from" in text or "can't be used" in text


@pytest.mark.parametrize("query", OUTSIDE)
def test_the_engine_itself_refuses_files_outside(folder: Path, query: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segment_child, "tables_in", lambda tree, tables, internal: list(tables.values()))
    text = failed(folder, query.format(outside=folder.parent, tables=folder))
    assert text.startswith("the query: ")


@pytest.mark.parametrize(
    "query",
    [
        "SELECT * FROM '{tables}/users.csv'",
        "FROM read_text('{tables}/users.csv')",
        "SELECT * FROM memory.main.users",
        "SELECT * FROM main.users",
        "FROM information_schema.tables",
        "FROM pg_catalog.pg_class",
        "FROM pg_class",
        "FROM sqlite_master",
        "FROM duckdb_views",
        "WITH sqlite_master AS (SELECT 1) FROM users, (FROM sqlite_master)",
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
        "SELECT current_setting('temp_directory') AS user_id",
        "SELECT getenv('HOME') AS user_id",
        "SELECT system.main.GETENV('HOME') AS user_id",
        "SELECT 'HOME'.getenv() AS user_id",
        "SELECT getvariable('x') AS user_id",
        "SELECT current_query() AS user_id",
        "SELECT nextval('s') AS user_id",
        "SELECT pg_get_viewdef(1) AS user_id",
        "SELECT write_log('x') AS user_id",
        "SELECT sleep_ms(1) AS user_id",
        "SELECT pg_sleep(1) AS user_id",
        "SELECT list_transform(['HOME'], lambda x: getenv(x)) AS user_id",
        "SELECT ? AS user_id",
        "SELECT $name AS user_id",
        "SELECT folder AS user_id",  # a variable of Python
        "FROM find_tables",
    ],
)
def test_nothing_is_told_about_the_engine_and_its_surroundings(folder: Path, query: str) -> None:
    text = failed(folder, query.format(tables=folder))
    assert str(folder) not in text or "{tables}" in query


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
def test_an_error_tells_no_value_of_a_row(folder: Path, value: str) -> None:
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
    "deep json": "SELECT json_structure(repeat('[', 1000000) || repeat(']', 1000000)) AS user_id",
    "many groups": "SELECT user_id FROM users GROUP BY CUBE(" + ", ".join(f"user_id || {at}" for at in range(15)) + ")",
}


@pytest.mark.parametrize("bomb", BOMBS)
def test_a_bomb_is_an_error_in_time(folder: Path, bomb: str) -> None:
    run = Tables(folder).run(BOMBS[bomb], "user_id", timeout=1.0, max_rows=10_000, folder=folder.parent)
    with pytest.raises(SegmentError) as caught, run:
        pass
    checked(str(caught.value))
    assert list(folder.parent.glob("pushsdk-*")) == []


def test_after_bombs_the_next_query_works(folder: Path) -> None:
    tables = Tables(folder)
    for bomb in ("prefix operators", "too many rows", "a long text"):
        with pytest.raises(SegmentError), tables.run(BOMBS[bomb], "user_id", max_rows=10_000):
            pass
    with tables.run(GOOD, "user_id") as run:
        assert list(run) == [[("1", {})]]


@pytest.mark.parametrize("error", [MemoryError, RecursionError])
def test_what_is_too_large_for_python_is_told(
    folder: Path, error: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*args: object, **options: object) -> None:
        raise error(SECRET)

    monkeypatch.setattr(segment_child, "tables_in", fails)
    assert failed(folder, GOOD) == "the query is too large or too deep: make it simpler"


def test_what_the_parser_can_not_serialize_is_refused() -> None:
    with pytest.raises(SegmentError, match="not one SELECT statement: a segment only reads tables"):
        tables_in({"error": True, "error_message": SECRET}, {}, internal=())


# -- the end of a process --------------------------------------------------------------------------------------------

ENDLESS = BOMBS["endless recursion"]


def test_a_query_that_takes_too_long_is_ended(folder: Path) -> None:
    with (
        pytest.raises(SegmentError, match=r"^the query took over 0\.1 s: make it cheaper, or give it more time$"),
        Tables(folder).run(ENDLESS, "user_id", timeout=0.1, folder=folder.parent),
    ):
        pass
    assert list(folder.parent.glob("pushsdk-*")) == []


def test_a_query_is_ended_when_it_is_asked_to_stop(folder: Path) -> None:
    asked = threading.Event()

    def stopping() -> bool:
        asked.set()
        return True

    with (
        pytest.raises(SegmentError, match=r"^the query was stopped$"),
        Tables(folder).run(ENDLESS, "user_id", stopping=stopping),
    ):
        pass
    assert asked.is_set()


def test_a_query_that_brings_down_its_process_says_so(folder: Path) -> None:
    with (
        pytest.raises(SegmentError, match=r"^the query brought down the process that ran it \(by signal 9\)"),
        Tables(folder).run("SELECT i AS user_id FROM range(500000) t(i)", "user_id") as run,
    ):
        run._child._process.send_signal(signal.SIGKILL)
        for _ in run:
            pass


def test_a_process_that_ends_without_a_word_says_so(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segment, "_COMMAND", (sys.executable, "-c", "raise SystemExit(7)"))
    with pytest.raises(SegmentError, match=r"\(with status 7\): make it simpler$"), Tables(folder).run(GOOD, "user_id"):
        pass


def test_a_process_that_goes_on_without_a_word_is_killed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segment, "_END", 0.01)
    code = "import os, sys; sys.stdin.buffer.read(1); os.write(1, b'half'); os.close(1); sys.stdin.buffer.read()"
    monkeypatch.setattr(segment, "_COMMAND", (sys.executable, "-c", code))
    with pytest.raises(SegmentError, match="brought down"), Tables(folder).run(GOOD, "user_id"):
        pass


def test_a_process_that_does_not_end_when_it_has_said_all_is_killed(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(segment, "_END", 0.01)
    code = f"import os, sys; os.write(1, {packed(Failed('no'))!r}); sys.stdin.buffer.read()"
    monkeypatch.setattr(segment, "_COMMAND", (sys.executable, "-c", code))
    child = Child(Job({}, "", "", 0), timeout=10)
    with pytest.raises(SegmentError, match=r"^no$"), child:
        child.frame()
    assert child._process.returncode == -signal.SIGKILL


def test_a_process_ends_with_the_one_that_started_it(folder: Path) -> None:
    child = Child(Job(find_tables(folder), ENDLESS, "user_id", 10**12, seconds=60), timeout=60)
    with child:
        assert child._process.stdin is not None
        child._process.stdin.close()
        assert child._process.wait(10) == 1


def test_the_end_of_the_input_ends_the_process() -> None:
    ours, theirs = os.pipe()
    os.write(theirs, b"left")
    os.close(theirs)
    ended: list[int] = []
    segment_child._end_with_parent(ours, ended.append)
    os.close(ours)
    assert ended == [1]


def test_a_process_that_gets_no_job_ends(folder: Path) -> None:
    ended = subprocess.run(
        segment._COMMAND,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        check=False,
    )
    assert (ended.returncode, ended.stdout) == (0, b"")
