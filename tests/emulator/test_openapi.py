"""The OpenAPI document is made from the handlers of the control routes."""

import json
import re
from urllib.parse import unquote

import pytest

from pushsdk._version import __version__
from pushsdk.emulator.control.routes import ROOT, ROUTES, find, openapi


@pytest.mark.parametrize("token", [None, "t"])
async def test_the_document_is_served_and_says_whether_a_token_is_needed(running, token):
    async with running(token=token) as wire:
        document = await wire.get("/openapi.json", Api_Key=None)
    assert document["openapi"] == "3.1.0"
    assert document["info"]["version"] == __version__
    assert set(document["components"]["securitySchemes"]) == {"key", "token"}
    names = set(re.findall(r'"#/components/schemas/(\w+)"', json.dumps(document)))
    assert names
    assert names <= set(document["components"]["schemas"])
    needed = {} if token is None else {"token": []}
    assert document["security"] == [{**needed, "key": []}, needed]


def test_each_route_is_in_the_document_and_is_found_by_its_path():
    paths = json.loads(json.dumps(openapi("1.0", token=False)))["paths"]
    for route in ROUTES:
        path = f"{ROOT}{route.path}"
        operation = paths[path][route.method.lower()]
        assert operation["operationId"] == route.handler.__name__
        kinds = {
            parameter["name"]: (parameter["in"], parameter.get("required")) for parameter in operation["parameters"]
        }
        names = re.findall(r"\{(\w+)\}", path)
        assert [name for name, kind in kinds.items() if kind == ("path", True)] == names
        assert all(kind == ("query", None) for name, kind in kinds.items() if name not in names)
        assert ("inbox" in kinds) == ("inbox" in route.kinds)
        body = route.kinds.get("body")
        schema = {"schema": {"$ref": f"#/components/schemas/{body and body.__name__}"}}
        assert operation.get("requestBody", {}).get("content") == (body and {"application/json": schema})
        assert operation.get("security") == ([] if route.open else None)
        assert list(operation["responses"]) == ["200", "default"]
        part = "7" if "{number}" in path else "a%2Fb%25"
        match, values = find(re.sub(r"\{\w+\}", part, path))[route.method]
        assert match == route
        assert values == dict.fromkeys(names, unquote(part))
