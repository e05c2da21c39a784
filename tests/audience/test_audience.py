"""Audiences from text, CSV and JSON lines, and the behavior that all audiences share."""

import io
import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.audiences import ids_of, made, refused, rows_of

from pushsdk import ConfigurationError, ValidationError
from pushsdk._audience.audience import Audience, AudienceSummary
from pushsdk._audience.text_files import TextFiles, read_json
from pushsdk._core import wire
from pushsdk._runs.plan import chunks_of


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path


# -- text -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"a\nb\n", ["a", "b"]),
        (b"a\nb", ["a", "b"]),
        (b"a\r\nb\r\n", ["a", "b"]),
        (b"\xef\xbb\xbfa\nb\n", ["a", "b"]),
        (b" a\t\n\xc2\xa0b \r\n", ["a", "b"]),
        (b"\n\na\n \t\nb\n\n", ["a", "b"]),
        (b"a b\na\xe2\x80\xa8b\n", ["a b", "a\u2028b"]),
        (b'"a"\n', ['"a"']),
        ("é\U0001f600\n".encode(), ["é\U0001f600"]),
        (b"", []),
        (b"\xef\xbb\xbf", []),
        (b"\n \r\n", []),
    ],
)
def test_each_line_of_a_text_file_is_an_id(folder: Path, content: bytes, expected: list[str]) -> None:
    path = made(folder, "users.txt", content)
    assert ids_of(Audience.read(path)) == expected
    assert ids_of(Audience.lines(io.BytesIO(content))) == expected
    assert rows_of(Audience.read(path)) == [(user, {}) for user in expected]


def test_padding_and_blank_lines_are_counted(folder: Path) -> None:
    audience = Audience.read(made(folder, "users.txt", b"a\r\n b\r\n\n  \nc \na\n"))
    assert audience.summary == AudienceSummary()
    assert sorted(ids_of(audience, distinct=True)) == ["a", "b", "c"]
    assert audience.summary == AudienceSummary(read=4, users=3, duplicates=1, blank=2, padded=2)
    assert audience.summary.duplicates == 1
    assert str(AudienceSummary(users=1, blank=1)) == "1 user, 1 blank line"
    assert str(audience.summary) == "3 users, 1 duplicate, 2 blank lines, 2 with space around them"


@pytest.mark.parametrize("source", ["ids.txt", Path("ids.txt"), ["ann"], None])
def test_an_audience_of_another_type_is_rejected_with_the_fix(source: Any) -> None:
    with pytest.raises(ValidationError, match=r'made by Audience\.read\("ids\.txt"\).*; got '):
        Audience(source)


def test_the_summary_is_of_the_last_complete_reading(folder: Path) -> None:
    audience = Audience.read(made(folder, "users.txt", b"a\na\n"))
    assert ids_of(audience) == ["a", "a"]
    assert audience.summary == AudienceSummary(read=2, users=2)
    next(iter(audience.ids()))
    assert audience.summary == AudienceSummary(read=2, users=2)
    assert str(AudienceSummary(users=1_000_000)) == "1,000,000 users"


@pytest.mark.parametrize(
    ("content", "line", "text"),
    [
        (b"a\nse\xffcret\nb\n", 2, "not UTF-8"),
        (b"secret\n\xff", 2, "not UTF-8"),
        (b"a\n\nsec\0ret\n", 3, "holds a NUL"),
        (b"s\0\n", 1, "holds a NUL"),
        ("secret\n".encode("utf-16"), 1, "not UTF-8"),
        (b"a\nsec\rret\r\n", 2, "end the lines with LF or CRLF"),
        (b"a\n" + b"x" * 65_537 + b"\n", 2, "longer than 64 KiB"),
        (b"a\n" + b"x" * 65_537, 2, "longer than 64 KiB"),
        (b"a\n" + b"x" * 1_000_000, 2, "longer than 64 KiB"),
        ("a\n\n" + "é" * 32_769 + "\nb\n", 3, "longer than 64 KiB"),
    ],
)
def test_a_line_that_is_not_text_is_an_error_with_its_number(
    folder: Path, content: bytes | str, line: int, text: str
) -> None:
    path = made(folder, "users.txt", content)
    message = refused(lambda: Audience.read(path))
    assert message.startswith(f"{path}, line {line}: ")
    assert text in message
    assert "secret" not in message


