"""``pushsdk docs``."""

import sys

import pytest
from rich.text import Text

from pushsdk import docs
from pushsdk.docs import search

PAGES = {
    "index": "# The guide\n\nAll pages. Read two.\n\n- [Send](sending.md#ids)\n- [R](retries.md)\n- [C](cli.md)\n",
    "retries": "# Retries\n\nWhat is retried,\nand when. More.\n\n## Budget\n\n```sh\n# no heading\n```\nA token.\n",
    "sending": "# Sending\n\nHow to send:\n\nsee [Retries](retries.md).\n",
    "cli": "# The command line\n\nThe commands.\n",
}


@pytest.fixture(autouse=True)
def _pages(tmp_path, monkeypatch):
    for name, text in PAGES.items():
        (tmp_path / f"{name}.md").write_text(text)
    monkeypatch.setattr(docs, "FOLDER", tmp_path)


def test_a_page_is_plain_markdown_in_a_pipe_and_a_part_of_its_name_is_enough(command):
    for words, name in {"retries": "retries", "Retries.md": "retries", "send": "sending", "": "index"}.items():
        assert command(f"docs {words}") == (0, PAGES[name], "")
    told = "no page contains 'kafka'; pushsdk docs --list lists the pages\n"
    assert command("docs --search kafka") == (1, "", told)


def test_a_page_is_drawn_on_a_terminal(command, monkeypatch):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    result = command("docs sending")
    assert result.code == 0
    lines = Text.from_ansi(result.out).plain.split("\n")
    assert [line.strip() for line in lines if line.strip()] == ["Sending", "How to send:", "see Retries (retries)."]


def test_the_list_has_the_pages_in_the_order_of_the_index_each_with_its_first_sentence(command):
    assert command("docs --list").out.splitlines() == [
        "sending  How to send:",
        "retries  What is retried, and when.",
        "cli      The commands.",
        "index    All pages.",
    ]


def test_a_search_prints_page_heading_and_the_best_sentence_of_a_section(command):
    assert command("docs --search TOKEN") == (0, "retries: Budget: A token.\n", "")
    assert command("docs --search send").out == "sending: Sending: How to send:\nindex: The guide: Send\n"


LIMITS = """# Limits

No bound: rate. `--dry-run`, `dry_run=`.

## A rate, and its limit

The Api-Key.
A rate.

## Far apart

- The environment: PUSHSDK_HOST.

NotLimitedError has no variable.

## Close together

Limits: the rate has two.
"""


def test_headings_weigh_more_than_text(command, tmp_path):
    (tmp_path / "retries.md").write_text(LIMITS)
    assert command("docs --search rate Limit").out.splitlines() == [
        "retries: A rate, and its limit: A rate.",
        "retries: Limits: No bound: rate. `--dry-run`, `dry_run=`.",
        "retries: Close together: Limits: the rate has two.",
    ]
    assert command("docs --search 'what is a limit'").out.splitlines()[0].startswith("retries: Limits: ")
    assert command("docs --search 'close together'").out == "retries: Close together: Limits: the rate has two.\n"
    assert command("docs --search 'bound kafka'").out.splitlines()[0].startswith("retries: Limits: No bound")


@pytest.mark.parametrize(
    ("words", "line"),
    [
        *((words, "Limits: No bound: rate. `--dry-run`, `dry_run=`.") for words in ("dry run", "dryrun")),
        ("env variables", "Far apart: The environment: PUSHSDK_HOST."),
        ("error", "Far apart: NotLimitedError has no variable."),
        ("sandboxes", "Far apart: NotLimitedError has no variable."),  # the table of synonyms
    ],
)
def test_a_word_stands_for_its_beginnings_plurals_and_synonyms_and_for_two_words(
    command, tmp_path, monkeypatch, words, line
):
    monkeypatch.setitem(search.SYNONYMS, "sandbox", ["variables"])
    (tmp_path / "retries.md").write_text(LIMITS)
    assert command("docs --search", *words.split()).out == f"retries: {line}\n"
    assert command("docs --search=ate").code == 1


def test_a_search_shows_twenty_results_and_how_many_more_there_are(command, tmp_path):
    sections = "".join(f"## Section {number}\n\nKafka, {'word ' * 50}.\n\n" for number in range(1_025))
    (tmp_path / "retries.md").write_text(f"# Many\n\n{sections}")
    lines = command("docs --search kafka").out.splitlines()
    assert len(lines) == 21
    assert all(len(line) <= 120 and line.endswith(" ...") for line in lines[:20])
    assert lines[20] == "... and 1,005 more; another word narrows the search"


def test_an_anchor_shows_its_section_with_the_sections_in_it(command, tmp_path):
    section = "## A rate, and `its` limit (429)\n\n```sh\n# no heading\n```\n\n### A part\n\nThe Api-Key."
    (tmp_path / "retries.md").write_text(f"# Retries\n\nText.\n\n{section}\n\n## A rate\n\nMore.\n")
    assert command("docs retries#a-rate-and-its-limit-429").out == f"{section}\n"
    assert command("docs retries#A_rate").out == "## A rate\n\nMore.\n"
    assert command("docs retries#a-rate-and-its-limit-404").out == f"{section}\n"
    near = "pushsdk: retries has no section 'a-patr'. Did you mean 'retries#a-part'?\n"
    assert command("docs retries#a-patr") == (2, "", near)
    sections = "a-rate-and-its-limit-429, a-part, a-rate"
    assert command("docs retries#else").err == f"pushsdk: retries has no section 'else'. It has: {sections}\n"


@pytest.mark.parametrize("topic", ["retrys", "tries", "pushsdk/docs/retries.md"])
def test_a_topic_that_is_nearly_a_name_shows_its_page(command, topic):
    assert command("docs", topic) == (0, PAGES["retries"], "")


@pytest.mark.parametrize(("topic", "code", "out"), [("token", 0, "retries: Budget: A token.\n"), ("kafka", 1, "")])
def test_a_topic_that_names_no_page_is_searched(command, topic, code, out):
    result = command("docs", topic)
    assert result.code == code
    assert result.out == out
    assert result.err.startswith(f"no page has the name {topic!r}; these are the sections")


def test_a_page_that_does_not_exist_is_a_key_error():
    with pytest.raises(KeyError):
        docs.read("../index")
