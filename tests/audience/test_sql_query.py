"""Queries over CSV and JSON, whose types DuckDB guesses: the ids are those that the files hold."""

import gzip
import json
import os
from pathlib import Path

import duckdb
import pytest
from support.audiences import ids_of, made, refused, rows_of

from pushsdk._audience.audience import Audience

# DuckDB guesses from the first 20,480 rows.
EARLY = 21_000
UUID = "A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11"


@pytest.fixture(scope="module", autouse=True)
def folder(tmp_path_factory):
    """The working folder, with files whose last rows are not written as their types are."""
    folder = tmp_path_factory.mktemp("files")
    rows = [(i + 1000, "SE", i % 60, "1.5") for i in range(EARLY)]
    rows += [("00123", "NO", 30, "1.50"), ("1e3", "NO", 17, "2.50")]
    lines = "".join(f"{','.join(map(str, row))}\n" for row in rows)
    made(folder, "late.csv", f"user_id,country,age,amount\n{lines}")
    made(folder, "bare.csv", lines)
    made(folder, "late.csv.gz", gzip.compress(f"user_id;country;age;amount\n{lines.replace(',', ';')}".encode()))
    made(folder, "optout.csv", "".join(["user_id,n\n", *(f"{i},{i}\n" for i in range(EARLY)), "0123,17\n1e3,30\n"]))
    keys = ("user_id", "country", "age", "amount")
    made(folder, "late.jsonl", "".join(json.dumps(dict(zip(keys, row, strict=True))) + "\n" for row in rows))
    uuid = {"user_id": UUID, "n": 1, "user": {"id": UUID, "n": 1}, "ids": [UUID], "tags": ["007"]}
    made(folder, "uuid.jsonl", json.dumps(uuid))
    made(folder, "case.jsonl", '{"user_id": 5, "USER_ID": 7}')
    made(folder, "mixed.jsonl", '{"id": 1}\n{"id": "00123"}')
    (folder / "t").symlink_to("nowhere")
    made(folder, "text.csv", "user_id,country\nann,Norway\n")
    made(folder, "wide.csv", "user_id,n\nann,1,9\nbob,2\n")
    with duckdb.connect() as db:
        db.execute(f"COPY (SELECT i + 1000 AS user_id FROM range(5) t(i)) TO '{folder}/p.parquet' (FORMAT parquet)")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        yield folder


