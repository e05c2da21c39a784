"""Segments over local tables: the files, the users of a query, and their fields."""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

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


def made(folder, name, content=USERS):
    path = folder / name
    path.write_text(content)
    return path


def found(folder, query, key="user_id", **options):
    """Return the result of a query that runs in a process."""
    with Tables(folder).run(query, key, **options) as (result, batches):
        return [row for batch in batches for row in batch], result


def names_of(tables):
    return [table.name for table in tables.find()]


def result_of(folder, query, key="user_id", max_rows=1_000_000):
    """Return the answer and the rows of the child, without a process."""
    with tempfile.TemporaryDirectory() as private:
        answer = run(SegmentJob(Tables(folder).find(), query, key, max_rows), Path(private))
        return answer, [row for batch in read_rows(Path(private) / "rows") for row in batch]


def rows_of(folder, query):
    return result_of(folder, query)[1]


def failed(folder, query, key="user_id", **options):
    with pytest.raises(SegmentError) as excinfo:
        result_of(folder, query, key, **options)
    return str(excinfo.value)


@pytest.fixture
def folder(tmp_path):
    made(tmp_path, "users.csv")
    return tmp_path


# -- files ----------------------------------------------------------------------------------------------------------


def test_files_of_the_known_kinds_are_tables_named_after_their_stems(tmp_path):
    for name in ("a.csv", "B.TSV", "c.parquet", "d.jsonl", "e.ndjson", "f.json", "g.csv.gz", "h.txt", "i", ".j.csv"):
        made(tmp_path, name)
    (tmp_path / "k.csv").mkdir()
    made(tmp_path / "k.csv", "l.csv")
    os.mkfifo(tmp_path / "m.csv")
    tables = Tables(tmp_path)
    assert names_of(tables) == ["B", "a", "c", "d", "e", "f"]
    made(tmp_path, "late.csv")
    assert "late" in names_of(tables)


def test_only_a_link_within_the_folder_is_a_table(tmp_path):
    inside = tmp_path / "in\u3000side\n"
    inside.mkdir()
    outside = made(tmp_path, "users.csv")
    (inside / "same.csv").symlink_to(made(inside, "users.csv"))
    (inside / "out.csv").symlink_to(outside)
    (inside / "broken.csv").symlink_to("nowhere.csv")
    made(inside, "a\xa0.csv")
    assert names_of(Tables(inside)) == ["a\xa0", "same", "users"]
    assert len(rows_of(inside, "FROM same")) == 2


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("Users.csv", r"users\.\w+ would both be the table \w+: rename one of them$"),
        (os.fsdecode(b"\xff.csv"), r"udcff\.csv. is not UTF-8: rename the file"),
    ],
)
def test_a_folder_with_an_unusable_file_name_is_refused(folder, name, text):
    made(folder, name)
    with pytest.raises(SegmentError, match=text):
        Tables(folder)


@pytest.mark.parametrize("name", ["missing", "users.csv"])
def test_what_is_not_a_folder_is_refused(folder, name):
    with pytest.raises(SegmentError, match="can't be read as a folder of tables: "):
        Tables(folder / name)


def test_a_missing_file_is_reported(folder):
    job = SegmentJob(Tables(folder).find(), "FROM users", "user_id")
    (folder / "users.csv").unlink()
    with pytest.raises(SegmentError, match="the table users can't be read: No such file or directory"):
        run(job, folder)


def test_a_table_of_any_name_can_be_quoted_and_opens_no_other_file(tmp_path):
    names = ["*", "we[i]rd?", "it's", 'say "hi"', "{a,b}", "back\\slash", "ünïcode", "select", "a%20b", "segment"]
    for name in names:
        made(tmp_path, f"{name}.csv", f"user_id,x\n{names.index(name)},\n")
    for name in names:
        quoted = name.replace('"', '""')
        assert rows_of(tmp_path, f'SELECT * FROM "{quoted}"') == [(str(names.index(name)), {})]


# -- values ----------------------------------------------------------------------------------------------------------


def test_values_of_csv_stay_text_with_any_delimiter(tmp_path):
    made(tmp_path, "t.csv", "\ufeffuser_id;x\n007;d,e\n1e5; 1 \n")
    assert rows_of(tmp_path, "FROM t") == [("007", {"x": "d,e"}), ("1e5", {"x": " 1 "})]


def test_json_lines_keep_their_texts(tmp_path):
    row = {"user_id": "007", "d": "2024-01-01", "t": "10:00:00", "u": "6BA7B810-9DAD-11D1-80B4-00C04FD430C8", "n": 5}
    row |= {"s": "2024-01-01T10:00:00Z", "f": 1.5, "b": True, "o": {"a": [1, None]}, "z": None}
    made(tmp_path, "t.jsonl", json.dumps(row) + "\n\n" + '{"user_id": "1e5"}\n')
    del row["z"], row["user_id"]
    assert rows_of(tmp_path, "FROM t") == [("007", row), ("1e5", {})]


