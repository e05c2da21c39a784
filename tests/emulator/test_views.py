"""The views of the control routes, even for strange bodies."""

import json

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from support.store_entries import summary_of

from pushsdk.emulator.control import views
from pushsdk.emulator.control.views import RequestView, request_view


def encoded(body):
    return body if isinstance(body, bytes) else json.dumps(body).encode()


def as_json(view, shape):
    """Return a view as on the wire, checked against its type."""
    text = msgspec.json.encode(view)
    msgspec.json.decode(text, type=shape)
    return json.loads(text)


REQUEST = summary_of(first_user=None, title={})


def whole(body, endpoint="push"):
    """Return the view of a request with this body."""
    request = msgspec.structs.replace(REQUEST, endpoint=endpoint)
    return as_json(request_view(request, encoded(body)), RequestView)


@pytest.mark.parametrize(
    ("body", "expected", "text"),
    [
        (b' {"b" : 1.0e1, "a": 10000000000000000000000000 }', {"b": 10.0, "a": 10**25}, None),
        (b"{", None, None),
        (b'{"a":"\xff"}', None, '{"a":"\ufffd"}'),
        (b"[" * 60_000, None, None),
    ],
)
def test_a_json_body_is_shown_as_json_and_any_body_as_text(body, expected, text):
    view = whole(body)
    assert view["body"] == expected
    assert view["text"] == (text or body.decode())


def test_a_body_keeps_its_spelling():
    body = b'{"message": {"ttl": 1.50e2, "x": 1},  "userIds": ["a"]}'
    assert body in msgspec.json.encode(request_view(REQUEST, body))


def test_the_first_thousand_users_are_shown():
    ids = [f"u{number}" for number in range(1001)]
    for sent in (ids, ids[:1000]):
        view = whole({"userIds": sent, "message": {"title": {"en": "x"}}})
        assert view["user_ids"] == view["body"]["userIds"] == ids[:1000]
        assert view["body"]["message"] == {"title": {"en": "x"}}
        assert json.loads(view["text"])["userIds"] == sent


def test_users_do_not_make_a_body_large_but_too_long_for_snippets():
    body = {"userIds": [f"{number:0>20}" for number in range(50_000)], "message": {"titel": {"en": "x"}}}
    view = whole(body)
    assert view["body"]["message"] == body["message"]
    assert view["curl"] == ""
    assert "near-name" in {finding["code"] for finding in view["lint"]}


@pytest.mark.parametrize(
    "body",
    [{"userIds": ["ann"], "message": {"androidActionButtons": [{"label": ""}] * 5_000}}, [0] * 40_000, b"x" * 70_000],
)
def test_a_large_body_is_shown_raw_and_cut_and_neither_decoded_nor_checked(body, monkeypatch):
    monkeypatch.setattr(views, "lint", lambda _: pytest.fail("it is checked"))
    sent = encoded(body)
    view = whole(body)
    assert view["body"] is None
    assert view["text"] == sent[: 64 * 1024].decode()
    assert view["user_ids"] == []
    assert view["curl"] == ""
    [advice] = view["lint"]
    assert advice["path"] == "$"
    assert advice["code"] == "large"
    assert advice["message"].startswith(f"{len(sent):,} bytes")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda below: (
        st.lists(below, max_size=3)
        | st.dictionaries(
            st.sampled_from(["userIds", "message", "title", "body", "en", "segment", "schedule"]), below, max_size=3
        )
    ),
    max_leaves=10,
)


@given(JSON | st.binary(max_size=30), st.sampled_from(["push", "campaigns"]))
@example({"userIds": [1, None, {}]}, "push")
@example({"message": {"title": {"en": 1}, "body": None, "androidActionButtons": [1], "actionCategory": []}}, "push")
def test_no_body_is_too_strange_to_be_shown(body, endpoint):
    view = whole(body, endpoint)
    assert (f"/v1/{endpoint}" in view["curl"]) is (view["body"] is not None)
    assert isinstance(body, bytes) or view["body"] == body