def test_a_line_of_just_64_kib_is_read(folder: Path) -> None:
    longest = ["x" * 65_536, "é" * 32_768, "b"]
    assert ids_of(Audience.read(made(folder, "users.txt", "\n".join(longest)))) == longest


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0\r\n"))))
def test_whatever_the_lines_the_ids_are_these(lines: list[str]) -> None:
    expected = [stripped for line in lines if (stripped := line.strip())]
    if expected and lines[0].startswith("\ufeff"):
        return
    assert ids_of(Audience.lines(io.BytesIO("\n".join(lines).encode()))) == expected


def test_a_stream_can_be_read_once_and_stays_open() -> None:
    file = io.BytesIO(b"a\n")
    audience = Audience.lines(file, name="ids from\x1b[2J somewhere")
    assert ids_of(audience) == ["a"]
    assert not file.closed
    assert audience.source == "ids from?[2J somewhere"
    with pytest.raises(ValidationError, match="can be read only once"):
        ids_of(audience)


def test_a_text_stream_is_an_error_that_asks_for_binary_mode() -> None:
    with pytest.raises(ValidationError, match=r"file must be a binary stream, for example .*; got StringIO"):
        ids_of(Audience.lines(io.StringIO("a\n")))  # type: ignore[arg-type]


def test_the_path_of_a_table_is_not_taken_for_a_stream_of_ids(folder: Path) -> None:
    for path in (folder / "users.csv", str(folder / "users.csv")):
        with pytest.raises(ValidationError, match=r"^file must be a binary stream, "):
            Audience.lines(path)  # type: ignore[arg-type]


def test_a_query_is_a_text_and_lines_are_a_file() -> None:
    with pytest.raises(ValidationError, match=r"^sql must be a str; got 5$"):
        Audience.query(5)  # type: ignore[arg-type]
    with pytest.raises(ValidationError, match=r"binary stream, .*; got list"):
        Audience.lines(["a"])  # type: ignore[arg-type]


def test_a_failing_stream_is_a_validation_error() -> None:
    class BrokenFile(io.BytesIO):
        def readline(self, size: int | None = -1) -> bytes:
            raise OSError(5, "Input/output error")

    with pytest.raises(ValidationError, match="standard input can't be read: Input/output error"):
        ids_of(Audience.lines(BrokenFile()))


# -- CSV ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("u.csv", "user_id\na\nb\n", ["a", "b"]),
        ("u.csv", "\ufeffuser_id,n\r\na,1\r\nb,2", ["a", "b"]),
        ("u.csv", "n;user_id\n1;a,b\n2;007\n", ["a,b", "007"]),
        ("u.csv", "n|user_id\n1|a\n", ["a"]),
        ("u.csv", 'n,"user_id"\n1,"a ""b"", c"\n"x\ny"," d "\n', ['a "b", c', " d "]),
        ("u.csv", '"a;b;c",user_id\n1,x\n', ["x"]),
        ("u.csv", "user_id\nx'; DROP--\na;b\n", ["x'; DROP--", "a;b"]),
        ("u.csv", "\n\n user_id , n\n\na,1\n\n", ["a"]),
        ("u.csv", "user_id,\na,\n", ["a"]),
        (
            "u.csv",
            "user_id\n9007199254740993\n1e3\n1.0\nNULL\ntrue\n",
            ["9007199254740993", "1e3", "1.0", "NULL", "true"],
        ),
        ("u.tsv", "n\tuser_id\n1,2\ta,b\n", ["a,b"]),
        ("U.CSV", "user_id\na\n", ["a"]),
        ("u.csv", "", []),
        ("u.csv", "user_id\n", []),
        ("u.csv", "\n\n", []),
    ],
)
def test_ids_of_csv_come_as_they_are_written(folder: Path, name: str, content: str, expected: list[str]) -> None:
    audience = Audience.read(made(folder, name, content))
    assert ids_of(audience) == expected
    assert [user for user, _ in rows_of(audience)] == expected
    assert audience.summary.read == audience.summary.users == len(expected)


