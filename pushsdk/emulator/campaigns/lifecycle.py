"""Campaigns from acceptance to the end: their start, their segment run, their recipients."""

import asyncio
import re
import threading
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime

import msgspec
from msgspec import UNSET

from pushsdk._core.models import CampaignRequest, Schedule, Segment
from pushsdk.emulator.campaigns.segment import SegmentError, SegmentResult, Tables
from pushsdk.emulator.shapes import read_campaign
from pushsdk.emulator.store.database import StoreError
from pushsdk.emulator.store.queries import InboxRef, Store
from pushsdk.emulator.store.records import Campaign

_START_NOW = "START_NOW"
_MILLISECONDS = 100_000_000_000  # from here on a timestamp is in milliseconds: 1973, in seconds the year 5138
_MAX_AHEAD = 10 * 366 * 86_400  # seconds; a later start is probably in a wrong unit
_MAX_RUNNING = 2
_MAX_TIMER = 86_400.0  # seconds; a later start sets the timer again
_BY_HAND = "waits until it is started by hand"
_UNTRUSTED = "the segment was not run: the request came without the emulator's token; start the campaign on the page"


def start_of(type: str | None, start_ts: int | None, now: float) -> tuple[float | None, str]:  # noqa: A002
    """Return when a schedule received at ``now`` starts, and how it was read; None is an omitted field, or no time.

    A campaign starts at its startTs, or at once if that is past, with START_NOW too. Without a startTs, START_NOW and
    a missing type start at once. Any other type waits to be started by hand, and so does an implausible startTs:
    negative, or over ten years ahead.
    """
    if start_ts is None:
        return _start_without_time(type, now)
    if start_ts < 0:
        return None, f"startTs is negative: {_BY_HAND}"
    unit, divisor = ("milliseconds", 1000) if start_ts >= _MILLISECONDS else ("seconds", 1)
    if start_ts // divisor > now + _MAX_AHEAD:
        implausible = "is over ten years ahead, give it in seconds or milliseconds"
        return None, f"startTs read as {unit} {implausible}: {_BY_HAND}"
    at = start_ts / divisor
    reading = f"startTs read as {unit}: {datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M} UTC"
    if at <= now:
        past = "" if type == _START_NOW or now - at < 60 else ", which is past"
        return now, f"{reading}{past}: starts at once"
    waits = f"{_START_NOW} waits for it" if type == _START_NOW else "waits for it"
    return at, f"{reading}: {waits}"


def _start_without_time(type: str | None, now: float) -> tuple[float | None, str]:  # noqa: A002
    if type == _START_NOW:
        return now, f"{_START_NOW}: starts at once"
    if type is None:
        return now, "neither a type nor a startTs: starts at once"
    name = f"type {type}" if re.fullmatch(r"[A-Z][A-Z0-9_]{0,39}", type) else "another type"
    return None, f"{name} without a startTs: {_BY_HAND}"


