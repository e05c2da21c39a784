"""Encoding, checked field by field against the interface document, and values that must be rejected."""

import datetime
import decimal
import enum
import json
import math
import re
import types
import uuid
import warnings
from functools import partial

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.bad_values import NOT_JSON, Data, nested

from pushsdk._core.body import encode_user_ids
from pushsdk._core.errors import ValidationError
from pushsdk._core.models import (
    ActionButton,
    ActionCategory,
    ActionComponent,
    CampaignCreated,
    CampaignRequest,
    MobilePush,
    PushRequest,
    Schedule,
    Segment,
)
from pushsdk._core.wire import (
    decode_campaign_created,
    encode_campaign,
    encode_custom_fields,
    encode_message,
    external_id,
    is_collapsible,
)

# The tables of the interface document: fields and types.
INTERFACE = {
    CampaignRequest: {
        "name": "string", "externalId": "string", "segment": "segment", "schedule": "schedule", "message": "message",
    },
    Segment: {"query": "string", "primaryKey": "string"},
    Schedule: {"type": "string", "startTs": "integer"},
    MobilePush: {
        "type": "string", "iosEnabled": "boolean", "androidEnabled": "boolean", "title": "map", "subtitle": "map",
        "body": "map", "collapseId": "string", "ttl": "integer", "action": "string", "androidActionUrl": "string",
        "iosActionUrl": "string", "keyVals": "map", "bigImageUrl": "string", "largeIconUrl": "string",
        "smallIconResourceId": "string", "androidChannel": "string", "priority": "string",
        "androidActionButtons": "buttons", "soundFileName": "string", "richMediaUrl": "string",
        "mediaType": "string", "interruptionLevel": "string", "badgeCount": "integer", "relevanceScore": "string",
        "contentAvailable": "boolean", "actionCategory": "category",
    },
    ActionButton: {"label": "string", "url": "string", "clickAction": "string", "keyVals": "map"},
    ActionCategory: {"type": "string", "name": "string", "actionComponents": "components"},
    ActionComponent: {
        "actionId": "string", "url": "string", "clickAction": "string", "keyVals": "map", "useWebview": "boolean",
    },
    PushRequest: {"userIds": "strings", "message": "message", "customFields": "map"},
}  # fmt: skip

# type: (values in Python, the same in JSON)
SAMPLES = {
    "string": [("x", "x"), ("", ""), ("NEVER_SHOWN", "NEVER_SHOWN")],
    "integer": [(7, 7), (0, 0), (-1, -1), (2**63 - 1, 2**63 - 1)],
    "boolean": [(True, True), (False, False)],
    "map": [({"en": "x"}, {"en": "x"}), ({}, {})],
    "strings": [(["a", "b"], ["a", "b"]), ([], [])],
    "segment": [(Segment(query="q"), {"query": "q"}), (Segment(), {})],
    "schedule": [(Schedule(start_ts=0), {"startTs": 0}), (Schedule(), {})],
    "message": [(MobilePush(), {"type": "MOBILE_PUSH"})],
    "buttons": [([ActionButton(label="x"), ActionButton()], [{"label": "x"}, {}]), ([], []), ((), [])],
    "category": [(ActionCategory(name="x"), {"name": "x"}), (ActionCategory(), {})],
    "components": [((ActionComponent(use_webview=False),), [{"useWebview": False}]), ([], [])],
}

TEXTUAL = [b"YQ==", decimal.Decimal(1), datetime.date(2020, 1, 1), uuid.UUID(int=1), msgspec.Raw(b'"x"')]
WRONG = {
    "string": [1, True, {"en": "x"}, ["x"], *TEXTUAL],
    "integer": ["1", 1.0, True, [1], 2**63, -(2**63) - 1, 2**64, 10**400, math.nan, decimal.Decimal(1)],
    "boolean": ["true", 1, 0, [True]],
    "map": ["x", ["x"], {"en": 1}, {"en": None}, {1: "x"}, {"en": {"en": "x"}}, *({"en": bad} for bad in TEXTUAL)],
    "segment": ["x", [], Segment(query=1), {"query": 1}],
    "schedule": ["x", [], Schedule(start_ts="1"), {"startTs": "1"}],
    "message": ["x", [], MobilePush(ttl="1"), {"ttl": "1"}],
    "buttons": ["x", {"label": "x"}, [1], [None], [ActionButton(label=1)], [{"label": 1}], {ActionButton()}],
    "category": ["x", [], ActionCategory(name=1)],
    "components": ["x", [1], [ActionComponent(use_webview="no")]],
}


