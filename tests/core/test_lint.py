"""Lint rules: each rule finds its case, a good message has no problems, and nothing raises."""

from types import MappingProxyType

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pushsdk._core.errors import ValidationError
from pushsdk._core.lint import RULES, is_plain, lint, nodes, problems
from pushsdk._core.models import (
    UNSET,
    ActionButton,
    ActionCategory,
    ActionComponent,
    CampaignRequest,
    MobilePush,
    Model,
    Schedule,
    Segment,
)
from pushsdk._core.placeholders import placeholder

GOOD = {
    "iosEnabled": True,
    "androidEnabled": True,
    "title": {"en": f"Hi {placeholder('first_name', 'there')}", "de": "Hallo"},
    "subtitle": {},
    "body": {"en": "Here", "de": "Da"},
    "ttl": 0,
    "priority": "NORMAL",
    "androidActionUrl": "myapp://home",
    "bigImageUrl": "https://images.example/1.png",
    "androidActionButtons": [{"label": "Open", "url": "{{ link | 'https://shop.example' }}"}],
    "actionCategory": {"actionComponents": [{"actionId": "a", "url": "https://shop.example"}]},
}
CAMPAIGN = {"name": "spring", "externalId": "a", "segment": {"query": "q"}, "message": GOOD}

# (change to the good message, code, path)
CASES = [
    ({"android_enabled": True}, "near-name", "$.message.android_enabled"),
    ({"tittle": {}}, "near-name", "$.message.tittle"),
    ({"link": "myapp://home"}, "unknown-field", "$.message.link"),
    ({"androidActionButtons": [{"label": "x", "Url": "y:"}]}, "near-name", "$.message.androidActionButtons[0].Url"),
    ({"priority": "Normal"}, "near-value", "$.message.priority"),
    (
        {"actionCategory": {"actionComponents": [{"clickAction": "deep-linking"}]}},
        "near-value",
        "$.message.actionCategory.actionComponents[0].clickAction",
    ),
    ({"iosActionUrl": "/home"}, "relative-url", "$.message.iosActionUrl"),
    ({"bigImageUrl": "www.example.com/a.png"}, "relative-image", "$.message.bigImageUrl"),
    ({"ttl": -1}, "negative-number", "$.message.ttl"),
    ({"iosEnabled": False, "androidEnabled": False}, "no-platform", "$.message"),
    ({"androidEnabled": False}, "platform-off", "$.message.androidActionButtons"),
    ({"title": {}, "body": {"en": "  "}}, "no-text", "$.message"),
    ({"body": {"en": "Here", "de": "x" * 4096}}, "too-large", "$.message"),
    ({"title": {"en": "Hi"}}, "languages-differ", "$.message.body"),
    ({"title": {"english": "Hi"}, "body": {"english": "Hi"}}, "language-code", "$.message.title.english"),
    ({"subtitle": {"fr": "Ici"}}, "subtitle-language", "$.message.subtitle"),
    ({"title": {"en": "{{ x }}", "de": ""}}, "malformed-placeholder", "$.message.title.en"),
    ({"androidActionButtons": [{"url": "a:"}]}, "no-label", "$.message.androidActionButtons[0]"),
    ({"title": "Hello"}, "wrong-type", "$.message.title"),
]
OF_A_CAMPAIGN = {"externalId": "no-external-id", "segment": "no-segment", "message": "no-message"}


def test_each_rule_finds_its_case_in_a_message_alone_and_in_a_campaign():
    for change, code, path in CASES:
        message = GOOD | change
        assert (code, path) in {(problem.code, problem.path) for problem in lint(message)}
        assert lint(CAMPAIGN | {"message": message}) == lint(message)


@pytest.mark.parametrize(("name", "code"), OF_A_CAMPAIGN.items())
def test_a_campaign_is_questioned_that_lacks_a_part(name, code):
    campaign = {known: value for known, value in CAMPAIGN.items() if known != name}
    assert [(problem.code, problem.path) for problem in lint(campaign)] == [(code, "$")]


def test_every_rule_has_a_case():
    assert {rule.code for rule in RULES} | {"wrong-type"} == {code for _, code, _ in CASES} | {*OF_A_CAMPAIGN.values()}


