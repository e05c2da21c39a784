"""The control routes: what was accepted, what came, faults and limits, for tests and for the page."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
from aiohttp import web
from aiohttp.web_protocol import RequestPayloadError
from msgspec import Struct

from pushsdk._version import __version__
from pushsdk.emulator.control import routes, views
from pushsdk.emulator.control.streams import Streams
from pushsdk.emulator.faults import Rules, preset, read_faults
from pushsdk.emulator.guard import Guard, Refusal, Refused
from pushsdk.emulator.http_io import PRIVATE, json_response, read_body, refuse
from pushsdk.emulator.inboxes import InboxState
from pushsdk.emulator.limits import ServiceLimits
from pushsdk.emulator.service import PushService
from pushsdk.emulator.shapes import LARGE
from pushsdk.emulator.store.queries import NO_BOUND, NO_INBOX, InboxRef, Store, StoreError
from pushsdk.emulator.store.records import Campaign, InboxView, Unmatched, UserCount
from pushsdk.emulator.store.search import Search, parse

__all__ = ["Control"]


_CAMPAIGNS = 1000  # in the list
_BODIES = 16 * 1024 * 1024  # bytes that are read to show what a user got


class ControlRequest(Struct, frozen=True):
    """A request to a route, read. Only a scoped one has an ``inbox``."""

    request: web.BaseRequest
    names: dict[str, str]
    query: Any
    body: Any
    inbox: InboxState


class Control:
    """Answers the routes of ``routes.ROUTES``, each by the method of its name."""

    def __init__(self, service: PushService, store: Store, guard: Guard) -> None:
        self._service = service
        self._store = store
        self._guard = guard
        self._streams = Streams(service, store)
        # For the routes that are of no inbox.
        self._nowhere = InboxState(NO_INBOX, rules=Rules(), limits=ServiceLimits())

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer one request under the root."""
        try:
            call, route = await self._read(request)
            answer = getattr(self, f"_{route.name}")(call)
            value = await answer if inspect.isawaitable(answer) else answer
            return value if isinstance(value, web.StreamResponse) else json_response(200, value, PRIVATE)
        except Refused as refused:
            refusal = refused.refusal
        except StoreError as error:
            refusal = Refusal(507, str(error))
        except RecursionError:
            refusal = Refusal(500, "a value in the answer is nested too deeply to be shown")
        return refuse(msgspec.structs.replace(refusal, headers={**PRIVATE, **refusal.headers}))

    async def _read(self, request: web.BaseRequest) -> tuple[ControlRequest, routes.Route]:
        route, names = self._admit(request)
        query = routes.read_query(route.query, request.query.items())
        body = None
        if route.body is not None:
            body = routes.read_body(route.body, await self._whole_body(request))
        inbox = self._state(request, query.inbox) if route.scoped else self._nowhere
        return ControlRequest(request, names, query, body, inbox), route

    def _admit(self, request: web.BaseRequest) -> tuple[routes.Route, dict[str, str]]:
        """Return the route and the names in its path, unless the head alone is refused."""
        found = routes.find(request.rel_url.raw_path)
        route, names = found.get(request.method, (None, {}))
        if route is not None and route.open:
            refusal = self._guard.foreign(request.headers)
        else:
            refusal = self._guard.judge_control(request.method, request.headers)
        if refusal is not None:
            raise Refused(refusal.status, refusal.error, refusal.headers)
        if route is not None:
            return route, names
        if found:
            raise Refused(405, f"the method must be {' or '.join(found)}", {"Allow": ", ".join(found)})
        raise Refused(404, f"no such route: see {routes.ROOT}/openapi.json")

    async def _whole_body(self, request: web.BaseRequest) -> bytes:
        try:
            return await read_body(request, self._guard.max_body)
        except (RequestPayloadError, OSError):
            raise Refused(400, "the body did not arrive whole") from None

    def _state(self, request: web.BaseRequest, name: str | None) -> InboxState:
        """The inbox of the call: by its public name, or by the key."""
        if name is not None:
            inbox = self._service.inboxes.named(name)
            if inbox is None:
                raise Refused(404, "no inbox has this name: GET /inboxes lists them")
            return inbox
        api_key = request.headers.get("Api-Key")
        if not api_key:
            raise Refused(401, "say which inbox: an Api-Key header, or ?inbox= with its public name")
        return self._service.inboxes.of(api_key)

    # The service

    def _get_health(self, call: ControlRequest) -> routes.Ok:
        return routes.Ok(version=__version__)

    def _get_ready(self, call: ControlRequest) -> routes.Ok:
        self._store.check()
        return routes.Ok(version=__version__)

    def _get_openapi_json(self, call: ControlRequest) -> dict[str, Any]:
        return routes.openapi(__version__, token=self._guard.token_needed)

    async def _get_inboxes(self, call: ControlRequest) -> list[InboxView]:
        return await asyncio.to_thread(self._store.inboxes)

    def _get_unmatched(self, call: ControlRequest) -> list[Unmatched]:
        return list(reversed(self._service.unmatched))

    def _get_presets(self, call: ControlRequest) -> list[views.PresetView]:
        return views.presets()

    def _get_clock(self, call: ControlRequest) -> routes.Clock:
        return routes.Clock(self._service.now(), self._service.ahead)

    def _post_clock(self, call: ControlRequest) -> routes.Clock:
        self._service.advance(call.body.advance)
        return self._get_clock(call)

    # Users

    async def _get_users(self, call: ControlRequest) -> views.UserPage:
        query = call.query
        found = await asyncio.to_thread(
            self._store.received, call.inbox.ref, like=query.search, after=query.after, limit=query.limit + 1
        )
        shown = found[: query.limit]
        return views.UserPage(shown, shown[-1].user_id if len(found) > query.limit else None)

    async def _get_users_id(self, call: ControlRequest) -> views.UserView:
        user_id = call.names["id"]
        accepted, got = await asyncio.to_thread(self._store.delivered, call.inbox.ref, user_id, size=_BODIES)
        return await asyncio.to_thread(views.user_view, user_id, accepted, got, self._service.now())

    async def _get_duplicates(self, call: ControlRequest) -> list[UserCount]:
        return await asyncio.to_thread(self._store.received, call.inbox.ref, same=2)

    # Requests

    async def _get_requests(self, call: ControlRequest) -> views.RequestPage:
        query = call.query
        found = await asyncio.to_thread(
            self._store.requests,
            call.inbox.ref,
            parse(query.search),
            after=query.after,
            before=NO_BOUND if query.before is None else query.before,
            limit=query.limit + 1,
        )
        shown = found[: query.limit]
        return views.RequestPage(shown, shown[-1].id if len(found) > query.limit else None)

    async def _delete_requests(self, call: ControlRequest) -> views.DeleteResult:
        search = parse(call.query.search)
        if search.partial:
            raise Refused(400, "the search has a term without a value, or too many: more would go than was asked for")
        if (search == Search()) is not call.query.all:
            raise Refused(400, "say which: either ?search=..., or ?all=true for all of them")
        return await self._deleted(call, search, None)

    async def _get_requests_id(self, call: ControlRequest) -> views.RequestView:
        return await asyncio.to_thread(self._request, call.inbox.ref, _number(call.names["id"]))

    def _request(self, ref: InboxRef, number: int) -> views.RequestView:
        found = self._store.request(ref, number)
        if found is None:
            raise Refused(404, "no such request is kept")
        return views.request_view(*found)

    async def _delete_requests_id(self, call: ControlRequest) -> views.DeleteResult:
        return await self._deleted(call, Search(), _number(call.names["id"]))

    async def _deleted(self, call: ControlRequest, search: Search, only: int | None) -> views.DeleteResult:
        deleted = await asyncio.to_thread(self._store.delete, call.inbox.ref, search, only=only)
        call.inbox.events.publish("deleted", first=only or 0)
        return views.DeleteResult(deleted)

    # Campaigns

    async def _get_campaigns(self, call: ControlRequest) -> list[views.CampaignView]:
        return await asyncio.to_thread(self._campaigns, call.inbox.ref)

    def _campaigns(self, ref: InboxRef) -> list[views.CampaignView]:
        found = self._store.campaigns(ref, limit=_CAMPAIGNS, size=LARGE)
        return [views.campaign_view(each) for each in reversed(found)]

    async def _get_campaigns_uuid(self, call: ControlRequest) -> views.CampaignView:
        campaign = await self._campaign(call)
        rows = await asyncio.to_thread(self._store.recipients, campaign, after=call.query.after, limit=call.query.limit)
        return views.campaign_view(campaign, rows)

    async def _post_campaigns_uuid_start(self, call: ControlRequest) -> views.CampaignView:
        campaign = await self._campaign(call)
        with _refused(409):
            return views.campaign_view(self._service.campaigns.start(call.inbox.ref.id, campaign))

    async def _campaign(self, call: ControlRequest) -> Campaign:
        campaign = await asyncio.to_thread(self._store.campaign, call.inbox.ref, call.names["uuid"])
        if campaign is None:
            raise Refused(404, "no campaign of this inbox has this uuid")
        return campaign

    # Waiting

    async def _get_wait(self, call: ControlRequest) -> views.WaitResult:
        query = call.query
        return await self._streams.wait(
            call.request, call.inbox, parse(query.search), count=query.count, after=query.after, timeout=query.timeout
        )

    async def _get_events(self, call: ControlRequest) -> web.StreamResponse:
        mark = call.request.headers.get("Last-Event-ID") or call.query.after
        return await self._streams.events(call.request, call.inbox, mark)

    # Faults and limits

    def _get_faults(self, call: ControlRequest) -> views.FaultList:
        return views.faults(call.inbox.rules)

    def _put_faults(self, call: ControlRequest) -> views.FaultList:
        given = call.body
        if (given.faults is None) == (given.preset is None):
            raise Refused(400, "give either `faults`, a list of rules, or the name of a `preset`")
        with _refused(400):
            found = preset(given.preset).faults if given.preset is not None else read_faults(given.faults)
            rules = Rules(found, seed=given.seed)
        call.inbox.set_rules(rules)
        return views.faults(call.inbox.rules)

    def _delete_faults(self, call: ControlRequest) -> views.FaultList:
        call.inbox.set_rules(Rules())
        return views.faults(call.inbox.rules)

    def _patch_faults_name(self, call: ControlRequest) -> views.FaultList:
        with _refused(404):
            call.inbox.rules.enable(call.names["name"], call.body.enabled)
        call.inbox.events.publish("faults")
        return views.faults(call.inbox.rules)

    def _get_limits(self, call: ControlRequest) -> ServiceLimits:
        return call.inbox.limiter.limits

    def _put_limits(self, call: ControlRequest) -> ServiceLimits:
        call.inbox.set_limits(call.body)
        return call.inbox.limiter.limits

    def _put_label(self, call: ControlRequest) -> routes.Ok:
        self._store.label(call.inbox.ref, call.body.label)
        return routes.Ok()

    def _post_reset(self, call: ControlRequest) -> routes.Ok:
        self._service.inboxes.reset(call.inbox)
        return routes.Ok()


def _number(text: str) -> int:
    if not text.isdecimal() or not text.isascii() or len(text) > 18:
        raise Refused(404, "the id of a request is a number")
    return int(text)


@contextmanager
def _refused(status: int) -> Iterator[None]:
    """A ValueError in it, which says what is wrong with what was asked for, is a refusal."""
    try:
        yield
    except ValueError as error:
        raise Refused(status, str(error)) from None