def snake(name):
    return re.sub("[A-Z]", lambda match: "_" + match[0].lower(), name)


PARENTS = {
    ActionButton: (MobilePush, "androidActionButtons", [0]),
    ActionCategory: (MobilePush, "actionCategory", []),
    ActionComponent: (ActionCategory, "actionComponents", [0]),
    Segment: (CampaignRequest, "segment", []),
    Schedule: (CampaignRequest, "schedule", []),
}


def travel(value):
    """Return the JSON of a value inside the smallest request that can contain it, and its path there."""
    if type(value) in PARENTS:
        parent, name, index = PARENTS[type(value)]
        body, path = travel(parent(**{snake(name): [value] if index else value}))
        return (body[name][0], f"{path}.{name}[0]") if index else (body[name], f"{path}.{name}")
    if isinstance(value, MobilePush):
        return json.loads(encode_message(value)), "$.message"
    encode = encode_campaign if isinstance(value, CampaignRequest) else msgspec.json.encode
    return json.loads(encode(value)), "$"


ALWAYS = {MobilePush: {"type": "MOBILE_PUSH"}}
SENT = [model for model in INTERFACE if model is not PushRequest]
unwarned = pytest.mark.filterwarnings("ignore::pushsdk.MessageWarning")


def test_a_struct_has_exactly_the_fields_of_its_section_in_their_order():
    for model in INTERFACE:
        assert model.__struct_encode_fields__ == tuple(INTERFACE[model])
        assert model.__struct_fields__ == tuple(map(snake, INTERFACE[model]))


@unwarned
def test_a_field_goes_out_under_its_name_and_in_its_type_and_no_other():
    for model in INTERFACE:
        always = ALWAYS.get(model, {})
        assert travel(model())[0] == always
        for name, kind in INTERFACE[model].items():
            for value, expected in SAMPLES[kind]:
                body, _path = travel(model(**{snake(name): value}))
                assert body == always | {name: expected}
                assert type(body[name]) is type(expected)


def test_none_and_a_wrong_type_are_refused_by_their_path():
    for model in SENT:
        path = travel(model())[1]
        for name, kind in INTERFACE[model].items():
            for wrong in WRONG[kind]:
                with pytest.raises(ValidationError, match=rf"^{re.escape(path)}\.{name}"):
                    travel(model(**{snake(name): wrong}))
            with pytest.raises(ValidationError, match=rf"\.{name}: None can't be sent; leave the field out$"):
                travel(model(**{snake(name): None}))


@pytest.mark.parametrize(
    ("message", "text"),
    [
        (MobilePush(title={"en": 1}), "$.message.title.en: expected a str, got int"),
        (MobilePush(title={"en": b"x"}), "$.message.title.en: bytes is not JSON: pass a text or a number"),
        (MobilePush(title={1: "x"}), "$.message.title: a key is int"),
        (MobilePush(body={"\ud800": "x"}), "$.message.body: the text holds a lone surrogate"),
        (MobilePush(key_vals={"jane@roe.example": {1}}), "$.message.keyVals[...]: set is not JSON"),
        ({"ttl": math.nan}, "$.message.ttl: NaN and infinity are not JSON"),
        ({"ttl": 2**63}, "$.message.ttl: expected an int <="),
        ({"title": {"de": "a", "jane@roe.example": 7}}, "$.message.title[...]: expected a str, got int"),
        ({"androidActionButtons": [{}, {"label": 7}]}, "$.message.androidActionButtons[1].label: expected a str"),
        (CampaignRequest(), "message must be a MobilePush or a mapping, for example"),
    ],
)
def test_an_error_names_the_path_and_the_rule(message, text):
    with pytest.raises(ValidationError) as excinfo:
        encode_message(message)
    assert str(excinfo.value).startswith(text)


