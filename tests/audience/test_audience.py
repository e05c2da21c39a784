"""Audiences from text, CSV and JSON lines, and the behavior that all audiences share."""

import csv
import io
import json
import os
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.audiences import ids_of, made, refused, rows_of

from pushsdk import ValidationError
from pushsdk._audience.audience import Audience
from pushsdk._audience.text_files import TextFiles, read_json
from pushsdk._core import wire

BIG = 123456789012345678901234567890
WRITTEN = [
    ("u.txt", "a\nid|b\n", ["a", "id|b"]),
    ("u.txt", b"\xef\xbb\xbf\n a\t\r\n \t\n\xc2\xa0b ", ["a", "b"]),
    ("u.txt", '"a"\na b\na\u2028b\né\U0001f600', ['"a"', "a b", "a\u2028b", "é\U0001f600"]),
    ("u.txt", b"", []),
    ("u.csv", "\ufeffuser_id,n\r\na,1\r\nb,2", ["a", "b"]),
    ("u.csv", "n;user_id\n1;a,b\n2;007\n", ["a,b", "007"]),
    ("u.csv", 'n,"user_id"\n1,"a ""b"", c"\n"x\ny"," d "\n', ['a "b", c', " d "]),
    ("u.csv", '"a;b;c",user_id\n1,x\n', ["x"]),
    ("u.csv", "\n\n user_id , n,\n\na,1,\n\n", ["a"]),
    ("u.csv", "user_id\n9007199254740993\n1e3\nNULL\ntrue\n", ["9007199254740993", "1e3", "NULL", "true"]),
    ("u.tsv", "n\tuser_id\n1,2\ta,b\n", ["a,b"]),
    ("u.csv", "\n\n", []),
    ("u.csv", "\ufeffsep=;\r\nuser_id;n\r\na,b;1\r\n", ["a,b"]),
    ("u.csv", '"sep=\t"\nuser_id\tn\na,b\t1\n', ["a,b"]),
    ("u.csv", "user_id,n\na," + "x" * 1_000_000 + "\n", ["a"]),
    ("u.jsonl", f'\ufeff{{"user_id": " a "}}\n\n{{"user_id": {BIG}}}\r\n{{"user_id":-5}}', [" a ", str(BIG), "-5"]),
    ("u.ndjson", '{"user_id": 9007199254740993, "x": [1]}', ["9007199254740993"]),
]


@pytest.mark.parametrize(("name", "content", "expected"), WRITTEN)
def test_ids_come_as_they_are_written(tmp_path, name, content, expected):
    audience = Audience.read(made(tmp_path, name, content))
    assert ids_of(audience) == expected
    assert [user for user, _ in rows_of(audience)] == expected
    assert audience.summary.read == audience.summary.users == len(expected)


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0\r\n"))))
def test_whatever_the_lines_the_ids_are_these(lines):
    # The first two lines show whether the file has something other than ids.
    lines = ["first", "second", *lines]
    expected = [stripped for line in lines if (stripped := line.strip())]
    assert ids_of(Audience.lines(io.BytesIO("\n".join(lines).encode()))) == expected


@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1))
def test_any_text_is_an_id_in_json_as_it_is(user):
    for escaped in (True, False):
        line = json.dumps({"user_id": user}, ensure_ascii=escaped)
        audience = Audience(TextFiles("it", key="user_id", form=read_json, stream=io.BytesIO(line.encode())))
        assert ids_of(audience) == [user]