NO = ["00123", "1e3"]
# Queries for the two Norwegians, and their ids.
TRACED = [
    ("FROM 'late.csv' WHERE country = 'NO' AND age + 1 > 18", ["00123"]),
    ("FROM 'late.csv' l ANTI JOIN 'optout.csv' o ON l.user_id = o.user_id::VARCHAR WHERE country = 'NO'", ["00123"]),
    ("SELECT user_id FROM 'late.csv.gz' WHERE country = 'NO'", NO),
    ("SELECT user_id FROM 'lat*.csv' TABLESAMPLE 100% WHERE country = 'NO'", NO),
    ("SELECT uid AS user_id FROM './late.csv' AS l(uid) WHERE country = 'NO'", NO),
    ("SELECT column0 AS user_id FROM 'bare.csv' WHERE column1 = 'NO'", NO),
    ("SELECT user_id FROM read_csv('bare.csv', names = ['user_id', 'c'], Header := false) WHERE c = 'NO'", NO),
    ("SELECT unnest(tags) AS user_id FROM 'uuid.jsonl'", ["007"]),
    # Hidden by a cast, a function, a name.
    ("SELECT CAST(user_id AS VARCHAR) AS user_id FROM 'late.csv' WHERE country = 'NO'", NO),
    ("SELECT 'u'/**/|| user_id AS user_id FROM 'late.csv' WHERE country = 'NO' AND age % 2 = 0", ["u00123"]),
    # Common table expressions, subqueries, sets.
    (
        "WITH \"a.b\" AS (FROM 'late.csv' WHERE country = 'NO'), u AS (FROM \"a.b\") SELECT u.user_id FROM u",
        NO,
    ),
    (
        "WITH t AS MATERIALIZED (FROM 'late.csv' WHERE country = 'NO') SELECT user_id FROM t JOIN t u USING (user_id)",
        NO,
    ),
    ("SELECT user_id FROM 'late.csv' WHERE country = 'NO' UNION ALL SELECT user_id FROM 'uuid.jsonl'", [*NO, UUID]),
    ("SELECT user_id || i AS user_id FROM 'late.csv', range(1) t(i) WHERE country = 'NO'", ["001230", "1e30"]),
    (
        "SELECT id AS user_id FROM 'late.csv', (VALUES (user_id), ('x')) v(id) WHERE age = 17 AND country = 'NO'",
        ["1e3", "x"],
    ),
    (
        "SELECT (SELECT first(user_id) FROM 'optout.csv' WHERE n = age) user_id FROM 'late.csv' WHERE country = 'NO'",
        ["30", "17"],
    ),
    # Groups, windows, joins: they decide about rows.
    ("SELECT first(user_id) AS user_id FROM 'late.csv' WHERE country = 'NO' GROUP BY GROUPING SETS ((age))", NO),
    (
        "SELECT user_id FROM 'late.csv' WHERE country = 'NO' QUALIFY row_number() OVER (ORDER BY amount * 2 DESC) = 1",
        ["1e3"],
    ),
    ("SELECT list(user_id ORDER BY amount * 2)[1] AS user_id FROM 'late.csv' WHERE country = 'NO'", ["00123"]),
    ("SELECT last_value(user_id ORDER BY n) OVER () AS user_id FROM 'optout.csv' LIMIT 1", ["20999"]),
    ("SELECT unnest((SELECT argmax(user_id, n, 2) FROM 'optout.csv')) AS user_id", ["20999", "20998"]),
    # The order of numbers, and orders that choose nobody.
    (
        "SELECT user_id FROM 'optout.csv' ORDER BY CAST(user_id AS BIGINT) LIMIT 10 OFFSET 8",
        list(map(str, range(8, 18))),
    ),
    ("SELECT user_id FROM 'optout.csv' WHERE CAST(user_id AS DOUBLE) BETWEEN 9 AND 10", ["9", "10"]),
    ("WITH t AS (FROM 'optout.csv' ORDER BY user_id) SELECT user_id FROM t WHERE n = 17", ["0123", "17"]),
    ("SELECT user_id FROM 'text.csv' WHERE user_id < 'b' ORDER BY user_id LIMIT 1", ["ann"]),
    ("SELECT user_id FROM 'late.csv' WHERE country = 'NO' ORDER BY md5(user_id::VARCHAR) LIMIT 9", sorted(NO)),
    ("FROM read_csv('optout.csv', types = {'user_id': 'VARCHAR'}, SKIP = 0) ORDER BY user_id DESC LIMIT 1", ["9999"]),
    ("FROM (PIVOT 'late.csv' ON country IN ('NO') USING sum(amount) GROUP BY user_id) WHERE \"NO\" > 2", ["1e3"]),
    ("SELECT DISTINCT ON (country) user_id FROM 'late.csv' WHERE country = 'NO' ORDER BY age + 1", ["1e3"]),
    ("SELECT p.user_id FROM 'p.parquet' p JOIN 'late.csv' l ON l.user_id = p.user_id WHERE age > 3", ["1000", "1004"]),
    ("SELECT l.user_id FROM 'late.csv' l JOIN 'p.parquet' USING (user_id) WHERE age > 3", ["1004", "1e3"]),
    ("FROM 'late.csv' WHERE country = 'NO' AND user_id NOT IN (123, 124)", ["1e3"]),
    ("SELECT user_id FROM 'late.csv' ANTI JOIN 'mixed.jsonl' ON user_id = id WHERE country = 'NO'", ["1e3"]),
    ("SELECT user_id FROM 'late.csv' ASOF JOIN (SELECT 17 AS since) ON age >= since WHERE country = 'NO'", NO),
    ("FROM 'late.csv' WHERE country = 'NO' AND age NOT IN (SELECT n FROM 'optout.csv' WHERE n > 99)", NO),
    ("SELECT {'u': user_id, 'x': amount}.u AS user_id, max(age) OVER () FROM 'late.csv' WHERE country = 'NO'", NO),
    # The types are stated, or no ids are numbers.
    ("SELECT max(user_id::INT) AS user_id FROM read_csv('optout.csv', types = {'user_id': 'VARCHAR'})", ["20999"]),
    (
        "SELECT user_id FROM read_csv('late.csv', types = {'user_id': 'BIGINT'}) WHERE age = 30 AND country = 'NO'",
        ["123"],
    ),
    ("SELECT user_id FROM read_csv('late.csv', all_varchar = true) WHERE country = 'NO' EXCEPT SELECT 'x'", NO),
    ("SELECT user_id FROM read_json('uuid.jsonl', columns = {'user_id': 'UUID'})", [UUID.lower()]),
    ("SELECT json->>'user_id' AS user_id FROM read_json_objects('uuid.jsonl')", [UUID]),
    ("SELECT text.user_id FROM text.csv EXCEPT SELECT 'x'", ["ann"]),
    ("SELECT user_id FROM 'text.csv' WHERE filename LIKE '%text%'", ["ann"]),
    ("FROM read_csv('text.csv', columns = {'user_id': 'TEXT', 'c': 'TEXT'}, auto_detect = false, skip = 1)", ["ann"]),
    ("FROM read_csv('wide.csv', null_padding = true)", ["ann", "bob"]),
]


