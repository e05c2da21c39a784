"""Segments over local tables: the files, the users of a query, and their fields."""

import json
import os
import subprocess
import sys
import tempfile
from operator import itemgetter
from pathlib import Path
from typing import Any

import duckdb
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pushsdk._audience.distinct import Row
from pushsdk.emulator.campaigns.segment import (
    SegmentError,
    SegmentJob,
    SegmentResult,
    Tables,
    read_rows,
    run,
    segment_available,
)

USERS = "user_id,lang,city\n007,de,Köln\n1e5,en,\n007,fr,Paris\n"


def made(folder: Path, name: str, content: str | bytes = USERS) -> Path:
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def parquet(path: Path, sql: str) -> Path:
    with duckdb.connect() as db:
        name = str(path).replace("'", "''")
        db.execute(f"COPY ({sql}) TO '{name}' (FORMAT parquet)")
    return path


def found(folder: Path, query: str, key: str = "user_id", /, **options: Any) -> tuple[list[Row], SegmentResult]:
    """Return the result of a query that runs in a process."""
    with Tables(folder).run(query, key, **options) as (result, batches):
        return [row for batch in batches for row in batch], result


def told(folder: Path, query: str, key: str = "user_id", /, **options: Any) -> str:
    with pytest.raises(SegmentError) as excinfo:
        found(folder, query, key, **options)
    return str(excinfo.value)


def names_of(tables: Tables) -> list[str]:
    return [table.name for table in tables.find()]


def result_of(
    folder: Path, query: str, key: str = "user_id", max_rows: int = 1_000_000
) -> tuple[SegmentResult, list[list[Row]]]:
    """Return the answer and the rows of the child, without a process."""
    with tempfile.TemporaryDirectory() as private:
        answer = run(SegmentJob(Tables(folder).find(), query, key, max_rows), Path(private))
        return answer, list(read_rows(Path(private) / "rows"))


def answer_of(folder: Path, query: str, key: str = "user_id", **options: Any) -> SegmentResult:
    return result_of(folder, query, key, **options)[0]


def rows_of(folder: Path, query: str, key: str = "user_id") -> list[Row]:
    return [row for batch in result_of(folder, query, key)[1] for row in batch]


def failed(folder: Path, query: str, key: str = "user_id", **options: Any) -> str:
    with pytest.raises(SegmentError) as excinfo:
        answer_of(folder, query, key, **options)
    return str(excinfo.value)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made(tmp_path, "users.csv")
    return tmp_path


# -- files ----------------------------------------------------------------------------------------------------------


def test_files_of_the_known_kinds_are_tables_named_after_their_stems(tmp_path: Path) -> None:
    for name in ("a.csv", "B.TSV", "c.parquet", "d.jsonl", "e.ndjson", "f.json", "g.csv.gz", "h.txt", "i", ".j.csv"):
        made(tmp_path, name)
    (tmp_path / "k.csv").mkdir()
    made(tmp_path / "k.csv", "l.csv")
    os.mkfifo(tmp_path / "m.csv")
    assert names_of(Tables(tmp_path)) == ["B", "a", "c", "d", "e", "f"]


def test_a_link_within_the_folder_is_a_table(tmp_path: Path) -> None:
    inside, outside = tmp_path / "inside", tmp_path / "outside"
    for folder in (inside, outside):
        folder.mkdir()
        made(folder, "users.csv")
    (inside / "same.csv").symlink_to(inside / "users.csv")
    (inside / "out.csv").symlink_to(outside / "users.csv")
    (inside / "up.csv").symlink_to("../outside/users.csv")
    (inside / "broken.csv").symlink_to("nowhere.csv")
    assert names_of(Tables(inside)) == ["same", "users"]
    assert len(rows_of(inside, "FROM same")) == 2


@pytest.mark.parametrize("other", ["users.tsv", "Users.csv", "users.jsonl"])
def test_two_files_with_one_table_name_are_an_error(folder: Path, other: str) -> None:
    made(folder, other)
    with pytest.raises(SegmentError, match=r"users\.\w+ would both be the table \w+: rename one of them$"):
        Tables(folder)


def test_a_folder_that_can_not_be_read_is_an_error(folder: Path) -> None:
    for path in (folder / "missing", folder / "users.csv"):
        with pytest.raises(SegmentError, match="can't be read as a folder of tables: "):
            Tables(path)


