"""Texts of test failures."""

from support.store_entries import summary_of

from pushsdk.testing.inbox import show_users, summary


def test_twenty_users_are_shown_and_the_others_counted():
    assert show_users({"a": 1, "b": 2}) == '  "a": 1 push\n  "b": 2 pushes'
    assert show_users(dict.fromkeys(map(str, range(22)), 2)).splitlines()[20:] == ["  … and 2 more"]


def test_each_request_is_a_row():
    rows = [
        summary_of(),
        summary_of(users=3, status=503, accepted=False, fault="busy"),
        summary_of(status=None, fault="1: hang"),
        summary_of(status=400, accepted=False, error="no JSON", users=0, first_user=None, title={}),
        summary_of(endpoint="campaigns", status=200, first_user=None, title={}, body={"en": "Sale"}),
    ]
    assert summary(rows, elsewhere=0).splitlines() == [
        "The service received 5 requests with this test's key, and accepted 3:",
        '  accepted      204          push to "ann"             en "Hi"',
        '  not accepted  503          push to "ann" and 2 more  en "Hi"    (fault "busy")',
        '  accepted      no response  push to "ann"             en "Hi"    (fault "1: hang")',
        "  not accepted  400          push                                 (no JSON)",
        '  accepted      200          campaign                  en "Sale"',
    ]


def test_a_summary_shows_the_newest_requests():
    lines = summary([summary_of(first_user=str(number), title={}) for number in range(25)], elsewhere=0).splitlines()
    assert lines[1] == "  … 5 older requests, then"
    assert len(lines) == 22
    assert '"5"' in lines[2]
    assert '"24"' in lines[-1]
