"""The models: repr, immutability, copies. Their types and encoding are in test_wire."""

import ast
import copy
import inspect
import pickle
from unittest.mock import create_autospec

import msgspec
import pytest

from pushsdk._core import models
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
)
from pushsdk._core.paths import show_path

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


def test_a_subclass_may_have_a_required_field():
    class Named(models.Segment, frozen=True, kw_only=True):
        name: str

    assert Named(name="x", query="q").query == "q"
    with pytest.raises(TypeError, match="name"):
        Named()


@pytest.mark.parametrize(
    "copied",
    [
        copy.copy,
        copy.deepcopy,
        lambda value: pickle.loads(pickle.dumps(value)),
        lambda value: value.replace(),
        lambda value: msgspec.convert(value.to_dict(), type(value)),
    ],
)
def test_a_copy_is_equal_and_of_the_same_class(copied):
    for value in (full(), CampaignRequest(segment=Segment(query="q")), PushRequest(user_ids=["a"])):
        assert copied(value) == value
        assert type(copied(value)) is type(value)


def test_a_model_can_be_mocked_and_matched():
    mock = create_autospec(MobilePush, instance=True)
    assert isinstance(mock, MobilePush)
    mock.replace(ttl=60)
    mock.replace.assert_called_once_with(ttl=60)
    match full():
        case MobilePush(ttl=0, title={"en": text}):
            assert text == SECRET


@pytest.mark.parametrize("name", ["model_dump", "__getitem__", "__iter__", "__fspath__"])
def test_a_model_has_no_protocol_of_other_libraries(name):
    assert not hasattr(full(), name)


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
    "construct", [lambda: models.MobilePush(titel={}), lambda: models.MobilePush().replace(titel={})]
)
def test_an_unknown_field_is_an_error_that_names_the_field(construct):
    with pytest.raises(TypeError, match="titel"):
        construct()


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