class TextEnum(enum.StrEnum):
    A = "x"


class OddEnum(str, enum.Enum):  # noqa: UP042 - a StrEnum refuses to be this odd
    """A str with a value, which msgspec would encode, that differs from its text."""

    def __new__(cls, text):
        self = str.__new__(cls, text)
        self._value_ = 17
        return self

    A = "x"


class Number(enum.IntEnum):
    ONE = 1


class SubText(str):
    pass


BUTTON = MobilePush(android_action_buttons=[ActionButton(label="x")])


@pytest.mark.parametrize(
    ("good", "bad"),
    [
        (MobilePush(title={"en": "1"}), MobilePush(title={"en": decimal.Decimal(1)})),
        (MobilePush(key_vals={"1": "a"}), MobilePush(key_vals={1: "a"})),
        (MobilePush(collapse_id="x", ttl=5), MobilePush(collapse_id=msgspec.Raw(b'"x","ttl":5'))),
        (BUTTON, MobilePush(android_action_buttons=[Data("x")])),
    ],
)
def test_a_bad_value_is_refused_after_a_good_message_of_the_same_bytes(good, bad):
    assert msgspec.json.encode(bad) == encode_message(good)
    for between in (good, MobilePush(ttl=7)):
        encode_message(between)
        for _ in range(2):
            with pytest.raises(ValidationError):
                encode_message(bad)
    assert encode_message(good)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (TextEnum.A, "x"), (OddEnum.A, "x"), (SubText("x"), "x"), ("ü€😀\0\u2028", "ü€😀\0\u2028"), (Number.ONE, 1),
        (2**64 - 1, 2**64 - 1), (-(2**63), -(2**63)), (1.5, 1.5), (True, True), (None, None), ((1, (2,)), [1, [2]]),
        ({SubText("a"): 1}, {"a": 1}), (types.MappingProxyType({"a": [1]}), {"a": [1]}), (nested(90), nested(90)),
        (ActionButton(label="x"), {"label": "x"}), ([shared := [1], shared], [[1], [1]]),
    ],
)  # fmt: skip
def test_what_json_has_is_taken_and_subclasses_as_their_text_or_number(value, expected):
    body = json.loads(encode_custom_fields({"a": value}))
    assert body == {"a": expected}
    assert type(body["a"]) is type(expected)
    assert json.loads(encode_message({"a": value})) == body


@pytest.mark.parametrize("bad", NOT_JSON, ids=lambda bad: type(bad).__name__)
def test_a_value_that_is_not_json_is_refused_at_any_depth_of_each_part_of_a_request(bad):
    for hidden in (bad, {"deep": [{"er": (bad,)}]}, types.MappingProxyType({"a": bad})):
        struct = MobilePush(title={"en": hidden})
        for path, encode, part in (
            ("custom_fields.here", encode_custom_fields, {"here": hidden}),
            ("$.message.here", encode_message, {"here": hidden}),
            ("$.message.title", encode_message, struct),
            ("$.here", encode_campaign, {"here": hidden}),
            ("$.message.title", encode_campaign, CampaignRequest(message=struct)),
        ):
            with pytest.raises(ValidationError, match=f"^{re.escape(path)}"):
                encode(part)


def test_a_subclass_of_the_message_may_add_fields():
    class Newer(MobilePush, frozen=True, kw_only=True):
        quiet_hours: bool = True

    assert json.loads(encode_message(Newer())) == {"type": "MOBILE_PUSH", "quietHours": True}
    with pytest.raises(ValidationError, match=r"^\$\.message\.quietHours: expected True or False, got str$"):
        encode_message(Newer(quiet_hours="x"))