def test_a_name_that_is_not_utf_8_is_an_error(tmp_path: Path) -> None:
    made(tmp_path, os.fsdecode(b"\xff.csv"))
    with pytest.raises(SegmentError, match="is not UTF-8: rename the file"):
        Tables(tmp_path)


def test_every_query_reads_the_folder_again(folder: Path) -> None:
    tables = Tables(folder)
    made(folder, "late.csv")
    assert names_of(tables) == ["late", "users"]


ODD = ["we[i]rd*", "a?b", "it's", 'say "hi"', "a b", "{a,b}", "back\\slash", "ünïcode", "select", "a;b", "--", "a%20b"]


@pytest.mark.parametrize("name", [*ODD, "segment", "segment_", "pushsdk_result", "found", "c0", "number"])
def test_a_table_of_any_name_can_be_quoted(tmp_path: Path, name: str) -> None:
    made(tmp_path, f"{name}.csv")
    quoted = name.replace('"', '""')
    assert [user for user, _ in rows_of(tmp_path, f'SELECT * FROM "{quoted}"')] == ["007", "1e5"]


def test_a_pattern_in_a_name_opens_no_other_file(tmp_path: Path) -> None:
    made(tmp_path, "*.csv", "user_id\nstar\n")
    made(tmp_path, "other.csv", "user_id\nother\n")
    assert rows_of(tmp_path, 'FROM "*"') == [("star", {})]


# -- values ----------------------------------------------------------------------------------------------------------


def test_csv_values_stay_text(tmp_path: Path) -> None:
    made(tmp_path, "t.csv", 'user_id,a,b,c\r\n007,1e5, x ,2024-01-01\r\n"a,""b""",#no,,true\r\n')
    assert rows_of(tmp_path, "FROM t") == [
        ("007", {"a": "1e5", "b": " x ", "c": "2024-01-01"}),
        ('a,"b"', {"a": "#no", "c": "true"}),
    ]


@pytest.mark.parametrize("cut", [",", ";", "\t", "|"])
def test_the_delimiter_of_csv_comes_from_the_header(tmp_path: Path, cut: str) -> None:
    made(tmp_path, "t.csv", f"\ufeffuser_id{cut}x\na-1{cut}de\n")
    assert rows_of(tmp_path, "FROM t") == [("a-1", {"x": "de"})]


def test_a_csv_of_one_column_has_no_delimiter(tmp_path: Path) -> None:
    made(tmp_path, "t.csv", "user_id\na|b\nc;d\n")
    assert [user for user, _ in rows_of(tmp_path, "FROM t")] == ["a|b", "c;d"]


def test_tsv_is_split_at_tabs(tmp_path: Path) -> None:
    made(tmp_path, "t.tsv", "user_id\ta,b,c\n1\tx,y\n")
    assert rows_of(tmp_path, "FROM t") == [("1", {"a,b,c": "x,y"})]


def test_json_lines_keep_their_texts(tmp_path: Path) -> None:
    row = {"user_id": "007", "d": "2024-01-01", "t": "10:00:00", "u": "6BA7B810-9DAD-11D1-80B4-00C04FD430C8", "n": 5}
    row |= {"s": "2024-01-01T10:00:00Z", "f": 1.5, "b": True, "o": {"a": [1, None]}, "z": None}
    made(tmp_path, "t.jsonl", json.dumps(row) + "\n\n" + '{"user_id": "1e5"}\n')
    del row["z"], row["user_id"]
    assert rows_of(tmp_path, "FROM t") == [("007", row), ("1e5", {})]


def test_integers_of_json_are_decimal_text_and_fractions_are_refused(tmp_path: Path) -> None:
    made(tmp_path, "t.jsonl", '{"user_id": 2.5}\n{"user_id": 7}\n{"user_id": 1234567890123456789012}\n')
    answer, batches = result_of(tmp_path, "FROM t")
    reason = "row 1: user_id is JSON of type DOUBLE: a text or an integer is needed"
    assert answer == SegmentResult(users=2, rows=3, duplicates=0, refused=1, first_refused=reason)
    assert batches == [[("1234567890123456789012", {}), ("7", {})]]


def test_ids_of_json_may_be_texts_and_integers_both(tmp_path: Path) -> None:
    made(tmp_path, "t.jsonl", '{"user_id": "b"}\n{"user_id": 1}\n{"user_id": "2"}\n')
    assert [user for user, _ in rows_of(tmp_path, "FROM t")] == ["1", "2", "b"]


