"""The service's two operations: each request from its head to its response, or to its fault.

The handler is a bare aiohttp one, without router and middleware, so that tests with 22,000 users measure the client.
"""

import asyncio
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime

import msgspec
from aiohttp import web

from pushsdk._core.models import MobilePush
from pushsdk._core.words import count as counted
from pushsdk.emulator.faults import Fault, headers_of
from pushsdk.emulator.guard import ENDPOINTS, Endpoint, Guard, Refused
from pushsdk.emulator.http_io import abort, connection_of, cut, json_response, read_body, refuse
from pushsdk.emulator.inboxes import Inboxes, InboxState
from pushsdk.emulator.limits import Limiter
from pushsdk.emulator.shapes import check_strictly, read_campaign, read_push
from pushsdk.emulator.store.database import StoreError
from pushsdk.emulator.store.queries import Store
from pushsdk.emulator.store.records import Preview, RequestRecord, Unmatched

_MAX_UNMATCHED = 100
_MAX_TEXT = 300  # characters per text in a list
_MAX_LANGUAGES = 50
_MAX_LOGGED = 60  # characters per title in the log
_SUCCESS = {"push": 204, "campaigns": 200}
_CUTS = {
    "status": b"HTTP/1.1 20",
    "headers": b"HTTP/1.1 200 OK\r\nContent-Type: application/js",
    "body": b'HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 47\r\n\r\n{"uuid": "',
}


