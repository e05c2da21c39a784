"""The service's two operations: each request from its head to its response, or to its fault.

The handler is a bare aiohttp one, without router and middleware, so that tests with 22,000 users measure the client.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections import deque
from collections.abc import Callable, Mapping, Sequence

import msgspec
from aiohttp import web
from aiohttp.web_protocol import RequestHandler, RequestPayloadError
from msgspec import UNSET, UnsetType

from pushsdk.emulator.campaigns.lifecycle import Campaigns
from pushsdk.emulator.campaigns.segment import Tables
from pushsdk.emulator.faults import Fault, HangFault, StatusFault, TruncatedFault
from pushsdk.emulator.guard import ENDPOINTS, Guard, Refusal, Refused
from pushsdk.emulator.http_io import abort, cut, json_response, read_body, refuse
from pushsdk.emulator.inboxes import Inboxes
from pushsdk.emulator.limits import Limiter
from pushsdk.emulator.shapes import Message, Unreadable, read_campaign, read_push
from pushsdk.emulator.store.database import StoreError
from pushsdk.emulator.store.queries import Store
from pushsdk.emulator.store.records import Preview, RequestRecord, Unmatched
from pushsdk.emulator.strict import check_campaign, check_push

_MAX_UNMATCHED = 100
_MAX_TEXT = 300  # characters of a text in a list
_MAX_LANGUAGES = 50
_CUTS = {
    "status": b"HTTP/1.1 20",
    "headers": b"HTTP/1.1 200 OK\r\nContent-Type: application/js",
    "body": b'HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 47\r\n\r\n{"uuid": "',
}


class RecordWriter:
    """Group commit: stores the records of one turn of the loop in one transaction, then calls ``stored`` with them.

    Commits run on the loop's own thread: they do not wait for the disk, and a thread would cost more than it saves.
    """

    def __init__(self, store: Store, stored: Callable[[Sequence[RequestRecord]], None]) -> None:
        self._store = store
        self._stored = stored
        self._pending: list[tuple[RequestRecord, asyncio.Future[StoreError | None]]] = []

    def add(self, record: RequestRecord) -> asyncio.Future[StoreError | None]:
        """Store a record at the end of this turn; the future's result is the error of the commit, or None."""
        loop = asyncio.get_running_loop()
        if not self._pending:
            loop.call_soon(self._commit)
        self._pending.append((record, loop.create_future()))
        return self._pending[-1][1]

    def _commit(self) -> None:
        group, self._pending = self._pending, []
        error = self._write([record for record, _ in group])
        for record, done in group:
            # Retry one by one, so that a record too large for the disk fails alone.
            own_error = self._write([record]) if error is not None and len(group) > 1 else error
            if done.cancelled():
                continue  # the server cancelled the handler
            if own_error is None or isinstance(own_error, StoreError):
                done.set_result(own_error)
            else:
                done.set_exception(own_error)

    def _write(self, records: Sequence[RequestRecord]) -> Exception | None:
        try:
            self._store.write(records)
        except Exception as error:  # noqa: BLE001 - raised in the handlers that wait
            return error
        self._stored(records)
        return None


