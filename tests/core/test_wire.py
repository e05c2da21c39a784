"""Encoding, checked field by field against the interface document, and values that must be rejected."""

import collections
import datetime
import decimal
import enum
import json
import math
import re
import types
import uuid
import warnings
from collections.abc import Callable

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.bad_values import NOT_JSON, Alien, Data, Plain, SubFloat, nested

from pushsdk._core import values, wire
from pushsdk._core.body import decode_user_ids, encode_user_ids, push_body
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
    "strings": ["ab", {"a": 1}, 1, ["a", 1]],
    "segment": ["x", [], Segment(query=1), {"query": 1}],
    "schedule": ["x", [], Schedule(start_ts="1"), {"startTs": "1"}],
    "message": ["x", [], MobilePush(ttl="1"), {"ttl": "1"}],
    "buttons": ["x", {"label": "x"}, [1], [None], [ActionButton(label=1)], [{"label": 1}], {ActionButton()}],
    "category": ["x", [], ActionCategory(name=1)],
    "components": ["x", [1], [ActionComponent(use_webview="no")]],
}


def snake(name):
    return re.sub("[A-Z]", lambda match: "_" + match[0].lower(), name)


def travel(value):
    """Return the JSON of a value inside the smallest request that can contain it, and its path there."""
    match value:
        case MobilePush():
            return json.loads(encode_message(value)), "$.message"
        case ActionButton():
            body, path = travel(MobilePush(android_action_buttons=[value]))
            return body["androidActionButtons"][0], f"{path}.androidActionButtons[0]"
        case ActionCategory():
            body, path = travel(MobilePush(action_category=value))
            return body["actionCategory"], f"{path}.actionCategory"
        case ActionComponent():
            body, path = travel(ActionCategory(action_components=[value]))
            return body["actionComponents"][0], f"{path}.actionComponents[0]"
        case Segment():
            return json.loads(encode_campaign(CampaignRequest(segment=value)))["segment"], "$.segment"
        case Schedule():
            return json.loads(encode_campaign(CampaignRequest(schedule=value)))["schedule"], "$.schedule"
        case CampaignRequest():
            return json.loads(encode_campaign(value)), "$"
        case _:
            return json.loads(msgspec.json.encode(value)), "$"


ALWAYS = {MobilePush: {"type": "MOBILE_PUSH"}}
ROWS = [(model, name, kind) for model, fields in INTERFACE.items() for name, kind in fields.items()]
SENT_ROWS = [row for row in ROWS if row[0] is not PushRequest]


@pytest.fixture(autouse=True)
def _no_message_is_known():
    wire._known.clear()
    wire._latest = (b"", MobilePush())


@pytest.mark.parametrize("model", INTERFACE)
def test_a_struct_has_exactly_the_fields_of_its_section_in_their_order(model):
    assert model.__struct_encode_fields__ == tuple(INTERFACE[model])
    assert model.__struct_fields__ == tuple(map(snake, INTERFACE[model]))


@pytest.mark.parametrize("model", INTERFACE)
def test_nothing_goes_out_that_was_not_set_but_the_message_type(model):
    assert travel(model())[0] == ALWAYS.get(model, {})


@pytest.mark.filterwarnings("ignore::pushsdk.MessageWarning")
@pytest.mark.parametrize(("model", "name", "kind"), ROWS)
def test_a_field_goes_out_under_its_name_and_in_its_type(model, name, kind):
    for value, expected in SAMPLES[kind]:
        for _ in range(2):
            body, _path = travel(model(**{snake(name): value}))
            assert body == ALWAYS.get(model, {}) | {name: expected}
            assert type(body[name]) is type(expected)


@pytest.mark.parametrize(("model", "name", "kind"), SENT_ROWS)
def test_a_wrong_type_is_refused_by_its_path(model, name, kind):
    path = travel(model())[1]
    for wrong in WRONG[kind]:
        with pytest.raises(ValidationError, match=r"^\$") as excinfo:
            travel(model(**{snake(name): wrong}))
        assert str(excinfo.value).startswith(f"{path}.{name}")


