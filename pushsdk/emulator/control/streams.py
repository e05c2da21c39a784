"""The control routes that wait: ``/wait`` for requests, ``/events`` for every change of an inbox."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import TypeAlias

import msgspec
from aiohttp import web

from pushsdk.emulator.control.routes import WaitQuery
from pushsdk.emulator.control.views import WaitResult
from pushsdk.emulator.http_io import PRIVATE
from pushsdk.emulator.inboxes import Event, InboxState
from pushsdk.emulator.service import PushService
from pushsdk.emulator.store.queries import Store
from pushsdk.emulator.store.records import RequestSummary
from pushsdk.emulator.store.search import Search, parse

_COUNT_DELAY = 0.02  # seconds between two counts of a wait
_WRITE_DELAY = 0.1  # seconds between two writes of a stream: a page draws no faster
_HEARTBEAT = 15.0  # seconds
_MAX_SHOWN = 100  # requests in the result of a wait
_MAX_BURST = 50  # requests in one write of a stream; for more the reader has to read the list
_Ends: TypeAlias = tuple[asyncio.Future[None], ...]


class Streams:
    """Handles ``/wait`` and ``/events``."""

    def __init__(self, service: PushService, store: Store) -> None:
        self._service = service
        self._store = store

    async def wait(self, request: web.BaseRequest, inbox: InboxState, query: WaitQuery) -> WaitResult:
        """Wait for ``query.count`` requests with an id over ``query.after``, for a reset, or for the timeout."""
        ref, search = inbox.ref, parse(query.search)
        count = await self._count(inbox, search, query, self._ends(request))
        newest = await asyncio.to_thread(self._store.requests, ref, search, after=query.after, limit=_MAX_SHOWN)
        return WaitResult(count >= query.count, count, newest, inbox.ref != ref)

    async def _count(self, inbox: InboxState, search: Search, query: WaitQuery, ends: _Ends) -> int:
        """Return the number of matching requests at the end of the wait."""
        clock = asyncio.get_running_loop().time
        ref, deadline, after, total, mark = inbox.ref, clock() + query.timeout, query.after, 0, -1
        while True:
            if inbox.events.mark != mark:
                mark = inbox.events.mark
                # Count only new requests: a long wait would otherwise count all of them each time.
                new, after = await asyncio.to_thread(self._store.count_new, ref, search, after)
                total += new
            remaining = deadline - clock()
            if total >= query.count or remaining <= 0 or inbox.ref != ref or _is_over(ends):
                return total
            await self._wait_for_change(inbox, mark, remaining, ends)
            await _first(ends, timeout=min(_COUNT_DELAY, remaining))

    async def events(self, request: web.BaseRequest, inbox: InboxState) -> web.StreamResponse:
        """Send server-sent events until the client disconnects or the service closes.

        After each ``hello`` the client reads the lists; every later change is an event. A ``resync`` replaces events
        that were too many: the client reads the lists again.
        """
        response = web.StreamResponse(headers={**PRIVATE, "Content-Type": "text/event-stream"})
        ends = self._ends(request)
        with suppress(ConnectionError):  # the client disconnected
            await response.prepare(request)
            mark = inbox.events.mark
            await response.write(_frame("hello", {}))
            while not _is_over(ends):
                if not await self._wait_for_change(inbox, mark, _HEARTBEAT, ends):
                    await response.write(b": heartbeat\n\n")
                    continue
                events = inbox.events.since(mark)
                mark = events[-1].mark if events else inbox.events.mark
                if frames := await self._frames(inbox, events):
                    await response.write(frames)
                await _first(ends, timeout=_WRITE_DELAY)
        return response

    async def _frames(self, inbox: InboxState, events: Sequence[Event] | None) -> bytes:
        requests = [] if events is None else await self._new_requests(inbox, events)
        if events is None or len(requests) > _MAX_BURST:
            return _frame("resync", {})
        others = dict.fromkeys((event.kind, event.first, event.name) for event in events if event.kind != "request")
        frames = [_frame("request", request) for request in requests]
        frames += [_frame(kind, {"id": number or None, "uuid": uuid or None}) for kind, number, uuid in others]
        return b"".join(frames)

    async def _new_requests(self, inbox: InboxState, events: Sequence[Event]) -> list[RequestSummary]:
        """Return the requests of the events that are still stored, oldest first, at most one over the burst."""
        spans = [(event.first, event.last) for event in events if event.kind == "request"]
        if not spans:
            return []
        return await asyncio.to_thread(
            self._store.requests,
            inbox.ref,
            after=spans[0][0] - 1,
            before=spans[-1][1] + 1,
            limit=_MAX_BURST + 1,
            forward=True,
        )

    def _ends(self, request: web.BaseRequest) -> _Ends:
        """Return the futures that end every wait: the service closes, or the client disconnects."""
        lost = self._service.lost.get(request.protocol)
        return (self._service.closing,) if lost is None else (self._service.closing, lost)

    async def _wait_for_change(self, inbox: InboxState, mark: int, timeout: float, ends: _Ends) -> bool:
        """Return True as soon as there is an event after the mark; False at the timeout or one of the ends."""
        changed = asyncio.ensure_future(inbox.events.changed(mark))
        try:
            await _first((changed, *ends), timeout=timeout)
            return changed.done()
        finally:
            changed.cancel()


async def _first(ends: _Ends, *, timeout: float) -> None:
    await asyncio.wait(ends, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)


def _is_over(ends: _Ends) -> bool:
    return any(end.done() for end in ends)


def _frame(event: str, data: object) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (event.encode(), msgspec.json.encode(data))