class Campaigns:
    """Starts and runs campaigns. ``now`` returns the service's time.

    Calls ``changed`` with inbox, uuid and recipient count after each change. The state is in the store only,
    so a campaign that is deleted, or whose inbox is reset, does not run.
    """

    def __init__(
        self, store: Store, tables: Tables | None, *, now: Callable[[], float], changed: Callable[[int, str, int], None]
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._store = store
        self._tables = tables
        self._now = now
        self._changed = changed
        self._timer: asyncio.TimerHandle | None = None  # for the next start
        self._running: dict[str, asyncio.Task[None]] = {}  # by uuid, including those that wait for the semaphore
        self._semaphore = asyncio.Semaphore(_MAX_RUNNING)
        self._stopping = threading.Event()  # set by aclose, read in threads

    def accept(self, uuid: str, body: bytes, shape: CampaignRequest, *, trusted: bool = True) -> Campaign:
        """Return the campaign in an accepted request. Without ``trusted`` its SQL does not run by itself."""
        schedule = msgspec.to_builtins(shape.schedule or Schedule())
        start, reading = start_of(schedule.get("type"), schedule.get("startTs"), self._now())
        error = None if trusted else _UNTRUSTED
        try:
            self._runnable(shape)
        except SegmentError as obstacle:
            error = str(obstacle)
        return Campaign(
            uuid=uuid,
            body=body,
            time=self._now(),
            name=None if shape.name is UNSET else shape.name,
            external_id=None if shape.external_id is UNSET else shape.external_id,
            state="waiting" if error is None else "not run",
            start=start,
            reading=reading,
            error=error,
        )

    def start(self, inbox: int, campaign: Campaign) -> Campaign:
        """Start a campaign by hand that waits, failed or was not run. Raises ValueError for any other state."""
        if campaign.state in {"running", "done"} or campaign.uuid in self._running:
            raise ValueError("the campaign is running or done: start only campaigns that wait, failed or were not run")
        self._runnable(read_campaign(campaign.body))
        self._begin(inbox, campaign.uuid)
        return msgspec.structs.replace(campaign, state="running", error=None)

    def start_due(self) -> None:
        """Start all due campaigns, also those that ran when the last process ended; set the timer for the next one."""
        if self._stopping.is_set():
            return
        now, next_start = self._now(), float("inf")
        with suppress(StoreError):
            for inbox, uuid, state, start in self._store.unfinished():
                if state == "running" or start <= now:
                    self._begin(inbox, uuid)
                else:
                    next_start = min(next_start, start)
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(min(next_start - now, _MAX_TIMER), self.start_due)

    async def aclose(self) -> None:
        """Stop. Running campaigns restart with the next emulator on this store."""
        self._stopping.set()
        if self._timer is not None:
            self._timer.cancel()
        if self._running:
            await asyncio.wait(self._running.values())

    def _runnable(self, shape: CampaignRequest) -> tuple[Tables, Segment]:
        """Return the tables and the segment to run. Raises `SegmentError` if the segment can't be run."""
        if not shape.segment or not shape.segment.query:
            raise SegmentError("the campaign has no segment with a query: no user gets it")
        if self._tables is None:
            fix = "give the emulator a folder of audience tables, with duckdb installed"
            raise SegmentError(f"the segment was not run: {fix}")
        return self._tables, shape.segment

    def _begin(self, inbox: int, uuid: str) -> None:
        if uuid not in self._running:
            task = self._running[uuid] = self._loop.create_task(self._run(inbox, uuid))
            task.add_done_callback(lambda _: self._running.pop(uuid))

    async def _run(self, inbox: int, uuid: str) -> None:
        async with self._semaphore:
            with suppress(StoreError):  # for example a full disk: stays "running", the next emulator restarts it
                campaign = self._find(inbox, uuid)
                if self._stopping.is_set() or campaign is None:
                    return
                running = msgspec.structs.replace(
                    campaign, state="running", started=self._now(), finished=None, error=None, users=None
                )
                self._update(inbox, running)
                ended = await asyncio.to_thread(self._deliver, inbox, running)
                if ended is not None:
                    self._update(inbox, msgspec.structs.replace(ended, finished=self._now()))

    def _find(self, inbox: int, uuid: str) -> Campaign | None:
        return self._store.campaign(InboxRef(inbox, ""), uuid)

    def _update(self, inbox: int, campaign: Campaign) -> None:
        self._store.update(campaign)
        self._changed(inbox, campaign.uuid, campaign.users or 0)

    def _deliver(self, inbox: int, campaign: Campaign) -> Campaign | None:
        """Find and store the recipients, in a thread. Return None if the campaign was stopped or deleted."""

        def stopping() -> bool:
            return self._stopping.is_set() or self._find(inbox, campaign.uuid) is None

        try:
            self._store.withdraw(campaign)
            tables, segment = self._runnable(read_campaign(campaign.body))
            with tables.run(segment.query or "", segment.primary_key or "", stopping=stopping) as (result, batches):
                for batch in batches:
                    if stopping() or not self._store.deliver(campaign, batch):
                        return None
                return msgspec.structs.replace(campaign, state="done", users=result.users, error=_skipped(result))
        except (SegmentError, StoreError) as failure:
            if stopping():
                return None
            with suppress(StoreError):  # the store may be the cause
                self._store.withdraw(campaign)
            return msgspec.structs.replace(campaign, state="failed", error=str(failure))


def _skipped(result: SegmentResult) -> str | None:
    """Return the reason for rows that reached no user, or None."""
    rows = {
        f"{result.refused} rows have no user id, the first is {result.first_refused}": result.refused,
        f"{result.duplicates} rows repeat a user of an earlier row": result.duplicates,
    }
    return "; ".join(text for text, count in rows.items() if count) or None