@pytest.mark.parametrize(("model", "name", "kind"), SENT_ROWS)
def test_none_in_a_field_is_refused_with_the_advice_to_leave_it_out(model, name, kind):
    path = travel(model())[1]
    with pytest.raises(ValidationError) as excinfo:
        travel(model(**{snake(name): None}))
    assert str(excinfo.value) == f"{path}.{name}: None can't be sent; leave the field out"


@pytest.mark.parametrize(
    ("message", "text"),
    [
        (MobilePush(ttl="soon"), "$.message.ttl: expected an int, got str"),
        (MobilePush(title={"en": 1}), "$.message.title.en: expected a str, got int"),
        ({"androidActionButtons": {}}, "$.message.androidActionButtons: expected a list, got mapping"),
        (
            MobilePush(title={"en": b"x"}),
            "$.message.title.en: bytes is not JSON: pass a text or a number",
        ),
        (
            MobilePush(ttl=datetime.timedelta(1)),
            "$.message.ttl: timedelta is not JSON: pass a text or a number",
        ),
        (MobilePush, "message must be a MobilePush or a mapping, for example"),
        (MobilePush(title={1: "x"}), "$.message.title: a key is int"),
        (MobilePush(body={"en": "\ud800"}), "$.message.body.en: the text holds a lone surrogate"),
        (MobilePush(body={"\ud800": "x"}), "$.message.body: the text holds a lone surrogate"),
        (MobilePush(key_vals={"jane@roe.example": {1}}), "$.message.keyVals[...]: set is not JSON"),
        ({"ttl": math.nan}, "$.message.ttl: NaN and infinity are not JSON"),
        (None, "message must be a MobilePush or a mapping, for example"),
        ("{}", "message must be a MobilePush or a mapping, for example"),
        ([], "message must be a MobilePush or a mapping, for example"),
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


@pytest.mark.parametrize(
    ("good", "bad"),
    [
        (MobilePush(title={"en": "1"}), MobilePush(title={"en": decimal.Decimal(1)})),
        (MobilePush(title={"en": "YQ=="}), MobilePush(title={"en": b"a"})),
        (MobilePush(title={"en": "YQ=="}), MobilePush(title={"en": bytearray(b"a")})),
        (MobilePush(title={"en": "YQ=="}), MobilePush(title={"en": memoryview(b"a")})),
        (MobilePush(title={"en": "x"}), MobilePush(title={"en": Plain.A})),
        (MobilePush(title={"en": "x"}), MobilePush(title={"en": msgspec.Raw(b'"x"')})),
        (MobilePush(title={"en": "2020-01-01"}), MobilePush(title={"en": datetime.date(2020, 1, 1)})),
        (MobilePush(title={"en": "P1D"}), MobilePush(title={"en": datetime.timedelta(1)})),
        (MobilePush(title={"en": str(uuid.UUID(int=1))}), MobilePush(title={"en": uuid.UUID(int=1)})),
        (MobilePush(key_vals={"1": "a"}), MobilePush(key_vals={1: "a"})),
        (MobilePush(key_vals={"x": "a"}), MobilePush(key_vals={Plain.A: "a"})),
        (MobilePush(key_vals={"2020-01-01": "a"}), MobilePush(key_vals={datetime.date(2020, 1, 1): "a"})),
        (MobilePush(collapse_id="1"), MobilePush(collapse_id=decimal.Decimal(1))),
        (MobilePush(collapse_id="x"), MobilePush(collapse_id=Plain.A)),
        (MobilePush(collapse_id="x", ttl=5), MobilePush(collapse_id=msgspec.Raw(b'"x","ttl":5'))),
        (
            MobilePush(android_action_buttons=[ActionButton(label="x")]),
            MobilePush(android_action_buttons={ActionButton(label="x")}),
        ),
        (
            MobilePush(android_action_buttons=[ActionButton(label="x")]),
            MobilePush(android_action_buttons=[Data("x")]),
        ),
        (
            MobilePush(android_action_buttons=[ActionButton(label="x")]),
            MobilePush(android_action_buttons=[Alien("x")]),
        ),
        (
            MobilePush(android_action_buttons=[ActionButton(key_vals={"1": "x"})]),
            MobilePush(android_action_buttons=[ActionButton(key_vals={1: "x"})]),
        ),
    ],
)
def test_a_bad_value_is_refused_after_a_good_message_of_the_same_bytes(good, bad):
    assert msgspec.json.encode(bad) == encode_message(good)
    assert wire._known
    for between in (good, MobilePush(ttl=7)):
        encode_message(between)
        for _ in range(2):
            with pytest.raises(ValidationError):
                encode_message(bad)
    assert encode_message(good)


def test_the_bytes_of_the_same_message_are_made_once():
    first, second = (encode_message(MobilePush(title={"en": "x"})) for _ in range(2))
    assert first is second


def test_a_dict_that_turns_bad_after_it_was_sent_is_refused():
    title = {"en": "1"}
    message = MobilePush(title=title)
    assert encode_message(message)
    title["en"] = decimal.Decimal(1)
    with pytest.raises(ValidationError):
        encode_message(message)
    title["en"] = "2"
    assert encode_message(message) == b'{"type":"MOBILE_PUSH","title":{"en":"2"}}'


def test_the_known_messages_are_bounded_in_number_and_size():
    for number in range(wire._MAX_KNOWN + 1):
        encode_message(MobilePush(ttl=number))
    assert len(wire._known) == 1
    large = MobilePush(title={"en": "x" * 20_000})
    assert encode_message(large) == encode_message(large)
    assert len(wire._known) == 1


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (TextEnum.A, "x"), (OddEnum.A, "x"), (SubText("x"), "x"), ("ü€😀", "ü€😀"), ("\0\u2028", "\0\u2028"),
        (Number.ONE, 1), (2**64 - 1, 2**64 - 1), (-(2**63), -(2**63)), (1.5, 1.5), (SubFloat(1.5), 1.5),
        (True, True), (None, None), ((1, (2,)), [1, [2]]), ([], []), ({}, {}), ({SubText("a"): 1}, {"a": 1}),
        (collections.OrderedDict(a=1), {"a": 1}), (types.MappingProxyType({"a": [1]}), {"a": [1]}),
        (collections.ChainMap({"a": 1}), {"a": 1}), (nested(90), nested(90)),
        (ActionButton(label="x"), {"label": "x"}),
    ],
)  # fmt: skip
def test_what_json_has_is_taken_and_subclasses_as_their_text_or_number(value, expected):
    body = json.loads(encode_custom_fields({"a": value}))
    assert body == {"a": expected}
    assert type(body["a"]) is type(expected)
    assert json.loads(encode_message({"a": value})) == body


