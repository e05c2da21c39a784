"""The OpenAPI document of the service is valid, and has the fields and sentences of the models."""

import json

import pytest

from pushsdk import CampaignRequest, MobilePush, PushRequest
from pushsdk._core.models import CampaignCreated
from pushsdk._core.openapi import service_document


def test_the_document_is_valid_and_has_the_two_operations_with_their_statuses():
    document = json.loads(json.dumps(service_document("https://push.example/api")))
    pytest.importorskip("openapi_spec_validator").validate(document)
    operations = {path: item["post"] for path, item in document["paths"].items()}
    statuses = {path: list(operation["responses"]) for path, operation in operations.items()}
    assert statuses == {"/v1/push": ["204", "default"], "/v1/campaigns": ["200", "default"]}
    assert document["servers"] == [{"url": "https://push.example/api"}]


def test_each_field_has_its_name_on_the_wire_and_a_sentence():
    schemas = service_document("/")["components"]["schemas"]
    for model in (PushRequest, CampaignRequest, MobilePush, CampaignCreated):
        assert list(schemas[model.__name__]["properties"]) == list(model.__struct_encode_fields__)
    for name in schemas.keys() - {"CampaignCreated"}:
        assert all(field["description"].endswith(".") for field in schemas[name]["properties"].values())
