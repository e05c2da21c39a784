"""The control routes as a table, sans-IO: which there are, what each takes and answers. OpenAPI is made from it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal, TypeAlias, TypeVar
from urllib.parse import unquote

import msgspec
from msgspec import Meta, Struct

from pushsdk.emulator.control import views
from pushsdk.emulator.guard import Refused
from pushsdk.emulator.limits import ServiceLimits
from pushsdk.emulator.store.records import InboxView, Unmatched, UserCount

__all__ = ["ROOT", "ROUTES", "Route", "find", "openapi", "read_body", "read_query"]

ROOT = "/_emulator/v1"
_Limit: TypeAlias = Annotated[int, Meta(ge=1, le=1000)]
_Seconds: TypeAlias = Annotated[float, Meta(ge=0, le=60)]
_Line: TypeAlias = Annotated[str, Meta(max_length=1000)]
_Mark: TypeAlias = Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]


class RouteQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """``inbox`` is the public name of one, in place of its Api-Key."""

    inbox: str | None = None


class ListQuery(RouteQuery, frozen=True):
    search: _Line = ""
    before: _Mark | None = None
    after: _Mark = 0
    limit: _Limit = 100


class DeleteQuery(RouteQuery, frozen=True):
    search: _Line = ""
    all: bool = False


class PageQuery(RouteQuery, frozen=True):
    after: str = ""
    limit: _Limit = 100


class UsersQuery(PageQuery, frozen=True):
    search: _Line = ""


class WaitQuery(RouteQuery, frozen=True):
    count: Annotated[int, Meta(ge=1)] = 1
    search: _Line = "is:accepted"
    after: _Mark = 0
    timeout: _Seconds = 10.0


class EventsQuery(RouteQuery, frozen=True):
    after: str = ""


class FaultsBody(Struct, frozen=True, forbid_unknown_fields=True):
    """The ``faults``, or a ``preset`` of that name; ``seed`` is where the draws start."""

    faults: list[dict[str, Any]] | None = None
    preset: str | None = None
    seed: Annotated[int, Meta(ge=-(1 << 63), le=(1 << 63) - 1)] = 0


class EnabledBody(Struct, frozen=True, forbid_unknown_fields=True):
    enabled: bool


class ClockBody(Struct, frozen=True, forbid_unknown_fields=True):
    """Seconds that the service's clock is set forward."""

    advance: Annotated[float, Meta(ge=0, le=10 * 365 * 86_400)]


class LabelBody(Struct, frozen=True, forbid_unknown_fields=True):
    label: Annotated[str, Meta(min_length=1, max_length=200)]


class Ok(Struct, frozen=True):
    status: Literal["ok"] = "ok"
    version: str = ""


class Clock(Struct, frozen=True):
    """The service's time, in seconds since the epoch, and how far it was set forward."""

    now: float
    ahead: float


class Error(Struct, frozen=True):
    """What every refusal says."""

    error: str


class Route(Struct, frozen=True, kw_only=True):
    """A row: ``path`` below the root with ``{names}``; what it takes and answers; ``scoped`` ones need an inbox."""

    method: str
    path: str
    does: str
    answer: Any
    query: type[RouteQuery] = RouteQuery
    body: type[Struct] | None = None
    scoped: bool = True
    open: bool = False  # without the token

    @property
    def name(self) -> str:
        """The name of its handler, as ``get_users_id``."""
        words = self.path.replace("{", "").replace("}", "").replace(".", "_").replace("-", "_").split("/")
        return "_".join((self.method.lower(), *filter(None, words)))


ROUTES: tuple[Route, ...] = (
    Route(method="GET", path="/health", does="whether it runs", answer=Ok, scoped=False, open=True),
    Route(method="GET", path="/ready", does="whether it can store", answer=Ok, scoped=False, open=True),
    Route(method="GET", path="/openapi.json", does="this document", answer=dict[str, Any], scoped=False, open=True),
    Route(method="GET", path="/inboxes", does="every inbox", answer=list[InboxView], scoped=False),
    Route(method="GET", path="/unmatched", does="what reached no inbox", answer=list[Unmatched], scoped=False),
    Route(method="GET", path="/presets", does="named lists of rules", answer=list[views.PresetView], scoped=False),
    Route(method="GET", path="/clock", does="the service's time", answer=Clock, scoped=False),
    Route(method="POST", path="/clock", does="set it forward", answer=Clock, body=ClockBody, scoped=False),
    Route(method="PUT", path="/label", does="name the inbox", answer=Ok, body=LabelBody),
    Route(method="GET", path="/users", does="who was pushed to", answer=views.UserPage, query=UsersQuery),
    Route(method="GET", path="/users/{id}", does="what a user got", answer=views.UserView),
    Route(method="GET", path="/duplicates", does="who got the same push twice", answer=list[UserCount]),
    Route(method="GET", path="/requests", does="what came, newest first", answer=views.RequestPage, query=ListQuery),
    Route(method="DELETE", path="/requests", does="drop from the list", answer=views.DeleteResult, query=DeleteQuery),
    Route(method="GET", path="/requests/{id}", does="one request, whole", answer=views.RequestView),
    Route(method="DELETE", path="/requests/{id}", does="drop one", answer=views.DeleteResult),
    Route(method="GET", path="/campaigns", does="the newest campaigns", answer=list[views.CampaignView]),
    Route(method="GET", path="/campaigns/{uuid}", does="one", answer=views.CampaignView, query=PageQuery),
    Route(method="POST", path="/campaigns/{uuid}/start", does="start one now", answer=views.CampaignView),
    Route(method="GET", path="/wait", does="wait for requests", answer=views.WaitResult, query=WaitQuery),
    Route(method="GET", path="/events", does="what changes, as server-sent events", answer=None, query=EventsQuery),
    Route(method="GET", path="/faults", does="the fault rules and their hits", answer=views.FaultList),
    Route(method="PUT", path="/faults", does="replace them", answer=views.FaultList, body=FaultsBody),
    Route(method="DELETE", path="/faults", does="have none", answer=views.FaultList),
    Route(method="PATCH", path="/faults/{name}", does="switch one", answer=views.FaultList, body=EnabledBody),
    Route(method="GET", path="/limits", does="what the inbox takes", answer=ServiceLimits),
    Route(method="PUT", path="/limits", does="set that", answer=ServiceLimits, body=ServiceLimits),
    Route(method="POST", path="/reset", does="begin the inbox anew", answer=Ok),
)


