"""The models: repr, immutability, types of fields. Their encoding is in test_wire."""

import ast
import datetime
import inspect
import subprocess
import sys

import pytest

from pushsdk._core import models
from pushsdk._core.errors import ValidationError
from pushsdk._core.lint import SHOWN
from pushsdk._core.models import (
    UNSET,
    ActionButton,
    CampaignCreated,
    CampaignRequest,
    MobilePush,
    Model,
    PushRequest,
    Segment,
    show_path,
)
from pushsdk._core.policy import Timeout
from pushsdk.emulator import Fault

SECRET = "Dear Jane Roe"
MODELS = Model.__subclasses__()


def full() -> MobilePush:
    return MobilePush(
        title={"en": SECRET},
        ttl=0,
        android_action_buttons=[ActionButton(label=SECRET, key_vals={SECRET: SECRET})],
    )


def test_a_repr_names_the_type_and_its_set_fields_only():
    assert repr(full()) == "MobilePush(type, title, ttl, android_action_buttons)"
    assert repr(ActionButton()) == "ActionButton()"


@pytest.mark.parametrize(
    "value",
    [
        full(),
        CampaignRequest(name=SECRET, segment=Segment(query=SECRET)),
        PushRequest(user_ids=[SECRET], message=full()),
    ],
)
def test_no_text_and_no_user_id_is_in_any_repr(value):
    text = f"{value!r} {value!s} {value} {[value]} {value.__rich_repr__()}"
    assert SECRET not in text


def test_the_repr_of_a_created_campaign_shows_its_uuid():
    assert repr(CampaignCreated(uuid="c-1")) == "CampaignCreated(uuid='c-1')"


@pytest.mark.parametrize("model", MODELS)
def test_a_struct_is_frozen_and_takes_keywords_only(model):
    name = model.__struct_fields__[0]
    with pytest.raises(AttributeError):
        setattr(model(), name, "x")
    with pytest.raises(TypeError):
        model("x")


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ((), "$"),
        (("message", "ttl"), "$.message.ttl"),
        (("message", "androidActionButtons", 0, "url"), "$.message.androidActionButtons[0].url"),
        (("message", "title", "pt-BR"), "$.message.title.pt-BR"),
        (("custom_fields", "jane@roe.example", "a"), "$.custom_fields[...].a"),
        (("custom_fields", ""), "$.custom_fields[...]"),
        (("custom_fields", "a\n"), "$.custom_fields[...]"),
        (("custom_fields", "a" * 42), "$.custom_fields[...]"),
    ],
)
def test_a_path_shows_indexes_and_names_and_hides_what_is_no_name(path, text):
    assert show_path(path) == text


def test_replace_returns_a_copy_with_other_values():
    message = models.MobilePush(title={"en": "Hello"}, ttl=60)
    for switch in True, False:
        expected = models.MobilePush(title={"en": "Hello"}, ios_enabled=switch)
        assert message.replace(ttl=UNSET, ios_enabled=switch) == expected
    assert message.ttl == 60


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (
            lambda: models.MobilePush(title="x"),
            'MobilePush.title must be a mapping, for example {"en": "Hello"}; got str',
        ),
        (lambda: models.MobilePush(ttl=None), "MobilePush.ttl must be an int; got None: leave it out"),
        (lambda: models.MobilePush(ios_enabled="yes"), "MobilePush.ios_enabled must be True or False; got str"),
        (lambda: models.MobilePush().replace(ttl="1"), "MobilePush.ttl must be an int; got str"),
        (
            lambda: models.MobilePush(android_action_buttons=ActionButton(label="x")),
            "MobilePush.android_action_buttons must be a list of ActionButton; got ActionButton",
        ),
        (
            lambda: models.MobilePush(title={"en": 5}),
            'MobilePush.title["en"] must be a str; got int: pass str(value)',
        ),
        (
            lambda: models.MobilePush(key_vals={"a@b": None}),
            "MobilePush.key_vals[...] must be a str; got None: leave it out",
        ),
        (
            lambda: models.MobilePush(title={5: "x"}),
            "a key of MobilePush.title must be a str; got int: pass str(value)",
        ),
        (
            lambda: models.MobilePush(ttl=datetime.timedelta(1)),
            "MobilePush.ttl must be an int; got timedelta: pass int(value.total_seconds())",
        ),
        (
            lambda: models.MobilePush(ttl=2**63),
            "MobilePush.ttl must be an int <= 9223372036854775807; got 9223372036854775808",
        ),
        (
            lambda: models.MobilePush(action_category=models.ActionCategory),
            "MobilePush.action_category must be an ActionCategory; got the class ActionCategory: call it",
        ),
        (
            lambda: models.MobilePush(android_action_buttons=[{"label": 1}]),
            "MobilePush.android_action_buttons[0].label must be a str; got int",
        ),
        (
            lambda: models.MobilePush(action_category=models.ActionCategory(action_components={})),
            "ActionCategory.action_components must be a list of ActionComponent; got dict",
        ),
        (lambda: models.MobilePush(title=UNSET, ttl="1"), "MobilePush.ttl must be an int; got str"),
        (lambda: CampaignRequest(segment="SELECT 1"), "CampaignRequest.segment must be a Segment; got str"),
    ],
)
def test_a_model_names_the_field_of_a_wrong_type_each_time(make, text):
    for _ in range(2):
        with pytest.raises(ValidationError) as caught:
            make()
        assert str(caught.value) == text


