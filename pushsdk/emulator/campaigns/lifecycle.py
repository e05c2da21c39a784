"""Campaigns from acceptance to the end: waiting for their start, running their segment, and who gets them."""

from __future__ import annotations

import asyncio
import heapq
import re
import threading
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from typing import TypeVar

import msgspec
from msgspec import Struct, UnsetType

from pushsdk.emulator.campaigns.segment import SegmentError, SegmentResult, Tables
from pushsdk.emulator.shapes import CampaignBody, ScheduleShape, SegmentShape, read_campaign
from pushsdk.emulator.store.queries import InboxRef, Store, StoreError
from pushsdk.emulator.store.records import Campaign

__all__ = ["Campaigns", "Start", "start_of"]

_START_NOW = "START_NOW"
# Seconds reach it in the year 5138, milliseconds reached it in 1973.
_MILLISECONDS = 100_000_000_000
_AHEAD = 10 * 366 * 86_400  # seconds; nobody plans for longer, but a wrong unit looks like it
T = TypeVar("T")

_AT_A_TIME = 2  # segments
_FARTHEST = 86_400.0  # seconds that a timer is set for; a later start sets it again
_NO_SEGMENT = "the campaign has no segment with a query: nobody gets it"
_STRANGER = (
    "the segment was not run: the request came without the emulator's token (Authorization: Bearer);"
    " start the campaign on the page"
)
_NO_TABLES = "the segment was not run: give the emulator a folder of audience tables, with pushsdk[audience] installed"


class Start(Struct, frozen=True):
    """When a campaign starts, in seconds since the epoch: ``at``, None where it waits to be started by hand.

    ``reading`` says in words how type and startTs were read.
    """

    at: float | None
    reading: str


def start_of(type: str | None, start_ts: int | None, now: float) -> Start:  # noqa: A002 - the field's name
    """Read a campaign's schedule at the time it came, ``now``. None is a field that was left out.

    A startTs is when it starts, at once where that is past; START_NOW waits for a later one too. Without a startTs
    START_NOW starts at once, and so does a campaign without a type; any other type waits until it is started by hand,
    and so does what can't be meant: a negative startTs, or one more than ten years ahead.
    """
    if start_ts is None:
        return _without_time(type, now)
    if start_ts < 0:
        return Start(None, "startTs is negative: waits until it is started by hand")
    unit, divisor = ("milliseconds", 1000) if start_ts >= _MILLISECONDS else ("seconds", 1)
    if start_ts // divisor > now + _AHEAD:
        return Start(
            None,
            f"startTs read as {unit} is over ten years ahead, give it in seconds or milliseconds: "
            "waits until it is started by hand",
        )
    at = start_ts / divisor
    told = f"startTs read as {unit}: {datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M} UTC"
    if at <= now:
        past = "" if type == _START_NOW or now - at < 60 else ", which is past"
        return Start(now, f"{told}{past}: starts at once")
    waits = f"{_START_NOW} waits for it" if type == _START_NOW else "waits for it"
    return Start(at, f"{told}: {waits}")


def _without_time(type: str | None, now: float) -> Start:  # noqa: A002
    if type == _START_NOW:
        return Start(now, f"{_START_NOW}: starts at once")
    if type is None:
        return Start(now, "neither a type nor a startTs: starts at once")
    return Start(None, f"{_called(type)} without a startTs: waits until it is started by hand")


def _called(type: str) -> str:  # noqa: A002
    return f"type {type}" if re.fullmatch(r"[A-Z][A-Z0-9_]{0,39}", type) else "another type"


