"""The control route handlers, which tests and the page call."""

import asyncio
import inspect
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import msgspec
from aiohttp import web
from aiohttp.web_protocol import RequestPayloadError
from msgspec import Struct

from pushsdk._core.openapi import service_document
from pushsdk._version import __version__
from pushsdk.emulator.control import routes, views
from pushsdk.emulator.faults import PRESETS, Preset, Rules, preset
from pushsdk.emulator.guard import PREFIX, Guard, Refused
from pushsdk.emulator.http_io import PRIVATE, json_response, read_body, refuse
from pushsdk.emulator.inboxes import Event, InboxState
from pushsdk.emulator.limits import ServiceLimits
from pushsdk.emulator.service import PushService
from pushsdk.emulator.shapes import LARGE
from pushsdk.emulator.store.database import StoreError
from pushsdk.emulator.store.queries import NO_BOUND, Store
from pushsdk.emulator.store.records import Campaign, InboxView, RequestSummary, Unmatched, UserCount
from pushsdk.emulator.store.search import Search, parse

_MAX_CAMPAIGNS = 1000  # in the list
_MAX_EXPORT = 1000  # requests in a download
_MAX_BODIES = 16 * 1024 * 1024  # bytes read to show one user's pushes
_WRITE_DELAY = 0.1  # seconds between two stream writes: a page draws no faster
_HEARTBEAT = 15.0  # seconds
_MAX_BURST = 50  # requests in one stream write; for more the reader has to read the list


class ControlRequest(Struct, frozen=True):
    """A request to a control route, decoded. ``names`` are the variable parts of the path."""

    request: web.BaseRequest
    names: dict[str, str]
    query: Any
    body: Any
    inbox: InboxState  # the state of all inboxes if the route is not scoped