TEXTS = st.text(st.characters(exclude_categories=["Cs"]))
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False, allow_infinity=False)
    | TEXTS,
    lambda inner: st.lists(inner) | st.dictionaries(TEXTS, inner),
    max_leaves=30,
)  # fmt: skip


class Walked(MobilePush, frozen=True):
    """A message that is checked in Python, as every subclass is."""


def outcome(encode, value):
    try:
        return encode(value)
    except ValidationError as error:
        return str(error)


ANYTHING = st.sampled_from(
    [*NOT_JSON, *(value for kind in SAMPLES.values() for value, _ in kind), *TEXTUAL, TextEnum.A]
)
VALUES = ANYTHING | JSON_VALUES | st.dictionaries(st.text(), ANYTHING) | st.dictionaries(st.integers(), st.text())


@unwarned
@given(st.sampled_from(MobilePush.__struct_fields__), VALUES)
def test_the_short_way_and_the_walk_agree_on_every_message(name, value):
    message = MobilePush(**{name: value})
    walked = Walked(**{name: value})
    assert outcome(encode_message, message) == outcome(encode_message, message) == outcome(encode_message, walked)


@unwarned
@given(st.sampled_from(MobilePush.__struct_encode_fields__), VALUES)
def test_the_short_way_and_the_walk_agree_on_every_mapping(name, value):
    fields = {"androidEnabled": True, "title": {"en": "x"}, name: value}
    walked = types.MappingProxyType(fields)
    assert outcome(encode_message, fields) == outcome(encode_message, walked)
    assert outcome(encode_custom_fields, fields) == outcome(encode_custom_fields, walked)


@pytest.mark.parametrize("bad", ["abc", bytearray(b"a"), {"a"}, None, iter("ab")])
def test_user_ids_are_a_sequence_and_not_a_text(bad):
    with pytest.raises(ValidationError, match=r"^user_ids: expected a sequence of str"):
        encode_user_ids(bad)


def test_a_message_with_a_collapse_id_is_collapsible_and_a_campaign_with_an_external_id_can_be_found():
    for message, expected in (({"collapseId": "x"}, True), ({"collapseId": ""}, False), ({"keyVals": {}}, False)):
        assert is_collapsible(encode_message(message)) is expected
    campaigns = (CampaignRequest(external_id="x"), CampaignRequest(), {"externalId": ""}, {"externalId": 1})
    assert [external_id(campaign) for campaign in campaigns] == ["x", None, None, None]


def test_a_created_campaign_is_read_and_later_fields_are_ignored():
    assert decode_campaign_created(b' {"uuid":"c-1","state":[1]} ') == CampaignCreated(uuid="c-1")
    huge = b'{"uuid":"c-1","n":' + b"9" * 10_000 + b"}"
    assert decode_campaign_created(huge) == CampaignCreated(uuid="c-1")


# -- misspelled names ------------------------------------------------------------------------------------------------


def warned(*messages, encode=encode_message):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for message in messages:
            encode(message)
    return [str(warning.message).removesuffix(" It is sent as it is") for warning in caught]


@pytest.mark.parametrize("form", [lambda message: message, MobilePush.to_dict])
def test_a_message_is_checked_for_typos_once_unless_it_is_large_or_many_came_after_it(form):
    texts = ["$.message.priority: unknown value, did you mean NORMAL?"]
    message = MobilePush(title={"en": f"{form}"}, ios_enabled=True, priority="normal")
    large = message.replace(body={"en": "x" * 20_000})
    others = [MobilePush(ios_enabled=True, title={"en": "}"}, ttl=number) for number in range(1025)]
    assert warned(form(message.replace(ttl=1)), encode=partial(encode_message, warn=False)) == []
    assert warned(form(message), form(message)) == texts
    twice = warned(form(large), form(message), form(large))
    assert [text for text in twice if "bytes" not in text] == texts * 2
    assert warned(*others, form(message)) == texts
