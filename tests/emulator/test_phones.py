"""Notifications: each documented field, the states, the texts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.pretty import pretty_repr
from support.whole import whole

from pushsdk._core.models import MobilePush
from pushsdk.emulator.phones import PushView, notifications

BOTH = {"iosEnabled": True, "androidEnabled": True}
MESSAGE = whole(MobilePush, "x")
IOS = {"iosActionUrl", "interruptionLevel", "relevanceScore", "actionCategory"}
ANDROID = {"androidActionUrl", "largeIconUrl", "smallIconResourceId", "androidChannel", "androidActionButtons"}


def sent(message=MESSAGE, **more):
    """A push for both platforms by default."""
    given = {"id": 1, "time": 100.0, "times": 1, "custom_fields": None, "message": BOTH | message}
    return PushView(**given | more)


def shown(*pushes, now=100.0, platform="ios"):
    return notifications(pushes, now=now, platform=platform)


@given(st.sets(st.sampled_from(sorted(MESSAGE))))
def test_each_documented_field_is_optional_and_shown_on_its_platforms(names):
    message = BOTH | {name: MESSAGE[name] for name in names}
    for platform, others in (("ios", ANDROID), ("android", IOS)):
        (found,) = shown(sent(message | {"later": [1]}), platform=platform)
        assert found.message == {name: message[name] for name in message.keys() - others}


@pytest.mark.parametrize(
    ("message", "silent"),
    [
        ({"contentAvailable": True, "title": {"en": " "}, "body": {}}, True),
        ({"contentAvailable": True, "title": {"en": "x"}}, False),
        ({"contentAvailable": True, "body": {"en": "x"}}, False),
        ({}, False),
    ],
)
def test_a_push_without_a_text_that_wakes_the_app_is_silent(message, silent):
    (found,) = shown(sent(message))
    assert found.silent == silent
    assert ("it is silent: contentAvailable, and no text" in found.simulated) == silent


def at(time, collapse_id=None, **message):
    collapses = {} if collapse_id is None else {"collapseId": collapse_id}
    return sent({"title": {"en": "x"}, **collapses, **message}, time=time)


@pytest.mark.parametrize(
    ("pushes", "now", "states"),
    [
        ([at(100)], 99.9, ["enqueued"]),
        ([at(1, "a"), at(2, "a"), at(3, "a")], 2.5, ["replaced", "delivered", "enqueued"]),
        ([at(1, "a"), at(2, "b"), at(3), at(4), at(5, ""), at(6, "")], 10, ["delivered"] * 6),
        ([at(1, "a"), at(2, "a", iosEnabled=False)], 10, ["delivered"]),
        ([at(100, ttl=60)], 160, ["expired"]),
        ([at(100, ttl=0), at(100, ttl=-(2**62)), at(100, ttl=2**62)], 100, ["expired", "expired", "delivered"]),
        ([at(100, "a", ttl=10), at(120, "a")], 1000, ["expired", "delivered"]),
        ([at(1, "a"), at(2, "a", ttl=1)], 10, ["replaced", "expired"]),
    ],
)
def test_a_notification_has_a_state(pushes, now, states):
    found = shown(*pushes, now=now)
    assert [each.state for each in found] == states
    assert [each.time for each in found] == sorted(each.time for each in found)  # in the order of the pushes


def test_no_text_and_no_field_is_in_a_repr():
    values = [sent(), *shown(sent())]
    assert [repr(value) for value in values] == ["PushView(...)", "Notification(...)"]
    assert [pretty_repr(value) for value in values] == ["PushView()", "Notification()"]


def test_an_invalid_message_is_refused():
    with pytest.raises(ValueError, match=r"\$\.ttl"):
        shown(sent({"ttl": "x"}))
