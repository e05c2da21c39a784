"""Campaigns from acceptance to the end: their start, the run of their segment, their recipients."""

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
from pushsdk.emulator.store.database import StoreError
from pushsdk.emulator.store.queries import InboxRef, Store
from pushsdk.emulator.store.records import Campaign

_START_NOW = "START_NOW"
_MILLISECONDS = 100_000_000_000  # from here on a timestamp is in milliseconds: 1973, in seconds the year 5138
_MAX_AHEAD = 10 * 366 * 86_400  # seconds; a later start is probably in a wrong unit
T = TypeVar("T")

_MAX_RUNNING = 2
_MAX_TIMER = 86_400.0  # seconds; a later start sets the timer again
_BY_HAND = "waits until it is started by hand"
_NO_SEGMENT = "the campaign has no segment with a query: no user gets it"
_UNTRUSTED = (
    "the segment was not run: the request came without the emulator's token (Authorization: Bearer);"
    " start the campaign on the page"
)
_NO_TABLES = "the segment was not run: give the emulator a folder of audience tables, with pushsdk[audience] installed"


class Start(Struct, frozen=True):
    """The start of a campaign, ``at`` in seconds since the epoch, None if it has to be started by hand.

    ``reading`` explains in words how type and startTs were read.
    """

    at: float | None
    reading: str


def start_of(type: str | None, start_ts: int | None, now: float) -> Start:  # noqa: A002 - the field's name
    """Return the start for a schedule received at ``now``; None is an omitted field.

    A campaign starts at its startTs, or at once if that is past, with START_NOW too. Without a startTs, START_NOW and
    a missing type start at once. Any other type waits to be started by hand, and so does an implausible startTs:
    negative, or over ten years ahead.
    """
    if start_ts is None:
        return _start_without_time(type, now)
    if start_ts < 0:
        return Start(None, f"startTs is negative: {_BY_HAND}")
    unit, divisor = ("milliseconds", 1000) if start_ts >= _MILLISECONDS else ("seconds", 1)
    if start_ts // divisor > now + _MAX_AHEAD:
        return Start(
            None,
            f"startTs read as {unit} is over ten years ahead, give it in seconds or milliseconds: {_BY_HAND}",
        )
    at = start_ts / divisor
    reading = f"startTs read as {unit}: {datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M} UTC"
    if at <= now:
        past = "" if type == _START_NOW or now - at < 60 else ", which is past"
        return Start(now, f"{reading}{past}: starts at once")
    waits = f"{_START_NOW} waits for it" if type == _START_NOW else "waits for it"
    return Start(at, f"{reading}: {waits}")


def _start_without_time(type: str | None, now: float) -> Start:  # noqa: A002
    if type == _START_NOW:
        return Start(now, f"{_START_NOW}: starts at once")
    if type is None:
        return Start(now, "neither a type nor a startTs: starts at once")
    name = f"type {type}" if re.fullmatch(r"[A-Z][A-Z0-9_]{0,39}", type) else "another type"
    return Start(None, f"{name} without a startTs: {_BY_HAND}")