@pytest.mark.parametrize("text", [TextEnum.A, OddEnum.A, SubText("x")])
def test_a_subclass_of_str_is_its_text_in_a_struct_too(text):
    for _ in range(2):
        assert json.loads(encode_message(MobilePush(collapse_id=text, title={text: text}), warn=False)) == {
            "type": "MOBILE_PUSH",
            "title": {"x": "x"},
            "collapseId": "x",
        }


def test_a_mapping_of_another_kind_is_taken_in_a_struct():
    message = MobilePush(title=types.MappingProxyType({"en": "x"}), ttl=Number.ONE)
    assert json.loads(encode_message(message)) == {"type": "MOBILE_PUSH", "title": {"en": "x"}, "ttl": 1}


def test_a_mapping_goes_out_as_it_is():
    message = types.MappingProxyType({"newField": [1, None], "title": {"en": "x"}, "ttl": 1})
    assert encode_message(message) == b'{"newField":[1,null],"title":{"en":"x"},"ttl":1}'
    assert encode_message({}) == b"{}"
    assert encode_campaign({"message": message}) == b'{"message":' + encode_message(message) + b"}"


@pytest.mark.parametrize(
    ("message", "words"),
    [
        ({"ttl": "soon"}, r"^\$\.message\.ttl: expected an int, got str$"),
        ({"title": {"de": "a", "pt-BR": 7}}, r"^\$\.message\.title\.pt-BR: expected a str, got int$"),
        ({"body": {"jane@roe.example": 7}}, r"^\$\.message\.body\[\.\.\.\]: expected a str, got int$"),
        ({"androidActionButtons": [{"url": "a"}, {"label": 7}]}, r"androidActionButtons\[1\]\.label: expected a str"),
        ({"actionCategory": {"actionComponents": [{"useWebview": "user-1"}]}}, r"useWebview: expected True or False"),
        ({"badgeCount": True}, "badgeCount: expected an int, got bool"),
        ({"collapseId": None}, "collapseId: expected a str, got None"),
        ({"ttl": 2**63}, "ttl: expected an int <="),
    ],
)
def test_a_mappings_types_are_checked_like_a_structs(message, words):
    for encode, at in ((encode_message, message), (encode_campaign, {"message": message})):
        with pytest.raises(ValidationError, match=words) as excinfo:
            encode(at)
        assert "user-1" not in str(excinfo.value)