@pytest.mark.parametrize(("sql", "expected"), TRACED)
def test_ids_are_those_in_the_file_whatever_the_query(sql, expected):
    assert sorted(ids_of(Audience.query(sql))) == sorted(expected)


def test_an_aggregate_chooses_ids_by_numbers_as_numbers_whatever_its_name():
    with duckdb.connect() as db:
        takes = "SELECT DISTINCT function_name FROM duckdb_functions() WHERE parameter_types = ['BIGINT', 'VARCHAR']"
        names = [name for (name,) in db.execute(f"{takes} AND function_type = 'aggregate'").fetchall()]
    assert {"arg_max", "argmin", "max_by"} <= {*names}
    for name in names:
        chosen = ids_of(Audience.query(f"SELECT {name}(user_id, n) AS user_id FROM 'optout.csv' WHERE n IN (9, 10)"))
        assert chosen == ["9" if "min" in name else "10"], name


JSON = "{'user_id': 'UUID', 'n': 'BIGINT', 'user': 'JSON', 'ids': 'JSON', 'tags': 'JSON'}"
REFUSED = [
    (
        "SELECT user_id FROM 'late.csv' WHERE user_id % 10 = 3",
        "types = {'user_id': 'VARCHAR'} in read_csv('late.csv');",
    ),
    ("SELECT user_id FROM 'late.csv' WHERE user_id IN (SELECT user_id FROM 'p.parquet')", "types = {'user_id': 'VARC"),
    ("SELECT user_id FROM read_csv('late.csv', types = {'age': 'SMALLINT'})", "in read_csv('late.csv', "),
    (
        "SELECT age AS user_id FROM 'late.csv' EXCEPT SELECT user_id FROM 'p.parquet'",
        "as types = {'user_id': 'VARCHAR', 'age': 'VARCHAR', 'amount': 'VARCHAR'} in read_csv('late.csv');",
    ),
    (
        "WITH RECURSIVE t AS (SELECT user_id FROM 'late.csv' UNION SELECT user_id FROM t) FROM t",
        "as types = {'user_id': 'VARCHAR', 'age': 'VARCHAR', 'amount': 'VARCHAR'} in read_csv('late.csv');",
    ),
    ("SELECT user.id AS user_id FROM 'uuid.jsonl'", f"columns = {JSON} in read_json('uuid.jsonl')"),
    ("SELECT ids[1] AS user_id FROM 'uuid.jsonl'", "columns = {"),
    ("SELECT USER_ID_1 AS user_id FROM 'case.jsonl'", "columns = {'user_id': 'BIGINT', 'USER_ID_1': 'VARCHAR'}"),
    # As text, 9 would be more than 10.
    ("SELECT max(user_id) AS user_id FROM 'optout.csv'", "as types = {'user_id': 'BIGINT'} in read_csv('optout.csv');"),
    ("SELECT greatest(user_id, age) AS user_id FROM 'late.jsonl'", "'user_id': 'BIGINT', 'country': 'VARCHAR', 'age'"),
    ("SELECT max({'n': n, 'u': user_id}).u AS user_id FROM 'optout.csv'", "{'user_id': 'BIGINT', 'n': 'BIGINT'} in"),
    (
        "SELECT user_id FROM 'optout.csv' ORDER BY n % 2, user_id LIMIT 9",
        "as types = {'user_id': 'BIGINT'} in read_csv(",
    ),
    ("SELECT first(user_id) AS user_id FROM (FROM 'optout.csv' ORDER BY user_id)", "as types = {'user_id': 'BIGINT'}"),
    ("SELECT DISTINCT ON (age) user_id FROM 'late.csv' ORDER BY age, user_id", "as types = {'user_id': 'BIGINT'} in"),
    ("SELECT user_id FROM 'late.csv' QUALIFY row_number() OVER (ORDER BY user_id) < 9", "{'user_id': 'BIGINT'} in"),
    (
        "SELECT user_id FROM (SELECT * FROM 'late.jsonl' WHERE user_id <= '9')",
        "columns = {'user_id': 'BIGINT', 'country'",
    ),
    ("SELECT user_id FROM 'late.csv' WHERE hash(user_id) % 2 = 0", "as types = {'user_id': 'BIGINT'} in read_csv("),
    ("SELECT user_id FROM 'late.csv' WHERE CASE WHEN user_id < '9' THEN age END", "{'user_id': 'BIGINT'} in read_csv("),
    ("SELECT first(user_id) FILTER (WHERE user_id < '9') AS user_id FROM 'late.csv'", "types = {'user_id': 'BIGINT'}"),
    (
        "WITH t AS (FROM 'late.csv') SELECT t.user_id FROM t ANTI JOIN t u ON t.age = u.age AND t.user_id < u.user_id",
        "as types = {'user_id': 'BIGINT'} in read_csv(",
    ),
    (
        "SELECT list(user_id)[list_grade_up(list(n))[2]] AS user_id FROM 'optout.csv'",
        "{'user_id': 'VARCHAR', 'n': 'BIGINT'}",
    ),
    # As floats, ids that are near would be equal; as an integer, 1.5 would be 2.
    (
        "SELECT o.user_id FROM 'optout.csv' o ANTI JOIN 'late.csv' l ON o.user_id = amount",
        "'VARCHAR'} in read_csv('optout.csv') and types = {'amount': 'VARCHAR'} in read_csv('late.csv');",
    ),
    ("SELECT amount AS user_id FROM 'late.csv' JOIN 'optout.csv' ON n = amount", "'n': 'VARCHAR'} in read_csv('opt"),
    (
        "SELECT l.user_id FROM 'late.csv' l, 'late.csv' m, 'optout.csv' o WHERE m.amount = o.n AND l.user_id = o.n",
        "{'amount': 'VARCHAR'} in read_csv('late.csv') and types = {'n': 'VARCHAR'} in read_csv('optout.csv');",
    ),
]


