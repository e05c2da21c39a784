"""The control route handlers, which tests and the page call."""

import asyncio
import inspect
from contextlib import suppress
from functools import partial
from typing import Any

import msgspec
from aiohttp import web

from pushsdk._version import __version__
from pushsdk.emulator.control import routes, views
from pushsdk.emulator.control.routes import route
from pushsdk.emulator.faults import PRESETS, Preset, Rules, preset
from pushsdk.emulator.guard import Refused
from pushsdk.emulator.http_io import PRIVATE, connection_of, json_response, read_body
from pushsdk.emulator.inboxes import InboxState
from pushsdk.emulator.limits import ServiceLimits
from pushsdk.emulator.service import PushService
from pushsdk.emulator.store.records import InboxView, Unmatched, UserCount
from pushsdk.emulator.store.search import Search, parse

_MAX_EXPORT = 1000  # requests in a download
_MAX_BODIES = 16 * 1024 * 1024  # bytes read to show one user's pushes
_LOOK_INTERVAL = 0.1  # seconds until a stream looks for new events: a page draws no faster
_QUIET_LOOKS = 150  # without an event, until a stream sends a heartbeat
_MAX_BURST = 50  # requests in one look of a stream; for more the reader has to read the list


class Control:
    """Answers the routes, each with a method.

    A plain method runs in a thread, because it reads or writes the store. A coroutine runs in the event loop.
    """

    def __init__(self, service: PushService, api_key: str) -> None:
        self._service = service
        self._api_key = api_key
        self._store = service.store
        self._guard = service.guard

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer one request to a path below the root."""
        answer = await self._bound(request)
        try:
            value = await (answer() if inspect.iscoroutinefunction(answer.func) else asyncio.to_thread(answer))
            return value if isinstance(value, web.StreamResponse) else json_response(200, value, PRIVATE)
        except RecursionError:
            raise Refused(500, "a value in the response is nested too deeply to be shown") from None

    async def _bound(self, request: web.BaseRequest) -> partial[Any]:
        """Return the handler with the arguments that its parameters ask for. Raises `Refused`."""
        found, names = self._find_route(request)
        query = routes.read_query(found.query, request.query)
        values = {"request": request, "query": query, **names}
        if "body" in found.kinds:
            values["body"] = routes.read_body(found.kinds["body"], await read_body(request, self._guard))
        if "inbox" in found.kinds:
            is_all = found.over_all and query.inbox == "*"
            values["inbox"] = self._service.inboxes.all if is_all else self._state(request, query.inbox)
        return partial(found.handler, self, **{name: values[name] for name in found.kinds.keys() & values})

    def _find_route(self, request: web.BaseRequest) -> tuple[routes.Route, dict[str, str]]:
        """Return the route of an admitted request, and the names in the path. Raises `Refused`."""
        matches = routes.find(request.rel_url.raw_path)
        found, names = matches.get(request.method, (None, {}))
        if found is not None and found.open:
            self._guard.check_origin(request.headers)
        else:
            self._guard.check_control(request.method, request.headers)
        if found is None and matches:
            raise Refused(405, f"the method must be {' or '.join(matches)}", {"Allow": ", ".join(matches)})
        if found is None:
            raise Refused(404, f"no such route: see {routes.ROOT}/openapi.json")
        return found, names

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

    @route("GET", "/health", open=True)
    async def get_health(self) -> routes.Ok:
        """Say that the service is alive."""
        return routes.Ok(version=__version__)

    @route("GET", "/openapi.json", open=True)
    def get_openapi(self) -> dict[str, Any]:
        """Return this document."""
        return routes.openapi(__version__, token=self._guard.needs_token)

    @route("GET", "/service")
    def get_service(self) -> routes.Service:
        """Return the emulator's Api-Key and inbox."""
        return routes.Service(self._api_key, self._store.find(self._api_key).name)

    @route("POST", "/lint")
    def lint(self, body: routes.LintBody) -> views.LintResult:
        """Check a request without sending it."""
        return views.lint_result(body.endpoint, body.body)

    @route("GET", "/inboxes")
    def get_inboxes(self) -> list[InboxView]:
        """Return all inboxes."""
        return self._service.inboxes.views()

    @route("GET", "/unmatched")
    async def get_unmatched(self) -> list[Unmatched]:
        """Return the requests that reached no inbox."""
        return list(reversed(self._service.unmatched))

    @route("GET", "/presets")
    def get_presets(self) -> list[Preset]:
        """Return the presets: fault rules with a name."""
        return list(PRESETS.values())

    @route("GET", "/clock")
    async def get_clock(self) -> routes.Clock:
        """Return the service's time."""
        return routes.Clock(self._service.now(), self._service.ahead)

    @route("POST", "/clock")
    async def set_clock(self, body: routes.ClockBody) -> routes.Clock:
        """Set the clock forward."""
        self._service.ahead += body.advance
        return await self.get_clock()

    # Users

    @route("GET", "/users")
    def get_users(self, inbox: InboxState, query: routes.UsersQuery) -> views.UserPage:
        """Return the users with accepted pushes."""
        users = self._store.received(inbox.ref, like=query.search, after=query.after, limit=query.limit + 1)
        page = users[: query.limit]
        return views.UserPage(page, page[-1].user_id if len(users) > query.limit else None)

    @route("GET", "/users/{user}")
    def get_user(self, inbox: InboxState, user: str) -> views.UserView:
        """Return a user's pushes."""
        accepted, delivered = self._store.delivered(inbox.ref, user, size=_MAX_BODIES)
        return views.user_view(user, accepted, delivered, self._service.now())

    @route("GET", "/duplicates")
    def get_duplicates(self, inbox: InboxState) -> list[UserCount]:
        """Return the users with the same push accepted twice."""
        return self._store.received(inbox.ref, same=2)

    # Requests

    @route("GET", "/requests", over_all=True)
    def get_requests(self, inbox: InboxState, query: routes.ListQuery) -> views.RequestPage:
        """Return requests, newest first."""
        requests = self._store.requests(
            inbox.ref,
            parse(query.search),
            after=query.after,
            before=query.before,
            limit=query.limit + 1,
            grouped=query.grouped,
        )
        page, key = requests[: query.limit], "group" if query.grouped else "id"
        return views.RequestPage(page, getattr(page[-1], key) if len(requests) > query.limit else None)

    @route("POST", "/requests")
    async def send_request(
        self, request: web.BaseRequest, inbox: InboxState, query: routes.SendQuery
    ) -> views.SendResult:
        """Send the body to the service, as a client would."""
        record = self._service.record(inbox, query.endpoint)
        response = await self._service.receive(request, inbox, record, on_wire=False)
        body = getattr(response, "body", None) or b""
        status = record.status if record.id else response.status
        return views.SendResult(record.id, status, record.accepted, body.decode())

    @route("GET", "/export", over_all=True)
    def get_export(self, inbox: InboxState, query: routes.SearchQuery) -> web.StreamResponse:
        """Return the newest 1,000 requests with bodies, as JSON lines."""
        summaries = self._store.requests(inbox.ref, parse(query.search), limit=_MAX_EXPORT)
        pairs = [pair for summary in summaries if (pair := self._store.request(inbox.ref, summary.id)) is not None]
        lines = msgspec.json.Encoder().encode_lines([views.export_row(*pair) for pair in pairs])
        return web.Response(body=lines, content_type="application/jsonl", headers=PRIVATE)

    @route("DELETE", "/requests")
    def delete_requests(self, inbox: InboxState, query: routes.DeleteQuery) -> views.DeleteResult:
        """Delete requests, not counts."""
        search = parse(query.search)
        if search.partial:
            raise Refused(400, "the search has a term without a value, or too many terms: it would delete too much")
        if (search == Search()) is not query.all:
            raise Refused(400, "give either ?search=..., or ?all=true to delete all requests")
        return self._delete(inbox, search, None)

    @route("GET", "/requests/{number}", over_all=True)
    def get_request(self, inbox: InboxState, number: str) -> views.RequestView:
        """Return one request with its body."""
        stored = self._store.request(inbox.ref, int(number))
        if stored is None:
            raise Refused(404, "no request with this id is stored")
        return views.request_view(*stored)

    @route("DELETE", "/requests/{number}")
    def delete_request(self, inbox: InboxState, number: str) -> views.DeleteResult:
        """Delete one request."""
        return self._delete(inbox, Search(), int(number))

    def _delete(self, inbox: InboxState, search: Search, only: int | None) -> views.DeleteResult:
        deleted = self._store.delete(inbox.ref, search, only=only)
        inbox.publish("deleted", only=only)
        return views.DeleteResult(deleted)

    # Events

    @route("GET", "/events", over_all=True)
    async def get_events(self, request: web.BaseRequest, inbox: InboxState) -> web.StreamResponse:
        """Send changes as server-sent events, until the client disconnects or the service closes."""
        # After each hello the client reads the lists; every later change is an event. A resync replaces requests that
        # were too many: the client reads the lists again.
        end = connection_of(request).lost
        response = web.StreamResponse(headers={**PRIVATE, "Content-Type": "text/event-stream"})
        with suppress(ConnectionError):  # the client disconnected
            await response.prepare(request)
            seen, quiet, writes = len(inbox.changes), 0, self._store.writes
            newest, _ = await self._new_requests(inbox, 0)
            frames = _frame("hello", {})
            while not end.done():
                if frames or quiet == _QUIET_LOOKS:
                    await response.write(frames or b": heartbeat\n\n")
                    frames, quiet = b"", 0
                await asyncio.wait((end,), timeout=_LOOK_INTERVAL)
                quiet += 1
                changes = inbox.changes[seen:]
                seen += len(changes)
                if writes != self._store.writes:
                    writes = self._store.writes  # before the requests, which others may follow
                    newest, frames = await self._new_requests(inbox, newest)
                frames += b"".join(_frame(kind, {"id": only}) for kind, only in changes)
        return response

    async def _new_requests(self, inbox: InboxState, after: int) -> tuple[int, bytes]:
        """Return the newest id, and the frames for the requests after an id, as far as they are still stored."""
        requests = await asyncio.to_thread(self._store.requests, inbox.ref, after=after, limit=_MAX_BURST + 1)
        frames = [_frame("request", request) for request in reversed(requests)]
        newest = requests[0].id if requests else after
        return newest, b"".join(frames) if len(frames) <= _MAX_BURST else _frame("resync", {})

    # Faults and limits

    @route("GET", "/faults")
    def get_faults(self, inbox: InboxState) -> views.FaultList:
        """Return the fault rules and their hits."""
        return views.faults(inbox.rules)

    @route("PUT", "/faults")
    def set_faults(self, inbox: InboxState, body: routes.FaultsBody) -> views.FaultList:
        """Replace the rules."""
        if (body.faults is None) is (body.preset is None):
            raise Refused(400, "give either `faults`, a list of rules, or the name of a `preset`")
        try:
            faults = body.faults or (preset(body.preset).faults if body.preset is not None else ())
            inbox.set_rules(Rules(faults, seed=body.seed))
        except ValueError as error:
            raise Refused(400, str(error)) from None
        return views.faults(inbox.rules)

    @route("GET", "/limits")
    def get_limits(self, inbox: InboxState) -> ServiceLimits:
        """Return the inbox's limits."""
        return inbox.limiter.limits

    @route("PUT", "/limits")
    def set_limits(self, inbox: InboxState, body: ServiceLimits) -> ServiceLimits:
        """Replace the limits."""
        inbox.set_limits(body)
        return body

    @route("PUT", "/label")
    def set_label(self, inbox: InboxState, body: routes.LabelBody) -> routes.Ok:
        """Set the inbox's label."""
        self._store.label(inbox.ref, body.label)
        return routes.Ok()

    @route("POST", "/reset")
    def reset(self, inbox: InboxState) -> routes.Ok:
        """Empty the inbox."""
        self._service.inboxes.reset(inbox)
        return routes.Ok()


def _frame(event: str, data: object) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (event.encode(), msgspec.json.encode(data))
