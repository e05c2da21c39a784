"""The control routes, sans-IO: parameters, bodies, and the table that the OpenAPI document is made from."""

import inspect
import re
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal, TypeVar
from urllib.parse import unquote

import msgspec
from aiohttp import web
from msgspec import Meta, Struct

from pushsdk._core.openapi import json_content
from pushsdk._texts import text_beside
from pushsdk.emulator.faults import Fault
from pushsdk.emulator.guard import Refused
from pushsdk.emulator.store.queries import NO_BOUND

ROOT = "/_emulator/v1"
_OPENAPI = text_beside(__name__, "openapi.json")
_Limit = Annotated[int, Meta(ge=1, le=1000)]
_Line = Annotated[str, Meta(max_length=1000)]
Handler = TypeVar("Handler", bound=Callable[..., Any])
_Mark = Annotated[int, Meta(ge=0, le=NO_BOUND)]


class RouteQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """``inbox`` is the public name of an inbox, instead of an Api-Key."""

    inbox: str | None = None


class SearchQuery(RouteQuery, frozen=True):
    search: _Line = ""


class ListQuery(SearchQuery, frozen=True):
    before: _Mark = NO_BOUND
    after: _Mark = 0
    limit: _Limit = 100
    grouped: bool = False


class SendQuery(RouteQuery, frozen=True):
    endpoint: Literal["push", "campaigns"] = "push"


class DeleteQuery(SearchQuery, frozen=True):
    all: bool = False


class UsersQuery(SearchQuery, frozen=True):
    after: str = ""
    limit: _Limit = 100


class FaultsBody(Struct, frozen=True, forbid_unknown_fields=True):
    """Either ``faults`` or a ``preset`` name; ``seed`` seeds the draws."""

    faults: list[Fault] | None = None
    preset: str | None = None
    seed: Annotated[int, Meta(ge=-(1 << 63), le=(1 << 63) - 1)] = 0


class LintBody(Struct, frozen=True, forbid_unknown_fields=True):
    """A request to check before it is sent."""

    body: dict[str, Any]
    endpoint: Literal["push", "campaigns"] = "push"


class ClockBody(Struct, frozen=True, forbid_unknown_fields=True):
    """``advance`` sets the service's clock forward, in seconds."""

    advance: Annotated[float, Meta(ge=0, le=10 * 365 * 86_400)]


class LabelBody(Struct, frozen=True, forbid_unknown_fields=True):
    label: Annotated[str, Meta(min_length=1, max_length=200)]


class Ok(Struct, frozen=True):
    status: Literal["ok"] = "ok"
    version: str = ""


class Service(Struct, frozen=True):
    """The emulator's Api-Key, and the public name of its inbox, "" before its first request."""

    api_key: str
    inbox: str


class Clock(Struct, frozen=True):
    """The service's time in seconds since the epoch, and the seconds that it was set forward."""

    now: float
    ahead: float


class Error(Struct, frozen=True):
    """The body of every refusal."""

    error: str


class Route(Struct, frozen=True):
    """A control route: ``path`` is below the root, with ``{names}``.

    The handler's parameters name its needs: an ``inbox``, a ``query`` and a ``body`` with the annotated types, the
    ``request``, and the names in the path. Its docstring is the summary.
    """

    method: str
    path: str
    pattern: re.Pattern[str]
    handler: Callable[..., Any]
    open: bool = False  # needs no token
    over_all: bool = False  # takes the inbox *, for all inboxes

    @property
    def kinds(self) -> Mapping[str, Any]:
        """The handler's annotations by parameter name."""
        return self.handler.__annotations__

    @property
    def query(self) -> Any:
        """The type of the query."""
        return self.kinds.get("query", RouteQuery)


ROUTES: list[Route] = []
"""All routes, in the order of their handlers."""


