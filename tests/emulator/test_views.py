"""The views of the control routes, even for strange bodies."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pushsdk.emulator.control import views
from pushsdk.emulator.control.views import (
    CampaignView,
    RequestView,
    UserView,
    campaign_view,
    faults,
    request_view,
    user_view,
)
from pushsdk.emulator.faults import Fault, Rules
from pushsdk.emulator.store.records import Campaign, Delivered, Recipient, RequestSummary


def request(**fields: Any) -> RequestSummary:
    values = {
        "id": 7,
        "time": 1.5,
        "endpoint": "push",
        "status": 204,
        "accepted": True,
        "fault": None,
        "error": None,
        "users": 1,
        "bytes": 10,
        "first_user": None,
        "title": {},
        "body": {},
        "languages": (),
        "platforms": (),
        "campaign": None,
    }
    return RequestSummary(**{**values, **fields})


def whole(body: object, **fields: Any) -> dict[str, Any]:
    """Return the view of a body as JSON."""
    sent = body if isinstance(body, bytes) else json.dumps(body).encode()
    encoded = msgspec.json.encode(request_view(request(**fields), sent))
    msgspec.json.decode(encoded, type=RequestView)
    return json.loads(encoded)


def got(body: object, **fields: Any) -> Delivered:
    sent = body if isinstance(body, bytes) else json.dumps(body).encode()
    return Delivered(**{"id": 1, "time": 1000.0, "body": sent, "times": 1, **fields})


def user(*pushes: Delivered, now: float = 2000.0) -> dict[str, Any]:
    encoded = msgspec.json.encode(user_view("ann", 3, pushes, now))
    msgspec.json.decode(encoded, type=UserView)
    return json.loads(encoded)


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b'{ "b" : 1.0e1, "a": 10000000000000000000000000 }', {"b": 10.0, "a": 10**25}),
        (b"[1]", [1]),
        (b'"x"', "x"),
        (b" 1 ", 1),
        (b"null", None),
        (b"", None),
        (b"{", None),
        (b"NaN", None),
        (b"\xff", None),
        (b'{"a":"\xff"}', None),
        (b'{"userIds":["\xff"]}', None),
        (b'"\\ud800"', None),
        (b"[" * 100_000, None),
    ],
)
def test_a_json_body_is_shown_as_json(body, expected):
    assert whole(body)["body"] == expected


def test_a_body_keeps_its_spelling():
    body = b'{"message": {"ttl": 1.50e2, "x": 1},  "userIds": ["a"]}'
    assert body in msgspec.json.encode(request_view(request(), body))


def test_the_first_thousand_users_are_shown():
    ids = [f"u{number}" for number in range(1001)]
    view = whole({"userIds": ids, "message": {"title": {"en": "x"}}})
    assert view["user_ids"] == view["body"]["userIds"] == ids[:1000]
    assert view["body"]["message"] == {"title": {"en": "x"}}
    assert len(json.loads(view["text"])["userIds"]) == 1001
    view = whole({"userIds": ids[:1000], "message": {}})
    assert len(view["body"]["userIds"]) == 1000


def test_a_too_long_body_has_no_snippets():
    body = {"userIds": [f"{number:0>20}" for number in range(50_000)], "message": {"title": {"en": "x"}}}
    view = whole(body)
    assert view["curl"] == view["python"] == "# This request is too long to be copied from here.\n"
    assert json.loads(view["text"]) == body
    assert view["body"]["message"] == body["message"]


LARGE = {
    "unknown fields": {"userIds": ["ann"], "message": {f"unknown{number}": number for number in range(4_000)}},
    "buttons": {"userIds": ["ann"], "message": {"androidActionButtons": [{"label": ""}] * 5_000}},
    "ids that are none": {"userIds": [[]] * 2_000_000, "message": {}},
    "no object": [0] * 40_000,
    "no JSON": b"x" * 70_000,
}


@pytest.mark.parametrize("body", LARGE.values(), ids=LARGE.keys())
def test_a_large_body_is_shown_raw_and_cut_and_neither_decoded_nor_checked(body, monkeypatch):
    monkeypatch.setattr(views, "lint", lambda _: pytest.fail("it is checked"))
    sent = body if isinstance(body, bytes) else json.dumps(body).encode()
    view = whole(body)
    assert (view["body"], view["text"], view["user_ids"]) == (None, sent[: 64 * 1024].decode(), [])
    assert view["curl"] == view["python"] == "# This request is too long to be copied from here.\n"
    [advice] = view["lint"]
    assert (advice["path"], advice["code"]) == ("$", "large")
    assert advice["message"].startswith(f"{len(sent):,} bytes")


def test_users_do_not_make_a_body_large():
    view = whole({"userIds": [f"user-{number}" for number in range(20_000)], "message": {"titel": {"en": "x"}}})
    assert view["body"]["message"] == {"titel": {"en": "x"}}
    assert "near-name" in {finding["code"] for finding in view["lint"]}


def test_a_user_sees_no_large_message():
    large = got({"userIds": ["ann"], "message": {"title": {"en": "x" * 70_000}}}, id=2)
    view = user(got({"message": {"iosEnabled": True}}), large, got({"message": {"iosEnabled": True}}, id=3))
    has_message = {push["id"]: push["message"] is not None for push in view["pushes"]}
    assert has_message == {1: True, 2: False, 3: True}
    assert [device["push"] for device in view["devices"]["ios"]] == [1, 3]


def test_a_large_campaign_shows_no_segment():
    campaign = Campaign(uuid="u", time=1.0, body=json.dumps({"segment": {"query": "x" * 70_000}}).encode())
    assert campaign_view(campaign).segment is None


def test_invalid_utf_8_is_shown_with_replacements():
    assert whole(b"a\xffb")["text"] == "a\ufffdb"


def test_a_request_is_shown_with_the_path_of_its_endpoint():
    assert "/v1/push" in whole({}, endpoint="push")["curl"]
    assert "/v1/campaigns" in whole({}, endpoint="campaigns")["curl"]


SHAPES = [
    *([], "x", 1, None, {}, {"userIds": 1}, {"userIds": [1, None, {}]}, {"message": 1}, {"message": []}),
    *({"message": {"title": "x"}}, {"message": {"title": {"en": 1}}}, {"message": {"title": []}}),
    *({"message": {"body": None, "subtitle": 5}}, {"segment": 1}, {"schedule": [], "message": None}),
    {"userIds": ["ann"], "message": {"androidActionButtons": [1], "actionCategory": []}},
]


@pytest.mark.parametrize("endpoint", ["push", "campaigns"])
@pytest.mark.parametrize("body", SHAPES, ids=json.dumps)
def test_any_refused_body_can_be_shown(body, endpoint):
    assert whole(body, endpoint=endpoint, accepted=False, status=400)["body"] == body


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda below: (
        st.lists(below, max_size=3)
        | st.dictionaries(st.sampled_from(["userIds", "message", "title", "body", "en", "x"]), below, max_size=3)
    ),
    max_leaves=10,
)


@given(JSON)
def test_no_json_is_too_strange_to_be_shown(body):
    whole(body, accepted=False)


@given(st.binary(max_size=30))
def test_no_bytes_are_too_strange_to_be_shown(body):
    whole(body, accepted=False)


def test_a_user_view_has_the_pushes_and_their_counts():
    message = {"title": {"en": "x"}, "iosEnabled": True}
    view = user(got({"message": message, "customFields": {"a": 1}}, times=2))
    (push,) = view["pushes"]
    assert (push["message"], push["custom_fields"], push["times"]) == (message, {"a": 1}, 2)
    assert (view["accepted"], view["campaigns"]) == (3, 0)
    assert [device["message"]["title"] for device in view["devices"]["ios"]] == [{"en": "x"}]


def test_a_campaign_shows_the_users_row_in_place_of_custom_fields():
    sent = {"message": {"title": {"en": "x"}, "androidEnabled": True}, "customFields": {"of": "the body"}}
    view = user(got(sent, campaign="uuid", fields={"city": "Berlin"}))
    assert view["campaigns"] == 1
    assert view["pushes"][0]["custom_fields"] == {"city": "Berlin"}
    assert view["devices"]["android"][0]["fields"] == {"city": "Berlin"}
    assert view["devices"]["android"][0]["campaign"] == "uuid"


def test_a_campaign_without_a_message_shows_nothing_on_a_device():
    view = user(got({"name": "x"}, campaign="uuid", fields={}))
    assert view["pushes"][0]["message"] is None
    assert view["devices"] == {"ios": [], "android": []}


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b'{"message":{},"other":"\xff"}', {}),
        (b'{"message":{},"other":' + b"[" * 500 + b"]" * 500 + b"}", {}),
        (b'{"message":{"x":"\xff"}}', None),
    ],
)
def test_ignored_fields_and_an_unreadable_message_are_not_shown(body, message):
    assert user(got(body))["pushes"][0]["message"] == message


def campaign(**fields: Any) -> Campaign:
    values = {"uuid": "u", "body": b'{"segment":{"query":"SELECT 1"}}', "time": 1.0}
    return Campaign(**{**values, **fields})


def test_a_campaign_is_shown_with_its_segment_and_first_recipients():
    view = campaign_view(campaign(id=3, name="n", state="done", users=1, start=2.0), [Recipient("ann", {"a": 1})])
    data = json.loads(msgspec.json.encode(view))
    msgspec.json.decode(msgspec.json.encode(view), type=CampaignView)
    assert data["segment"] == {"query": "SELECT 1"}
    assert data["recipients"] == [{"user_id": "ann", "fields": {"a": 1}}]
    assert (data["uuid"], data["id"], data["state"], data["users"], data["start"]) == ("u", 3, "done", 1, 2.0)


@pytest.mark.parametrize(
    ("body", "segment"),
    [
        (b"{}", None),
        (b'{"segment":null}', None),
        (b'{"x":"\xff","segment":{"query":"\xff"}}', None),
        (b'{"x":"\xff","segment":{"query":"q"}}', {"query": "q"}),
    ],
)
def test_a_campaign_is_shown_with_the_segment_that_can_be_read(body, segment):
    assert campaign_view(campaign(body=body)).segment == segment


def test_rules_are_shown_as_they_are_written():
    rules = Rules([Fault.status(429, headers={"Retry-After": "1"}, first=3), Fault.hang(name="h")], seed=5)
    rules.enable("h", False)
    view = json.loads(msgspec.json.encode(faults(rules)))
    assert view == {
        "faults": [
            {
                "fault": "status",
                "code": 429,
                "headers": {"Retry-After": "1"},
                "first": 3,
                "name": "1: status",
                "enabled": True,
                "hits": 0,
            },
            {"fault": "hang", "accepted": False, "name": "h", "enabled": False, "hits": 0},
        ],
        "seed": 5,
    }