class PushService:
    """The push service over a store."""

    def __init__(
        self,
        *,
        inboxes: Inboxes,
        guard: Guard,
        log: Callable[[str], object] | None,
    ) -> None:
        self.guard = guard
        self.store: Store = inboxes.store
        self._log = log
        self.inboxes = inboxes
        self.ahead: float = 0.0  # seconds that the service's clock was set forward
        self.unmatched: deque[Unmatched] = deque(maxlen=_MAX_UNMATCHED)  # newest last

    def now(self) -> float:
        """Return the service's time in seconds since the epoch."""
        return time.time() + self.ahead

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer one request; accept the request at most once, and only if its body arrived completely."""
        self.inboxes.requests += 1
        try:
            self.guard.check_request(request.method, request.path, request.headers)
            inbox = self.inboxes.of(request.headers["Api-Key"])
        except Refused as refused:
            return self._refuse_unmatched(request, refused)
        return await self.receive(request, inbox, self.record(inbox, ENDPOINTS[request.path]))

    def record(self, inbox: InboxState, endpoint: Endpoint) -> RequestRecord:
        """Return the record for a request that arrives now."""
        return RequestRecord(inbox=inbox.ref.id, time=self.now(), endpoint=endpoint)

    async def receive(
        self, request: web.BaseRequest, inbox: InboxState, record: RequestRecord, *, on_wire: bool = True
    ) -> web.StreamResponse:
        """Answer a request to an inbox from its body on, and complete its record.

        Unless ``on_wire``, a fault that ends the connection only leaves ``record.status`` None.
        """
        # Read now: a request that a reset overtakes belongs to the state before the reset.
        rules, limiter = inbox.rules, inbox.limiter
        try:
            record.body = await read_body(request, self.guard)
        except Refused as refused:
            return self._refuse_unmatched(request, refused)
        try:
            self._examine(limiter, record)
        except Refused as refused:
            record.status, record.error = refused.status, refused.error
            return self._keep(record) or refuse(refused)
        decision = rules.decide(record.endpoint, record.user_ids, len(record.body))
        if decision.delay:
            await asyncio.sleep(decision.delay)  # the server cancels it when the emulator closes
        record.fault = decision.rule
        return await self._respond(request if on_wire else None, limiter, record, decision.fault)

    def _refuse_unmatched(self, request: web.BaseRequest, refused: Refused) -> web.Response:
        """Refuse a request that reaches no inbox, and list the request on the page."""
        unmatched = Unmatched(self.now(), request.method[:20], request.path[:200], refused.status, refused.error)
        self.unmatched.append(unmatched)
        self._report(*msgspec.structs.astuple(unmatched))
        return refuse(refused)

    def _examine(self, limiter: Limiter, record: RequestRecord) -> None:
        """Read the body into the record. Raises `Refused` if the service would refuse the request."""
        if record.endpoint == "push":
            push = read_push(record.body)
            record.user_ids, record.digest = push.user_ids, push.digest()
            _describe(record, push.message)
        else:
            record.campaign = str(uuid.uuid4())
            _describe(record, read_campaign(record.body).message or MobilePush())
        if limiter.limits.strict:
            check_strictly(record.endpoint, record.body)
        limiter.check(user_ids=record.user_ids, size=len(record.body), now=asyncio.get_running_loop().time())

    async def _respond(
        self, request: web.BaseRequest | None, limiter: Limiter, record: RequestRecord, fault: Fault | None
    ) -> web.StreamResponse:
        """Accept the request unless the fault prevents that, store the record, then send the response or the fault."""
        record.accepted = fault is None or fault.accepts
        record.status = _SUCCESS[record.endpoint] if fault is None else fault.code
        if (failure := self._keep(record)) is not None:
            return failure
        if record.accepted:
            limiter.used += len(record.user_ids)
        if fault is not None:
            return await self._fail(fault, request)
        return web.Response(status=204) if record.campaign is None else json_response(200, {"uuid": record.campaign})

    def _keep(self, record: RequestRecord) -> web.Response | None:
        """Store the record, without waiting for the disk; return the response if that fails."""
        try:
            self.store.write(record)
        except StoreError as error:
            record.id, record.accepted = 0, False  # the failure can be in the commit, after the insert set the id
            return refuse(error)
        if self._log is not None:
            text = record.error or " ".join(_described(record))
            self._report(record.time, "POST", f"/v1/{record.endpoint}", record.status or "no response", text)
        return None

    def _report(self, time: float, method: str, path: str, status: object, text: str) -> None:
        if self._log is not None:
            self._log(f"{datetime.fromtimestamp(time):%H:%M:%S} {method} {path} {status} {text}")

    async def _fail(self, fault: Fault, request: web.BaseRequest | None) -> web.StreamResponse:
        if fault.fault == "status" or request is None:
            body = fault.body.encode() or None
            return web.Response(status=fault.code or 500, body=body, headers=headers_of(fault))
        if fault.fault == "truncated":
            return cut(request, _CUTS[fault.at or "headers"])
        if fault.fault == "hang":
            await asyncio.wait((connection_of(request).lost,))
        return abort(request)


def _described(record: RequestRecord) -> Iterator[str]:
    if record.endpoint == "push":
        yield counted(len(record.user_ids))
    for title in list(record.preview.title.values())[:1]:
        yield f'"{title[:_MAX_LOGGED]}"'
    if record.fault is not None:
        yield f"(fault {record.fault}{', accepted' if record.accepted else ''})"


def _describe(record: RequestRecord, message: MobilePush) -> None:
    """Set the texts that lists show and searches find."""
    title, subtitle, body = message.title or {}, message.subtitle or {}, message.body or {}
    # The interface document does not define a missing flag. Here, as in lint, the platform is off.
    platforms = {"ios": message.ios_enabled, "android": message.android_enabled}
    record.preview = Preview(
        title=_shortened(title),
        body=_shortened(body),
        languages=tuple(dict.fromkeys((*title, *subtitle, *body)))[:_MAX_LANGUAGES],
        platforms=tuple(name for name, enabled in platforms.items() if enabled is True),
        first_user=next(iter(record.user_ids), None),
    )
    record.title = "\n".join(title.values()).casefold()
    record.text = "\n".join((*subtitle.values(), *body.values())).casefold()


def _shortened(texts: Mapping[str, str]) -> dict[str, str]:
    return {language: text[:_MAX_TEXT] for language, text in list(texts.items())[:_MAX_LANGUAGES]}
