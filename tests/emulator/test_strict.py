"""Requests that strict refuses and the shapes accept, and the errors."""

import json
import re
from copy import deepcopy
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pushsdk.emulator import shapes
from pushsdk.emulator.shapes import READERS, Unreadable, check_strictly, read_push

SECRET = "Dear Jane Roe, 4711"
BUTTON = {"label": SECRET, "url": "app://a", "clickAction": "DEEP_LINKING", "keyVals": {SECRET: SECRET}}
COMPONENT = {"actionId": SECRET, "url": "b", "clickAction": "DEEP_LINKING", "keyVals": {}, "useWebview": False}
MESSAGE = {
    "type": "MOBILE_PUSH",
    "iosEnabled": True,
    "androidEnabled": False,
    "title": {"en": SECRET},
    "subtitle": {},
    "body": {"en": SECRET},
    "action": "DEFAULT",
    "priority": "NORMAL",
    "mediaType": "IMAGE",
    "interruptionLevel": "PASSIVE",
    "relevanceScore": "SCORE_MAX",
    "keyVals": {SECRET: SECRET},
    "androidActionButtons": [BUTTON, dict(BUTTON)],
    "actionCategory": {"type": "PREDEFINED_CATEGORY", "name": SECRET, "actionComponents": [COMPONENT]},
}
PUSH = {"userIds": [SECRET], "message": MESSAGE, "customFields": {SECRET: {"anything": [1]}}}
CAMPAIGN = {
    "name": SECRET,
    "externalId": SECRET,
    "segment": {"query": SECRET, "primaryKey": SECRET},
    "schedule": {"type": "START_NOW", "startTs": 1},
    "message": MESSAGE,
}
GONE = object()


def changed(body, path, value):
    """Return the body with another value at the path, or without one."""
    copy = deepcopy(body)
    *above, last = [int(part) if part.isdigit() else part for part in path.split(".")]
    node = copy
    for part in above:
        node = node[part]
    if value is GONE:
        del node[last]
    else:
        node[last] = value
    return copy


def refusal(body):
    """Return the error of strict, or None; asserts that the shapes accept the body."""
    data = json.dumps(body).encode()
    endpoint = "push" if "userIds" in body else "campaigns"
    READERS[endpoint](data)
    told = None
    try:
        check_strictly(endpoint, data)
    except Unreadable as error:
        told = str(error)
    assert SECRET not in str(told)
    return told


@pytest.mark.parametrize("body", [PUSH, CAMPAIGN], ids=["push", "campaign"])
def test_a_complete_documented_request_is_accepted(body):
    assert refusal(body) is None


@pytest.mark.parametrize(
    ("body", "path", "text"),
    [
        (
            PUSH,
            "message.androidEnable",
            '"androidEnable", did you mean "androidEnabled"? - at `$.message`',
        ),
        (PUSH, "message.ios_enabled", 'unknown field "ios_enabled", did you mean "iosEnabled"? - at `$.message`'),
        (PUSH, "customfields", 'unknown field "customfields", did you mean "customFields"? - at `$`'),
        (CAMPAIGN, "segment.primary_key", 'unknown field "primary_key", did you mean "primaryKey"? - at `$.segment`'),
        (CAMPAIGN, "schedule.startTS", 'unknown field "startTS", did you mean "startTs"? - at `$.schedule`'),
        (CAMPAIGN, "message.titel", 'unknown field "titel", did you mean "title"? - at `$.message`'),
        (PUSH, "message.zzz", 'unknown field "zzz": leave it out - at `$.message`'),
        (PUSH, "message.androidActionButtons.1.lable", '"lable", did you mean "label"? - at `$.message.androidActionB'),
        (
            PUSH,
            "message.actionCategory.actionComponents.0.useWebView",
            '"useWebView", did you mean "useWebview"? - at `$.message.actionCategory.actionComponents[0]`',
        ),
        (PUSH, "message.actionCategory.nam", '"nam", did you mean "name"? - at `$.message.actionCategory`'),
        (PUSH, SECRET, "unknown field - at `$`"),
        (PUSH, "message." + "x" * 41, "unknown field - at `$.message`"),
        (PUSH, "message." + "x" * 40, 'unknown field "x'),
    ],
)
def test_an_unknown_field_is_named_with_path_and_suggestion(body, path, text):
    assert text in refusal(changed(body, path, None if path == "message.zzz" else 1))


def test_a_misspelled_required_field_is_unknown():
    with pytest.raises(Unreadable, match='"userIDs", did you mean "userIds"'):
        check_strictly("push", b'{"userIDs": ["ann"], "message": {}}')


ENUMERATED = [
    ("message.type", "MOBILE_PUSH"),
    ("message.action", "DEFAULT"),
    ("message.priority", "NORMAL"),
    ("message.mediaType", "IMAGE"),
    ("message.interruptionLevel", "PASSIVE"),
    ("message.relevanceScore", "SCORE_MAX"),
    ("message.androidActionButtons.1.clickAction", "DEEP_LINKING"),
    ("message.actionCategory.type", "PREDEFINED_CATEGORY"),
    ("message.actionCategory.actionComponents.0.clickAction", "DEEP_LINKING"),
    ("schedule.type", "START_NOW"),
]


