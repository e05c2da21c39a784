"""Campaigns from acceptance to the end: waiting for their start, running their segment, and who gets them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import TypeVar

import msgspec
from msgspec import UnsetType

from pushsdk.emulator.records import Campaign
from pushsdk.emulator.schedule import start_of
from pushsdk.emulator.segment import Found, SegmentError, SegmentRun, Tables
from pushsdk.emulator.shapes import CampaignBody, Schedule, Segment, read_campaign
from pushsdk.emulator.store import Store, StoreError

__all__ = ["Campaigns"]

T = TypeVar("T")

_AT_A_TIME = 2  # segments
_FARTHEST = 86_400.0  # seconds that a timer is set for; a later start sets it again
_NO_SEGMENT = "the campaign has no segment with a query: nobody gets it"
_NO_TABLES = (
    "the segment was not run: give the emulator a folder of audience tables, with pushsdk[audience] installed"
)


class Campaigns:
    """Starts what is due. ``now`` is the service's time; ``changed`` hears of each change, by inbox and uuid."""

    def __init__(
        self,
        store: Store,
        tables: Tables | None,
        *,
        now: Callable[[], float],
        changed: Callable[[int, str], None],
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._store = store
        self._tables = tables
        self._now = now
        self._changed = changed
        self._waiting: dict[str, tuple[int, Campaign]] = {}  # by uuid, with the inbox
        self._timer: asyncio.TimerHandle | None = None  # for the one that is due next
        self._running: set[asyncio.Task[None]] = set()
        self._turn = asyncio.Semaphore(_AT_A_TIME)
        self._stopping = threading.Event()  # set by aclose, asked for in the threads

    def accept(self, uuid: str, body: bytes, shape: CampaignBody) -> Campaign:
        """A campaign as it is when it is accepted: when it starts, or why its segment is never run."""
        schedule = _set(shape.schedule) or Schedule()
        start = start_of(_set(schedule.type), _set(schedule.start_ts), self._now())
        why = self._why_not(shape)
        return Campaign(
            uuid=uuid,
            body=body,
            time=self._now(),
            name=_set(shape.name),
            external_id=_set(shape.external_id),
            state="waiting" if why is None else "not run",
            start=start.at,
            reading=start.reading,
            error=why,
        )

    def add(self, inbox: int, campaign: Campaign) -> None:
        """Start a stored campaign when it is due."""
        if campaign.state == "waiting":
            self._waiting[campaign.uuid] = (inbox, campaign)
            self.look()

    def resume(self) -> None:
        """Take up what the last process left: what was running begins anew."""
        for inbox, campaign in self._store.unfinished():
            self.add(inbox, msgspec.structs.replace(campaign, state="waiting", started=None))

    def start(self, inbox: int, campaign: Campaign) -> Campaign:
        """Start a waiting campaign by hand, or one that failed once more. Raises ValueError for another."""
        if campaign.state not in {"waiting", "failed"}:
            raise ValueError(f"the campaign is {campaign.state}: only one that waits or failed can be started")
        why = self._why_not(read_campaign(campaign.body))
        if why is not None:
            raise ValueError(why)
        self._waiting[campaign.uuid] = (inbox, msgspec.structs.replace(campaign, start=self._now()))
        self.look()
        return msgspec.structs.replace(campaign, state="running")

    def look(self) -> None:
        """Start what is due now, and come back for the next."""
        now = self._now()
        for uuid, (inbox, campaign) in list(self._waiting.items()):
            if campaign.start is not None and campaign.start <= now:
                del self._waiting[uuid]
                task = self._loop.create_task(self._run(inbox, campaign))
                self._running.add(task)
                task.add_done_callback(self._running.discard)
        if self._timer is not None:
            self._timer.cancel()
        starts = [campaign.start for _, campaign in self._waiting.values() if campaign.start is not None]
        if starts:
            self._timer = self._loop.call_later(min(min(starts) - now, _FARTHEST), self.look)

    async def aclose(self) -> None:
        """Stop: what was running begins anew with the next process on this store."""
        self._stopping.set()
        if self._timer is not None:
            self._timer.cancel()
        if self._running:
            await asyncio.wait(self._running)

    def _why_not(self, shape: CampaignBody) -> str | None:
        if not isinstance(shape.segment, Segment) or not _set(shape.segment.query):
            return _NO_SEGMENT
        return _NO_TABLES if self._tables is None else None

    def _segment(self, shape: CampaignBody) -> SegmentRun:
        why = self._why_not(shape)
        if why is not None or self._tables is None or not isinstance(shape.segment, Segment):
            raise SegmentError(why or _NO_TABLES)
        query, primary_key = _set(shape.segment.query), _set(shape.segment.primary_key)
        return self._tables.run(query or "", primary_key or "", stopping=self._stopping.is_set)

    async def _run(self, inbox: int, campaign: Campaign) -> None:
        async with self._turn:
            if self._stopping.is_set():
                return
            running = msgspec.structs.replace(campaign, state="running", started=self._now(), error=None, users=None)
            try:
                self._tell(inbox, running)
                ended = await asyncio.to_thread(self._deliver, running)
            except StoreError as error:
                ended = msgspec.structs.replace(running, state="failed", error=str(error))
            if ended is not None:
                self._tell(inbox, msgspec.structs.replace(ended, finished=self._now()))

    def _tell(self, inbox: int, campaign: Campaign) -> None:
        self._store.update(campaign)
        self._changed(inbox, campaign.uuid)

    def _deliver(self, campaign: Campaign) -> Campaign | None:
        """In a thread: run the segment and store who gets the campaign. None where it was stopped."""
        shape = read_campaign(campaign.body)
        self._store.withdraw(campaign)
        try:
            with self._segment(shape) as run:
                for batch in run:
                    self._store.deliver(campaign, batch)
                return msgspec.structs.replace(
                    campaign, state="done", users=run.found.users, error=_left_out(run.found)
                )
        except SegmentError as error:
            if self._stopping.is_set():
                return None
            self._store.withdraw(campaign)
            return msgspec.structs.replace(campaign, state="failed", error=str(error))


def _set(value: T | UnsetType | None) -> T | None:
    return None if isinstance(value, UnsetType) else value


def _left_out(found: Found) -> str | None:
    """What the query found and nobody gets, in words."""
    told = []
    if found.refused:
        told.append(f"{found.refused} rows have no user id, the first is {found.first_refused}")
    if found.duplicates:
        told.append(f"{found.duplicates} rows are of users who were there before")
    return "; ".join(told) or None