def test_the_other_columns_of_csv_are_texts_and_empty_cells_are_left_out(folder: Path) -> None:
    path = made(folder, "u.csv", 'first name,user_id,n,\nAnn,a,1,x\n,b,"",y\n')
    assert rows_of(Audience.read(path)) == [("a", {"first name": "Ann", "n": "1"}), ("b", {})]


@pytest.mark.parametrize(
    ("name", "content", "columns"),
    [
        ("u.csv", "first name,user_id,n,\n", ("first name", "n")),
        ("u.jsonl", '{"user_id": 1, "city": "Bonn"}\n{"user_id": 2, "n": 1}\n', ("city",)),
        ("u.txt", "ann\n", ()),
        ("u.csv", "", ()),
    ],
)
def test_the_columns_are_those_beside_the_ids(folder: Path, name: str, content: str, columns: tuple[str, ...]) -> None:
    assert Audience.read(made(folder, name, content)).columns == columns


def test_blank_lines_of_csv_are_counted(folder: Path) -> None:
    audience = Audience.read(made(folder, "u.csv", "user_id,n\n\na,1\n\nb,2\n"))
    ids_of(audience)
    assert audience.summary == AudienceSummary(read=2, users=2, blank=2)


@pytest.mark.parametrize(
    ("content", "line", "text"),
    [
        ("user_id,n\na,1\n,2\n", 3, "user_id is empty"),
        ('user_id,n\n"",2\n', 2, "user_id is empty"),
        ('user_id,n\na,"1\n2"\nsecret\n', 4, "1 field, and the header has 2"),
        ("user_id,n\nsecret,1,2\n", 2, "3 fields, and the header has 2"),
        ('user_id,n\n"secret"x,2\n', 2, "not CSV: ',' expected after '\"'"),
        ('user_id,n\nb,1\n"secret\n', 3, "not CSV: unexpected end of data"),
        ("user_id,n,user_id\na,1,b\n", 1, "the header names a column twice"),
        (b"user_id,n\na,1\nb,\xff\n", 3, "not UTF-8"),
        ("user_id,n\na\0,1\n", 2, "holds a NUL"),
        ("user_id,n\na," + "x" * 1_048_576 + "\n", 2, "longer than 1024 KiB"),
        ("user_id,n\na," + "x" * 140_000 + "\n", 2, "not CSV: field larger than field limit"),
    ],
)
def test_a_bad_line_of_csv_is_refused_by_its_number(folder: Path, content: bytes | str, line: int, text: str) -> None:
    path = made(folder, "u.csv", content)
    message = refused(lambda: Audience.read(path))
    assert message.startswith(f"{path}, line {line}: ")
    assert text in message
    assert "secret" not in message


@pytest.mark.parametrize(("name", "content"), [("u.csv", "usr_id,n\na,1\n"), ("u.jsonl", '{"usr_id": "a"}\n')])
def test_a_missing_column_is_an_error_before_anything_is_read(folder: Path, name: str, content: str) -> None:
    with pytest.raises(ValidationError, match=r"only usr_id(, n)?; did you mean primary_key='usr_id'"):
        Audience.read(made(folder, name, content))


def test_a_column_named_twice_is_an_error_only_if_it_is_read(folder: Path) -> None:
    audience = Audience.read(made(folder, "u.csv", "user_id,n,n\na,1,2\n"))
    with pytest.raises(ValidationError, match="line 1: the header names a column twice"):
        rows_of(audience)