OBJECT = "not a JSON object"
BAD = [
    ("u.txt", b"a\nse\xffcret\nb\n", 2, "not UTF-8"),
    ("u.txt", b"a\n\nsec\0ret\n", 3, "holds a NUL"),
    ("u.txt", b"a\nsec\rret\r\n", 2, "end the lines with LF or CRLF"),
    ("u.txt", "a\n\n" + "é" * 32_769 + "\nb\n", 3, "longer than 64 KiB"),
    ("u.txt", '{"user_id": "secret"}\n', 1, "a table, JSON or a web page, and each line is"),
    ("u.txt", "User ID|Name\nsecret|Ann\n", 1, "a table, JSON"),
    ("u.txt", "\n<!-- secret -->\n<html>\n", 2, "or a web page"),
    ("u.txt", " no | name \n----+------\n  7 | Ann\n", 2, "print ids alone (psql -At), or a CSV (psql --csv)"),
    ("u.csv", "user_id\n" + "-" * 999_999 + "x,\n", 2, "2 fields, and the header has 1"),
    ("u.csv", 'user_id,n\na,"1\n2"\nsecret\n', 4, "1 field, and the header has 2"),
    ("u.csv", 'user_id,n\n"secret"x,2\n', 2, "not CSV: ',' expected after '\"'"),
    ("u.csv", "user_id,n,user_id\na,1,b\n", 1, "the header names a column twice"),
    ("u.csv", "user_id,n\na," + "x" * 1_048_576 + "\n", 2, "longer than 1024 KiB"),
    (
        "u.csv",
        'user_id,n\n\na,1\nb,"1\n' + ("c" * 99 + "\n") * 11_000,
        4,
        "field limit (1048576); is a quotation mark there not",
    ),
    ("u.csv", '"user_id\n,n\n', 1, "not CSV: unexpected end of data; is a quotation mark there not closed?"),
    ("u.csv", 'user_id,n\na,"1\n2"\n,"1\n2"\n', 4, "user_id is empty"),
    ("u.jsonl", '{"user_id": "a"}\n{"user_id": null}', 2, "user_id must be a text or an integer; got NoneType"),
    ("u.jsonl", '{"user_id": 1.0}', 1, "user_id must be a text or an integer; got float"),
    ("u.jsonl", '{"user_id": ""}', 1, "got an empty text"),
    ("u.jsonl", '{"user_id": "a"}\n{"uid": "secret", "userid": 1}', 2, "only uid, userid; did you mean primary_key="),
    ("u.jsonl", "{}", 1, "no column 'user_id', only none"),
    ("u.jsonl", '{"user_id": "secret"}{}', 1, OBJECT),
    ("u.jsonl", '[{"user_id": "secret"},', 1, "and an array with jq -c '.[]'"),
    ("u.jsonl", '{"user_id": "a", "x": {"user_id": 1}}\n{"user_id": "b", "user_id": "c"}', 2, "with a key twice"),
    ("u.jsonl", '{"user_id": 1' + "0" * 5000 + "}", 1, OBJECT),
    ("u.jsonl", '{"user_id": "a", "x": ' + "[" * 100_000 + "]" * 100_000 + "}", 1, OBJECT),
]


@pytest.mark.parametrize(("name", "content", "line", "text"), BAD)
def test_a_bad_line_is_an_error_with_its_number(tmp_path, name, content, line, text):
    path = made(tmp_path, name, content)
    message = refused(lambda: Audience.read(path))
    assert message.startswith(f"{path}, line {line}: ")
    assert text in message
    assert "secret" not in message


# -- counts and columns -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("depth", [89, 91, 900])
def test_fields_nested_deeper_than_can_be_sent_are_refused(tmp_path, depth):
    nested = "[" * depth + "1" + "]" * depth
    audience = Audience.read(made(tmp_path, "u.jsonl", f'{{"user_id": "a", "x": {nested}}}'))
    assert ids_of(audience) == ["a"]
    if depth > 90:
        with pytest.raises(
            ValidationError, match=r"line 1: not a JSON object on one line .*, nested too deeply, with NaN"
        ):
            rows_of(audience)
    else:
        [(_, fields)] = rows_of(audience)
        assert wire.encode_custom_fields(fields) == b'{"x":' + nested.encode() + b"}"


@pytest.mark.parametrize(
    ("name", "content", "columns"),
    [
        ("u.csv", "first name,user_id,n,\n", ("first name", "n")),
        ("u.jsonl", '{"user_id": 1, "city": "Bonn"}\n{"user_id": 2, "n": 1}\n', ("city",)),
        ("u.txt", "ann\n", ()),
    ],
)
def test_the_columns_are_those_beside_the_ids(tmp_path, name, content, columns):
    audience = Audience.read(made(tmp_path, name, content))
    assert audience.columns == columns


@pytest.mark.parametrize(
    ("content", "key", "text"),
    [
        ("User-ID,name", "user_id", "no column 'user_id', only User-ID, name; did you mean primary_key='User-ID'?"),
        ("user-1234,a@b.c,5f1c", "user_id", "only ..., ..., ...; name one with primary_key="),
        ("ann", "user_id", "only ...; name one with primary_key=...; if line 1 is a row, write the names of the col"),
        (",".join(f"c{chr(97 + i)}" for i in range(23)), "user_id", "cs, ct, and 3 more;"),
        ("user_id,x", "x\x1by", "no column 'x?y', only user_id, x"),
    ],
)
def test_a_missing_column_is_an_error_at_once_that_lists_the_columns(tmp_path, content, key, text):
    path = made(tmp_path, "u.csv", f"{content}\n")
    message = refused(lambda: Audience.read(path, primary_key=key))
    assert text in message
    assert message.startswith(f"{path}: ")
    assert ("if line 1 is a row" in message) == ("only ..." in message)


# -- streams ----------------------------------------------------------------------------------------------------------


