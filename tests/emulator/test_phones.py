"""Notifications: each documented field, the states, the texts."""

from copy import deepcopy

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.pretty import pretty_repr

from pushsdk._core import models
from pushsdk.emulator.phones import PushView, notifications

BUTTON = {"label": "Buy", "url": "app://buy", "clickAction": "DEEP_LINKING", "keyVals": {"k": "b"}}
COMPONENT = {
    "actionId": "open",
    "url": "app://open",
    "clickAction": "DEEP_LINKING",
    "keyVals": {"k": "c"},
    "useWebview": True,
}
OTHER_BUTTON = {"label": "x", "url": "x", "clickAction": "x", "keyVals": {}}
OTHER_COMPONENT = {"actionId": "x", "url": "x", "clickAction": "x", "keyVals": {}, "useWebview": False}
MESSAGE = {
    "type": "MOBILE_PUSH",
    "iosEnabled": True,
    "androidEnabled": True,
    "title": {"en": "Hello {{ name | 'there' }}", "de": "Hallo"},
    "subtitle": {"en": "Sub"},
    "body": {"en": "World"},
    "collapseId": "promo",
    "ttl": 60,
    "action": "DEFAULT",
    "androidActionUrl": "app://android",
    "iosActionUrl": "app://ios",
    "keyVals": {"k": "v"},
    "bigImageUrl": "https://i/big",
    "largeIconUrl": "https://i/large",
    "smallIconResourceId": "ic_small",
    "androidChannel": "news",
    "priority": "NORMAL",
    "androidActionButtons": [BUTTON],
    "soundFileName": "ding.wav",
    "richMediaUrl": "https://i/media",
    "mediaType": "IMAGE",
    "interruptionLevel": "PASSIVE",
    "badgeCount": 3,
    "relevanceScore": "SCORE_MAX",
    "contentAvailable": True,
    "actionCategory": {"type": "PREDEFINED_CATEGORY", "name": "shop", "actionComponents": [COMPONENT]},
}
EITHER = ("ios", "android")
BOTH = {"iosEnabled": True, "androidEnabled": True}


def sent(message=MESSAGE, **more):
    """A push for both platforms by default."""
    given = {"id": 1, "time": 100.0, "times": 1, "campaign": None, "custom_fields": None, "message": BOTH | message}
    return PushView(**given | more)


def shown(*pushes, now=100.0, platform="ios", **more):
    return notifications(pushes, now=now, platform=platform, **more)


def states(*pushes, now, **more):
    return [each.state for each in shown(*pushes, now=now, **more)]


def collapsing(*times, **message):
    return [
        sent({"title": {"en": "x"}, "collapseId": "a", **message}, id=number, time=time)
        for number, time in enumerate(times)
    ]


ANDROID, IOS = ("android",), ("ios",)
# Every field of the message, another value, and the platforms that show the field.
FIELDS = [
    ("type", "OTHER", EITHER),
    ("iosEnabled", False, IOS),
    ("androidEnabled", False, ANDROID),
    ("title", {"en": "x"}, EITHER),
    ("subtitle", {}, EITHER),
    ("body", {"fr": "x"}, EITHER),
    ("collapseId", "x", EITHER),
    ("ttl", 1, EITHER),
    ("action", "x", EITHER),
    ("androidActionUrl", "x", ANDROID),
    ("iosActionUrl", "x", IOS),
    ("keyVals", {}, EITHER),
    ("bigImageUrl", "x", EITHER),
    ("largeIconUrl", "x", ANDROID),
    ("smallIconResourceId", "x", ANDROID),
    ("androidChannel", "x", ANDROID),
    ("priority", "x", EITHER),
    ("androidActionButtons", [], ANDROID),
    ("soundFileName", "x", EITHER),
    ("richMediaUrl", "x", EITHER),
    ("mediaType", "x", EITHER),
    ("interruptionLevel", "x", IOS),
    ("badgeCount", 0, EITHER),
    ("relevanceScore", "x", IOS),
    ("contentAvailable", False, EITHER),
    ("actionCategory", {}, IOS),
    *((f"androidActionButtons.0.{name}", value, ANDROID) for name, value in OTHER_BUTTON.items()),
    ("actionCategory.type", "x", IOS),
    ("actionCategory.name", "x", IOS),
    ("actionCategory.actionComponents", [], IOS),
    *((f"actionCategory.actionComponents.0.{name}", value, IOS) for name, value in OTHER_COMPONENT.items()),
]
GONE = object()