@pytest.mark.parametrize(
    ("header", "key", "text"),
    [
        ("User-ID,name", "user_id", "no column 'user_id', only User-ID, name; did you mean primary_key='User-ID'?"),
        ("name,usr_id", "user_id", "did you mean primary_key='usr_id'?"),
        ("x,y", "user_id", "only x, y; name one with primary_key="),
        ("user-1234,a@b.c,5f1c", "user_id", "only ..., ..., ...; name one with primary_key="),
        (
            "user-1",
            "user_id",
            "only ...; name one with primary_key=...; if line 1 is a row, write the names of the columns",
        ),
        ("ann", "user_id", "only ...; name one with"),
        ("id", "user_id", "only id; name one with"),
        (",".join(f"c{chr(97 + i)}" for i in range(23)), "user_id", "cs, ct, and 3 more;"),
        ("user_id,x", "x\x1by", "no column 'x?y', only user_id, x"),
    ],
)
def test_a_missing_column_is_an_error_that_lists_the_columns(folder: Path, header: str, key: str, text: str) -> None:
    path = made(folder, "u.csv", f"{header}\n")
    message = refused(lambda: Audience.read(path, primary_key=key))
    assert text in message
    assert message.startswith(f"{path}: ")


# -- JSON lines -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["u.jsonl", "u.ndjson", "u.json"])
def test_ids_of_json_lines_are_texts_and_integers_of_any_size(folder: Path, name: str) -> None:
    big = 123456789012345678901234567890
    lines = [
        '\ufeff{"user_id": " a "}',
        "",
        f'{{"user_id": {big}}}\r',
        '{"user_id": 9007199254740993, "x": [1]}',
        '{"user_id":-5}',
    ]
    audience = Audience.read(made(folder, name, "\n".join(lines)))
    assert ids_of(audience) == [" a ", str(big), "9007199254740993", "-5"]
    assert audience.summary == AudienceSummary(read=4, users=4, blank=1)


@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1))
def test_any_text_is_an_id_in_json_as_it_is(user: str) -> None:
    for escaped in (True, False):
        line = json.dumps({"user_id": user}, ensure_ascii=escaped)
        audience = Audience(TextFiles(io.BytesIO(line.encode()), name="it", key="user_id", form=read_json))
        assert ids_of(audience) == [user]


def test_the_other_fields_of_json_keep_their_values(folder: Path) -> None:
    nested = [1, {"a": None, "big": 2**70}]
    fields = {"t": "é", "n": 1, "f": 0.5, "b": False, "l": nested, "max": 2**64 - 1, "big": 2**64, "low": -(2**63) - 1}
    path = made(folder, "u.jsonl", json.dumps({"user_id": "a", "none": None, **fields}))
    expected = {**fields, "l": [1, {"a": None, "big": str(2**70)}], "big": str(2**64), "low": str(-(2**63) - 1)}
    assert rows_of(Audience.read(path)) == [("a", expected)]


def test_lines_of_json_are_no_list_of_ids(folder: Path) -> None:
    path = made(folder, "ids.txt", '{"user_id": "secret"}\n')
    with pytest.raises(ValidationError, match=r"ids.txt, line 1: JSON, and each line is read as one id: save it as"):
        Audience.read(path)


@pytest.mark.parametrize(
    ("content", "line", "text"),
    [
        ('{"user_id": "a"}\n{"user_id": null}', 2, "user_id must be a text or an integer; got NoneType"),
        ('{"user_id": 1.0}', 1, "user_id must be a text or an integer; got float"),
        ('{"user_id": 1e3}', 1, "got float"),
        ('{"user_id": true}', 1, "got bool"),
        ('{"user_id": ["secret"]}', 1, "got list"),
        ('{"user_id": {"secret": 1}}', 1, "got dict"),
        ('{"user_id": ""}', 1, "got an empty text"),
        (
            '{"user_id": "a"}\n{"uid": "secret", "userid": 1}',
            2,
            "only uid, userid; did you mean primary_key='userid'?",
        ),
        ("{}", 1, "no column 'user_id', only none"),
        ('{"user_id": "secret"', 1, "not a JSON object"),
        ('{"user_id": "secret"}{}', 1, "not a JSON object"),
        ('{"user_id": "\\ud800"}', 1, "not a JSON object"),
        ('{"user_id": NaN}', 1, "not a JSON object"),
        ('"secret"', 1, "not a JSON object"),
        ('{"user_id": "a"}\n["secret"]', 2, "not a JSON object"),
        ('[{"user_id": "secret"},', 1, "an array: write one object a line instead (jq -c '.[]' does)"),
        (b'{"user_id": "\xff"}', 1, "not UTF-8"),
        ('{"user_id": 1' + "0" * 5000 + "}", 1, "not a JSON object"),
        ('{"user_id": "a", "x": ' + "[" * 100_000 + "]" * 100_000 + "}", 1, "not a JSON object"),
    ],
)
def test_a_bad_line_of_json_is_refused_by_its_number(folder: Path, content: bytes | str, line: int, text: str) -> None:
    path = made(folder, "u.jsonl", content)
    message = refused(lambda: Audience.read(path))
    assert message.startswith(f"{path}, line {line}: ")
    assert text in message
    assert "secret" not in message


