"""The control route table, sans-IO: parameters, bodies, responses. The OpenAPI document is made from it."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias, TypeVar
from urllib.parse import unquote

import msgspec
from msgspec import Meta, Struct

from pushsdk.emulator.control import views
from pushsdk.emulator.faults import Fault, Preset
from pushsdk.emulator.guard import Refused
from pushsdk.emulator.limits import ServiceLimits
from pushsdk.emulator.store.records import InboxView, Unmatched, UserCount

ROOT = "/_emulator/v1"
_OPENAPI = Path(__file__).with_name("openapi.json").read_bytes()
_Limit: TypeAlias = Annotated[int, Meta(ge=1, le=1000)]
_Line: TypeAlias = Annotated[str, Meta(max_length=1000)]
_Mark: TypeAlias = Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]


class RouteQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """``inbox`` is the public name of an inbox, instead of an Api-Key."""

    inbox: str | None = None


class SearchQuery(RouteQuery, frozen=True):
    search: _Line = ""


class ListQuery(SearchQuery, frozen=True):
    before: _Mark | None = None
    after: _Mark = 0
    limit: _Limit = 100
    grouped: bool = False


class SendQuery(RouteQuery, frozen=True):
    endpoint: Literal["push", "campaigns"] = "push"


class DeleteQuery(SearchQuery, frozen=True):
    all: bool = False


class PageQuery(RouteQuery, frozen=True):
    after: str = ""
    limit: _Limit = 100


class UsersQuery(PageQuery, frozen=True):
    search: _Line = ""


class FaultsBody(Struct, frozen=True, forbid_unknown_fields=True):
    """Either ``faults`` or a ``preset`` name; ``seed`` seeds the draws."""

    faults: list[Fault] | None = None
    preset: str | None = None
    seed: Annotated[int, Meta(ge=-(1 << 63), le=(1 << 63) - 1)] = 0


class EnabledBody(Struct, frozen=True, forbid_unknown_fields=True):
    enabled: bool


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
    """A table row: ``path`` is below the root, with ``{names}``; a ``scoped`` route needs an inbox."""

    method: str
    path: str
    summary: str
    response: Any
    query: type[RouteQuery] = RouteQuery
    body: type[Struct] | None = None
    scoped: bool = True
    open: bool = False  # needs no token
    over_all: bool = False  # takes the name *, for all inboxes

    @property
    def name(self) -> str:
        """The handler's name, for example ``get_users_id``."""
        return "_".join((self.method.lower(), *re.findall(r"\w+", self.path)))


ROUTES: tuple[Route, ...] = (
    Route("GET", "/health", "liveness", Ok, scoped=False, open=True),
    Route("GET", "/openapi.json", "this document", dict[str, Any], scoped=False, open=True),
    Route("GET", "/service/openapi.json", "the push service, as OpenAPI", dict[str, Any], scoped=False, open=True),
    Route("GET", "/service", "the emulator's Api-Key and inbox", Service, scoped=False),
    Route("POST", "/lint", "check a request without sending it", views.LintResult, body=LintBody, scoped=False),
    Route("GET", "/inboxes", "all inboxes", list[InboxView], scoped=False),
    Route("GET", "/unmatched", "requests that reached no inbox", list[Unmatched], scoped=False),
    Route("GET", "/presets", "named lists of fault rules", list[Preset], scoped=False),
    Route("GET", "/clock", "the service's time", Clock, scoped=False),
    Route("POST", "/clock", "set the clock forward", Clock, body=ClockBody, scoped=False),
    Route("PUT", "/label", "set the inbox's label", Ok, body=LabelBody),
    Route("GET", "/users", "users with accepted pushes", views.UserPage, query=UsersQuery),
    Route("GET", "/users/{id}", "the pushes of a user", views.UserView),
    Route("GET", "/duplicates", "users with the same push accepted twice", list[UserCount]),
    Route("GET", "/requests", "requests, newest first", views.RequestPage, query=ListQuery, over_all=True),
    Route("POST", "/requests", "send the body to the service, as a client would", views.SendResult, query=SendQuery),
    Route("GET", "/export", "newest 1,000 requests with bodies, as JSON lines", None, query=SearchQuery, over_all=True),
    Route("DELETE", "/requests", "delete requests, not counts", views.DeleteResult, query=DeleteQuery),
    Route("GET", "/requests/{id}", "one request with its body", views.RequestView, over_all=True),
    Route("DELETE", "/requests/{id}", "delete one request", views.DeleteResult),
    Route("GET", "/campaigns", "the newest campaigns", list[views.CampaignView]),
    Route("GET", "/campaigns/{uuid}", "one campaign", views.CampaignView, query=PageQuery),
    Route("POST", "/campaigns/{uuid}/start", "start a campaign now", views.CampaignView),
    Route("GET", "/events", "changes, as server-sent events", None, over_all=True),
    Route("GET", "/faults", "the fault rules and their hits", views.FaultList),
    Route("PUT", "/faults", "replace the rules", views.FaultList, body=FaultsBody),
    Route("DELETE", "/faults", "remove all rules", views.FaultList),
    Route("PATCH", "/faults/{name}", "switch a rule on or off", views.FaultList, body=EnabledBody),
    Route("GET", "/limits", "the limits of the inbox", ServiceLimits),
    Route("PUT", "/limits", "replace the limits", ServiceLimits, body=ServiceLimits),
    Route("POST", "/reset", "empty the inbox", Ok),
)