@pytest.mark.parametrize(("sql", "text"), REFUSED)
def test_a_query_that_needs_a_guess_for_its_ids_is_refused_with_the_types_to_state(sql, text):
    message = refused(lambda: Audience.query(sql))
    assert message.startswith("the query: DuckDB guesses the types of the columns that user_id is made from")
    assert text in message


def test_the_columns_that_feed_no_id_keep_their_types():
    for name, amount in (("late.csv", 2.5), ("late.jsonl", "2.50")):
        sql = f"FROM '{name}' WHERE amount::DOUBLE * 2 > 3 AND age + 1 < 20 AND country = 'NO'"
        assert rows_of(Audience.query(sql)) == [("1e3", {"country": "NO", "age": 17, "amount": amount})]
    [(user, fields)] = rows_of(Audience.query("FROM 'uuid.jsonl'"))
    assert user == UUID
    assert fields["n"] == 1
    assert fields["user"] == {"id": UUID.lower(), "n": 1}
    sql = "SELECT user_id || age AS user_id, age FROM 'late.csv' WHERE country = 'NO'"
    assert rows_of(Audience.query(sql)) == [("0012330", {"age": "30"}), ("1e317", {"age": "17"})]


def test_quotation_marks_may_come_late_and_be_others(tmp_path):
    early = "".join(f"user-{i},1\n" for i in range(EARLY))
    late = made(tmp_path, "late.csv", f'user_id,n\n{early}"user-""1""",2\n')
    assert rows_of(Audience.query(f"FROM '{late}' WHERE n > 1")) == [('user-"1"', {"n": 2})]
    single = made(tmp_path, "single.csv", "user_id,n\n'a',1\n'c',2\n")
    assert ids_of(Audience.query(f"FROM read_csv('{single}', quote = '\"')")) == ["'a'", "'c'"]
    assert refused(lambda: Audience.query(f"FROM '{single}'")).endswith(f"in read_csv('{single}')")
    made(tmp_path, "single.csv", f'user_id,n\n{early[:34890]}"user-""1""",2\n')
    assert "state quote = " in refused(lambda: Audience.query(f"FROM read_csv('{single}', sample_size = 1)"))
    stated = f"SELECT user_id FROM read_csv('{late}', quote = '') WHERE n > 1"
    assert ids_of(Audience.query(stated)) == ['"user-""1"""']


