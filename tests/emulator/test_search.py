"""Search lines: parsing, and the requests found in SQLite."""

import sqlite3

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from rich.pretty import pretty_repr

from pushsdk.emulator.store.search import parse


@pytest.mark.parametrize(
    ("line", "same"),
    [
        ("Title:x", 'title:"x"'),
        ('"never closed', '"never closed"'),
        ('"ends in \\', '"ends in \\\\"'),
        ('a"b c"', r'"a\"b" "c\""'),
        ("foo:bar", '"foo:bar"'),
        ("is:open status:42 status:0xx", '"is:open" "status:42" "status:0xx"'),
    ],
)
def test_a_line_is_read_into_its_terms(line, same):
    assert msgspec.structs.replace(parse(line), misread="") == parse(same)


@pytest.mark.parametrize(
    ("line", "ignored"),
    [
        ("user: title: body: lang: campaign: status: is:", ""),
        ('""', ""),
        ("x " * 51, "x " * 50),
    ],
)
def test_a_partially_ignored_line_is_partial(line, ignored):
    assert not parse(ignored).partial
    assert parse(line) == msgspec.structs.replace(parse(ignored), partial=True)


def test_a_search_shows_no_value_in_its_repr():
    search = parse("user:ann title:secret")
    assert repr(search) == "Search(...)"
    assert pretty_repr(search) == "Search()"


ROWS = [
    # id, inbox, endpoint, status, accepted, fault, campaign, title, text, langs
    (1, 1, "push", 204, 1, None, None, "Black Friday", "Everything must go", " en "),
    (2, 1, "push", 429, 0, None, None, "Schwarzer Freitag", "Alles muss raus, black oder nicht", " de-at en "),
    (3, 1, "push", 503, 0, "busy", None, "100% Straße", "a_b c:\\d", " de "),
    (4, 1, "push", None, 1, "reset", None, "ÄRGER", "before\0after", " pt_br "),
    (5, 1, "campaigns", 200, 1, None, "0ab5-uuid", "Spring", "", " "),
    (6, 1, "campaigns", 400, 0, None, None, "", "", " "),
    (7, 1, "push", None, 0, None, None, "", "", " "),
    (9, 1, "push", 204, 1, "slow", None, "", "", " "),
    (10, 1, "push", 504, 1, "gateway", None, "", "", " "),
    (11, 1, "push", 200, 0, "liar", None, "", "", " "),
    (8, 2, "campaigns", 200, 1, None, "0ab8-uuid", "Spring", "", " "),
]


@pytest.fixture(scope="module")
def found():
    db = sqlite3.connect(":memory:")
    db.execute(
        "CREATE TABLE requests(id INTEGER PRIMARY KEY, inbox INTEGER, endpoint TEXT, status INTEGER, accepted INTEGER,"
        ' fault TEXT, campaign TEXT, title TEXT, text TEXT, langs TEXT, "group" INTEGER AS (id),'
        """ body TEXT AS ('{"userIds": ["order:7", "\\u00557"]}'))"""
    )
    db.execute("CREATE TABLE inboxes AS SELECT 1 AS id")
    db.execute("CREATE TABLE received AS SELECT 1 AS inbox, 'order:' AS stem, 7 AS length, '7' AS digits, 4 AS request")
    for *fields, title, text, langs in ROWS:
        db.execute(
            "INSERT INTO requests VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            [*fields, title.casefold(), text.casefold(), langs],
        )

    def find(line):
        search = parse(line)
        condition = f"inbox = 1 AND ({search.condition or '1'})"
        rows = db.execute(f"SELECT id FROM requests WHERE {condition} ORDER BY id", search.values)
        return [row[0] for row in rows]

    yield find
    db.close()


EVERY = [row[0] for row in ROWS if row[1] == 1]


@pytest.mark.parametrize(
    ("line", "ids"),
    [
        ("", EVERY),
        ("title:black", [1]),
        ('"black friday"', [1]),
        ("title:STRASSE", [3]),
        ("c:\\d", [3]),
        ("user:order:7 black", [2]),
        ("order:7", [2, 3, 4, 6, 7, 11]),
        ("U7", [2, 3, 6, 7, 11]),
        ("user:u7", []),
        ('user:""', []),
        ("lang:de lang:en", [2]),
        ("campaign:0AB5-uuid", [5]),
        ("campaign:0ab8-uuid", []),
        ("group:3", [3]),
        ("group:black", []),
        ("status:4xx", [2, 6]),
        ("status:none status:2xx", [1, 4, 5, 7, 9, 11]),
        ("is:accepted", [1, 4, 5, 9, 10]),
        ("is:refused", [2, 6]),
        ("is:failed", [3, 4, 7, 10, 11]),
        ("is:campaign", [5, 6]),
    ],
)
def test_a_condition_finds_what_the_line_says(found, line, ids):
    assert found(line) == ids


prefixes = st.sampled_from(["user:", "title:", "body:", "lang:", "group:", "campaign:", "status:", "is:", "foo:", ""])
AWKWARD = ["429", "4xx", "none", "accepted", "push", '"', '"a b"', "%", "_", "\\", "\0", "'"]
values = st.sampled_from(AWKWARD) | st.text()
lines = st.text() | st.lists(st.builds("{}{}".format, prefixes, values)).map(" ".join)


@given(lines)
@example("(" * 3000)
@example('"' + "\\" * 3000)
@example("\ud800\udfff" * 3000)
def test_no_line_fails(found, line):
    found(line)