def test_a_subclass_may_have_a_required_field():
    class Named(models.Segment, frozen=True, kw_only=True):
        name: str

    assert Named(name="x", query="q").query == "q"
    with pytest.raises(ValidationError, match=r"Named\.name must be a str; got int"):
        Named(name=5)


def test_to_dict_returns_the_fields_on_the_wire():
    message = models.MobilePush(title={"en": "Hello"}, android_action_buttons=[models.ActionButton(label="Open")])
    buttons = [{"label": "Open"}]
    assert message.to_dict() == {"type": "MOBILE_PUSH", "title": {"en": "Hello"}, "androidActionButtons": buttons}


@pytest.mark.parametrize(
    ("typed", "model"),
    [
        (models.MobilePushDict, models.MobilePush),
        (models.CampaignDict, models.CampaignRequest),
        (models.PushRequestDict, models.PushRequest),
        (models.ActionButtonDict, models.ActionButton),
        (models.ActionCategoryDict, models.ActionCategory),
        (models.ActionComponentDict, models.ActionComponent),
        (models.SegmentDict, models.Segment),
        (models.ScheduleDict, models.Schedule),
    ],
)
def test_a_typed_dict_has_the_fields_of_its_model(typed, model):
    assert tuple(typed.__annotations__) == model.__struct_encode_fields__


@pytest.mark.parametrize(
    ("construct", "words"),
    [
        (
            lambda: models.MobilePush(titel={"en": "Hi"}),
            "MobilePush() got an unexpected .* 'titel': did you mean 'title'?",
        ),
        (lambda: models.MobilePush(iosEnabled=True), "'iosEnabled': did you mean 'ios_enabled'?"),
        (lambda: models.ActionButton(lable="Open"), "ActionButton() .* 'lable': did you mean 'label'?"),
        (lambda: models.MobilePush().replace(titel={}), "replace() got an .* 'titel': did you mean 'title'?"),
        (lambda: models.CampaignRequest(externalId="a"), "'externalId': did you mean 'external_id'?"),
    ],
)
def test_a_misspelled_field_is_an_error_that_names_the_near_one(construct, words):
    with pytest.raises(TypeError, match=words.replace("()", r"\(\)").replace("?", r"\?$")):
        construct()


def test_a_field_that_is_near_no_other_is_an_error_that_lists_the_fields():
    with pytest.raises(TypeError, match=r"unexpected keyword argument 'sender': the names are action, .*, type$"):
        models.MobilePush(sender="a")


@pytest.mark.parametrize(
    ("construct", "text"),
    [
        (lambda: Fault(429), "Fault() takes keyword arguments only, for example Fault.status(429)"),
        (lambda: Timeout(5), "Timeout() takes keyword arguments only, for example Timeout(total=5)"),
        (lambda: models.Segment("u"), "Segment() takes keyword arguments only, for example Segment(query=...)"),
        (
            lambda: models.MobilePush({"en": "Hi"}),
            "MobilePush() takes keyword arguments only, for example MobilePush(title=...)",
        ),
    ],
)
def test_an_argument_without_a_keyword_is_an_error_with_an_example(construct, text):
    with pytest.raises(TypeError) as caught:
        construct()
    assert str(caught.value) == text


def test_a_missing_field_is_an_error_that_names_the_field():
    class Named(models.Segment, frozen=True, kw_only=True):
        name: str

    with pytest.raises(TypeError, match="Missing required argument 'name'"):
        Named()


def test_editors_complete_the_documented_value_of_each_enumerated_field():
    tree = ast.parse(inspect.getsource(models))
    aliases = {
        node.targets[0].id.removesuffix("Name"): node.value.left.slice.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.BinOp) and ast.unparse(node).endswith("] | str")
    }
    # The only value of each enumerated field in the interface document.
    assert aliases == {
        "MessageType": "MOBILE_PUSH",
        "Action": "DEFAULT",
        "Priority": "NORMAL",
        "MediaType": "IMAGE",
        "InterruptionLevel": "PASSIVE",
        "RelevanceScore": "SCORE_MAX",
        "ClickAction": "DEEP_LINKING",
        "ActionCategoryType": "PREDEFINED_CATEGORY",
        "ScheduleType": "START_NOW",
    }
    assert set(aliases.values()) == set(SHOWN.values())


def test_every_field_is_documented():
    tree = ast.parse(inspect.getsource(models))
    for kind in [node for node in tree.body if isinstance(node, ast.ClassDef) and hasattr(node, "bases")]:
        if [base.id for base in kind.bases if isinstance(base, ast.Name)] == ["Model"]:
            fields = [number for number, node in enumerate(kind.body) if isinstance(node, ast.AnnAssign)]
            assert all(isinstance(kind.body[number + 1], ast.Expr) for number in fields), kind.name


def test_the_definition_of_a_model_keeps_the_trace_function_of_a_debugger() -> None:
    """A search for a missing attribute without an end would reach the limit of recursion, where Python removes it."""
    code = """
import sys
from pushsdk._core.models import Model
def trace(frame, event, argument): return trace
sys.settrace(trace)
class Sample(Model, frozen=True):
    name: str = ""
assert sys.gettrace() is trace
"""
    subprocess.run([sys.executable, "-c", code], check=True, env={})  # without the trace function of coverage
