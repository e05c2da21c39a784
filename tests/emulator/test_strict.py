"""Requests that strict refuses and the shapes accept, and the errors."""

import json
import re
from copy import deepcopy

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.whole import whole

from pushsdk._core.models import CampaignRequest, MobilePush, PushRequest
from pushsdk.emulator.shapes import READERS, Unreadable, check_strictly

SECRET = "Dear Jane Roe, 4711"
SHOWN = {
    "type": "MOBILE_PUSH",
    "androidEnabled": False,
    "action": "DEFAULT",
    "clickAction": "DEEP_LINKING",
    "interruptionLevel": "PASSIVE",
    "mediaType": "IMAGE",
    "priority": "NORMAL",
    "relevanceScore": "SCORE_MAX",
}
MESSAGE = whole(MobilePush, SECRET, **SHOWN)
MESSAGE["actionCategory"]["type"] = "PREDEFINED_CATEGORY"
PUSH = whole(PushRequest, SECRET, message=MESSAGE)
CAMPAIGN = whole(CampaignRequest, SECRET, message=MESSAGE, schedule={"type": "START_NOW", "startTs": 1})
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


@pytest.mark.parametrize("body", [PUSH, CAMPAIGN])
def test_a_complete_documented_request_is_accepted(body):
    assert refusal(body) is None


@pytest.mark.parametrize(
    ("body", "path", "text"),
    [
        (PUSH, "message.ios_enabled", 'unknown field "ios_enabled", did you mean "iosEnabled"? - at `$.message`'),
        (PUSH, "message.zzz", 'unknown field "zzz": leave it out - at `$.message`'),
        (PUSH, "message.androidActionButtons.0.lable", '"lable", did you mean "label"? - at `$.message.androidActionB'),
        (
            PUSH,
            "message.actionCategory.actionComponents.0.useWebView",
            '"useWebView", did you mean "useWebview"? - at `$.message.actionCategory.actionComponents[0]`',
        ),
        (PUSH, SECRET, "unknown field - at `$`"),
    ],
)
def test_an_unknown_field_is_named_with_path_and_suggestion(body, path, text):
    assert text in refusal(changed(body, path, 1))


def test_a_misspelled_required_field_is_unknown():
    with pytest.raises(Unreadable, match='"userIDs", did you mean "userIds"'):
        check_strictly("push", b'{"userIDs": ["ann"], "message": {}}')


@pytest.mark.parametrize(
    ("path", "shown"),
    [
        ("message.relevanceScore", "SCORE_MAX"),
        ("message.androidActionButtons.0.clickAction", "DEEP_LINKING"),
        ("message.actionCategory.actionComponents.0.clickAction", "DEEP_LINKING"),
        ("schedule.type", "START_NOW"),
    ],
)
def test_a_value_that_the_interface_does_not_show_is_unknown(path, shown):
    place = "$." + re.sub(r"\.(\d+)", r"[\1]", path)
    told = f"unknown value, the interface shows only {shown} - at `{place}`"
    assert [refusal(changed(CAMPAIGN, path, value)) for value in (SECRET, "", shown)] == [told, told, None]


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("name", "missing name: give the campaign a name - at `$`"),
        ("segment.query", "missing query: write a SELECT that finds the users - at `$.segment`"),
        ("schedule", "missing schedule: "),
        ("message", "missing message: "),
    ],
)
def test_a_necessary_field_is_missing_or_empty(path, text):
    empty = {} if isinstance(CAMPAIGN.get(path), dict) else ""
    for value in (GONE, empty):
        assert refusal(changed(CAMPAIGN, path, value)).startswith(text)


def test_a_type_is_necessary_and_other_fields_are_optional():
    assert refusal(changed(PUSH, "message.type", GONE)).startswith("missing type: ")
    for path in ("externalId", "schedule.startTs", "message.actionCategory", "message.subtitle"):
        assert refusal(changed(CAMPAIGN, path, GONE)) is None


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"body": {"en": "", "de": "x"}, "androidEnabled": True}, None),
        ({"title": {}, "contentAvailable": True, "iosEnabled": True}, None),
        ({"title": {}, "body": {"en": " \n"}, "iosEnabled": True}, "title and body are both empty - at `$.message`"),
        ({"title": {"en": "x"}, "iosEnabled": False}, "neither iosEnabled nor androidEnabled is true, so it may"),
    ],
)
def test_a_message_needs_a_text_unless_it_is_silent_and_a_platform(fields, text):
    told = refusal({"userIds": ["ann"], "message": {"type": "MOBILE_PUSH", **fields}})
    assert (told is None) if text is None else told.startswith(text)


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b'{"userIds": ["ann"], "message": {"x": "%b"}}' % (b"x" * 70_000), "over 65536 bytes beside the users"),
        (b'{"userIds": ["%b"], "message": {"ttl": "1"}}' % (b"x" * 70_000), "at `$.message.ttl`"),
        (b'{"userIds": ["ann"]', "truncated - at `$`"),
    ],
)
def test_a_body_that_can_not_be_analyzed_or_has_a_large_message_is_refused(body, text):
    with pytest.raises(Unreadable, match=re.escape(text)):
        check_strictly("push", body)


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["message", "userIds", "title", "actionCategory", "x", "en"]), inner)
    ),
    max_leaves=20,
)


@settings(max_examples=50)
@given(anything)
def test_no_json_raises_another_error(value):
    for endpoint in READERS:
        with pytest.raises(Unreadable, match=r" - at `\$"):
            check_strictly(endpoint, json.dumps(value).encode())
