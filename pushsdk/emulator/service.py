"""One request to the service from its head to its answer: refuse, read, decide, store, answer or fail as told.

The handler is a bare aiohttp one, without router and middleware: the emulator must not be what a test of 22,000 users
waits for.
"""

from __future__ import annotations

import asyncio
import random
import time
import uuid
from collections import deque
from collections.abc import Callable, Mapping, Sequence

import msgspec
from aiohttp import web
from aiohttp.web_protocol import RequestHandler, RequestPayloadError
from msgspec import UNSET

from pushsdk.emulator.campaigns.lifecycle import Campaigns
from pushsdk.emulator.campaigns.segment import Tables
from pushsdk.emulator.faults import Fault, HangFault, StatusFault, TruncatedFault
from pushsdk.emulator.guard import ENDPOINTS, Guard, Refusal, Refused
from pushsdk.emulator.http_io import abort, cut, json_response, read_body, refuse
from pushsdk.emulator.inboxes import Inboxes
from pushsdk.emulator.limits import Limiter
from pushsdk.emulator.phones import describe
from pushsdk.emulator.shapes import Unreadable, read_campaign, read_push
from pushsdk.emulator.store.queries import Store, StoreError
from pushsdk.emulator.store.records import RequestRecord, Unmatched
from pushsdk.emulator.strict import check_campaign, check_push

__all__ = ["PushService", "RecordWriter"]

_UNMATCHED = 100  # heads kept of requests that reached no inbox
_CUTS = {
    "status": b"HTTP/1.1 20",
    "headers": b"HTTP/1.1 200 OK\r\nContent-Type: application/js",
    "body": b'HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 47\r\n\r\n{"uuid": "',
}


class RecordWriter:
    """One transaction for all entries of a turn of the loop; ``stored`` is called with them after it.

    On the loop's own thread: no commit waits for the disk, and a thread would cost more than it frees.
    """

    def __init__(self, store: Store, stored: Callable[[Sequence[RequestRecord]], None]) -> None:
        self._store = store
        self._stored = stored
        self._waiting: list[tuple[RequestRecord, asyncio.Future[StoreError | None]]] = []

    def add(self, entry: RequestRecord) -> asyncio.Future[StoreError | None]:
        """Store an entry with the others of this turn; the future is done after the commit, with its error if any."""
        loop = asyncio.get_running_loop()
        if not self._waiting:
            loop.call_soon(self._commit)
        self._waiting.append((entry, loop.create_future()))
        return self._waiting[-1][1]

    def _commit(self) -> None:
        group, self._waiting = self._waiting, []
        error = self._write([entry for entry, _ in group])
        for entry, done in group:
            # An entry that is too large for the disk takes no other along.
            why = self._write([entry]) if error is not None and len(group) > 1 else error
            if done.cancelled():
                continue  # the server ended its handler
            if why is None or isinstance(why, StoreError):
                done.set_result(why)
            else:
                done.set_exception(why)

    def _write(self, entries: Sequence[RequestRecord]) -> Exception | None:
        try:
            self._store.write(entries)
        except Exception as error:  # noqa: BLE001 - it belongs to the handlers that wait
            return error
        self._stored(entries)
        return None