class PushService:
    """The push service over a store."""

    def __init__(self, *, store: Store, tables: Tables | None, inboxes: Inboxes, guard: Guard) -> None:
        self._loop = asyncio.get_running_loop()
        self._guard = guard
        self._writer = RecordWriter(store, inboxes.publish_requests)
        self.campaigns: Campaigns = Campaigns(
            store, tables, now=self.now, changed=inboxes.publish_campaign, reached=inboxes.count_recipients
        )
        self.inboxes = inboxes
        self.ahead: float = 0.0  # seconds that the service's clock was set forward
        self.requests: int = 0  # all requests on the wire, refused ones too
        self.unmatched: deque[Unmatched] = deque(maxlen=_MAX_UNMATCHED)  # newest last
        self.closing: asyncio.Future[None] = self._loop.create_future()  # done when the emulator closes
        self.lost: dict[RequestHandler, asyncio.Future[None]] = {}  # done when the connection ends; set by the server

    def now(self) -> float:
        """Return the service's time in seconds since the epoch."""
        return time.time() + self.ahead

    def advance(self, seconds: float) -> None:
        """Set the service's clock forward, which starts campaigns and expires pushes. From any thread."""
        self.ahead += seconds
        self._loop.call_soon_threadsafe(self.campaigns.start_due)

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer one request; accept the request at most once, and only if its body arrived completely."""
        self.requests += 1
        refusal = self._guard.judge(request.method, request.path, request.headers)
        if refusal is not None:
            return self._refuse_unmatched(request, refusal)
        try:
            inbox = self.inboxes.of(request.headers["Api-Key"])
        except StoreError as error:
            return refuse(Refusal(507, str(error)))
        except Refused as refused:
            return refuse(refused.refusal)
        # Read now: a request that a reset overtakes belongs to the state before the reset.
        rules, limiter = inbox.rules, inbox.limiter
        record = RequestRecord(inbox=inbox.ref.id, time=self.now(), endpoint=ENDPOINTS[request.path], body=b"")
        try:
            record.body = await read_body(request, self._guard.max_body)
        except Refused as refused:
            return self._refuse_unmatched(request, refused.refusal)
        except (RequestPayloadError, OSError):  # the body is incomplete
            return abort(request)
        refusal = self._examine(limiter, record, request.headers)
        if refusal is not None:
            record.status, record.error, record.user_ids, record.campaign = refusal.status, refusal.error, (), None
            return await self._store(record) or refuse(refusal)
        decision = rules.decide(record.endpoint or "", record.user_ids, len(record.body))
        if decision.delay and not await self._wait(decision.delay):
            return abort(request)
        record.fault = decision.rule
        return await self._respond(request, limiter, record, decision.fault)

    def _refuse_unmatched(self, request: web.BaseRequest, refusal: Refusal) -> web.Response:
        """Refuse a request that reaches no inbox, and list the request on the page."""
        self.unmatched.append(
            Unmatched(
                time=self.now(),
                method=request.method[:20],
                path=request.path[:200],
                status=refusal.status,
                error=refusal.error,
            )
        )
        return refuse(refusal)

    def _examine(self, limiter: Limiter, record: RequestRecord, headers: Mapping[str, str]) -> Refusal | None:
        """Read the body into the record; return the refusal if the service would refuse the request."""
        try:
            if record.endpoint == "push":
                push = read_push(record.body)
                record.user_ids, record.users, record.digest = push.user_ids, len(push.user_ids), push.digest()
                _summarize(record, push.message)
            else:
                campaign = read_campaign(record.body)
                _summarize(record, None if campaign.message is UNSET else campaign.message)
                record.campaign = self.campaigns.accept(
                    str(uuid.uuid4()), record.body, campaign, trusted=self._guard.has_token(headers)
                )
            if limiter.limits.strict:
                (check_push if record.endpoint == "push" else check_campaign)(record.body)
        except Unreadable as error:
            return Refusal(400, str(error))
        return limiter.judge(
            endpoint=record.endpoint or "", user_ids=record.user_ids, size=len(record.body), now=self._loop.time()
        )

    async def _respond(
        self, request: web.BaseRequest, limiter: Limiter, record: RequestRecord, fault: Fault | None
    ) -> web.StreamResponse:
        """Accept the request unless the fault prevents that, store the record, then send the response or the fault."""
        record.accepted = fault is None or fault.accepts
        record.status = _status(record, fault)
        if record.accepted:
            limiter.count(record.users)
        else:
            record.user_ids, record.campaign = (), None
        failure = await self._store(record)
        if failure is not None:
            limiter.count(-record.users if record.accepted else 0)
            return failure
        if record.campaign is not None and record.id:
            self.campaigns.add(record.inbox, msgspec.structs.replace(record.campaign, id=record.id))
        if fault is not None:
            return await self._fail(fault, request)
        if record.campaign is not None:
            return json_response(200, {"uuid": record.campaign.uuid})
        return web.Response(status=204)

    async def _store(self, record: RequestRecord) -> web.Response | None:
        """Store the record; return the response if that fails."""
        error = await self._writer.add(record)
        return None if error is None else refuse(Refusal(507, str(error)))

    async def _fail(self, fault: Fault, request: web.BaseRequest) -> web.StreamResponse:
        if isinstance(fault, StatusFault):
            return _status_response(fault)
        if isinstance(fault, TruncatedFault):
            return cut(request, _CUTS[fault.at])
        lost = self.lost.get(request.protocol)  # None if the client disconnected during a delay
        if isinstance(fault, HangFault) and lost is not None:
            await asyncio.wait((self.closing, lost), return_when="FIRST_COMPLETED")
        return abort(request)

    async def _wait(self, seconds: float) -> bool:
        """Wait; return False if the emulator closes first."""
        done, _ = await asyncio.wait((self.closing,), timeout=seconds)
        return not done


def _summarize(record: RequestRecord, message: Message | None) -> None:
    """Set the record's preview and searched texts."""
    if message is None:
        return
    title, subtitle, body = _texts(message.title), _texts(message.subtitle), _texts(message.body)
    record.title = "\n".join(title.values()).casefold()
    record.text = "\n".join((*subtitle.values(), *body.values())).casefold()
    record.preview = Preview(
        title=_shortened(title),
        body=_shortened(body),
        languages=tuple(dict.fromkeys((*title, *subtitle, *body)))[:_MAX_LANGUAGES],
        # The interface document does not say what a missing flag means. Here, as in lint, the platform is off.
        platforms=tuple(
            platform
            for platform, enabled in (("ios", message.ios_enabled), ("android", message.android_enabled))
            if enabled is True
        ),
        collapse_id=None if message.collapse_id is UNSET else message.collapse_id[:_MAX_TEXT],
        first_user=record.user_ids[0] if record.user_ids else None,
    )


def _texts(texts: dict[str, str] | UnsetType) -> dict[str, str]:
    return {} if texts is UNSET else texts


def _shortened(texts: dict[str, str]) -> dict[str, str]:
    return {language: text[:_MAX_TEXT] for language, text in list(texts.items())[:_MAX_LANGUAGES]}


def _status(record: RequestRecord, fault: Fault | None) -> int | None:
    if fault is None:
        return 204 if record.endpoint == "push" else 200
    return fault.code if isinstance(fault, StatusFault) else None


def _status_response(fault: StatusFault) -> web.Response:
    headers = dict(fault.headers)
    if fault.body and "content-type" not in {name.lower() for name in headers}:
        headers["Content-Type"] = "application/json"
    return web.Response(status=fault.code, body=fault.body.encode() or None, headers=headers)
