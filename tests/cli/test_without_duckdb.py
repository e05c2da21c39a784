"""The command line where DuckDB is not installed: text, CSV and JSON lines work, the rest names the extra."""

import pytest

MESSAGE = ("--title", "Hi", "--body", "There", "--yes")


@pytest.fixture(autouse=True)
def no_duckdb(monkeypatch, tmp_path):
    monkeypatch.setitem(__import__("sys").modules, "duckdb", None)
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("name", "content"), [("u.txt", "ann\n"), ("u.csv", "user_id\nann\n"), ("u.jsonl", '{"user_id": "ann"}\n')]
)
def test_text_csv_and_json_lines_are_read(command, service, tmp_path, name, content):
    (tmp_path / name).write_text(content)
    assert command("send", f"@{name}", *MESSAGE).code == 0
    assert command("broadcast", name, *MESSAGE, "--run", "a.run", "--progress", "none").code == 0
    assert service.users() == {"ann": 2}


@pytest.mark.parametrize("words", [("u.parquet",), ("--query", "SELECT 'ann' AS user_id")])
def test_parquet_and_sql_name_the_extra(command, service, tmp_path, words):
    (tmp_path / "u.parquet").touch()
    result = command("broadcast", *words, *MESSAGE, "--run", "a.run")
    text = "Parquet and queries need duckdb (the extra 'audience'): pip install duckdb"
    assert result.code == 4
    assert result.out == ""
    assert result.err == f"pushsdk: {text}\n"
    assert service.requests == 0