@pytest.mark.parametrize("user", ["{}", '"{}"'])
def test_a_json_value_that_is_neither_a_text_nor_an_integer_is_no_id(tmp_path, user):
    early = "".join(f'{{"user_id": {user.format(i)}}}\n' for i in range(EARLY))
    rows = f'{early}{{"user_id": {2**70}}}\n{{"user_id": "007"}}\n'
    users = ids_of(Audience.query(f"SELECT 'u' || user_id AS user_id FROM '{made(tmp_path, 'u.jsonl', rows)}'"))
    assert users[-3:] == [f"u{EARLY - 1}", f"u{2**70}", "u007"]
    error = "the query: an id is made from, or compared with, a JSON value that is neither a text nor an integer"
    path = made(tmp_path, "u.jsonl", f'{rows}{{"user_id": 1.0}}')
    assert refused(lambda: Audience.query(f"FROM '{path}' WHERE user_id IS NOT NULL")) == error
    made(tmp_path, "u.jsonl", f'{rows}{{"user_id": ["secret"]}}')
    assert refused(lambda: Audience.query(f"FROM '{path}'")) == error
    made(tmp_path, "u.jsonl", f'{rows}{{"user_id": null}}')
    assert refused(lambda: Audience.query(f"FROM '{path}'")) == f"the query, row {EARLY + 3}: user_id is NULL"


def test_a_late_number_in_a_json_list_is_no_id_unless_it_is_an_integer(tmp_path):
    early = '{"ids": ["a"]}\n' * EARLY
    path = made(tmp_path, "u.jsonl", f'{early}{{"ids": [7, "007"]}}')
    sql = f"SELECT DISTINCT unnest(ids) AS user_id FROM '{path}'"
    assert sorted(ids_of(Audience.query(sql))) == ["007", "7", "a"]
    made(tmp_path, "u.jsonl", f'{early}{{"ids": [1e3]}}')
    assert "neither a text nor an integer" in refused(lambda: Audience.query(sql))


def test_a_value_of_another_type_is_an_error_with_its_line(tmp_path):
    early = "".join(f"user-{i},1\n" for i in range(EARLY))
    path = made(tmp_path, "u.csv", f"user_id,n\n{early}user-x,secret\n")
    error = refused(lambda: Audience.query(f"FROM '{path}' WHERE n > 0"))
    assert f"ConversionException, CSV Error on Line: {EARLY + 2}; a text is cast to, or compared with," in error
    assert "secret" not in error
    path = made(tmp_path, "u.csv", "user_id,n\nann,secret\n")
    assert "on Line: 2" in refused(lambda: Audience.query(f"FROM read_csv('{path}', types = {{'n': 'INT'}})"))