@pytest.mark.parametrize(("path", "shown"), ENUMERATED)
def test_a_value_that_the_interface_does_not_show_is_unknown(path, shown):
    assert len(shapes.SHOWN) == len(ENUMERATED)
    place = "$." + re.sub(r"\.(\d+)", r"[\1]", path)
    told = f"unknown value, the interface shows only {shown} - at `{place}`"
    assert [refusal(changed(CAMPAIGN, path, value)) for value in (SECRET, "", shown)] == [told, told, None]


NEEDED = [
    (CAMPAIGN, "name", "missing name: give the campaign a name - at `$`"),
    (CAMPAIGN, "segment", "missing segment: "),
    (CAMPAIGN, "segment.query", "missing query: write a SELECT that finds the users - at `$.segment`"),
    (CAMPAIGN, "segment.primaryKey", "missing primaryKey: "),
    (CAMPAIGN, "schedule", "missing schedule: "),
    (CAMPAIGN, "schedule.type", "missing type: give it a type, for example START_NOW - at `$.schedule`"),
    (CAMPAIGN, "message", "missing message: "),
    (PUSH, "message.type", "missing type: give it a type, for example MOBILE_PUSH - at `$.message`"),
]


@pytest.mark.parametrize(("body", "path", "text"), NEEDED)
def test_a_necessary_field_is_missing(body, path, text):
    assert refusal(changed(body, path, GONE)).startswith(text)


@pytest.mark.parametrize("path", ["name", "segment", "segment.query", "segment.primaryKey", "schedule", "message"])
def test_an_empty_field_is_missing(path):
    empty = {} if isinstance(CAMPAIGN.get(path), dict) else ""
    assert refusal(changed(CAMPAIGN, path, empty)).startswith(f"missing {path.rpartition('.')[2]}")


@pytest.mark.parametrize("path", ["externalId", "schedule.startTs", "message.actionCategory", "message.subtitle"])
def test_an_optional_field_is_not_missing(path):
    assert refusal(changed(CAMPAIGN, path, GONE)) is None


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b'{"message": {}}', "missing required field `userIds`"),
        (b'{"userIds": ["ann"]}', "missing required field `message`"),
        (b'{"userIds": [], "message": {}}', "at `$.userIds`"),
        (b'{"userIds": ["ann"], "message": {"ttl": "1"}}', "at `$.message.ttl`"),
        (b'{"userIds": ["ann"], "message": {"actionCategory": 1}}', "at `$.message.actionCategory`"),
        (b'{"userIds": ["ann"], "message": {"androidActionButtons": [1]}}', "androidActionButtons[0]`"),
        (b"[]", "Expected `object`, got `array`"),
        (b"{", "truncated - at `$`"),
        (b'{"userIds": ["\xff"]}', "not UTF-8"),
        # Deeper than the recursion limit, in a body small enough to be decoded.
        (b'{"customFields":' + b'{"":' * 12_500, "nested too deeply"),
    ],
)
def test_strict_refuses_everything_that_shapes_refuse(body, text):
    for read in (read_push, partial(check_strictly, "push")):
        with pytest.raises(Unreadable) as told:
            read(body)
        assert text in str(told.value)


@pytest.mark.parametrize(
    ("texts", "taken"),
    [
        ({"title": {"en": "x"}}, True),
        ({"body": {"en": "", "de": "x"}}, True),
        ({"title": {}, "body": {}, "contentAvailable": True}, True),
        ({}, False),
        ({"title": {}, "body": {"en": " \n"}}, False),
        ({"subtitle": {"en": "x"}}, False),
        ({"contentAvailable": False}, False),
    ],
)
def test_a_message_needs_a_text_unless_it_is_silent(texts, taken):
    told = refusal({"userIds": ["ann"], "message": {"type": "MOBILE_PUSH", "iosEnabled": True, **texts}})
    assert (told is None) if taken else told.startswith("title and body are both empty - at `$.message`")


@pytest.mark.parametrize(
    ("flags", "taken"),
    [
        ({"iosEnabled": True}, True),
        ({"androidEnabled": True}, True),
        ({"iosEnabled": True, "androidEnabled": False}, True),
        ({"iosEnabled": False, "androidEnabled": False}, False),
        ({"iosEnabled": False}, False),
        ({}, False),
    ],
)
def test_a_message_needs_a_platform(flags, taken):
    told = refusal({"userIds": ["ann"], "message": {"type": "MOBILE_PUSH", "title": {"en": "x"}, **flags}})
    assert (told is None) if taken else told.startswith("neither iosEnabled nor androidEnabled is true, so it may")


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["message", "userIds", "title", "actionCategory", "x", "en"]), inner)
    ),
    max_leaves=20,
)


@given(anything)
def test_no_json_raises_another_error(value):
    for endpoint in READERS:
        with pytest.raises(Unreadable, match=r" - at `\$"):
            check_strictly(endpoint, json.dumps(value).encode())