def test_a_campaigns_own_fields_are_checked_in_a_mapping_too():
    with pytest.raises(ValidationError, match=r"^\$\.schedule\.startTs: expected an int, got str$"):
        encode_campaign({"schedule": {"startTs": "now"}})


def test_fields_that_this_version_does_not_know_pass_in_a_mapping_at_every_level():
    message = {"later": None, "androidActionButtons": [{"label": "a", "later": [1.5, None]}], "ttl": 1}
    assert encode_message(message) == msgspec.json.encode(message)


def test_a_struct_inside_a_mapping_is_checked_for_its_types():
    assert json.loads(encode_campaign({"message": MobilePush(ttl=1)}))["message"]["ttl"] == 1
    with pytest.raises(ValidationError, match=r"^\$\.message\.ttl: expected an int"):
        encode_campaign({"message": MobilePush(ttl="1")})


def test_a_subclass_of_the_message_may_add_fields():
    class Newer(MobilePush, frozen=True, kw_only=True):
        quiet_hours: bool = True

    assert json.loads(encode_message(Newer())) == {"type": "MOBILE_PUSH", "quietHours": True}
    with pytest.raises(ValidationError, match=r"^\$\.message\.quietHours: expected True or False, got str$"):
        encode_message(Newer(quiet_hours="x"))


def test_the_same_list_twice_is_no_cycle():
    shared = [1]
    assert encode_custom_fields({"a": shared, "b": shared}) == b'{"a":[1],"b":[1]}'


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner),
    max_leaves=30,
)  # fmt: skip


# Names that no field of the interface has, or nearly has.
@given(st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])).map(("=" * 20).__add__), JSON_VALUES))
def test_custom_fields_come_back_as_they_went(fields):
    assert json.loads(encode_custom_fields(fields)) == fields
    assert msgspec.json.decode(encode_custom_fields(fields)) == fields
    assert encode_message(fields) == encode_custom_fields(fields)


ANYTHING = st.sampled_from(
    [*NOT_JSON, *(value for kind in SAMPLES.values() for value, _ in kind), *TEXTUAL, TextEnum.A]
)


@pytest.mark.filterwarnings("ignore::pushsdk.MessageWarning")
@given(st.sampled_from(MobilePush.__struct_fields__), ANYTHING | st.dictionaries(st.text(), ANYTHING))
def test_the_short_way_and_the_walk_agree_on_every_message(name, value):
    message = MobilePush(**{name: value})

    def outcome(encode):
        try:
            return encode(message)
        except ValidationError as error:
            return str(error)

    walked = outcome(lambda message: wire._encode_checked(message, MobilePush, ("message",)))
    assert outcome(encode_message) == outcome(encode_message) == walked