def test_values_of_parquet_become_json(tmp_path: Path) -> None:
    sql = """SELECT 7::BIGINT AS user_id, 1.50::DECIMAL(5,2) AS e, DATE '2024-01-02' AS d, [1, NULL] AS l,
        {'a': 'x'} AS s, 'nan'::DOUBLE AS n, '-infinity'::DOUBLE AS i, 'infinity'::FLOAT AS j, 2.5::FLOAT AS f,
        TIMESTAMP '2024-01-02 03:04:05' AS t, true AS b, 2::TINYINT AS y"""
    parquet(tmp_path / "t.parquet", sql)
    fields = {"e": "1.50", "d": "2024-01-02", "l": [1, None], "s": {"a": "x"}, "f": 2.5, "b": True, "y": 2}
    assert rows_of(tmp_path, "FROM t") == [("7", fields | {"t": "2024-01-02T03:04:05"})]


def test_a_large_integer_is_text(tmp_path: Path) -> None:
    assert rows_of(tmp_path, f"SELECT 1 AS user_id, {2**100}::HUGEINT AS h") == [("1", {"h": str(2**100)})]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("t.parquet", "sekret"),
        ("t.csv", "user_id,a\n1,2,sekret\n"),
        ("t.csv", b"user_id,a\n\xff,sekret\n"),
        ("t.jsonl", '{"user_id": 1}\nsekret\n'),
    ],
)
def test_a_damaged_file_is_reported_by_its_table(tmp_path: Path, name: str, content: str | bytes) -> None:
    made(tmp_path, name, content)
    text = failed(tmp_path, "FROM t")
    assert text.startswith(("t: can't be read: damaged", "the query: it fails on a value in some row"))
    assert "sekret" not in text


def test_a_damaged_file_affects_only_queries_that_name_it(folder: Path) -> None:
    made(folder, "t.parquet", "nothing")
    assert len(rows_of(folder, "FROM users")) == 2


def test_a_missing_file_is_reported(folder: Path) -> None:
    job = SegmentJob(Tables(folder).find(), "FROM users", "user_id")
    (folder / "users.csv").unlink()
    with pytest.raises(SegmentError, match="the table users can't be read: No such file or directory"):
        run(job, folder)


# -- results --------------------------------------------------------------------------------------------------------


def test_users_come_sorted_and_once_with_the_fields_of_their_first_row(folder: Path) -> None:
    made(folder, "more.csv", "user_id,lang\nb,x\n007,y\n,z\nB,\né,\n")
    rows, result = found(folder, "SELECT user_id, lang FROM users UNION ALL FROM more")
    expected = [("007", {"lang": "de"}), ("1e5", {"lang": "en"}), ("B", {}), ("b", {"lang": "x"}), ("é", {})]
    assert rows == expected
    assert (result.users, result.rows, result.duplicates) == (5, 8, 2)
    assert (result.refused, result.first_refused) == (1, "row 6: user_id is NULL")


def test_the_order_of_the_query_decides_the_first_row(folder: Path) -> None:
    rows = rows_of(folder, "SELECT * FROM users ORDER BY lang DESC")
    assert rows[0] == ("007", {"lang": "fr", "city": "Paris"})