_PATTERNS = [(route, re.compile(re.sub(r"\{(\w+)\}", r"(?P<\1>[^/]+)", f"{ROOT}{route.path}"))) for route in ROUTES]


def find(raw_path: str) -> dict[str, tuple[Route, dict[str, str]]]:
    """Return the routes for a path by method, with the names in the path.

    The path is the raw one, so an encoded slash is part of a name.
    """
    return {
        route.method: (route, {name: unquote(value) for name, value in match.groupdict().items()})
        for route, pattern in _PATTERNS
        if (match := pattern.fullmatch(raw_path))
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
        raise Refused(400, f"the body is invalid: {error}") from None


def openapi(version: str, *, token: bool) -> dict[str, Any]:
    """Return the OpenAPI 3.1 document for all routes; with ``token`` they require one."""
    document: dict[str, Any] = msgspec.json.decode(_OPENAPI)
    kinds = [kind for route in ROUTES for kind in (route.response, route.query, route.body) if kind is not None]
    kinds = list(dict.fromkeys([Error, *kinds]))
    references, components = msgspec.json.schema_components(kinds, ref_template="#/components/schemas/{name}")
    schemas = dict(zip(kinds, references, strict=True))
    document["info"]["version"], document["components"]["schemas"] = version, components
    needed: dict[str, list[str]] = {"token": []} if token else {}
    for route in ROUTES:
        operation = _operation(route, schemas, components)
        # An Api-Key names the inbox, or the query does.
        operation["security"] = [] if route.open else [{**needed, "key": []}, needed] if route.scoped else [needed]
        document["paths"].setdefault(f"{ROOT}{route.path}", {})[route.method.lower()] = operation
    return document


def _operation(route: Route, schemas: Mapping[Any, Any], components: Mapping[str, Any]) -> dict[str, Any]:
    parameters = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
        for name in re.findall(r"{(\w+)}", route.path)
    ]
    parameters += [
        {"name": name, "in": "query", "schema": schema}
        for name, schema in components[route.query.__name__]["properties"].items()
        if route.scoped or name != "inbox"
    ]
    stream = {"text/event-stream": {"schema": {"type": "string"}}}
    content = stream if route.response is None else _json(schemas[route.response])
    operation: dict[str, Any] = {"operationId": route.name, "summary": route.summary, "parameters": parameters}
    operation["responses"] = {
        "200": {"description": route.summary, "content": content},
        "default": {"description": "error", "content": _json(schemas[Error])},
    }
    if route.body is not None:
        operation["requestBody"] = {"required": True, "content": _json(schemas[route.body])}
    return operation


def _json(schema: Any) -> dict[str, Any]:
    return {"application/json": {"schema": schema}}
