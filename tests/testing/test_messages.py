"""What a failing test says, in words."""

from __future__ import annotations

import pytest

from pushsdk.emulator import Fault
from pushsdk.emulator.store.records import RequestSummary
from pushsdk.testing.messages import plural, quoted, show_fault, show_texts, show_users, summary


def request(**fields):
    given = {"endpoint": "push", "status": 204, "accepted": True, "fault": None, "error": None, "users": 1}
    given |= {"id": 1, "time": 0.0, "bytes": 1, "campaign": None}
    given |= {
        "first_user": "ann",
        "title": {"en": "Hi"},
        "body": {},
        "languages": (),
        "platforms": (),
        "collapse_id": None,
    }
    return RequestSummary(**given | fields)


@pytest.mark.parametrize(
    ("count", "word", "said"),
    [(1, "push", "1 push"), (2, "push", "2 pushes"), (1, "request", "1 request"), (0, "user", "0 users")],
)
def test_a_count_has_its_word(count, word, said):
    assert plural(count, word) == said


def test_a_text_is_quoted_in_one_line_and_cut():
    assert quoted("it's\n“süß” 🎉") == '"it\'s\\n“süß” 🎉"'
    assert quoted("x" * 60) == f'"{"x" * 60}"'
    assert quoted("x" * 61) == f'"{"x" * 59}…"'


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        (Fault.status(503, first=2), "Fault.status(code=503, first=2)"),
        (Fault.reset_after(), "Fault.reset_after()"),
        (Fault.hang(accepted=True, name="x"), "Fault.hang(accepted=True, name='x')"),
    ],
)
def test_a_fault_is_said_as_it_is_written(fault, said):
    assert show_fault(fault) == said


def test_three_texts_are_told_and_the_others_counted():
    assert show_texts({"en": "Hi", "de": "Hallo", "fr": "Salut"}) == 'en "Hi", de "Hallo", fr "Salut"'
    assert show_texts({str(number): "x" for number in range(5)}).endswith(" and 2 more")


def test_twenty_users_are_told_and_the_others_counted():
    assert show_users({"a": 1, "b": 2}) == '  "a": 1 push\n  "b": 2 pushes'
    assert show_users(dict.fromkeys(map(str, range(22)), 2)).splitlines()[20:] == ["  … and 2 more"]


def test_nothing_came():
    assert summary([]) == "The service got no request with this test's key."


def test_each_request_is_a_row():
    rows = [
        request(),
        request(users=3, status=503, accepted=False, fault="busy"),
        request(status=None, fault="1: hang"),
        request(status=400, accepted=False, error="no JSON", users=0, first_user=None, title={}),
        request(endpoint="campaigns", status=200, first_user=None, title={}, body={"en": "Sale"}),
    ]
    assert summary(rows, elsewhere=1).splitlines() == [
        "The service got 5 requests with this test's key, and accepted 3:",
        '  accepted  204        push to "ann"             en "Hi"',
        '  refused   503        push to "ann" and 2 more  en "Hi"    (fault "busy")',
        '  accepted  no answer  push to "ann"             en "Hi"    (fault "1: hang")',
        "  refused   400        push                                 (no JSON)",
        '  accepted  200        campaign                  en "Sale"',
        "1 request came with another key or to another path: does the code use push.base_url and push.api_key?",
    ]


def test_of_many_requests_the_newest_are_shown():
    told = summary([request(first_user=str(number), title={}) for number in range(25)]).splitlines()
    assert told[1] == "  … 5 older ones, then"
    assert (len(told), '"5"' in told[2], '"24"' in told[-1]) == (22, True, True)