@pytest.mark.parametrize("depth", [91, 300, 900])
def test_fields_nested_deeper_than_can_be_sent_are_refused(folder: Path, depth: int) -> None:
    path = made(folder, "u.jsonl", '{"user_id": "a", "x": ' + "[" * depth + "]" * depth + "}")
    assert ids_of(Audience.read(path)) == ["a"]
    with pytest.raises(ValidationError, match=r"line 1: not a JSON object on one line .*, or nested too deeply"):
        rows_of(Audience.read(path))


def test_fields_nested_as_deeply_as_can_be_sent_are_read(folder: Path) -> None:
    path = made(folder, "u.jsonl", '{"user_id": "a", "x": ' + "[" * 89 + "1" + "]" * 89 + "}")
    [(_, fields)] = rows_of(Audience.read(path))
    assert wire.encode_custom_fields(fields) == b'{"x":' + b"[" * 89 + b"1" + b"]" * 89 + b"}"


# -- files ----------------------------------------------------------------------------------------------------------


def test_a_pattern_reads_its_files_in_the_order_of_their_names(folder: Path) -> None:
    for name, user in (("b.csv", "2"), ("a.csv", "1"), ("c.txt", "3")):
        made(folder, name, f"user_id\n{user}\n")
    (folder / "d.csv").mkdir()
    audience = Audience.read(folder / "*.csv")
    assert ids_of(audience) == ["1", "2"]
    assert audience.source.startswith(f"{folder}/*.csv (2 files, 20 bytes, state ")


def test_a_bad_line_of_several_files_names_its_file(folder: Path) -> None:
    made(folder, "a.csv", "user_id\na\n")
    made(folder, "b.csv", "user_id\n\n''\n\"\"\n")
    assert refused(lambda: Audience.read(folder / "*.csv")) == f"{folder}/b.csv, line 4: user_id is empty"


@pytest.mark.parametrize("name", ["x'; DROP--.csv", "x[1].csv", "x*.csv", "x?.csv", 'x".csv', "ü {a}.csv", "k=1.csv"])
def test_an_odd_file_name_is_not_a_pattern(folder: Path, name: str) -> None:
    for other in ("x1.csv", "xa.csv"):
        made(folder, other, "user_id\nother\n")
    assert ids_of(Audience.read(made(folder, name, "user_id\na\n"))) == ["a"]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("nobody.csv", "there is no file "),
        ("*.csv", "no file matches "),
        ("folder.csv", "is a folder: name the files in it"),
        ("users.xlsx", "a file that ends in '.xlsx' can't be read: use .parquet, .txt, .csv"),
        ("users", "a file without an ending can't be read"),
        ("nofile", "there is no file "),
        ("nofile.xlsx", "there is no file "),
        ("dangling.txt", "can't be read: No such file or directory"),
        ("no\x1b2J.txt", "there is no file "),
    ],
)
def test_a_path_that_can_not_be_read_is_an_error_at_once(folder: Path, name: str, text: str) -> None:
    (folder / "folder.csv").mkdir()
    made(folder, "users.xlsx", "a\n")
    made(folder, "users", "a\n")
    (folder / "dangling.txt").symlink_to("nowhere")
    with pytest.raises(ValidationError) as excinfo:
        Audience.read(folder / name if "*" not in name else folder / "empty" / name)
    assert text in str(excinfo.value)
    assert "\x1b" not in str(excinfo.value)