def test_what_may_be_right_is_not_questioned():
    for message in [
        GOOD,
        CAMPAIGN,
        {"iosEnabled": True, "contentAvailable": True},
        # Each language, and each platform's fields, are in a push of their own.
        GOOD | {"title": {"en": "a", "de": "b"}, "body": {"en": "x" * 3000, "de": "x" * 3000}},
        GOOD | {"androidActionUrl": "a:" + "x" * 2500, "iosActionUrl": "a:" + "x" * 1000},
        {"userIds": ["a"], "message": GOOD, "customFields": {"titel": 1}},
        CampaignRequest(
            external_id="c",
            segment=Segment(query="SELECT 1"),
            schedule=Schedule(type="LATER"),
            message=MobilePush(
                ios_enabled=True,
                title={"en": "Hi"},
                action_category=ActionCategory(action_components=[ActionComponent(url="app:open")]),
            ),
        ),
    ]:
        assert lint(message) == []


@pytest.mark.parametrize(
    ("change", "start"),
    [
        ({"androidActionUrl": "a:" + "x" * 4000, "iosEnabled": False}, "the push in de, en has about 4,"),
        ({"title": {}, "body": {}, "keyVals": {"a": "x" * 4096}, "contentAvailable": True}, "the push has about 4,"),
    ],
)
def test_a_push_that_is_too_large_for_a_phone_is_named_with_its_size(change, start):
    (found,) = [problem.message for problem in lint(GOOD | change) if problem.code == "too-large"]
    assert found.startswith(start)


@pytest.mark.parametrize(
    ("subject", "path", "text"),
    [
        (
            GOOD | {"customFields": 1},
            "$.message.customFields",
            "unknown field, it belongs beside the message: send(..., custom_fields=...)",
        ),
        (
            CAMPAIGN | {"userIds": ["ann"]},
            "$.userIds",
            "unknown field, a campaign has no users: its segment chooses them",
        ),
        (
            GOOD | {"title": {"en": "", "de": "", "fr": "", "Jane Roe": ""}},
            "$.message.body",
            "title and body are not in the same languages: only one is in ..., fr",
        ),
    ],
)
def test_the_advice_has_the_place_and_never_a_text(subject, path, text):
    found = {problem.path: problem for problem in lint(subject)}
    assert found[path].message == text
    assert "Jane" not in repr(found)


def test_json_of_another_form_has_no_nodes():
    assert nodes([], MobilePush) == []


class Ambiguous:
    def __bool__(self):
        raise TypeError("neither true nor false")


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary() | st.just(UNSET)
    | st.builds(Ambiguous),
    lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.integers(), inner) | st.tuples(inner),
    max_leaves=8,
)  # fmt: skip
NAMES = sorted({name for model in Model.__subclasses__() for name in model.__struct_encode_fields__})


@given(st.dictionaries(st.sampled_from(NAMES) | st.text() | st.integers(), VALUES))
def test_no_mapping_makes_it_raise(subject):
    assert isinstance(lint(subject), list)
    assert isinstance(lint(MappingProxyType({"message": subject})), list)


@pytest.mark.parametrize("subject", [None, "message.json", []])
def test_what_is_no_resource_at_all_is_refused(subject):
    with pytest.raises(ValidationError, match=r"^lint takes a message, a campaign or a mapping; got "):
        lint(subject)


WORDS = [
    "NORMAL",
    "Normal",
    "DEFAULT",
    "SCORE_MAX",
    "MOBILE_PUSH",
    "MOBILE",
    "https://a.example/b",
    "/a.png",
    '":true',
    "",
]
PIECES = st.sampled_from(["Hi", " ", "\u3000", "あ", "é", "\u2003", "\n", '"', "\\", "{", "}}", "x" * 999])
TEXT = st.lists(PIECES, max_size=5).map("".join)
MAPS = st.dictionaries(st.sampled_from(["en", "pt-BR", "de_DE", "english", "iosEnabled", '"']), TEXT, max_size=2)
SWITCHES = {"ios_enabled", "android_enabled", "content_available"}
FIELDS = {
    **dict.fromkeys(MobilePush.__struct_fields__, st.sampled_from(WORDS) | TEXT),
    **dict.fromkeys(["title", "subtitle", "body", "key_vals"], MAPS),
    **dict.fromkeys(SWITCHES, st.booleans()),
    **dict.fromkeys(["ttl", "badge_count"], st.integers(-2, 99)),
    "android_action_buttons": st.just([ActionButton(click_action="deep-linking")]),
    "action_category": st.just(ActionCategory(type="predefined-category")),
}
PLAIN = {"title": {"en": "Hi"}, "ios_enabled": True}


@given(st.sampled_from([{}, PLAIN]), st.lists(st.sampled_from([*FIELDS]), max_size=4), st.data())
def test_a_plain_message_has_nothing_to_warn_of(base, names, data):
    message = MobilePush(**base | {name: data.draw(FIELDS[name]) for name in names})
    found = problems(message.to_dict(), MobilePush, (), only_warned=True)
    assert not (found and is_plain(msgspec.json.encode(message)))
