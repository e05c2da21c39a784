"""The models: repr, paths, copies. Their types and encoding are in test_wire."""

from pushsdk._core import models
from pushsdk._core.models import (
    ActionButton,
    CampaignCreated,
    CampaignRequest,
    MobilePush,
    Model,
    PushRequest,
    Segment,
)

SECRET = "Dear Jane Roe"
FULL = MobilePush(
    title={"en": SECRET},
    ttl=0,
    android_action_buttons=[ActionButton(label=SECRET, key_vals={SECRET: SECRET})],
)
VALUES = [FULL, CampaignRequest(segment=Segment(query=SECRET)), PushRequest(user_ids=[SECRET], message=FULL)]


def test_a_repr_names_the_type_and_its_set_fields_and_no_text_or_user_id():
    assert repr(FULL) == "MobilePush(type, title, ttl, android_action_buttons)"
    assert repr(CampaignCreated(uuid="c-1")) == "CampaignCreated(uuid='c-1')"
    for value in VALUES:
        assert SECRET not in f"{value!r} {value!s} {[value]} {value.__rich_repr__()}"


def test_a_typed_dict_has_the_fields_of_its_model():
    for model in [model for model in Model.__subclasses__() if model is not CampaignCreated]:
        typed = getattr(models, f"{model.__name__.replace('CampaignRequest', 'Campaign')}Dict")
        assert tuple(typed.__annotations__) == model.__struct_encode_fields__
