"""Lint rules: each rule finds its case, a good message has no problems, and nothing raises."""

from types import MappingProxyType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pushsdk._core.errors import ValidationError
from pushsdk._core.lint import RULES, Problem, lint, nodes
from pushsdk._core.models import (
    UNSET,
    ActionButton,
    ActionCategory,
    ActionComponent,
    CampaignRequest,
    MobilePush,
    Model,
    PushRequest,
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


def told(subject):
    return {(problem.code, problem.path) for problem in lint(subject)}


# (change to the good message, code, path)
CASES = [
    ({"androidEnable": True}, "near-name", "$.message.androidEnable"),
    ({"android_enabled": True}, "near-name", "$.message.android_enabled"),
    ({"tittle": {}}, "near-name", "$.message.tittle"),
    ({"androidActionButtons": [{"label": "x", "Url": "y:"}]}, "near-name", "$.message.androidActionButtons[0].Url"),
    ({"priority": "Normal"}, "near-value", "$.message.priority"),
    ({"type": "mobile push"}, "near-value", "$.message.type"),
    ({"relevanceScore": "SCOREMAX"}, "near-value", "$.message.relevanceScore"),
    (
        {"actionCategory": {"actionComponents": [{"clickAction": "deep-linking"}]}},
        "near-value",
        "$.message.actionCategory.actionComponents[0].clickAction",
    ),
    ({"iosActionUrl": "/home"}, "relative-url", "$.message.iosActionUrl"),
    ({"bigImageUrl": "www.example.com/a.png"}, "relative-image", "$.message.bigImageUrl"),
    ({"richMediaUrl": ""}, "relative-image", "$.message.richMediaUrl"),
    ({"androidActionButtons": ({"label": "x", "url": "x"},)}, "relative-url", "$.message.androidActionButtons[0].url"),
    ({"ttl": -1}, "negative-number", "$.message.ttl"),
    ({"badgeCount": -1}, "negative-number", "$.message.badgeCount"),
    ({"iosEnabled": False, "androidEnabled": False}, "no-platform", "$.message"),
    ({"androidEnabled": False}, "platform-off", "$.message.androidActionUrl"),
    ({"androidEnabled": False}, "platform-off", "$.message.androidActionButtons"),
    ({"iosEnabled": False, "iosActionUrl": "a:b"}, "platform-off", "$.message.iosActionUrl"),
    ({"title": {}, "body": {"en": "  "}}, "no-text", "$.message"),
    ({"title": {"en": "Hi"}}, "languages-differ", "$.message.body"),
    ({"title": {"english": "Hi"}, "body": {"english": "Hi"}}, "language-code", "$.message.title.english"),
    ({"subtitle": {"fr": "Ici"}}, "subtitle-language", "$.message.subtitle"),
    ({"title": {"en": "{{ x }}", "de": ""}}, "malformed-placeholder", "$.message.title.en"),
    ({"title": {"en": "Hi {first_name}", "de": ""}}, "malformed-placeholder", "$.message.title.en"),
    ({"androidActionButtons": [{"url": "a:"}]}, "no-label", "$.message.androidActionButtons[0]"),
]


@pytest.mark.parametrize(("change", "code", "path"), CASES)
def test_each_rule_finds_its_case(change, code, path):
    assert (code, path) in told(GOOD | change)


def test_a_flag_that_is_left_out_counts_as_false():
    assert told({"title": {"en": "Hi"}, "iosActionUrl": "a:b"}) == {
        ("no-platform", "$.message"),
        ("platform-off", "$.message.iosActionUrl"),
    }


def test_every_rule_has_a_case():
    assert {rule.code for rule in RULES} == {code for _, code, _ in CASES} | {
        "no-external-id",
        "no-segment",
        "no-message",
    }


@pytest.mark.parametrize(
    "message",
    [
        GOOD,
        {"iosEnabled": True, "contentAvailable": True},
        GOOD | {"quietHours": True, "x" * 1000: 1},
        GOOD | {"priority": "HIGH", "relevanceScore": "SCORE_MIN"},
        Segment(),
    ],
    ids=["good", "silent", "a new field", "a new value", "another struct"],
)
def test_what_may_be_right_is_not_questioned(message):
    assert lint(message) == []


def test_a_good_struct_hears_nothing():
    message = MobilePush(
        ios_enabled=True,
        android_enabled=True,
        title={"en": "Hi"},
        body={"en": "Here"},
        android_action_buttons=[ActionButton(label="Open", url="app:open")],
        action_category=ActionCategory(action_components=[ActionComponent(url="app:open")]),
    )
    assert lint(message) == []
    segment, schedule = Segment(query="SELECT 1"), Schedule(type="LATER")
    assert lint(CampaignRequest(external_id="c", segment=segment, schedule=schedule, message=message)) == []
    assert lint(PushRequest(user_ids=["a"], message=message)) == []


def test_lint_of_a_campaign_covers_its_missing_external_id_and_its_message():
    campaign = CampaignRequest(schedule=Schedule(type="start_now", start_ts=-1), message=MobilePush(ttl=-1))
    assert told(campaign) >= {
        ("no-external-id", "$"),
        ("no-segment", "$"),
        ("near-value", "$.schedule.type"),
        ("negative-number", "$.schedule.startTs"),
        ("negative-number", "$.message.ttl"),
    }


def test_a_campaign_without_a_message_is_questioned():
    assert ("no-message", "$") in told({"name": "spring", "segment": {}, "schedule": {}})


def test_a_mapping_is_known_for_a_campaign_or_a_push_by_its_names():
    assert ("no-external-id", "$") in told({"name": "spring", "segment": {}, "message": GOOD})
    assert lint({"userIds": ["a"], "message": GOOD, "customFields": {"titel": 1}}) == []
    assert lint({"external_id": "a", "name": "n", "message": GOOD})[0].message == (
        "unknown field, did you mean externalId?"
    )


def test_a_language_that_is_no_code_is_not_shown():
    problem, other = lint(GOOD | {"subtitle": {"Jane Roe": "x", "fr": "y"}})
    assert (problem.path, problem.code) == ("$.message.subtitle[...]", "language-code")
    assert other == Problem(
        path="$.message.subtitle",
        code="subtitle-language",
        message="the subtitle is in languages that the title is not in: ..., fr",
    )


def test_other_structs_are_taken_too():
    assert told(ActionButton(url="x")) == {("no-label", "$"), ("relative-url", "$.url")}


def test_a_list_that_holds_its_message_ends():
    buttons = []
    message = MobilePush(android_action_buttons=buttons)
    buttons.append(message)
    ((code, _),) = told(message)
    assert code == "wrong-type"


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


@given(st.sampled_from(Model.__subclasses__()), st.data())
def test_no_struct_makes_it_raise(model, data):
    names = data.draw(st.lists(st.sampled_from(model.__struct_fields__), unique=True))
    assert isinstance(lint(model(**{name: data.draw(VALUES) for name in names})), list)


@pytest.mark.parametrize("subject", [None, 1, "message.json", [], object()])
def test_what_is_no_resource_at_all_is_refused(subject):
    with pytest.raises(ValidationError, match=r"^lint takes a message, a campaign or a mapping; got "):
        lint(subject)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("badge", "unknown field, did you mean badgeCount?"),
        ("data", "unknown field, did you mean keyVals?"),
        ("customFields", "unknown field, it belongs beside the message: send(..., custom_fields=...)"),
    ],
)
def test_a_name_of_other_services_has_ours(name, text):
    ((found),) = lint(GOOD | {name: 1})
    assert (found.code, found.message) == ("near-name", text)


def test_a_campaign_has_no_users():
    found = lint({"name": "a", "externalId": "b", "segment": {"query": "c"}, "message": GOOD, "userIds": ["ann"]})
    text = "unknown field, a campaign has no users: its segment chooses them"
    assert [problem.message for problem in found] == [text]


def test_a_wrong_type_is_the_only_advice():
    text = 'expected a mapping, got str, for example {"en": "Hello"}'
    assert lint({"title": "Hello", "iosEnabled": True}) == [
        Problem(path="$.message.title", code="wrong-type", message=text)
    ]


def test_a_json_value_of_another_form_has_no_nodes():
    assert nodes([], MobilePush) == []
    assert [node.path for node in nodes({"androidActionButtons": [1, {}]}, MobilePush)] == [
        (),
        ("androidActionButtons", 1),
    ]