@pytest.mark.filterwarnings("ignore::pushsdk.MessageWarning")
@given(
    st.sampled_from(MobilePush.__struct_encode_fields__),
    ANYTHING | JSON_VALUES | st.dictionaries(st.text(), ANYTHING) | st.dictionaries(st.integers(), st.text()),
)
def test_the_short_way_and_the_walk_agree_on_every_dict(name, value):
    def outcome(encode):
        try:
            return encode({"androidEnabled": True, "body": {"en": "x"}, "title": {"en": "x"}, name: value})
        except ValidationError as error:
            return str(error)

    walked = outcome(lambda message: wire._encode_checked(message, MobilePush, ("message",)))
    assert outcome(encode_message) == walked


@given(ANYTHING | JSON_VALUES | st.dictionaries(st.text(), ANYTHING))
def test_the_short_way_and_the_walk_agree_on_all_custom_fields(value):
    def outcome(encode):
        try:
            return encode()
        except ValidationError as error:
            return str(error)

    walked = outcome(lambda: msgspec.json.encode(values.plain({"a": value}, ("custom_fields",))))
    assert outcome(lambda: encode_custom_fields({"a": value})) == walked


@pytest.mark.parametrize(
    ("user_ids", "expected"),
    [
        (["a"], b'"a"'),
        (("a", 'q"\\\n', "ü"), '"a","q\\"\\\\\\n","ü"'.encode()),
        ([], b""),
        ([TextEnum.A, SubText("s"), OddEnum.A], b'"x","s","x"'),
        (collections.deque(["a"]), b'"a"'),
        (collections.UserList(["a"]), b'"a"'),
    ],
)
def test_user_ids_are_a_json_array_in_their_order_without_its_brackets(user_ids, expected):
    assert encode_user_ids(user_ids) == expected


@pytest.mark.parametrize(
    "bad", ["abc", b"abc", bytearray(b"a"), memoryview(b"a"), {"a"}, {"a": 1}, None, 1, iter("ab")]
)
def test_user_ids_are_a_sequence_and_not_a_text(bad):
    with pytest.raises(ValidationError, match=r"^user_ids: expected a sequence of str"):
        encode_user_ids(bad)


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]), min_size=1)))
def test_user_ids_come_back_as_they_went(user_ids):
    assert json.loads(b"[%b]" % encode_user_ids(user_ids)) == decode_user_ids(encode_user_ids(user_ids)) == user_ids


def test_a_push_body_is_its_parts_put_together():
    assert push_body(b'"a"', b'{"ttl":1}', None) == b'{"userIds":["a"],"message":{"ttl":1}}'
    assert push_body(b'"a"', b"{}", b"{}") == b'{"userIds":["a"],"message":{},"customFields":{}}'


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (MobilePush(collapse_id="x"), True),
        (MobilePush(collapse_id=""), False),
        (MobilePush(), False),
        ({"collapseId": "x"}, True),
        ({"collapseId": ""}, False),
        ({"otherId": "x"}, False),
        ({"keyVals": {"collapseId": "x"}}, False),
        ({}, False),
    ],
)
def test_a_message_with_a_collapse_id_is_collapsible(message, expected):
    assert is_collapsible(encode_message(message)) is expected


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        (CampaignRequest(external_id="x"), "x"),
        (CampaignRequest(external_id=""), None),
        (CampaignRequest(), None),
        ({"externalId": "x"}, "x"),
        ({"externalId": 1}, None),
        ({}, None),
    ],
)
def test_the_external_id_of_a_campaign_is_read(request_, expected):
    assert external_id(request_) == expected


def test_a_created_campaign_is_read_and_later_fields_are_ignored():
    assert decode_campaign_created(b' {"uuid":"c-1","state":[1]} ') == CampaignCreated(uuid="c-1")
    huge = b'{"uuid":"c-1","n":' + b"9" * 10_000 + b"}"
    assert decode_campaign_created(huge) == CampaignCreated(uuid="c-1")


