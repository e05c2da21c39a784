"""``pushsdk docs``."""

import subprocess
import sys

import pytest
from rich.text import Text

from pushsdk import docs

PAGES = {
    "index": "# The guide\n\nPages by subject. Read two.\n\n- [Sending](sending.md#ids)\n- [Retries](retries.md)\n",
    "retries": "# Retries\n\nWhat is retried,\nand when. More.\n\n## Budget\n\n```sh\n# no heading\n```\nA token.\n",
    "sending": "# Sending\n\nHow to send:\n\nsee [Retries](retries.md).\n",
    "cli": "# The command line\n\nThe commands.\n",
}


@pytest.fixture(autouse=True)
def _pages(tmp_path, monkeypatch):
    for name, text in PAGES.items():
        (tmp_path / f"{name}.md").write_text(text)
    monkeypatch.setattr(docs, "FOLDER", tmp_path)


def test_a_page_is_plain_markdown_in_a_pipe(command):
    assert command("docs", "retries") == (0, PAGES["retries"], "")
    assert command("docs", "Retries.md") == (0, PAGES["retries"], "")


def test_without_a_topic_the_index_is_shown(command):
    assert command("docs") == (0, PAGES["index"], "")


def test_a_page_is_drawn_on_a_terminal(command, monkeypatch):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    result = command("docs", "sending")
    assert result.code == 0
    lines = Text.from_ansi(result.out).plain.split("\n")
    assert [line.strip() for line in lines if line.strip()] == ["Sending", "How to send:", "see Retries (retries)."]


def test_the_list_has_the_pages_in_the_order_of_the_index_each_with_its_first_sentence(command):
    assert command("docs", "--list").out.splitlines() == [
        "sending  How to send:",
        "retries  What is retried, and when.",
        "cli      The commands.",
        "index    Pages by subject.",
    ]


def test_a_search_prints_page_heading_and_line(command):
    assert command("docs", "--search", "TOKEN") == (0, "retries: Budget: A token.\n", "")
    assert command("docs", "--search", "no heading").out == "retries: Budget: # no heading\n"


def test_a_search_finds_lines_with_all_words_headings_first_and_joins_words_by_any_of_space_dash_and_underscore(
    command, tmp_path
):
    text = "# Limits\n\nNo limit: rate. `--dry-run`, `dry_run=`.\n\n## A rate, and its limit\n\nThe Api-Key.\nA rate.\n"
    (tmp_path / "limits.md").write_text(text)
    assert command("docs", "--search", "rate Limit").out.splitlines() == [
        "limits: A rate, and its limit: ## A rate, and its limit",
        "limits: Limits: No limit: rate. `--dry-run`, `dry_run=`.",
    ]
    for words in ("dry run", "dry-run", "--dry-run", "DRY_RUN"):
        assert command("docs", f"--search={words}").out == "limits: Limits: No limit: rate. `--dry-run`, `dry_run=`.\n"
    assert command("docs", "--search", "api key").out == "limits: A rate, and its limit: The Api-Key.\n"


@pytest.mark.parametrize(
    ("words", "page"),
    [
        ("rate limit", "timeouts-and-limits"),
        ("dry run", "cli"),
        ("retry after", "retries"),
        ("api key", "security"),
    ],
)
def test_a_search_finds_the_pages_of_the_guide(command, monkeypatch, words, page):
    monkeypatch.undo()
    assert page in [line.partition(":")[0] for line in command("docs", "--search", words).out.splitlines()]


def test_a_search_that_finds_nothing_exits_with_1(command):
    result = command("docs", "--search", "kafka")
    assert result == (1, "", "no page contains 'kafka'; pushsdk docs --list lists the pages\n")


def test_the_path_of_a_page_is_printed(command, tmp_path):
    assert command("docs", "cli", "--path").out == f"{tmp_path / 'cli.md'}\n"


@pytest.mark.parametrize(
    ("topic", "advice"),
    [
        ("retry", "did you mean retries?"),
        ("kafka", "pushsdk docs --list lists the pages"),
        ("../index", "did you mean index?"),
    ],
)
def test_an_unknown_topic_gets_advice(command, topic, advice):
    assert command("docs", topic) == (2, "", f"pushsdk: no page has the name {topic!r}; {advice}\n")


def test_a_page_that_does_not_exist_is_a_key_error():
    with pytest.raises(KeyError):
        docs.read("../index")


def test_a_page_in_a_pipe_loads_no_client_and_no_renderer():
    code = "import sys; from pushsdk import cli; cli.main(['docs']); print(*sys.modules, file=sys.stderr)"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert ended.stdout.startswith("# pushsdk\n")
    assert {"aiohttp", "msgspec", "rich.markdown"}.isdisjoint(ended.stderr.split())


@pytest.mark.parametrize("word", ["retries", "Retries", "retries.md"])
def test_the_name_of_a_page_has_several_spellings(command, word):
    assert command("docs", word).out.startswith("# Retries\n")