_PATTERNS = [(route, re.compile(re.sub(r"\{(\w+)\}", r"(?P<\1>[^/]+)", f"{ROOT}{route.path}"))) for route in ROUTES]


def find(raw_path: str) -> dict[str, tuple[Route, dict[str, str]]]:
    """Return the routes of a path by their methods, with the names in the path.

    The path is as it came on the wire, so that an encoded slash is part of a name.
    """
    return {
        route.method: (route, {name: unquote(value) for name, value in match.groupdict().items()})
        for route, pattern in _PATTERNS
        if (match := pattern.fullmatch(raw_path))
    }


Kind = TypeVar("Kind", bound=Struct)


def read_query(kind: type[Kind], pairs: Iterable[tuple[str, str]]) -> Kind:
    """A query as this kind. Raises `Refused`."""
    given = list(pairs)
    query = dict(given)
    if len(query) < len(given):
        raise Refused(400, "the query is not taken: a parameter is there twice")
    try:
        return msgspec.convert(query, kind, strict=False)
    except msgspec.ValidationError as error:
        raise Refused(400, f"the query is not taken: {error}") from None


def read_body(kind: type[Kind], body: bytes) -> Kind:
    """A JSON body as this kind; an empty one is an empty object. Raises `Refused`."""
    try:
        return msgspec.json.decode(body or b"{}", type=kind)
    except RecursionError:
        raise Refused(400, "the body is not taken: it is nested too deeply") from None
    except ValueError as error:  # of JSON, of UTF-8, and of what is no value of this kind
        raise Refused(400, f"the body is not taken: {error}") from None


def openapi(version: str, *, token: bool) -> dict[str, Any]:
    """The OpenAPI 3.1 document of all routes; ``token`` says whether they ask for one."""
    kinds = list(dict.fromkeys(_kinds()))
    made, components = msgspec.json.schema_components(kinds, ref_template="#/components/schemas/{name}")
    schemas = dict(zip(kinds, made, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for route in ROUTES:
        operation = {**_operation(route, schemas, components), "security": _security(route, token)}
        paths.setdefault(f"{ROOT}{route.path}", {})[route.method.lower()] = operation
    return {
        "openapi": "3.1.0",
        "info": {"title": "pushsdk emulator", "version": version},
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {
                "key": {"type": "apiKey", "in": "header", "name": "Api-Key"},
                "token": {"type": "http", "scheme": "bearer"},
            },
        },
    }


def _kinds() -> Iterable[Any]:
    yield Error
    for route in ROUTES:
        yield from (kind for kind in (route.answer, route.query, route.body) if kind is not None)


def _security(route: Route, token: bool) -> list[dict[str, list[str]]]:
    """The ways in: an inbox is named by its key, or by the query, which needs no more."""
    if route.open:
        return []
    needed: dict[str, list[str]] = {"token": []} if token else {}
    return [{**needed, "key": []}, needed] if route.scoped else [needed]


def _operation(route: Route, schemas: Mapping[Any, Any], components: Mapping[str, Any]) -> dict[str, Any]:
    query = components[route.query.__name__]["properties"]
    parameters = [
        {"name": part[1:-1], "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
        for part in route.path.split("/")
        if part.startswith("{")
    ]
    parameters += [
        {"name": name, "in": "query", "schema": schema}
        for name, schema in query.items()
        if route.scoped or name != "inbox"
    ]
    answer: dict[str, Any] = {"text/event-stream": {"schema": {"type": "string"}}}
    if route.answer is not None:
        answer = _json(schemas[route.answer])
    operation: dict[str, Any] = {
        "operationId": route.name,
        "summary": route.does,
        "parameters": parameters,
        "responses": {
            "200": {"description": route.does, "content": answer},
            "default": {"description": "why not", "content": _json(schemas[Error])},
        },
    }
    if route.body is not None:
        operation["requestBody"] = {"required": True, "content": _json(schemas[route.body])}
    return operation


def _json(schema: Any) -> dict[str, Any]:
    return {"application/json": {"schema": schema}}
