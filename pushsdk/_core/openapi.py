"""The service's two operations as an OpenAPI 3.1 document, made from the models."""

import inspect
import re
from typing import Any

import msgspec

from pushsdk._core import models
from pushsdk._core.models import CampaignCreated, CampaignRequest, PushRequest
from pushsdk._core.operations import CREATE_CAMPAIGN, PUSH

# A field and its sentence, under "Attributes:" in the docstring of its model.
_SENTENCE = re.compile(r"^    (\w+): (.*(?:\n {8}.*)*)", re.MULTILINE)
_UNSPECIFIED = {"description": "The interface shows no other status, and no error body."}


def service_document(base_url: str) -> dict[str, Any]:
    """Return the document for the service at this address."""
    kinds = (PushRequest, CampaignRequest, CampaignCreated)
    (push, campaign, created), schemas = msgspec.json.schema_components(
        kinds, ref_template="#/components/schemas/{name}"
    )
    for title, schema in schemas.items():
        model = getattr(models, title)
        schema["description"], _, attributes = (inspect.getdoc(model) or "").partition("\n\nAttributes:\n")
        names = dict(zip(model.__struct_fields__, model.__struct_encode_fields__, strict=True))
        for name, sentence in _SENTENCE.findall(attributes):
            schema["properties"][names[name]]["description"] = " ".join(sentence.replace("``", "`").split())
    enqueued = {"204": {"description": "The push is enqueued."}}
    answered = {"200": {"description": "The campaign is created.", "content": json_content(created)}}
    operations = (
        (PUSH, "sendPush", "Send a push to users.", push, enqueued),
        (CREATE_CAMPAIGN, "createCampaign", "Create a push campaign.", campaign, answered),
    )
    paths = {
        f"/{operation.path}": {
            operation.method.lower(): {
                "operationId": name,
                "summary": summary,
                "requestBody": {"required": True, "content": json_content(body)},
                "responses": {**responses, "default": _UNSPECIFIED},
            }
        }
        for operation, name, summary, body, responses in operations
    }
    return {
        "openapi": "3.1.0",
        "info": {"title": "Push service", "version": "v1"},
        "servers": [{"url": base_url}],
        "security": [{"key": []}],
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": {"key": {"type": "apiKey", "in": "header", "name": "Api-Key"}},
        },
    }


def json_content(schema: Any) -> dict[str, Any]:
    """Return the content of a JSON body with this schema."""
    return {"application/json": {"schema": schema}}