class Campaigns:
    """Starts and runs campaigns. ``now`` returns the service's time.

    Calls ``changed`` with inbox and uuid after each change, ``reached`` with inbox and recipients after each run. The
    state is in the store only, so a campaign that is deleted, or whose inbox is reset, does not run.
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
        self._waiting: list[tuple[float, int, str]] = []  # a heap of (start, inbox, uuid)
        self._timer: asyncio.TimerHandle | None = None  # for the first of _waiting
        self._running: dict[str, asyncio.Task[None]] = {}  # by uuid, including those that wait for the semaphore
        self._semaphore = asyncio.Semaphore(_MAX_RUNNING)
        self._stopping = threading.Event()  # set by aclose, read in threads

    def accept(self, uuid: str, body: bytes, shape: CampaignBody, *, trusted: bool = True) -> Campaign:
        """Return the campaign of an accepted request. Without ``trusted`` its SQL does not run by itself."""
        schedule = _set(shape.schedule) or ScheduleShape()
        start = start_of(_set(schedule.type), _set(schedule.start_ts), self._now())
        obstacle = self._obstacle(shape) or (None if trusted else _UNTRUSTED)
        return Campaign(
            uuid=uuid,
            body=body,
            time=self._now(),
            name=_set(shape.name),
            external_id=_set(shape.external_id),
            state="waiting" if obstacle is None else "not run",
            start=start.at,
            reading=start.reading,
            error=obstacle,
        )

    def add(self, inbox: int, campaign: Campaign) -> None:
        """Schedule a stored campaign."""
        if campaign.state == "waiting" and campaign.start is not None:
            heapq.heappush(self._waiting, (campaign.start, inbox, campaign.uuid))
            self.start_due()

    def resume(self) -> None:
        """Schedule the waiting campaigns of the store, and restart those that ran when the last process ended."""
        for inbox, campaign in self._store.unfinished():
            if campaign.state == "running":
                self._begin(inbox, campaign.uuid, by_hand=True)
            else:
                self.add(inbox, campaign)

    def start(self, inbox: int, campaign: Campaign) -> Campaign:
        """Start a campaign by hand that waits, failed or was not run. Raises ValueError for any other state."""
        if campaign.state in {"running", "done"} or campaign.uuid in self._running:
            raise ValueError("the campaign is running or done: start only campaigns that wait, failed or were not run")
        obstacle = self._obstacle(read_campaign(campaign.body))
        if obstacle is not None:
            raise ValueError(obstacle)
        self._begin(inbox, campaign.uuid, by_hand=True)
        return msgspec.structs.replace(campaign, state="running", error=None)

    def start_due(self) -> None:
        """Start all due campaigns, and set the timer for the next one."""
        if self._stopping.is_set():
            return
        now = self._now()
        while self._waiting and self._waiting[0][0] <= now:
            _, inbox, uuid = heapq.heappop(self._waiting)
            self._begin(inbox, uuid, by_hand=False)
        if self._timer is not None:
            self._timer.cancel()
        if self._waiting:
            self._timer = self._loop.call_later(min(self._waiting[0][0] - now, _MAX_TIMER), self.start_due)

    async def aclose(self) -> None:
        """Stop. Running campaigns restart with the next emulator on this store."""
        self._stopping.set()
        if self._timer is not None:
            self._timer.cancel()
        if self._running:
            await asyncio.wait(self._running.values())

    def _obstacle(self, shape: CampaignBody) -> str | None:
        if not isinstance(shape.segment, SegmentShape) or not _set(shape.segment.query):
            return _NO_SEGMENT
        return _NO_TABLES if self._tables is None else None

    def _begin(self, inbox: int, uuid: str, *, by_hand: bool) -> None:
        if uuid not in self._running:
            task = self._running[uuid] = self._loop.create_task(self._run(inbox, uuid, by_hand))
            task.add_done_callback(lambda _: self._running.pop(uuid))

    async def _run(self, inbox: int, uuid: str, by_hand: bool) -> None:
        async with self._semaphore:
            with suppress(StoreError):  # for example a full disk: stays "running", the next emulator restarts it
                campaign = self._find(inbox, uuid)
                if self._stopping.is_set() or campaign is None or not (by_hand or campaign.state == "waiting"):
                    return
                running = msgspec.structs.replace(
                    campaign, state="running", started=self._now(), finished=None, error=None, users=None
                )
                self._update(inbox, running)
                ended = await asyncio.to_thread(self._deliver, inbox, running)
                if ended is not None:
                    self._update(inbox, msgspec.structs.replace(ended, finished=self._now()))
                    self._reached(inbox, ended.users or 0)

    def _find(self, inbox: int, uuid: str) -> Campaign | None:
        return self._store.campaign(InboxRef(inbox, ""), uuid)

    def _update(self, inbox: int, campaign: Campaign) -> None:
        self._store.update(campaign)
        self._changed(inbox, campaign.uuid)

    def _deliver(self, inbox: int, campaign: Campaign) -> Campaign | None:
        """Find and store the recipients, in a thread. Return None if the campaign was stopped or deleted."""

        def stopping() -> bool:
            return self._stopping.is_set() or self._find(inbox, campaign.uuid) is None

        try:
            self._store.withdraw(campaign)
            result = self._run_segment(campaign, stopping)
            return msgspec.structs.replace(campaign, state="done", users=result.users, error=_skipped_rows(result))
        except (SegmentError, StoreError) as error:
            if stopping():
                return None
            with suppress(StoreError):  # the store may be the cause
                self._store.withdraw(campaign)
            return msgspec.structs.replace(campaign, state="failed", error=str(error))

    def _run_segment(self, campaign: Campaign, stopping: Callable[[], bool]) -> SegmentResult:
        shape = read_campaign(campaign.body)
        obstacle = self._obstacle(shape)
        if obstacle is not None or self._tables is None or not isinstance(shape.segment, SegmentShape):
            raise SegmentError(obstacle or _NO_TABLES)
        query, primary_key = _set(shape.segment.query) or "", _set(shape.segment.primary_key) or ""
        with self._tables.run(query, primary_key, stopping=stopping) as run:
            for batch in run:
                if stopping() or not self._store.deliver(campaign, batch):
                    raise SegmentError("the campaign was stopped or deleted")
            return run.result


def _set(value: T | UnsetType | None) -> T | None:
    return None if isinstance(value, UnsetType) else value


def _skipped_rows(result: SegmentResult) -> str | None:
    """Return in words the rows of a query that reach no further user."""
    parts = []
    if result.refused:
        parts.append(f"{result.refused} rows have no user id, the first is {result.first_refused}")
    if result.duplicates:
        parts.append(f"{result.duplicates} rows repeat a user of an earlier row")
    return "; ".join(parts) or None