class Control:
    """Answers the routes in ``routes.ROUTES``. A route's handler is the method with the route's name.

    A plain method runs in a thread, because it reads or writes the store. A coroutine runs in the event loop.
    """

    def __init__(self, service: PushService, store: Store, guard: Guard, api_key: str) -> None:
        self._service = service
        self._api_key = api_key
        self._store = store
        self._guard = guard

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer one request to a path below the root."""
        try:
            control_request, route = await self._read(request)
            handler = getattr(self, f"_{route.name}")
            if inspect.iscoroutinefunction(handler):
                value = await handler(control_request)
            else:
                value = await asyncio.to_thread(handler, control_request)
            return value if isinstance(value, web.StreamResponse) else json_response(200, value, PRIVATE)
        except Refused as refused:
            return refuse(refused, PRIVATE)
        except StoreError as error:
            return refuse(Refused(507, str(error)), PRIVATE)
        except RecursionError:
            return refuse(Refused(500, "a value in the response is nested too deeply to be shown"), PRIVATE)

    async def _read(self, request: web.BaseRequest) -> tuple[ControlRequest, routes.Route]:
        route, names = self._find_route(request)
        query = routes.read_query(route.query, request.query)
        body = None if route.body is None else await self._body(request, route.body)
        inbox = self._service.inboxes.all
        if route.scoped and not (route.over_all and query.inbox == "*"):
            inbox = self._state(request, query.inbox)
        return ControlRequest(request, names, query, body, inbox), route

    def _find_route(self, request: web.BaseRequest) -> tuple[routes.Route, dict[str, str]]:
        """Return the route of an admitted request, and the names in the path. Raises `Refused`."""
        matches = routes.find(request.rel_url.raw_path)
        route, names = matches.get(request.method, (None, {}))
        if route is not None and route.open:
            self._guard.check_origin(request.headers)
        else:
            self._guard.check_control(request.method, request.headers)
        if route is None and matches:
            raise Refused(405, f"the method must be {' or '.join(matches)}", {"Allow": ", ".join(matches)})
        if route is None:
            raise Refused(404, f"no such route: see {routes.ROOT}/openapi.json")
        return route, names

    async def _body(self, request: web.BaseRequest, kind: type[Struct]) -> Struct:
        try:
            return routes.read_body(kind, await read_body(request, self._guard))
        except (RequestPayloadError, OSError):
            raise Refused(400, "the body is incomplete") from None

    def _state(self, request: web.BaseRequest, name: str | None) -> InboxState:
        """Return the request's inbox, by public name or by Api-Key."""
        if name is not None:
            inbox = self._service.inboxes.named(name)
            if inbox is None:
                raise Refused(404, "no inbox has this name: GET /inboxes lists them")
            return inbox
        api_key = request.headers.get("Api-Key")
        if not api_key:
            raise Refused(401, "an inbox is needed: send an Api-Key header, or ?inbox= with its public name")
        return self._service.inboxes.of(api_key)

    # The service

    async def _get_health(self, request: ControlRequest) -> routes.Ok:
        return routes.Ok(version=__version__)

    def _get_openapi_json(self, request: ControlRequest) -> dict[str, Any]:
        return routes.openapi(__version__, token=self._guard.needs_token)

    def _get_service_openapi_json(self, request: ControlRequest) -> dict[str, Any]:
        return service_document(PREFIX)

    def _get_service(self, request: ControlRequest) -> routes.Service:
        return routes.Service(self._api_key, self._store.find(self._api_key).name)

    def _post_lint(self, request: ControlRequest) -> views.LintResult:
        return views.lint_result(request.body.endpoint, request.body.body)

    def _get_inboxes(self, request: ControlRequest) -> list[InboxView]:
        return self._service.inboxes.views()

    async def _get_unmatched(self, request: ControlRequest) -> list[Unmatched]:
        return list(reversed(self._service.unmatched))

    def _get_presets(self, request: ControlRequest) -> list[Preset]:
        return list(PRESETS.values())

    async def _get_clock(self, request: ControlRequest) -> routes.Clock:
        return routes.Clock(self._service.now(), self._service.ahead)

    async def _post_clock(self, request: ControlRequest) -> routes.Clock:
        self._service.advance(request.body.advance)
        return await self._get_clock(request)

    # Users

    def _get_users(self, request: ControlRequest) -> views.UserPage:
        query = request.query
        users = self._store.received(request.inbox.ref, like=query.search, after=query.after, limit=query.limit + 1)
        page = users[: query.limit]
        return views.UserPage(page, page[-1].user_id if len(users) > query.limit else None)

    def _get_users_id(self, request: ControlRequest) -> views.UserView:
        user_id = request.names["id"]
        accepted, delivered = self._store.delivered(request.inbox.ref, user_id, size=_MAX_BODIES)
        return views.user_view(user_id, accepted, delivered, self._service.now())

    def _get_duplicates(self, request: ControlRequest) -> list[UserCount]:
        return self._store.received(request.inbox.ref, same=2)

    # Requests

    def _get_requests(self, request: ControlRequest) -> views.RequestPage:
        query = request.query
        requests = self._store.requests(
            request.inbox.ref,
            parse(query.search),
            after=query.after,
            before=NO_BOUND if query.before is None else query.before,
            limit=query.limit + 1,
            grouped=query.grouped,
        )
        page, key = requests[: query.limit], "group" if query.grouped else "id"
        return views.RequestPage(page, getattr(page[-1], key) if len(requests) > query.limit else None)

    async def _post_requests(self, request: ControlRequest) -> views.SendResult:
        record = self._service.record(request.inbox, request.query.endpoint)
        response = await self._service.receive(request.request, request.inbox, record, on_wire=False)
        body = getattr(response, "body", None) or b""
        status = record.status if record.id else response.status
        return views.SendResult(record.id, status, record.accepted, body.decode())

    def _get_export(self, request: ControlRequest) -> web.Response:
        ref, search = request.inbox.ref, parse(request.query.search)
        summaries = self._store.requests(ref, search, limit=_MAX_EXPORT)
        pairs = [pair for summary in summaries if (pair := self._store.request(ref, summary.id)) is not None]
        lines = msgspec.json.Encoder().encode_lines([views.export_row(*pair) for pair in pairs])
        return web.Response(body=lines, content_type="application/jsonl", headers=PRIVATE)

    def _delete_requests(self, request: ControlRequest) -> views.DeleteResult:
        search = parse(request.query.search)
        if search.partial:
            raise Refused(400, "the search has a term without a value, or too many terms: it would delete too much")
        if (search == Search()) is not request.query.all:
            raise Refused(400, "give either ?search=..., or ?all=true to delete all requests")
        return self._delete(request, search, None)

    def _get_requests_id(self, request: ControlRequest) -> views.RequestView:
        stored = self._store.request(request.inbox.ref, _number(request.names["id"]))
        if stored is None:
            raise Refused(404, "no request with this id is stored")
        return views.request_view(*stored)

    def _delete_requests_id(self, request: ControlRequest) -> views.DeleteResult:
        return self._delete(request, Search(), _number(request.names["id"]))

    def _delete(self, request: ControlRequest, search: Search, only: int | None) -> views.DeleteResult:
        deleted = self._store.delete(request.inbox.ref, search, only=only)
        request.inbox.events.publish("deleted", id=only or 0)
        return views.DeleteResult(deleted)

    # Campaigns

    def _get_campaigns(self, request: ControlRequest) -> list[views.CampaignView]:
        campaigns = self._store.campaigns(request.inbox.ref, limit=_MAX_CAMPAIGNS, size=LARGE)
        return [views.campaign_view(campaign) for campaign in reversed(campaigns)]

    def _get_campaigns_uuid(self, request: ControlRequest) -> views.CampaignView:
        campaign = self._campaign(request)
        rows = self._store.recipients(campaign, after=request.query.after, limit=request.query.limit)
        return views.campaign_view(campaign, rows)

    async def _post_campaigns_uuid_start(self, request: ControlRequest) -> views.CampaignView:
        campaign = await asyncio.to_thread(self._campaign, request)
        with _refused(409):
            return views.campaign_view(self._service.campaigns.start(request.inbox.ref.id, campaign))

    def _campaign(self, request: ControlRequest) -> Campaign:
        campaign = self._store.campaign(request.inbox.ref, request.names["uuid"])
        if campaign is None:
            raise Refused(404, "no campaign of this inbox has this uuid")
        return campaign

    # Events

    async def _get_events(self, request: ControlRequest) -> web.StreamResponse:
        """Send server-sent events until the client disconnects or the service closes.

        After each ``hello`` the client reads the lists; every later change is an event. A ``resync`` replaces events
        that were too many: the client reads the lists again.
        """
        inbox, end = request.inbox, self._service.end_of(request.request)
        response = web.StreamResponse(headers={**PRIVATE, "Content-Type": "text/event-stream"})
        with suppress(ConnectionError):  # the client disconnected
            await response.prepare(request.request)
            mark = inbox.events.mark
            await response.write(_frame("hello", {}))
            while not end.done():
                if not await self._wait_for_change(inbox, mark, _HEARTBEAT, end):
                    await response.write(b": heartbeat\n\n")
                    continue
                events = inbox.events.since(mark)
                mark = events[-1].mark if events else inbox.events.mark
                if frames := await self._frames(inbox, events):
                    await response.write(frames)
                await asyncio.wait((end,), timeout=_WRITE_DELAY)
        return response

    async def _frames(self, inbox: InboxState, events: Sequence[Event] | None) -> bytes:
        if events is None:
            return _frame("resync", {})
        requests = await self._new_requests(inbox, events)
        if len(requests) > _MAX_BURST:
            return _frame("resync", {})
        frames = [_frame("request", request) for request in requests]
        others = dict.fromkeys(
            _frame(event.kind, {"id": event.id or None, "uuid": event.uuid or None})
            for event in events
            if event.kind != "request"
        )
        return b"".join((*frames, *others))

    async def _new_requests(self, inbox: InboxState, events: Sequence[Event]) -> list[RequestSummary]:
        """Return the requests in these events that are still stored, up to one over the burst."""
        ids = [event.id for event in events if event.kind == "request"]
        if not ids:
            return []
        after, before = ids[0] - 1, ids[-1] + 1
        return await asyncio.to_thread(
            self._store.requests, inbox.ref, after=after, before=before, limit=_MAX_BURST + 1, forward=True
        )

    async def _wait_for_change(self, inbox: InboxState, mark: int, timeout: float, end: asyncio.Future[None]) -> bool:
        """Return True as soon as there is an event after the mark; False at the timeout or the end."""
        changed = asyncio.ensure_future(inbox.events.changed(mark))
        try:
            await asyncio.wait((changed, end), timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
            return changed.done()
        finally:
            changed.cancel()

    # Faults and limits

    def _get_faults(self, request: ControlRequest) -> views.FaultList:
        return views.faults(request.inbox.rules)

    def _put_faults(self, request: ControlRequest) -> views.FaultList:
        body = request.body
        if (body.faults is None) == (body.preset is None):
            raise Refused(400, "give either `faults`, a list of rules, or the name of a `preset`")
        with _refused(400):
            faults = preset(body.preset).faults if body.faults is None else body.faults
            rules = Rules(faults, seed=body.seed)
        request.inbox.set_rules(rules)
        return views.faults(request.inbox.rules)

    def _delete_faults(self, request: ControlRequest) -> views.FaultList:
        request.inbox.set_rules(Rules())
        return views.faults(request.inbox.rules)

    def _patch_faults_name(self, request: ControlRequest) -> views.FaultList:
        with _refused(404):
            request.inbox.rules.enable(request.names["name"], request.body.enabled)
        request.inbox.events.publish("faults")
        return views.faults(request.inbox.rules)

    def _get_limits(self, request: ControlRequest) -> ServiceLimits:
        return request.inbox.limiter.limits

    def _put_limits(self, request: ControlRequest) -> ServiceLimits:
        request.inbox.set_limits(request.body)
        return request.inbox.limiter.limits

    def _put_label(self, request: ControlRequest) -> routes.Ok:
        self._store.label(request.inbox.ref, request.body.label)
        return routes.Ok()

    def _post_reset(self, request: ControlRequest) -> routes.Ok:
        self._service.inboxes.reset(request.inbox)
        return routes.Ok()


def _number(text: str) -> int:
    if not text.isdecimal() or not text.isascii() or len(text) > 18:
        raise Refused(404, "the id of a request must be a number")
    return int(text)


@contextmanager
def _refused(status: int) -> Iterator[None]:
    """Turn a ValueError about the caller's input into a refusal."""
    try:
        yield
    except ValueError as error:
        raise Refused(status, str(error)) from None


def _frame(event: str, data: object) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (event.encode(), msgspec.json.encode(data))