@pytest.mark.parametrize(
    "query",
    [
        "SELECT * FROM users;",
        "SELECT * FROM users -- all of them",
        "/* all */ FROM USERS",
        "TABLE users",
        "WITH u AS (SELECT * FROM users) SELECT * FROM u",
        "WITH u AS MATERIALIZED (FROM users) FROM U",
        "WITH RECURSIVE t(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM t WHERE n < 2) FROM users WHERE 2 IN (FROM t)",
        "SELECT DISTINCT ON (user_id) * FROM users ORDER BY lang",
        "SELECT u.* FROM users u JOIN users v USING (user_id) LEFT JOIN range(3) r(i) ON true LIMIT 100 OFFSET 0",
        "SELECT user_id, count(*) AS n FROM users GROUP BY ALL HAVING n > 0 ORDER BY n",
        "SELECT user_id, row_number() OVER (PARTITION BY user_id ORDER BY lang) FROM users QUALIFY true",
        "SELECT * FROM users WHERE lang IN ('de', 'en', 'fr') AND city IS NOT DISTINCT FROM city",
        "SELECT user_id FROM users UNION SELECT user_id FROM users EXCEPT SELECT 'x'",
        "FROM users PIVOT (count(*) FOR lang IN ('de', 'en'))",
        "SELECT user_id, [x.upper() FOR x IN [lang] IF x IS NOT NULL] AS l FROM users",
        "FROM users, unnest([1, 2]) u(x)",
        "FROM (VALUES ('007'), ('1e5')) t(user_id)",
        "SELECT user_id, CASE WHEN lang LIKE 'd%' THEN 1 ELSE 2 END, CAST(lang AS VARCHAR), {'a': lang} FROM users",
        "SELECT COLUMNS('user|lang') FROM users TABLESAMPLE 100%",
        "SELECT user_id FROM users WHERE EXISTS (SELECT 1 FROM users v WHERE v.user_id = users.user_id)",
        "SELECT user_id, current_date AS today, date_trunc('day', now()) AS d FROM users",
        "SELECT * EXCLUDE (city) REPLACE (upper(lang) AS lang) FROM users",
    ],
)
def test_any_select_from_tables_is_allowed(folder: Path, query: str) -> None:
    assert [user for user, _ in rows_of(folder, query)] == ["007", "1e5"]


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("NULL", "NULL"),
        ("''", "empty"),
        ("NULL::INTEGER", "NULL"),
        ("'true'::JSON", "JSON of type BOOLEAN: a text or an integer is needed"),
        ("'1.0'::JSON", "JSON of type DOUBLE: a text or an integer is needed"),
        ("'null'::JSON", "NULL"),
    ],
)
def test_rows_without_an_id_are_counted_and_the_first_is_reported(tmp_path: Path, value: str, reason: str) -> None:
    query = f"SELECT CASE WHEN i >= 2 THEN {value} END AS user_id FROM range(5) t(i) WHERE i >= 2"
    assert answer_of(tmp_path, query) == SegmentResult(0, 3, 0, 3, f"row 1: user_id is {reason}")


@pytest.mark.parametrize(
    ("value", "kind"),
    [("1.5::DOUBLE", "DOUBLE"), ("true", "BOOLEAN"), ("DATE '2024-01-01'", "DATE"), ("['a']", "VARCHAR[]")],
)
def test_a_column_without_ids_is_refused(tmp_path: Path, value: str, kind: str) -> None:
    text = failed(tmp_path, f"SELECT {value} AS user_id")
    assert text.startswith(f"the query: user_id is of type {kind}; user ids are texts or whole numbers: turn them")


def test_a_missing_column_is_reported_with_all_names(folder: Path) -> None:
    assert failed(folder, "FROM users", "userId") == (
        "the query: no column 'userId', only user_id, lang, city; did you mean primaryKey 'user_id'?"
    )
    assert failed(folder, "SELECT lang FROM users").endswith("only lang; name one with primaryKey ...")


def test_a_missing_table_is_reported_with_all_names(folder: Path) -> None:
    assert failed(folder, "FROM usres") == (
        "the query: Catalog Error: Table with name usres does not exist! The tables are users"
    )
    empty = folder / "empty"
    empty.mkdir()
    assert failed(empty, "FROM users").endswith("does not exist! The tables are none")


def test_a_value_without_a_json_form_is_reported_by_its_column(tmp_path: Path) -> None:
    text = failed(tmp_path, "SELECT 1 AS user_id, 'sekret'::BLOB AS b")
    assert text.startswith("the query: column b is of type BLOB, which JSON has no form for")
    text = failed(tmp_path, "SELECT 1 AS user_id, ['nan'::DOUBLE] AS b")
    assert text == "the query: b can't be written as JSON (a NaN in it?)"


def test_more_rows_than_allowed_are_an_error_before_the_first_user(tmp_path: Path) -> None:
    query = "SELECT i AS user_id FROM range({}) t(i)"
    text = "the query returns over 7 rows: add a WHERE or a LIMIT"
    assert failed(tmp_path, query.format(8), max_rows=7) == text
    assert answer_of(tmp_path, query.format(7), max_rows=7) == SegmentResult(7, 7, 0, 0, None)


def test_a_row_that_is_too_long_is_an_error(tmp_path: Path) -> None:
    query = "SELECT 1 AS user_id, repeat('a', 600000) AS x, repeat('ä', {}) AS y"
    assert failed(tmp_path, query.format(300000)) == "a row of the query is over 1024 KiB long: select fewer columns"
    assert len(rows_of(tmp_path, query.format(200000))) == 1


def test_a_user_is_found_once_across_batches(tmp_path: Path) -> None:
    query = "SELECT i // 700 AS user_id, i AS n FROM range(1400) t(i)"
    assert result_of(tmp_path, query) == (SegmentResult(2, 1400, 1398, 0, None), [[("0", {"n": 0}), ("1", {"n": 700})]])