def test_a_line_that_looks_like_a_comment_or_a_title_may_have_an_id(tmp_path):
    marked = made(tmp_path, "marked.csv", "user_id,n\n#1,x\n#2,y\n3,y\n")
    assert ids_of(Audience.query(f"FROM '{marked}'")) == ["#1", "#2", "3"]
    made(tmp_path, "marked.csv", "n,user_id\n#1,ann\n2,bob#3\n3,eve\n")
    assert refused(lambda: Audience.query(f"FROM '{marked}'")).endswith(f"or comment = '' in read_csv('{marked}')")
    assert ids_of(Audience.query(f"FROM read_csv('{marked}', comment = '#')")) == ["bob", "eve"]
    made(tmp_path, "marked.csv", "# each user_id in our database\nuser_id,n\n007,x\n")
    assert ids_of(Audience.query(f"FROM '{marked}'")) == ["007"]
    made(tmp_path, "marked.csv", "user_id\nann\nuser_id,n\nbob,1\n")
    for option, fix in (
        ("null_padding = true", "skip"),
        ("COLUMNS := {'header': 'TEXT'}", "header"),
        ("columns = {'user_id': 'TEXT', 'n': 'TEXT'}, auto_detect = false, null_padding = true", "header"),
    ):
        error = refused(lambda: Audience.query(f"FROM read_csv('{marked}', {option})"))  # noqa: B023
        assert f": state {fix} = " in error


@pytest.mark.parametrize(
    ("rows", "ids"),
    [
        (r'"a\"x",1', ['a"x']),
        ('"a"b,1', ['"a"b']),
    ],
)
def test_guessed_quotation_marks_change_no_id(tmp_path, rows, ids):
    assert ids_of(Audience.query(f"FROM '{made(tmp_path, 'u.csv', 'user_id,n' + chr(10) + rows)}'")) == ids


def test_a_file_whose_types_change_is_read_with_the_new_types(tmp_path):
    path = made(tmp_path, "u.csv", "user_id,n\nann,1\n")
    audience = Audience.query(f"SELECT user_id || '' AS user_id, n FROM '{path}'")
    rows = [f"{i},x\n" for i in range(EARLY)]
    made(tmp_path, "u.csv", "".join(["user_id,n\n", *rows, "00123,x\n"]))
    assert rows_of(audience)[-1] == ("00123", {"n": "x"})
    path.unlink()
    assert "No files found" in refused(lambda: audience)


def test_a_query_that_names_files_of_another_working_directory_is_refused(tmp_path, monkeypatch):
    audience = Audience.query("SELECT user_id FROM p.parquet")
    absolute = Audience.query(f"SELECT user_id FROM '{Path.cwd()}/text.csv' WHERE country > 'x'")
    made(tmp_path, "text.csv", "user_id\nanother\n")
    folder = Path.cwd()
    monkeypatch.chdir(tmp_path)
    assert refused(lambda: audience).startswith(f"the query names files in {folder}, which was the working directory")
    assert ids_of(absolute) == []


@pytest.mark.parametrize(
    "sql",
    [
        "FROM 'file://{}' WHERE user_id NOT IN ('*', '.*')",
        "WITH t AS (FROM/* not 'x' */'{}') SELECT (SELECT user_id FROM t)",
        "FROM READ_CSV(['text.csv', concat($${}$$, '')]::VARCHAR[2], delim = ',')",
    ],
)
def test_a_query_reads_all_that_its_patterns_match(tmp_path, sql):
    made(tmp_path, "a.csv", "user_id\nann\n")
    (tmp_path / "b.csv").symlink_to("nowhere")
    error = refused(lambda: Audience.query(sql.format(f"{tmp_path}/*.csv")))
    assert error.startswith(f"{tmp_path}/b.csv can't be read: No such file or directory; to leave it out, ")


def test_a_text_that_is_not_read_as_a_file_names_none(tmp_path):
    (tmp_path / "b.csv").symlink_to("nowhere")
    sql = f"SELECT user_id FROM 'text.csv', unnest(['{tmp_path}/*.csv']) WHERE user_id IN ('ann', '{tmp_path}/*.csv')"
    assert ids_of(Audience.query(sql)) == ["ann"]


def test_a_query_and_a_parquet_file_can_not_read_a_named_pipe(tmp_path):
    os.mkfifo(tmp_path / "u.parquet")
    for read in (Audience.read, lambda path: Audience.query(f"FROM read_csv('{path}')")):
        error = refused(lambda read=read: read(f"{tmp_path}/u.parquet"))
        assert error == f"{tmp_path}/u.parquet is or matches a pipe or a device: save its content to a file"