class PushService:
    """The two operations over a store."""

    def __init__(self, *, store: Store, tables: Tables | None, inboxes: Inboxes, guard: Guard, seed: int) -> None:
        self._loop = asyncio.get_running_loop()
        self._guard = guard
        self._commits = RecordWriter(store, inboxes.stored)
        self.campaigns: Campaigns = Campaigns(
            store, tables, now=self.now, changed=inboxes.campaign, reached=inboxes.reached
        )
        # Repeatable is the point; and yet those of a store that is used again must be other ones.
        self._random = random.Random(f"{seed}:campaigns:{store.last_id()}")  # noqa: S311
        self.inboxes = inboxes
        self.ahead: float = 0.0  # seconds that the service's clock was set forward
        self.requests: int = 0  # every one on the wire, refused ones too
        self.unmatched: deque[Unmatched] = deque(maxlen=_UNMATCHED)  # newest last
        self.closing: asyncio.Future[None] = self._loop.create_future()  # done when the emulator closes
        self.lost: dict[RequestHandler, asyncio.Future[None]] = {}  # open connections; set by the server

    def now(self) -> float:
        """The service's time, in seconds since the epoch."""
        return time.time() + self.ahead

    def advance(self, seconds: float) -> None:
        """Set the service's clock forward: campaigns start, pushes expire. From any thread."""
        self.ahead += seconds
        self._loop.call_soon_threadsafe(self.campaigns.look)

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer one request; accept it at most once, and only when its body arrived whole."""
        self.requests += 1
        refusal = self._guard.judge(request.method, request.path, request.headers)
        if refusal is not None:
            return self._turn_away(request, refusal)
        try:
            inbox = self.inboxes.of(request.headers["Api-Key"])
        except StoreError as error:
            return refuse(Refusal(507, str(error)))
        except Refused as refused:
            return refuse(refused.refusal)
        # Its inbox, rules and limits are those of now: what a reset overtakes belongs to the time before it.
        rules, limiter = inbox.rules, inbox.limiter
        entry = RequestRecord(inbox=inbox.ref.id, time=self.now(), endpoint=ENDPOINTS[request.path], body=b"")
        try:
            entry.body = await read_body(request, self._guard.max_body)
        except Refused as refused:
            return self._turn_away(request, refused.refusal)
        except (RequestPayloadError, OSError):  # the body did not arrive whole
            return abort(request)
        refusal = self._examine(limiter, entry, request.headers)
        if refusal is not None:
            return await self._refused(entry, refusal)
        verdict = rules.decide(entry.endpoint or "", entry.user_ids, len(entry.body))
        if verdict.delay and not await self._waited(verdict.delay):
            return abort(request)
        entry.fault = verdict.rule
        return await self._decided(request, limiter, entry, verdict.fault)

    def _turn_away(self, request: web.BaseRequest, refusal: Refusal) -> web.Response:
        """Refuse what reaches no inbox, and remember it for somebody who wonders where it is."""
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

    def _examine(self, limiter: Limiter, entry: RequestRecord, headers: Mapping[str, str]) -> Refusal | None:
        """Read the body into the entry; why it is refused, or None."""
        try:
            if entry.endpoint == "push":
                push = read_push(entry.body)
                entry.user_ids, entry.users, entry.digest = push.user_ids, len(push.user_ids), push.digest()
                describe(entry, push.message)
            else:
                campaign = read_campaign(entry.body)
                describe(entry, None if campaign.message is UNSET else campaign.message)
                name = uuid.UUID(int=self._random.getrandbits(128), version=4)
                entry.campaign = self.campaigns.accept(
                    str(name), entry.body, campaign, trusted=self._guard.has_token(headers)
                )
            if limiter.limits.strict:
                (check_push if entry.endpoint == "push" else check_campaign)(entry.body)
        except Unreadable as error:
            return Refusal(400, str(error))
        return limiter.judge(
            endpoint=entry.endpoint or "", user_ids=entry.user_ids, size=len(entry.body), now=self._loop.time()
        )

    async def _refused(self, entry: RequestRecord, refusal: Refusal) -> web.Response:
        entry.status, entry.error, entry.user_ids, entry.campaign = refusal.status, refusal.error, (), None
        return await self._stored(entry) or refuse(refusal)

    async def _decided(
        self, request: web.BaseRequest, limiter: Limiter, entry: RequestRecord, fault: Fault | None
    ) -> web.StreamResponse:
        """Accept, or not, and store that before anything is answered."""
        entry.accepted = fault is None or fault.accepts
        entry.status = _status(entry, fault)
        if entry.accepted:
            limiter.took(entry.users)
        else:
            entry.user_ids, entry.campaign = (), None
        full = await self._stored(entry)
        if full is not None:
            limiter.took(-entry.users if entry.accepted else 0)
            return full
        if entry.campaign is not None and entry.id:
            self.campaigns.add(entry.inbox, msgspec.structs.replace(entry.campaign, id=entry.id))
        if fault is not None:
            return await self._fail(fault, request)
        if entry.campaign is not None:
            return json_response(200, {"uuid": entry.campaign.uuid})
        return web.Response(status=204)

    async def _stored(self, entry: RequestRecord) -> web.Response | None:
        """Wait until the entry is stored; return the answer that says why if that fails."""
        error = await self._commits.add(entry)
        return None if error is None else refuse(Refusal(507, str(error)))

    async def _fail(self, fault: Fault, request: web.BaseRequest) -> web.StreamResponse:
        if isinstance(fault, StatusFault):
            return _answer(fault)
        if isinstance(fault, TruncatedFault):
            return cut(request, _CUTS[fault.at])
        if isinstance(fault, HangFault):
            await self._left(request)
        return abort(request)

    async def _left(self, request: web.BaseRequest) -> None:
        """Wait until the client leaves, who may be gone since a delay began, or the emulator closes."""
        lost = self.lost.get(request.protocol)
        if lost is not None:
            await asyncio.wait((self.closing, lost), return_when="FIRST_COMPLETED")

    async def _waited(self, seconds: float) -> bool:
        """Wait; False when the emulator closes first."""
        done, _ = await asyncio.wait((self.closing,), timeout=seconds)
        return not done


def _status(entry: RequestRecord, fault: Fault | None) -> int | None:
    if fault is None:
        return 204 if entry.endpoint == "push" else 200
    return fault.code if isinstance(fault, StatusFault) else None


def _answer(fault: StatusFault) -> web.Response:
    headers = dict(fault.headers)
    if fault.body and "content-type" not in {name.lower() for name in headers}:
        headers["Content-Type"] = "application/json"
    return web.Response(status=fault.code, body=fault.body.encode() or None, headers=headers)