def test_a_file_without_permission_is_a_validation_error(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = made(folder, "u.txt", "a\n")
    audience = Audience.read(path)

    def no(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", no)
    with pytest.raises(ValidationError, match="can't be read: Permission denied"):
        ids_of(audience)


def test_a_file_that_changes_during_the_reading_is_an_error(folder: Path) -> None:
    path = made(folder, "u.txt", "a\n" * 300_000)
    reading = Audience.read(path).ids(distinct=False)
    next(reading)
    with path.open("a") as file:
        file.write("b\n")
    with pytest.raises(ValidationError, match="changed while it was read"):
        list(reading)


def test_the_source_changes_with_the_file_and_its_state(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = made(folder, "u.txt", "a\n")
    os.utime(path, ns=(0, 1_700_000_000_000_000_001))
    first = Audience.read(path).source
    assert first == f"{path} (2 bytes, modified 2023-11-14T22:13:20.000000001Z)"
    monkeypatch.chdir(folder)
    assert Audience.read("u.txt").source == first
    path.write_text("b\n")
    assert Audience.read(path).source != first


def test_the_source_of_a_pattern_changes_with_any_of_its_files(folder: Path) -> None:
    for name in ("a.txt", "b.txt"):
        os.utime(made(folder, name, "a\n"), ns=(0, 10**18))
    audience = Audience.read(folder / "*.txt")
    first = audience.source
    os.utime(folder / "b.txt", ns=(0, 10**18 + 1))
    assert audience.source != first


def test_only_parquet_counts_rows_without_reading(folder: Path) -> None:
    assert Audience.read(made(folder, "u.txt", "a\n")).count() is None


def test_without_duckdb_text_is_read_and_parquet_names_the_extra(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "duckdb", None)
    assert ids_of(Audience.read(made(folder, "u.csv", "user_id\na\n")), distinct=True) == ["a"]
    for build in (lambda: Audience.read(made(folder, "u.parquet", "")), lambda: Audience.query("SELECT 1")):
        with pytest.raises(ConfigurationError, match=r"need duckdb \(the extra 'audience'\): pip install duckdb$"):
            build()


# -- once each ------------------------------------------------------------------------------------------------------


def test_the_first_of_the_rows_of_one_id_counts(folder: Path) -> None:
    audience = Audience.read(made(folder, "u.csv", "user_id,n\na,1\nb,2\na,3\n"))
    assert rows_of(audience, distinct=True) == [("a", {"n": "1"}), ("b", {"n": "2"})]
    assert audience.summary == AudienceSummary(read=3, users=2, duplicates=1)
    assert rows_of(audience) == [("a", {"n": "1"}), ("b", {"n": "2"}), ("a", {"n": "3"})]


def test_many_rows_come_in_batches(folder: Path) -> None:
    audience = Audience.read(made(folder, "u.csv", "user_id\n" + "".join(f"{i}\n" for i in range(25_000))))
    assert [len(batch) for batch in audience.ids()] == [10_000, 10_000, 5_000]
    assert audience.summary.users == 25_000
    assert {len(batch) for batch in audience.rows()} == {500}


def test_many_rows_of_json_come_in_batches(folder: Path) -> None:
    audience = Audience.read(made(folder, "u.jsonl", "".join(f'{{"user_id":{i}}}\n' for i in range(30_000))))
    assert [user for batch in audience.rows() for user, _ in batch] == [str(i) for i in range(30_000)]
    assert max(len(batch) for batch in audience.rows()) == 500
    assert max(len(batch) for batch in audience.ids(distinct=False)) == 10_000
    assert audience.summary == AudienceSummary(read=30_000, users=30_000)


def test_chunks_keep_within_the_bytes() -> None:
    users = [f"{number:010}" for number in range(100)]
    chunks = list(chunks_of(users, fixed=100, max_users=100, max_bytes=600))
    assert [user for chunk in chunks for user in chunk.user_ids()] == users
    assert all(len(chunk.ids) <= 600 - 100 - 48 for chunk in chunks)