def changed(path, value):
    message = deepcopy(MESSAGE)
    *above, last = [int(part) if part.isdigit() else part for part in path.split(".")]
    node = message
    for part in above:
        node = node[part]
    if value is GONE:
        del node[last]
    else:
        node[last] = value
    return message


def test_the_table_has_every_field_of_the_message_and_of_what_is_in_it():
    places = {"": models.MobilePush, "androidActionButtons.0.": models.ActionButton}
    places |= {"actionCategory.": models.ActionCategory, "actionCategory.actionComponents.0.": models.ActionComponent}
    every = {place + name for place, shape in places.items() for name in shape.__struct_encode_fields__}
    assert {path for path, _, _ in FIELDS} == every


@pytest.mark.parametrize(("path", "value", "platforms"), FIELDS, ids=[path for path, *_ in FIELDS])
def test_every_field_makes_a_difference_on_its_platforms_and_is_optional(path, value, platforms):
    for platform in EITHER:
        before, after = shown(sent(), platform=platform), shown(sent(changed(path, value)), platform=platform)
        if path == f"{platform}Enabled":
            assert (len(before), after) == (1, [])
        elif path not in BOTH:
            (without,) = shown(sent(changed(path, GONE)), platform=platform)
            assert (after[0].message != before[0].message) is (platform in platforms)
            assert (without.message != before[0].message) is (platform in platforms)


def test_a_notification_has_the_fields_of_its_platform():
    (found,) = shown(sent(custom_fields={"name": "Ann"}, campaign="c-1"))
    assert (found.push, found.time, found.state) == (1, 100.0, "delivered")
    assert (found.fields, found.campaign, found.silent) == ({"name": "Ann"}, "c-1", False)
    (other,) = shown(sent(), platform="android")
    only = {"ios": MESSAGE.keys() - other.message.keys(), "android": MESSAGE.keys() - found.message.keys()}
    assert sorted(only["ios"]) == ["actionCategory", "interruptionLevel", "iosActionUrl", "relevanceScore"]
    assert {*found.message, *only["android"]} == MESSAGE.keys()
    assert {**found.message, **other.message} == MESSAGE


@pytest.mark.parametrize("platform", EITHER)
def test_an_empty_message_shows_as_an_empty_notification(platform):
    (found,) = shown(sent({}), platform=platform)
    assert (found.message, found.fields, found.silent) == (BOTH, {}, False)


@pytest.mark.parametrize("platform", EITHER)
def test_a_field_that_the_interface_does_not_know_is_left_out(platform):
    assert shown(sent({"later": [1]}), platform=platform)[0].message == BOTH


@pytest.mark.parametrize(
    ("flags", "platforms"),
    [
        (BOTH, ["ios", "android"]),
        ({"iosEnabled": True}, ["ios"]),
        ({"androidEnabled": True, "iosEnabled": False}, ["android"]),
        ({"iosEnabled": False}, []),
        ({}, []),
    ],
)
def test_a_platform_shows_what_is_switched_on_for_it(flags, platforms):
    push = PushView(id=1, time=100.0, times=1, campaign=None, custom_fields=None, message=flags)
    assert [platform for platform in EITHER if shown(push, platform=platform)] == platforms


@pytest.mark.parametrize(
    ("message", "silent"),
    [
        ({"contentAvailable": True}, True),
        ({"contentAvailable": True, "title": {"en": " "}, "body": {}}, True),
        ({"contentAvailable": True, "body": {"en": "x"}}, False),
        ({"contentAvailable": True, "subtitle": {"en": "x"}}, False),
        ({"contentAvailable": False}, False),
        ({}, False),
    ],
)
def test_a_push_without_a_text_that_wakes_the_app_is_silent(message, silent):
    (found,) = shown(sent(message))
    assert found.silent is silent
    assert ("it is silent: contentAvailable, and no text" in found.simulated) is silent