def test_a_failing_stream_is_a_validation_error():
    class BrokenFile(io.BytesIO):
        def readline(self, size=-1):
            raise OSError(5, "Input/output error")

    with pytest.raises(ValidationError, match="standard input can't be read: Input/output error"):
        ids_of(Audience.lines(BrokenFile()))


@pytest.mark.parametrize(
    ("make", "wrong", "text"),
    [
        (Audience, ["ann"], r'made by Audience\.read\("ids\.txt"\).*: write other ids to a file; got list'),
        (Audience.lines, io.StringIO("a\n"), "file must be a binary stream, for example .*; got StringIO"),
        (Audience.query, 5, "sql must be a str; got 5$"),
    ],
)
def test_a_source_of_another_type_is_rejected_with_the_fix(make, wrong, text):
    with pytest.raises(ValidationError, match=text):
        make(wrong)


# -- files ------------------------------------------------------------------------------------------------------------


def test_a_pattern_reads_its_files_in_the_order_of_their_names(tmp_path):
    for name, content in (("b.csv", "user_id\n2\n"), ("a.csv", "user_id\n1\n"), ("c.txt", "3\n")):
        os.utime(made(tmp_path, name, content), ns=(0, 10**18))
    (tmp_path / "d.csv").mkdir()
    audience = Audience.read(tmp_path / "*.csv")
    first = audience.source
    assert ids_of(audience) == ["1", "2"]
    assert first.startswith(f"{tmp_path}/*.csv (2 files, 20 bytes, state ")
    os.utime(tmp_path / "b.csv", ns=(0, 10**18 + 1))
    assert audience.source != first, "the source changes with any of its files"


def test_the_field_size_limit_is_not_the_one_that_the_process_shares(tmp_path):
    before = csv.field_size_limit(10)
    try:
        path = made(tmp_path, "u.csv", "user_id\nuser-1234567890\n")
        assert ids_of(Audience.read(path)) == ["user-1234567890"]
        assert csv.field_size_limit() == 10
    finally:
        csv.field_size_limit(before)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
@pytest.mark.parametrize("pattern", ["u.csv", "*.csv"])
def test_a_named_pipe_is_read_once(tmp_path, pattern):
    path = tmp_path / "u.csv"
    os.mkfifo(path)
    audience = Audience.read(tmp_path / pattern)
    writer = threading.Thread(target=path.write_text, args=("user_id\na\nb\n",), daemon=True)
    writer.start()
    assert ids_of(audience) == ["a", "b"]
    writer.join()
    assert audience.source == f"{tmp_path}/{pattern}"
    with pytest.raises(ValidationError, match="can be read only once: save it to a file"):
        ids_of(audience)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("nobody.csv", "there is no file "),
        ("folder.txt", "is a folder: name the files in it"),
        ("users.xlsx", "a file that ends in '.xlsx' can't be read: use .parquet, .txt, .csv"),
        ("dangling.*", "dangling.txt can't be read: No such file or directory"),
        ("no\x1b2J.txt", "there is no file "),
    ],
)
def test_a_path_that_can_not_be_read_is_an_error_at_once(tmp_path, name, text):
    (tmp_path / "folder.txt").mkdir()
    made(tmp_path, "users.xlsx", "a\n")
    (tmp_path / "dangling.txt").symlink_to("nowhere")
    message = refused(lambda: Audience.read(tmp_path / name))
    assert text in message
    assert "\x1b" not in message


def test_a_folder_that_can_not_be_listed_is_an_error(tmp_path, monkeypatch):
    def denied(folder):
        if folder.endswith("a/b"):
            raise PermissionError(13, "Permission denied", folder)

    (tmp_path / "a" / "b").mkdir(parents=True)
    monkeypatch.setattr(os, "listdir", denied)
    for pattern in ("a/*/*.csv", "**/*.csv", "*/*/u.csv"):
        with pytest.raises(ValidationError, match=r"a/b can't be read: Permission denied; to leave it out, .* \[!l]"):
            Audience.read(tmp_path / pattern)


def test_a_file_without_permission_is_a_validation_error(tmp_path, monkeypatch):
    audience = Audience.read(made(tmp_path, "u.txt", "a\n"))

    def no(*_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("pushsdk._audience.text_files.open", no, raising=False)
    with pytest.raises(ValidationError, match="can't be read: Permission denied"):
        ids_of(audience)


@pytest.mark.parametrize("make", [Audience.read, lambda path: Audience.query(f"SELECT user_id FROM '{path}'")])
def test_a_file_that_changes_during_the_reading_is_an_error(tmp_path, make):
    path = made(tmp_path, "u.csv", "user_id\n" + "a\n" * 30_000)
    reading = make(path).ids(distinct=False)
    next(reading)
    os.utime(path, ns=(0, 0))
    with pytest.raises(ValidationError, match="changed while it was read"):
        list(reading)