def test_ids_of_json_are_texts_and_integers_but_not_fractions(tmp_path):
    made(tmp_path, "t.jsonl", '{"user_id": 2.5}\n{"user_id": 7}\n{"user_id": 1234567890123456789012}\n')
    made(tmp_path, "mixed.jsonl", '{"user_id": "b"}\n{"user_id": 1}\n{"user_id": "2"}\n')
    reason = "row 1: user_id is JSON of type DOUBLE: a text or an integer is needed"
    answer = SegmentResult(users=2, rows=3, duplicates=0, refused=1, first_refused=reason)
    assert result_of(tmp_path, "FROM t") == (answer, [("1234567890123456789012", {}), ("7", {})])
    assert rows_of(tmp_path, "FROM mixed") == [("1", {}), ("2", {}), ("b", {})]


@pytest.mark.parametrize(
    ("name", "content"),
    [("t.parquet", "sekret"), ("t.csv", "user_id,a\n1,2,sekret\n"), ("t.jsonl", '{"user_id": 1}\nsekret\n')],
)
def test_a_damaged_file_is_reported_by_its_table_and_affects_no_other_query(folder, name, content):
    made(folder, name, content)
    text = failed(folder, "FROM t")
    assert text.startswith("t: can't be read: damaged")
    assert "sekret" not in text
    assert len(rows_of(folder, "FROM users")) == 2


# -- results --------------------------------------------------------------------------------------------------------


def test_users_come_sorted_and_once_with_the_fields_of_their_first_row(folder):
    made(folder, "more.csv", "user_id,lang\nb,x\n007,y\n,z\nB,\n\u00e9,\n")
    rows, result = found(folder, "SELECT user_id, lang FROM users UNION ALL FROM more; -- all of them")
    expected = [("007", {"lang": "de"}), ("1e5", {"lang": "en"}), ("B", {}), ("b", {"lang": "x"}), ("\u00e9", {})]
    assert rows == expected
    assert result == SegmentResult(5, 8, 2, 1, "row 6: user_id is NULL")


@pytest.mark.parametrize(
    ("query", "text"),
    [
        (" \n", "the query is not one SELECT statement"),
        ("FROM users", "the query: no column 'id', only user_id, lang, city; name one with primaryKey ..."),
        ("FROM usres", "the query: Catalog Error: Table with name usres does not exist! The tables are users"),
        (
            "SELECT 1 AS id, 'x'::BLOB AS b",
            "the query: column b is of type BLOB, which JSON has no form for: leave it out",
        ),
        ("SELECT 1 AS id, ['nan'::DOUBLE] AS b", "the query: b can't be written as JSON (a NaN in it?)"),
    ],
)
def test_a_query_without_usable_columns_is_reported(folder, query, text):
    assert failed(folder, query, "id").startswith(text)


def test_more_rows_than_allowed_are_an_error_before_the_first_user(tmp_path):
    query = "SELECT i AS user_id FROM range({}) t(i)"
    text = "the query returns over 7 rows: add a WHERE or a LIMIT"
    assert failed(tmp_path, query.format(8), max_rows=7) == text
    assert len(result_of(tmp_path, query.format(7), max_rows=7)[1]) == 7


def test_a_row_that_is_too_long_is_an_error(tmp_path):
    query = "SELECT 1 AS user_id, repeat('a', 600000) AS x, repeat('ä', {}) AS y"
    assert failed(tmp_path, query.format(300000)) == "a row of the query is over 1024 KiB long: select fewer columns"
    assert len(rows_of(tmp_path, query.format(200000))) == 1


# -- the run ---------------------------------------------------------------------------------------------------------


def test_a_query_with_a_nul_character_is_refused(folder):
    with pytest.raises(SegmentError, match="the query contains a NUL character: remove it"):
        found(folder, "FROM users\0")


def test_without_duckdb_no_segment_is_available(monkeypatch):
    assert segment_available()
    monkeypatch.setitem(sys.modules, "duckdb", None)
    assert not segment_available()


def test_the_process_gets_neither_the_key_nor_the_current_folder(folder, tmp_path_factory, monkeypatch):
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    made(elsewhere, "duckdb.py", "raise SystemExit(9)")
    monkeypatch.chdir(elsewhere)
    monkeypatch.setenv("PUSHSDK_API_KEY", "sekret")
    started = []
    popen = subprocess.Popen

    def start(*args, **options):
        started.append(options["env"])
        return popen(*args, **options)

    monkeypatch.setattr(subprocess, "Popen", start)
    assert len(found(folder, "FROM users")[0]) == 2
    assert "sekret" not in started[0].values()


def test_a_process_that_cannot_start_is_an_error(folder, monkeypatch):
    def start(*args, **options):
        raise OSError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(subprocess, "Popen", start)
    text = "no process can be started for the query: Resource temporarily unavailable"
    with pytest.raises(SegmentError, match=f"^{text}$"):
        found(folder, "FROM users")