@pytest.mark.parametrize(
    ("message", "made_up"),
    [
        ({}, []),
        ({"collapseId": "a"}, ["the next push with this collapseId replaces it"]),
        ({"ttl": 1}, ["ttl is in seconds, the push is shown until then"]),
        ({"badgeCount": 1}, ["the last badgeCount wins"]),
    ],
)
def test_assumptions_are_listed(message, made_up):
    assert list(shown(sent(message))[0].simulated) == ["the device is always online", *made_up]


def test_a_push_of_the_future_is_enqueued_until_then():
    told = [states(sent(), now=now) for now in (98, 99.9, 100, 101)]
    assert told == [["enqueued"], ["enqueued"], ["delivered"], ["delivered"]]


def test_a_later_push_with_the_same_collapse_id_replaces_the_one_before():
    assert states(*collapsing(1, 2, 3), now=10) == ["replaced", "replaced", "delivered"]


def test_a_push_not_yet_delivered_replaces_nothing():
    assert states(*collapsing(1, 2, 3), now=2.5) == ["replaced", "delivered", "enqueued"]


@pytest.mark.parametrize("collapse_ids", [("a", "b"), ("a", None), (None, None), ("", "")])
def test_pushes_without_a_shared_collapse_id_are_all_shown(collapse_ids):
    pushes = [sent({"collapseId": each} if each is not None else {}) for each in collapse_ids]
    assert states(*pushes, now=100) == ["delivered", "delivered"]


def test_a_push_for_the_other_platform_replaces_nothing():
    one, other = collapsing(1)[0], collapsing(2, iosEnabled=False)[0]
    assert states(one, other, now=10) == ["delivered"]
    assert states(one, other, now=10, platform="android") == ["replaced", "delivered"]


@pytest.mark.parametrize(
    ("ttl", "now", "state"),
    [
        (60, 159.9, "delivered"),
        (60, 160, "expired"),
        (0, 100, "expired"),
        (-5, 100, "expired"),
        (2**62, 1e11, "delivered"),
        (-(2**62), 100, "expired"),
    ],
)
def test_a_notification_is_shown_until_its_ttl_has_passed(ttl, now, state):
    assert states(sent({"ttl": ttl}), now=now) == [state]


@pytest.mark.parametrize(("ttl", "state"), [(10, "expired"), (30, "replaced")])
def test_the_earlier_of_expiry_and_replacement_counts(ttl, state):
    first, second = collapsing(100, ttl=ttl)[0], collapsing(120)[0]
    assert states(first, second, now=1000)[0] == state


def test_an_expired_push_has_replaced_its_predecessor():
    assert states(*collapsing(1), *collapsing(2, ttl=1), now=10) == ["replaced", "expired"]


def test_notifications_are_in_the_order_of_the_pushes():
    assert [each.push for each in shown(*(sent(id=number) for number in (3, 1, 2)))] == [3, 1, 2]


@given(
    st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 9), st.integers(-1, 9)), max_size=8), st.integers(0, 20)
)
def test_at_most_one_notification_per_collapse_id_is_shown(pushes, now):
    sents = [
        sent({"collapseId": key, "ttl": ttl}, id=number, time=float(time))
        for number, (key, time, ttl) in enumerate(sorted(pushes, key=lambda each: each[1]))
    ]
    standing = [each.message["collapseId"] for each in shown(*sents, now=now) if each.state == "delivered"]
    assert len(standing) == len(set(standing))


def test_no_text_and_no_field_is_in_a_repr():
    values = [sent(), *shown(sent())]
    assert [repr(value) for value in values] == [f"{type(value).__name__}(...)" for value in values]
    assert [pretty_repr(value) for value in values] == [f"{type(value).__name__}()" for value in values]


def test_an_invalid_message_is_refused():
    with pytest.raises(ValueError, match=r"\$\.ttl"):
        shown(sent({"ttl": "x"}))
