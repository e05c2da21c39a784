"""Requests that strict refuses and the shapes accept, and the errors."""

import json
import re
from copy import deepcopy

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.whole import whole

from pushsdk._core import lint
from pushsdk._core.models import CampaignRequest, MobilePush, PushRequest
from pushsdk.emulator.guard import Refused
from pushsdk.emulator.shapes import READERS, check_strictly

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


def read_and_check(endpoint, body):
    READERS[endpoint](body)
    check_strictly(endpoint, body)


def refusal(body):
    """Return the error of strict, or None; asserts that the shapes accept the body."""
    data = json.dumps(body).encode()
    endpoint = "push" if "userIds" in body else "campaigns"
    READERS[endpoint](data)
    told = None
    try:
        check_strictly(endpoint, data)
    except Refused as error:
        told = str(error)
    assert SECRET not in str(told)
    return told


def test_of_many_unknown_names_only_the_first_is_compared_with_those_that_are_known(monkeypatch):
    compared = set()
    monkeypatch.setattr(lint, "near_name", lambda name, _: compared.add(name))
    with pytest.raises(Refused):
        check_strictly("push", b'{"x": 1, "y": 1, "message": {"z": 1}}')
    assert compared == {"x"}


def unshown(place, shown):
    return f"unknown value, the interface shows only {shown} - at `$.{place}`"


BUTTON = "message.androidActionButtons.0"
COMPONENT = "message.actionCategory.actionComponents.0"


@pytest.mark.parametrize(
    ("body", "path", "value", "text"),
    [
        (PUSH, "message.ttl", 1, None),
        (PUSH, "message.ios_enabled", 1, "unknown field, did you mean iosEnabled? - at `$.message.ios_enabled`"),
        (PUSH, "message.zzz", 1, "unknown field, which phones may ignore; for the fields see: pushsdk docs sending"),
        (PUSH, f"{BUTTON}.lable", 1, "did you mean label? - at `$.message.androidActionButtons[0].lable`"),
        (PUSH, f"{COMPONENT}.useWebView", 1, "- at `$.message.actionCategory.actionComponents[0].useWebView`"),
        (PUSH, SECRET, 1, " - at `$[...]`"),
        (PUSH, "message.type", GONE, "missing type: "),
        (CAMPAIGN, "message.relevanceScore", SECRET, unshown("message.relevanceScore", "SCORE_MAX")),
        (CAMPAIGN, f"{BUTTON}.clickAction", "", unshown("message.androidActionButtons[0].clickAction", "DEEP_LINKING")),
        (CAMPAIGN, "name", GONE, "missing name: give the campaign a name - at `$`"),
        (changed(CAMPAIGN, "name", GONE), "nmae", 1, "unknown field, did you mean name? - at `$.nmae`"),
        (CAMPAIGN, "segment.query", "", "missing query: write a SELECT that finds the users - at `$.segment`"),
        *((CAMPAIGN, path, GONE, None) for path in ("externalId", "schedule.startTs", "message.subtitle")),
    ],
)
def test_what_the_interface_does_not_show_is_refused_with_its_path(body, path, value, text):
    told = refusal(changed(body, path, value))
    assert told is None if text is None else text in told


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
        (b'{"userIds": ["%b"], "message": {"titel": "1"}}' % (b"x" * 70_000), "at `$.message.titel`"),
    ],
)
def test_a_large_message_is_refused_unread_and_one_to_many_users_is_read(body, text):
    with pytest.raises(Refused, match=re.escape(text)):
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
    data = json.dumps(value).encode()
    for endpoint in READERS:
        with pytest.raises(Refused, match=r" - at `\$"):
            read_and_check(endpoint, data)