def route(method: str, path: str, **access: bool) -> Callable[[Handler], Handler]:
    """Return a decorator that makes a function a route's handler."""
    numbered = path.replace("{number}", "(?P<number>[0-9]{1,18})")
    pattern = re.compile(re.sub(r"\{(\w+)\}", r"(?P<\1>[^/]+)", f"{ROOT}{numbered}"))

    def add(handler: Handler) -> Handler:
        ROUTES.append(Route(method, path, pattern, handler, **access))
        return handler

    return add


def find(raw_path: str) -> dict[str, tuple[Route, dict[str, str]]]:
    """Return the routes for a path by method, with the names in the path.

    The path is the raw one, so an encoded slash is part of a name.
    """
    return {
        route.method: (route, {name: unquote(value) for name, value in match.groupdict().items()})
        for route in ROUTES
        if (match := route.pattern.fullmatch(raw_path))
    }


Kind = TypeVar("Kind", bound=Struct)


def read_query(kind: type[Kind], query: Mapping[str, str]) -> Kind:
    """Convert a query. Raises `Refused`."""
    parameters = dict(query)
    if len(parameters) < len(query):
        raise Refused(400, "the query is invalid: a parameter is repeated")
    try:
        return msgspec.convert(parameters, kind, strict=False)
    except msgspec.ValidationError as error:
        raise Refused(400, f"the query is invalid: {error}") from None


def read_body(kind: type[Kind], body: bytes) -> Kind:
    """Decode a JSON body; an empty body is an empty object. Raises `Refused`."""
    try:
        return msgspec.json.decode(body or b"{}", type=kind)
    except RecursionError:
        raise Refused(400, "the body is invalid: it is nested too deeply") from None
    except ValueError as error:  # invalid JSON, UTF-8 or values
        is_array = str(error).endswith("Expected `object`, got `array`")
        keys = f": an object with {', '.join(kind.__struct_encode_fields__)}" if is_array else ""
        raise Refused(400, f"the body is invalid: {error}{keys}") from None


def openapi(version: str, *, token: bool) -> dict[str, Any]:
    """Return the OpenAPI 3.1 document for all routes; with ``token`` they require one."""
    document: dict[str, Any] = msgspec.json.decode(_OPENAPI)
    kinds = [kind for route in ROUTES for kind in (route.kinds["return"], route.query, route.kinds.get("body", Error))]
    kinds = [kind for kind in dict.fromkeys(kinds) if kind is not web.StreamResponse]
    references, components = msgspec.json.schema_components(kinds, ref_template="#/components/schemas/{name}")
    schemas = dict(zip(kinds, references, strict=True))
    document["info"]["version"], document["components"]["schemas"] = version, components
    # An Api-Key names the inbox, or the query does.
    needed: dict[str, list[str]] = {"token": []} if token else {}
    document["security"] = [{**needed, "key": []}, needed]
    for route in ROUTES:
        operation = _operation(route, schemas, components)
        document["paths"].setdefault(f"{ROOT}{route.path}", {})[route.method.lower()] = operation
    return document


def _operation(route: Route, schemas: Mapping[Any, Any], components: Mapping[str, Any]) -> dict[str, Any]:
    parameters = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
        for name in route.pattern.groupindex
    ]
    parameters += [
        {"name": name, "in": "query", "schema": schema}
        for name, schema in components[route.query.__name__]["properties"].items()
        if name != "inbox" or name in route.kinds
    ]
    stream = {"text/event-stream": {"schema": {"type": "string"}}}
    response, summary = schemas.get(route.kinds["return"]), inspect.getdoc(route.handler)
    operation: dict[str, Any] = {"operationId": route.handler.__name__, "summary": summary, "parameters": parameters}
    operation["responses"] = {
        "200": {"description": summary, "content": stream if response is None else json_content(response)},
        "default": {"description": "error", "content": json_content(schemas[Error])},
    }
    if route.open:
        operation["security"] = []
    if "body" in route.kinds:
        operation["requestBody"] = {"required": True, "content": json_content(schemas[route.kinds["body"]])}
    return operation
