"""Who waits on the wire: for requests to come, or for all that changes."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from contextlib import suppress
from typing import TypeAlias

import msgspec
from aiohttp import web

from pushsdk.emulator.control import views
from pushsdk.emulator.http_io import PRIVATE
from pushsdk.emulator.inboxes import Event, EventLog, InboxState
from pushsdk.emulator.service import PushService
from pushsdk.emulator.store.queries import Store
from pushsdk.emulator.store.records import RequestSummary
from pushsdk.emulator.store.search import Search

__all__ = ["Streams"]

_PAUSE = 0.02  # seconds between two counts of a wait
_FRAME = 0.1  # seconds between two writes of a stream: a page draws no faster
_BEAT = 15.0  # seconds after which a quiet stream says that it is there
_SHOWN = 100  # requests in the answer of a wait
_BURST = 50  # requests told one by one; of more the reader is told to read the list
_MARK = re.compile(r"([0-9a-f]{1,32})-([0-9]{1,18})")
_Ends: TypeAlias = tuple[asyncio.Future[None], ...]


class Streams:
    """Answers ``/wait`` and ``/events``."""

    def __init__(self, service: PushService, store: Store) -> None:
        self._service = service
        self._store = store

    async def wait(
        self, request: web.BaseRequest, inbox: InboxState, search: Search, *, count: int, after: int, timeout: float
    ) -> views.WaitResult:
        """Until so many requests of the search came with an id over ``after``, the inbox is reset, or time is over."""
        ref = inbox.ref
        found = await self._count(inbox, search, count, after, timeout, self._ends(request))
        newest = await asyncio.to_thread(self._store.requests, ref, search, after=after, limit=_SHOWN)
        return views.WaitResult(found >= count, found, newest, inbox.ref != ref)

    async def _count(
        self, inbox: InboxState, search: Search, count: int, after: int, timeout: float, ends: _Ends
    ) -> int:
        """How many there were when one of the reasons ended it."""
        clock = asyncio.get_running_loop().time
        ref, deadline, found, mark = inbox.ref, clock() + timeout, 0, -1
        while True:
            if inbox.events.mark != mark:
                mark = inbox.events.mark
                # Only what came since is counted: a long wait of many requests must not count all of them each time.
                new, after = await asyncio.to_thread(self._store.count_new, ref, search, after)
                found += new
            left = deadline - clock()
            if found >= count or left <= 0 or inbox.ref != ref or _over(ends):
                return found
            await self._change(inbox, mark, left, ends)
            await _first(ends, timeout=min(_PAUSE, left))

    async def events(self, request: web.BaseRequest, inbox: InboxState, mark: str) -> web.StreamResponse:
        """Server-sent events from a mark on, until the reader or the service leaves."""
        response = web.StreamResponse(headers={**PRIVATE, "Content-Type": "text/event-stream"})
        with suppress(ConnectionError):  # the reader left
            await response.prepare(request)
            await self._stream(response, inbox, mark, self._ends(request))
        return response

    async def _stream(self, response: web.StreamResponse, inbox: InboxState, last: str, ends: _Ends) -> None:
        seen = _seen(inbox.events, last)
        if seen is not None:
            await response.write(b": welcome back\n\n")
        else:
            # The reader reads the lists now, and misses nothing from here on.
            seen = inbox.events.mark
            await response.write(_frame("resync" if last else "hello", {}, f"{inbox.events.boot}-{seen}"))
        while not _over(ends):
            if not await self._change(inbox, seen, _BEAT, ends):
                await response.write(b": still here\n\n")
                continue
            events = inbox.events.since(seen)
            seen = events[-1].mark if events else inbox.events.mark
            if frames := await self._frames(inbox, events, f"{inbox.events.boot}-{seen}"):
                await response.write(frames)
            await _first(ends, timeout=_FRAME)

    async def _frames(self, inbox: InboxState, events: Sequence[Event] | None, mark: str) -> bytes:
        """What the events say, together."""
        found = [] if events is None else await self._came(inbox, events)
        if events is None or len(found) > _BURST:
            return _frame("resync", {}, mark)
        told: list[tuple[str, object]] = [("request", each) for each in found]
        others = dict.fromkeys((event.kind, event.first, event.name) for event in events if event.kind != "request")
        told += [(kind, {"id": number or None, "uuid": uuid or None}) for kind, number, uuid in others]
        # Only the last has the mark: who got a part of them gets all of them again.
        marks = [*[None] * (len(told) - 1), mark]
        return b"".join(_frame(kind, data, each) for (kind, data), each in zip(told, marks, strict=False))

    async def _came(self, inbox: InboxState, events: Sequence[Event]) -> list[RequestSummary]:
        """The requests of the events that are still there, oldest first, and one more than are told one by one."""
        spans = [(event.first, event.last) for event in events if event.kind == "request"]
        if not spans:
            return []
        return await asyncio.to_thread(
            self._store.requests,
            inbox.ref,
            after=spans[0][0] - 1,
            before=spans[-1][1] + 1,
            limit=_BURST + 1,
            forward=True,
        )

    def _ends(self, request: web.BaseRequest) -> _Ends:
        """What ends every wait: the service closes, or the client is gone."""
        lost = self._service.lost.get(request.protocol)
        return (self._service.closing,) if lost is None else (self._service.closing, lost)

    async def _change(self, inbox: InboxState, mark: int, timeout: float, ends: _Ends) -> bool:
        """Wait for an event after the mark; False where time is over, or one of the ends comes first."""
        changed = asyncio.ensure_future(inbox.events.changed(mark))
        try:
            await _first((changed, *ends), timeout=timeout)
            return changed.done()
        finally:
            changed.cancel()


async def _first(ends: _Ends, *, timeout: float) -> None:
    await asyncio.wait(ends, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)


def _over(ends: _Ends) -> bool:
    return any(end.done() for end in ends)


def _seen(live: EventLog, mark: str) -> int | None:
    """The mark that a reader was given, or None where it is of another time or too far behind."""
    match = _MARK.fullmatch(mark)
    if match is None or match[1] != live.boot:
        return None
    seen = int(match[2])
    return None if live.since(seen) is None else seen


def _frame(kind: str, data: object, mark: str | None) -> bytes:
    """One event. Its mark comes last, so that it is known with all before it, or not at all."""
    name = b"" if mark is None else b"id: %b\n" % mark.encode()
    return b"event: %b\ndata: %b\n%b\n" % (kind.encode(), msgspec.json.encode(data), name)
