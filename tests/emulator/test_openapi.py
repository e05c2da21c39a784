"""The OpenAPI document is made from the table of routes, and so are the handlers' names."""

import inspect
import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from support.control_api import Api

from pushsdk._version import __version__
from pushsdk.emulator import Emulator
from pushsdk.emulator.control.handlers import Control
from pushsdk.emulator.control.routes import ROOT, ROUTES, find, openapi

METHODS = {"get", "put", "post", "delete", "patch"}
# The keywords of JSON Schema 2020-12 in use.
KEYWORDS = {
    *("$ref", "type", "properties", "required", "items", "enum", "const", "default", "anyOf", "title", "description"),
    *("minimum", "maximum", "minLength", "maxLength", "additionalProperties", "prefixItems", "format", "minItems"),
    *("maxItems", "discriminator"),
}


def document(*, token: bool = False) -> dict[str, Any]:
    return json.loads(json.dumps(openapi("1.0", token=token)))


def operations(doc: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, item in doc["paths"].items():
        for method, operation in item.items():
            yield path, method, operation


def references(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        if "$ref" in value:
            yield value["$ref"]
        for part in value.values():
            yield from references(part)
    elif isinstance(value, list):
        for part in value:
            yield from references(part)


async def test_the_document_is_served(emulator: Emulator):
    assert await Api(emulator).get("/openapi.json", Api_Key=None) == {
        **document(),
        "info": {"title": "pushsdk emulator", "version": __version__},
    }


def test_it_has_the_form_of_openapi_3_1():
    doc = document()
    assert set(doc) == {"openapi", "info", "paths", "components"}
    assert re.fullmatch(r"3\.1\.\d", doc["openapi"])
    assert set(doc["info"]) == {"title", "version"}
    assert set(doc["components"]) == {"schemas", "securitySchemes"}
    assert all(re.fullmatch(r"[A-Za-z0-9._-]+", name) for name in doc["components"]["schemas"])
    assert doc["components"]["securitySchemes"] == {
        "key": {"type": "apiKey", "in": "header", "name": "Api-Key"},
        "token": {"type": "http", "scheme": "bearer"},
    }


def test_every_operation_is_well_formed():
    names = []
    for path, method, operation in operations(document()):
        assert path.startswith("/")
        assert method in METHODS
        assert set(operation) <= {"operationId", "summary", "parameters", "requestBody", "responses", "security"}
        names.append(operation["operationId"])
        in_path = [parameter["name"] for parameter in operation["parameters"] if parameter["in"] == "path"]
        assert in_path == re.findall(r"\{(\w+)\}", path)
        keys = [(parameter["name"], parameter["in"]) for parameter in operation["parameters"]]
        assert len(set(keys)) == len(keys)
        for parameter in operation["parameters"]:
            assert set(parameter) <= {"name", "in", "required", "schema"}
            assert parameter.get("required", False) is (parameter["in"] == "path")
        assert set(operation["responses"]) == {"200", "default"}
        for response in operation["responses"].values():
            assert response["description"]
            assert all(set(media) == {"schema"} for media in response["content"].values())
    assert len(set(names)) == len(names)


def test_every_reference_has_a_schema():
    doc = document()
    names = set(references(doc))
    assert names
    for name in names:
        assert name.removeprefix("#/components/schemas/") in doc["components"]["schemas"], name


def test_every_schema_uses_known_keywords_only():
    def check(schema: dict[str, Any]) -> None:
        assert set(schema) <= KEYWORDS, set(schema) - KEYWORDS
        assert set(schema.get("required", ())) <= set(schema.get("properties", schema.get("required", ())))
        below = [*schema.get("properties", {}).values(), *schema.get("anyOf", ()), *schema.get("prefixItems", ())]
        for name in ("items", "additionalProperties"):
            if isinstance(schema.get(name), dict):
                below.append(schema[name])
        for path in below:
            check(path)

    doc = document()
    for schema in doc["components"]["schemas"].values():
        check(schema)
    for _, _, operation in operations(doc):
        for parameter in operation["parameters"]:
            check(parameter["schema"])


def test_the_document_has_exactly_the_routes_of_the_table():
    routes = {(path.removeprefix(ROOT), method.upper()) for path, method, _ in operations(document())}
    assert routes == {(route.path, route.method) for route in ROUTES}
    for route in ROUTES:
        operation = document()["paths"][f"{ROOT}{route.path}"][route.method.lower()]
        assert ("inbox" in [parameter["name"] for parameter in operation["parameters"]]) == route.scoped
        assert ("requestBody" in operation) == (route.body is not None)
        if route.body is not None:
            schema = operation["requestBody"]["content"]["application/json"]["schema"]
            assert schema == {"$ref": f"#/components/schemas/{route.body.__name__}"}


def test_every_route_has_a_handler_and_every_handler_a_route():
    handlers = {name for name, _ in inspect.getmembers(Control, inspect.isfunction)}
    wanted = {f"_{route.name}" for route in ROUTES}
    assert len(wanted) == len(ROUTES)
    assert wanted <= handlers
    assert {name for name in handlers if re.match(r"_(get|post|put|patch|delete)_", name)} == wanted


@pytest.mark.parametrize(
    ("name", "token", "ways"),
    [
        ("get_health", False, []),
        ("get_health", True, []),
        ("get_inboxes", False, [{}]),
        ("get_inboxes", True, [{"token": []}]),
        ("get_users", False, [{"key": []}, {}]),
        ("get_users", True, [{"token": [], "key": []}, {"token": []}]),
    ],
)
def test_security_matches_the_emulator(name, token, ways):
    (schemes,) = [
        operation["security"] for *_, operation in operations(document(token=token)) if operation["operationId"] == name
    ]
    assert schemes == ways


async def test_an_emulator_with_a_token_says_so(running):
    async with running(token="t") as wire:
        doc = await Api(wire.emulator).get("/openapi.json")
    assert doc["paths"][f"{ROOT}/inboxes"]["get"]["security"] == [{"token": []}]


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: route.name)
def test_a_route_is_found_by_its_method_and_path(route):
    raw = re.sub(r"\{\w+\}", "a%2Fb%25", route.path)
    operation, names = find(f"{ROOT}{raw}")[route.method]
    assert operation is route
    assert set(names.values()) <= {"a/b%"}