@pytest.mark.parametrize(
    "body",
    [
        b"", b"null", b"[]", b"{}", b'{"uuid":null}', b'{"uuid":1}', b'{"uuid":""}', b'{"uuid":"a"', b"<html>", b"\xff",
        b'{"uuid":"\xff"}', b'{"uuid":"\\ud800"}', b'{"uuid":"a","x":' + b"[" * 100_000, b"[" * 100_000,
        b'{"a":' * 100_000, b'{"UUID":"a"}', b'{"uuid":"a"} x',
    ],
    ids=lambda body: body[:12],
)  # fmt: skip
def test_an_answer_without_a_readable_uuid_is_no_created_campaign(body):
    assert decode_campaign_created(body) is None


# -- misspelled names ------------------------------------------------------------------------------------------------


def warned(send: Callable[[], object]) -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        send()
    return [str(warning.message) for warning in caught]


def test_a_misspelled_name_of_a_mapping_is_sent_and_warned_about() -> None:
    message = {"titel": {"en": "Hi"}, "ios_enabled": 1, "androidEnabled": True, "user-17": 1, "brandNew": 2, "ttl": 3}
    assert warned(lambda: wire.encode_message(message)) == [
        "$.message.titel: unknown field, did you mean title? It is sent as it is",
        "$.message.ios_enabled: unknown field, did you mean iosEnabled? It is sent as it is",
    ]
    with pytest.warns(UserWarning, match="did you mean"):
        assert json.loads(wire.encode_message(message)) == message


@pytest.mark.parametrize("form", [lambda message: message, MobilePush.to_dict])
def test_a_misspelled_value_is_sent_and_warned_about_once(form: Callable[[MobilePush], object]) -> None:
    texts = ["$.message.priority: unknown value, did you mean NORMAL? It is sent as it is"]
    message = MobilePush(title={"en": "Hi"}, ios_enabled=True, priority="normal")
    assert warned(lambda: wire.encode_message(form(message))) == texts
    assert warned(lambda: wire.encode_message(form(message))) == []
    assert warned(lambda: wire.encode_message(form(message.replace(priority="HIGH", action="DEFAULT")))) == []


def test_misspelled_names_are_found_at_every_level() -> None:
    buttons = [{"label": "a"}, {"lable": "b"}]
    button = {"iosEnabled": True, "androidActionButtons": buttons, "actionCategory": {"actionComponents": []}}
    assert warned(lambda: wire.encode_message(button)) == [
        "$.message.androidActionButtons[1].lable: unknown field, did you mean label? It is sent as it is"
    ]
    message = {"body ": {}, "iosEnabled": True}
    campaign = {"externalid": "a", "segment": {"query": "q"}, "message": message, "schedule": {"startTS": 1}}
    assert warned(lambda: wire.encode_campaign(campaign)) == [
        "$.externalid: unknown field, did you mean externalId? It is sent as it is",
        "$.schedule.startTS: unknown field, did you mean startTs? It is sent as it is",
        "$.message[...]: unknown field, did you mean body? It is sent as it is",
    ]


def test_the_same_misspelled_name_is_shown_once() -> None:
    messages = [{"titel": {"en": str(number)}, "iosEnabled": True} for number in range(100)]
    assert len(warned(lambda: [wire.encode_message(message) for message in messages])) == 1


def test_a_right_mapping_has_no_warning() -> None:
    buttons = [{"label": "a", "keyVals": {"lable": "x"}}]
    parts = {"androidActionButtons": buttons, "actionCategory": {"actionComponents": ()}}
    message = {"title": {"de": "Hi"}, "androidEnabled": True, **parts}
    assert warned(lambda: wire.encode_message(message)) == []
    assert warned(lambda: wire.encode_campaign({"name": "a", "segment": {"query": "b"}, "message": message})) == []
