"""Who waits on the wire: for requests to come, or for all that changes."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

import msgspec
from aiohttp import web

from pushsdk.emulator import views
from pushsdk.emulator.answers import refuse
from pushsdk.emulator.app import Service
from pushsdk.emulator.guard import Refusal
from pushsdk.emulator.live import Event
from pushsdk.emulator.rooms import Room
from pushsdk.emulator.search import Search
from pushsdk.emulator.store import Store

__all__ = ["Streams"]

_PAUSE = 0.02  # seconds between two counts of a wait
_FRAME = 0.1  # seconds between two writes of a stream: a page draws no faster
_BEAT = 15.0  # seconds after which a quiet stream says that it is there
_SHOWN = 100  # requests in the answer of a wait
_BURST = 50  # requests told one by one; of more the reader is told to read the list
_MOST = 100  # who may wait at a time


class Streams:
    """Answers ``/wait`` and ``/events``."""

    def __init__(self, service: Service, store: Store) -> None:
        self._service = service
        self._store = store
        self._open = 0

    async def wait(self, room: Room, search: Search, *, count: int, after: int, timeout: float) -> views.Waited:
        """Until so many requests of the search came with an id over ``after``, the inbox is reset, or time is over."""
        box, deadline = room.box, asyncio.get_running_loop().time() + timeout
        found, mark, counted = 0, -1, after
        while True:
            if room.live.mark != mark:
                mark = room.live.mark
                # Only what came since is counted: a long wait of many requests must not count all of them each time.
                new, counted = await asyncio.to_thread(self._store.count_new, box, search, counted)
                found += new
            left = deadline - asyncio.get_running_loop().time()
            if found >= count or left <= 0 or room.box != box or self._service.closing.done():
                break
            await self._change(room, mark, left)
            await asyncio.sleep(min(_PAUSE, left))
        newest = await asyncio.to_thread(self._store.requests, box, search, after=after, limit=_SHOWN)
        return views.Waited(found >= count, found, [views.summary(each) for each in newest], room.box != box)

    async def events(
        self, request: web.BaseRequest, room: Room, mark: str, headers: Mapping[str, str]
    ) -> web.StreamResponse:
        """Server-sent events from a mark on, until the reader or the service leaves."""
        if self._open >= _MOST:
            return refuse(Refusal(503, f"{_MOST} streams are open: close one", headers))
        response = web.StreamResponse(headers={**headers, "Content-Type": "text/event-stream"})
        self._open += 1
        try:
            await response.prepare(request)
            await self._stream(request, response, room, mark)
        except (ConnectionError, asyncio.CancelledError):
            pass  # the reader left
        finally:
            self._open -= 1
        return response

    async def _stream(self, request: web.BaseRequest, response: web.StreamResponse, room: Room, last: str) -> None:
        boot, _, number = last.partition("-")
        seen = room.live.mark
        if boot == room.live.boot and number.isdecimal():
            seen = int(number)
            await response.write(b": welcome back\n\n")
        else:
            # The reader reads the lists now, and misses nothing from here on.
            await response.write(_frame("resync" if last else "hello", f"{room.live.boot}-{seen}", {}))
        lost = self._service.lost.get(request.protocol)
        while not self._service.closing.done() and not (lost is not None and lost.done()):
            if not await self._change(room, seen, _BEAT, lost):
                await response.write(b": still here\n\n")
                continue
            events = room.live.since(seen)
            seen = room.live.mark
            await response.write(await self._frames(room, events, seen))
            await asyncio.wait((self._service.closing,), timeout=_FRAME)

    async def _frames(self, room: Room, events: Sequence[Event] | None, mark: int) -> bytes:
        """What the events say, together."""
        name = f"{room.live.boot}-{mark}"
        first = min((event.first for event in events or () if event.kind == "request"), default=0)
        found = []
        if events is not None and first:
            found = await asyncio.to_thread(
                self._store.requests, room.box, after=first - 1, limit=_BURST + 1, forward=True
            )
        if events is None or len(found) > _BURST:
            return _frame("resync", name, {})
        frames = [_frame("request", name, views.summary(each)) for each in found]
        others = dict.fromkeys((event.kind, event.first, event.name) for event in events if event.kind != "request")
        frames += [_frame(kind, name, {"id": number or None, "uuid": uuid or None}) for kind, number, uuid in others]
        return b"".join(frames)

    async def _change(self, room: Room, mark: int, timeout: float, lost: asyncio.Future[None] | None = None) -> bool:
        """Wait for an event after the mark; False where time is over, or the service or the reader is gone first."""
        changed = asyncio.ensure_future(room.live.changed(mark))
        others = (self._service.closing,) if lost is None else (self._service.closing, lost)
        try:
            await asyncio.wait((changed, *others), timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
            return changed.done()
        finally:
            changed.cancel()


def _frame(kind: str, mark: str, data: object) -> bytes:
    return b"event: %b\nid: %b\ndata: %b\n\n" % (kind.encode(), mark.encode(), msgspec.json.encode(data))