def test_ids_of_any_characters_are_found_once(tmp_path: Path) -> None:
    ids = ["last", "\U00010000\U00010000", "\uffff", "é", "a\0", "a", "a\0", "a", "zz"]
    lines = [json.dumps({"user_id": user, "n": at}) for at, user in enumerate(ids)]
    made(tmp_path, "t.jsonl", "\n".join(lines))
    users = [(user, fields["n"]) for user, fields in rows_of(tmp_path, "FROM t")]
    assert sorted(users) == sorted((user, ids.index(user)) for user in set(ids))


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.none() | st.text(st.characters(exclude_categories=["Cs"]), max_size=2), max_size=12))
def test_the_result_equals_a_plain_loop_over_the_rows(tmp_path: Path, ids: list[str | None]) -> None:
    lines = [json.dumps({"user_id": user, "n": at}) for at, user in enumerate(ids)]
    made(tmp_path, "t.jsonl", "\n".join([*lines, json.dumps({"user_id": "last", "n": -1})]))
    first: dict[str, int] = {}
    for at, user_id in enumerate(ids):
        if user_id:
            first.setdefault(user_id, at)
    first.setdefault("last", -1)
    answer, batches = result_of(tmp_path, "SELECT user_id::VARCHAR AS user_id, n FROM t")
    refused = sum(not user for user in ids)
    assert isinstance(answer, SegmentResult)
    assert (answer.rows, answer.refused) == (len(ids) + 1, refused)
    assert (answer.users, answer.duplicates) == (len(first), len(ids) + 1 - refused - len(first))
    rows = [row for batch in batches for row in batch]
    assert sorted(rows, key=itemgetter(0)) == [(user, {"n": first[user]}) for user in sorted(first)]


# -- the run ---------------------------------------------------------------------------------------------------------


def test_a_run_can_be_abandoned(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    with Tables(folder).run("SELECT i AS user_id FROM range(300000) t(i)", "user_id") as (_, batches):
        next(batches)
        batches.close()
    assert list(folder.iterdir()) == [folder / "users.csv"]


@pytest.mark.parametrize(
    ("query", "key", "text"),
    [
        ("", "user_id", "the segment's query is empty: write a SELECT over the tables"),
        (" \n", "user_id", "the segment's query is empty: write a SELECT over the tables"),
        ("SELECT 1", "", "the segment's primaryKey is empty: name the column that holds the user ids"),
        ("x" * 100_001, "user_id", "the query is over 100,000 characters long: put its lists into a table"),
        ("SELECT 1\0", "user_id", "the query contains a NUL character: remove it"),
        ("SELECT '\ud800'", "user_id", "the query contains a lone surrogate, which is not Unicode: remove it"),
    ],
)
def test_invalid_texts_are_refused_before_a_process_starts(folder: Path, query: str, key: str, text: str) -> None:
    assert told(folder, query, key) == text


def test_without_duckdb_nothing_runs(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert segment_available()
    monkeypatch.setitem(sys.modules, "duckdb", None)
    assert not segment_available()
    assert names_of(Tables(folder)) == ["users"]
    text = "segments need duckdb (the extra 'audience'): pip install duckdb"
    assert told(folder, "FROM users") == text


def test_importing_the_module_imports_no_duckdb() -> None:
    code = "import sys, pushsdk.emulator.campaigns.segment; sys.exit('duckdb' in sys.modules)"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    assert subprocess.run([sys.executable, "-c", code], env=environment, check=False).returncode == 0


def test_the_process_gets_neither_the_key_nor_the_current_folder(
    folder: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    made(elsewhere, "duckdb.py", "raise SystemExit(9)")
    monkeypatch.chdir(elsewhere)
    monkeypatch.setenv("PUSHSDK_API_KEY", "sekret")
    started: list[dict[str, str]] = []
    popen = subprocess.Popen

    def start(*args: Any, **options: Any) -> Any:
        started.append(options["env"])
        return popen(*args, **options)

    monkeypatch.setattr(subprocess, "Popen", start)
    assert len(found(folder, "FROM users")[0]) == 2
    assert "sekret" not in started[0].values()


def test_a_process_that_cannot_start_is_an_error(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def start(*args: Any, **options: Any) -> Any:
        raise OSError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(subprocess, "Popen", start)
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    text = "no process can be started for the query: Resource temporarily unavailable"
    assert told(folder, "FROM users") == text
    assert list(folder.iterdir()) == [folder / "users.csv"]
