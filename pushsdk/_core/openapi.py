"""The service's two operations as an OpenAPI 3.1 document, made from the models."""

import ast
import inspect
from typing import Any

import msgspec

from pushsdk._core import models
from pushsdk._core.models import CampaignCreated, CampaignRequest, PushRequest
from pushsdk._core.operations import CREATE_CAMPAIGN, PUSH, Operation

_UNSPECIFIED = {"description": "The interface shows no other status, and no error body."}


def service_document(base_url: str) -> dict[str, Any]:
    """Return the document for the service at this address."""
    kinds = (PushRequest, CampaignRequest, CampaignCreated)
    (push, campaign, created), schemas = msgspec.json.schema_components(
        kinds, ref_template="#/components/schemas/{name}"
    )
    sentences = _sentences()
    for name, schema in schemas.items():
        for field, properties in schema["properties"].items():
            properties.update(sentences.get((name, field), {}))
    enqueued = {"204": {"description": "The push is enqueued."}}
    answered = {"200": {"description": "The campaign is created.", "content": _json(created)}}
    return {
        "openapi": "3.1.0",
        "info": {"title": "Push service", "version": "v1"},
        "servers": [{"url": base_url}],
        "security": [{"key": []}],
        "paths": {
            f"/{PUSH.path}": _path(PUSH, "sendPush", "Send a push to users.", push, enqueued),
            f"/{CREATE_CAMPAIGN.path}": _path(
                CREATE_CAMPAIGN, "createCampaign", "Create a push campaign.", campaign, answered
            ),
        },
        "components": {
            "schemas": schemas,
            "securitySchemes": {"key": {"type": "apiKey", "in": "header", "name": "Api-Key"}},
        },
    }


def _path(operation: Operation, name: str, summary: str, body: Any, responses: dict[str, Any]) -> dict[str, Any]:
    described = {
        "operationId": name,
        "summary": summary,
        "requestBody": {"required": True, "content": _json(body)},
        "responses": {**responses, "default": _UNSPECIFIED},
    }
    return {operation.method.lower(): described}


def _json(schema: Any) -> dict[str, Any]:
    return {"application/json": {"schema": schema}}


def _sentences() -> dict[tuple[str, str], dict[str, str]]:
    """Return the description of each field by model and wire name, from the sentence below it in the source."""
    found = {}
    for node in ast.parse(inspect.getsource(models)).body:
        if isinstance(node, ast.ClassDef) and isinstance(model := getattr(models, node.name), type(models.Model)):
            wire_names = dict(zip(model.__struct_fields__, model.__struct_encode_fields__, strict=True))
            for field, below in zip(node.body, node.body[1:], strict=False):
                match field, below:
                    case ast.AnnAssign(target=ast.Name(name)), ast.Expr(ast.Constant(str(sentence))):
                        found[node.name, wire_names[name]] = {"description": sentence.replace("``", "`")}
    return found