class Campaigns:
    """Starts what is due. ``now`` is the service's time; ``changed`` hears of each change, by inbox and uuid.

    What a campaign is, is in the store alone: one that is deleted, or whose inbox was reset, is never run, or no more.
    """

    def __init__(
        self,
        store: Store,
        tables: Tables | None,
        *,
        now: Callable[[], float],
        changed: Callable[[int, str], None],
        reached: Callable[[int, int], None],
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._store = store
        self._tables = tables
        self._now = now
        self._changed = changed
        self._reached = reached
        self._waiting: list[tuple[float, int, str]] = []  # a heap of starts, inboxes, uuids
        self._timer: asyncio.TimerHandle | None = None  # for the one that is due next
        self._running: dict[str, asyncio.Task[None]] = {}  # by uuid; those that wait for their turn too
        self._turn = asyncio.Semaphore(_AT_A_TIME)
        self._stopping = threading.Event()  # set by aclose, asked for in the threads

    def accept(self, uuid: str, body: bytes, shape: CampaignBody, *, trusted: bool = True) -> Campaign:
        """A campaign as it is when it is accepted: when it starts, or why its segment is not run.

        One that is not ``trusted`` is taken as the service would, and runs no SQL of its sender by itself.
        """
        schedule = _set(shape.schedule) or ScheduleShape()
        start = start_of(_set(schedule.type), _set(schedule.start_ts), self._now())
        why = self._why_not(shape) or (None if trusted else _STRANGER)
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
        if campaign.state == "waiting" and campaign.start is not None:
            heapq.heappush(self._waiting, (campaign.start, inbox, campaign.uuid))
            self.look()

    def resume(self) -> None:
        """Go on with what the store says waits, or was running when the process before this one ended."""
        for inbox, campaign in self._store.unfinished():
            if campaign.state == "running":
                self._begin(inbox, campaign.uuid, by_hand=True)
            else:
                self.add(inbox, campaign)

    def start(self, inbox: int, campaign: Campaign) -> Campaign:
        """Start one by hand that was not run yet, or failed. Raises ValueError for another."""
        if campaign.state in {"running", "done"} or campaign.uuid in self._running:
            raise ValueError("the campaign is running, or done: only one that waits, failed or was not run can start")
        why = self._why_not(read_campaign(campaign.body))
        if why is not None:
            raise ValueError(why)
        self._begin(inbox, campaign.uuid, by_hand=True)
        return msgspec.structs.replace(campaign, state="running", error=None)

    def look(self) -> None:
        """Start what is due now, and come back for the next."""
        if self._stopping.is_set():
            return
        now = self._now()
        while self._waiting and self._waiting[0][0] <= now:
            _, inbox, uuid = heapq.heappop(self._waiting)
            self._begin(inbox, uuid, by_hand=False)
        if self._timer is not None:
            self._timer.cancel()
        if self._waiting:
            self._timer = self._loop.call_later(min(self._waiting[0][0] - now, _FARTHEST), self.look)

    async def aclose(self) -> None:
        """Stop: what was running begins anew with the next process on this store."""
        self._stopping.set()
        if self._timer is not None:
            self._timer.cancel()
        if self._running:
            await asyncio.wait(self._running.values())

    def _why_not(self, shape: CampaignBody) -> str | None:
        if not isinstance(shape.segment, SegmentShape) or not _set(shape.segment.query):
            return _NO_SEGMENT
        return _NO_TABLES if self._tables is None else None

    def _begin(self, inbox: int, uuid: str, *, by_hand: bool) -> None:
        if uuid not in self._running:
            task = self._running[uuid] = self._loop.create_task(self._run(inbox, uuid, by_hand))
            task.add_done_callback(lambda _: self._running.pop(uuid))

    async def _run(self, inbox: int, uuid: str, by_hand: bool) -> None:
        async with self._turn:
            with suppress(StoreError):  # a full disk: it is still running then, and begins anew with the next process
                campaign = self._find(inbox, uuid)
                if self._stopping.is_set() or campaign is None or not (by_hand or campaign.state == "waiting"):
                    return
                running = msgspec.structs.replace(
                    campaign, state="running", started=self._now(), finished=None, error=None, users=None
                )
                self._tell(inbox, running)
                ended = await asyncio.to_thread(self._deliver, inbox, running)
                if ended is not None:
                    self._tell(inbox, msgspec.structs.replace(ended, finished=self._now()))
                    self._reached(inbox, ended.users or 0)

    def _find(self, inbox: int, uuid: str) -> Campaign | None:
        return self._store.campaign(InboxRef(inbox, ""), uuid)

    def _tell(self, inbox: int, campaign: Campaign) -> None:
        self._store.update(campaign)
        self._changed(inbox, campaign.uuid)

    def _deliver(self, inbox: int, campaign: Campaign) -> Campaign | None:
        """In a thread: find and store who gets the campaign. None where it was stopped, or is not there any more."""

        def stopping() -> bool:
            return self._stopping.is_set() or self._find(inbox, campaign.uuid) is None

        try:
            self._store.withdraw(campaign)
            found = self._segment(campaign, stopping)
            return msgspec.structs.replace(campaign, state="done", users=found.users, error=_left_out(found))
        except (SegmentError, StoreError) as error:
            if stopping():
                return None
            with suppress(StoreError):  # as it may be that which failed
                self._store.withdraw(campaign)
            return msgspec.structs.replace(campaign, state="failed", error=str(error))

    def _segment(self, campaign: Campaign, stopping: Callable[[], bool]) -> SegmentResult:
        shape = read_campaign(campaign.body)
        why = self._why_not(shape)
        if why is not None or self._tables is None or not isinstance(shape.segment, SegmentShape):
            raise SegmentError(why or _NO_TABLES)
        query, primary_key = _set(shape.segment.query) or "", _set(shape.segment.primary_key) or ""
        with self._tables.run(query, primary_key, stopping=stopping) as run:
            for batch in run:
                if stopping() or not self._store.deliver(campaign, batch):
                    raise SegmentError("the campaign was stopped, or is gone")
            return run.found


def _set(value: T | UnsetType | None) -> T | None:
    return None if isinstance(value, UnsetType) else value


def _left_out(found: SegmentResult) -> str | None:
    """What the query found and nobody gets, in words."""
    told = []
    if found.refused:
        told.append(f"{found.refused} rows have no user id, the first is {found.first_refused}")
    if found.duplicates:
        told.append(f"{found.duplicates} rows are of users who were there before")
    return "; ".join(told) or None
