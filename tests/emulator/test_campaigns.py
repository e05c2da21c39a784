"""Campaigns from acceptance to the end, with tables controlled by the test, and some with real ones."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.control_api import Api

from pushsdk.emulator.campaigns.lifecycle import Campaigns
from pushsdk.emulator.campaigns.segment import SegmentError, SegmentResult
from pushsdk.emulator.shapes import read_campaign
from pushsdk.emulator.store.database import StoreError
from pushsdk.emulator.store.queries import Store
from pushsdk.emulator.store.records import Campaign, RequestContent, RequestRecord

NOW = 1_800_000_000.0
SEGMENT = {"query": "SELECT * FROM users", "primaryKey": "user_id"}


class SegmentRun:
    """One run of a segment, which pauses until the gate opens or it is stopped."""

    def __init__(self, tables: HeldTables, stopping: Callable[[], bool]) -> None:
        self._tables = tables
        self._stopping = stopping

    def __enter__(self) -> tuple[SegmentResult, Iterator[list[tuple[str, dict[str, object]]]]]:
        self._tables.entered += 1
        self._tables.inside += 1
        self._tables.most = max(self._tables.most, self._tables.inside)
        counts = {"users": 2, "rows": 2, "duplicates": 0, "refused": 0, "first_refused": None, **self._tables.found}
        return SegmentResult(**counts), iter(self)

    def __exit__(self, *_: object) -> None:
        self._tables.inside -= 1

    def __iter__(self) -> Iterator[list[tuple[str, dict[str, object]]]]:
        yield [("ann", {"city": "Berlin"})]
        while not self._tables.gate.wait(0.01):
            if self._stopping():
                raise SegmentError("the query was stopped")
        if self._tables.error is not None:
            raise SegmentError(self._tables.error)
        yield [("bob", {})]


class HeldTables:
    """A fake `Tables`: each run finds ann, waits for ``gate``, then fails with ``error`` or finds bob."""

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.gate.set()
        self.error: str | None = None
        self.found: dict[str, Any] = {}
        self.entered = 0
        self.inside = 0
        self.most = 0
        self.asked: list[tuple[str, str]] = []

    def run(self, query: str, primary_key: str, *, stopping: Callable[[], bool]) -> SegmentRun:
        self.asked.append((query, primary_key))
        return SegmentRun(self, stopping)


class CampaignRig:
    """Campaigns over a store, with a fake clock."""

    def __init__(self, path: Path, tables: HeldTables | None, **bounds: Any) -> None:
        self.store = Store(path, **bounds)
        self.box = self.store.inbox("key")
        self.tables = tables
        self.ahead = 0.0
        self.changed: list[str] = []
        self.reached: list[tuple[int, int]] = []
        self.campaigns = Campaigns(
            self.store,
            tables,  # type: ignore[arg-type]
            now=lambda: NOW + self.ahead,
            changed=self._change,
        )
        self._count = 0

    def _change(self, inbox: int, uuid: str, users: int) -> None:
        self.changed.append(uuid)
        if users:
            self.reached.append((inbox, users))

    def accept(self, **body: Any) -> Campaign:
        """Accept a campaign as the service does: read, store, add."""
        self._count += 1
        sent = json.dumps({"segment": SEGMENT, **body}).encode()
        campaign = self.campaigns.accept(f"uuid-{time.monotonic_ns()}-{self._count}", sent, read_campaign(sent))
        content = RequestContent(campaign=campaign)
        entry = RequestRecord(
            inbox=self.box.id, time=NOW, body=sent, content=content, endpoint="campaigns", accepted=True
        )
        self.store.write([entry])
        stored = self[campaign]
        self.campaigns.start_due()
        return stored

    def __getitem__(self, campaign: Campaign) -> Campaign:
        entry = self.store.campaign(self.box, campaign.uuid)
        assert entry is not None
        return entry

    def advance(self, seconds: float) -> None:
        self.ahead += seconds
        self.campaigns.start_due()

    def recipients(self, campaign: Campaign) -> dict[str, Any]:
        return {recipient.user_id: recipient.fields for recipient in self.store.recipients(campaign)}

    async def ended(self) -> None:
        """Wait until no campaign runs."""
        async with asyncio.timeout(60):
            while self.campaigns._running:
                await asyncio.wait(self.campaigns._running.values())
                await asyncio.sleep(0)

    async def done(self, campaign: Campaign) -> Campaign:
        await self.ended()
        return self[campaign]

    async def close(self) -> None:
        async with asyncio.timeout(60):
            await self.campaigns.aclose()
        self.store.close()


@pytest.fixture
def tables() -> HeldTables:
    return HeldTables()


@pytest.fixture
async def rig(tmp_path: Path, tables: HeldTables) -> AsyncIterator[CampaignRig]:
    campaign_rig = CampaignRig(tmp_path / "store", tables)
    yield campaign_rig
    await campaign_rig.close()


# Starts


@pytest.mark.parametrize("schedule", [{"schedule": {"type": "START_NOW"}}, {}])
async def test_a_campaign_that_starts_now_or_has_no_schedule_runs_at_once(rig, tables, schedule):
    campaign = rig.accept(**schedule, name="Spring", externalId="x")
    end = await rig.done(campaign)
    assert (end.state, end.users, end.error) == ("done", 2, None)
    assert (end.name, end.external_id, end.started, end.finished) == ("Spring", "x", NOW, NOW)
    assert rig.recipients(end) == {"ann": {"city": "Berlin"}, "bob": {}}
    assert tables.asked == [(SEGMENT["query"], "user_id")]
    assert rig.changed == [campaign.uuid] * 2
    assert rig.reached == [(rig.box.id, 2)]


@pytest.mark.parametrize("unit", [1, 1000])
async def test_a_later_campaign_waits_for_the_clock(rig, tables, unit):
    campaign = rig.accept(schedule={"type": "START_NOW", "startTs": int(NOW + 3600) * unit})
    assert rig[campaign].start == NOW + 3600
    rig.advance(3599)
    await rig.ended()
    assert (rig[campaign].state, tables.entered) == ("waiting", 0)
    rig.advance(1)
    end = await rig.done(campaign)
    assert (end.state, end.started) == ("done", NOW + 3600)


async def test_a_later_campaign_starts_by_itself_when_due(rig):
    loop = asyncio.get_running_loop()
    start = loop.time()
    rig.campaigns._now = lambda: NOW + loop.time() - start
    campaign = rig.accept(schedule={"startTs": int((NOW + 1) * 1000)})
    rig.campaigns._now = lambda: NOW + 0.95 + loop.time() - start  # almost a second has passed
    rig.campaigns.start_due()
    async with asyncio.timeout(60):
        while rig[campaign].state != "done":
            await rig.ended()
            await asyncio.sleep(0)


async def test_a_start_far_ahead_is_checked_once_a_day(rig):
    rig.accept(schedule={"startTs": int(NOW) + 400 * 86_400})
    timer = rig.campaigns._timer
    assert timer is not None
    assert timer.when() - asyncio.get_running_loop().time() < 86_401  # a float more or less


async def test_waiting_campaigns_start_in_order_with_one_timer(rig, tables, monkeypatch):
    starts = [(number * 7919) % 300 for number in range(300)]
    for start in starts:
        rig.accept(schedule={"startTs": int(NOW) + 10 + start})
    calls = {}
    monkeypatch.setattr(rig.campaigns, "_begin", lambda inbox, uuid: calls.setdefault(uuid))
    assert len([timer for timer in asyncio.get_running_loop()._scheduled if not timer.cancelled()]) == 1
    rig.advance(10 + 149)
    assert len(calls) == 150
    rig.advance(150)
    assert len(calls) == 300
    times = {campaign.uuid: campaign.start for campaign in rig.store.campaigns(rig.box)}
    assert [times[uuid] for uuid in calls] == sorted(times.values())


async def test_a_waiting_campaign_is_started_by_hand(rig):
    campaign = rig.accept(schedule={"type": "LATER"})
    rig.advance(1e6)
    await rig.ended()
    assert (rig[campaign].state, rig[campaign].start) == ("waiting", None)
    assert rig.campaigns.start(rig.box.id, rig[campaign]).state == "running"
    assert (await rig.done(campaign)).state == "done"


async def test_a_campaign_started_by_hand_does_not_start_again_when_due(rig, tables):
    campaign = rig.accept(schedule={"startTs": int(NOW) + 60})
    rig.campaigns.start(rig.box.id, campaign)
    await rig.ended()
    rig.advance(60)
    assert (await rig.done(campaign)).state == "done"
    assert tables.entered == 1


async def test_a_campaign_due_while_running_by_hand_runs_once(rig, tables, until):
    tables.gate.clear()
    campaign = rig.accept(schedule={"startTs": int(NOW) + 60})
    rig.campaigns.start(rig.box.id, campaign)
    await until(lambda: tables.inside == 1)
    rig.advance(60)
    tables.gate.set()
    assert (await rig.done(campaign)).state == "done"
    assert tables.entered == 1


async def test_two_campaigns_run_at_a_time(rig, tables, until):
    tables.gate.clear()
    started = [rig.accept() for _ in range(4)]
    await until(lambda: tables.inside == 2)
    assert [rig[start].state for start in started] == ["running", "running", "waiting", "waiting"]
    tables.gate.set()
    await rig.ended()
    assert [rig[start].state for start in started] == ["done"] * 4
    assert (tables.entered, tables.most) == (4, 2)


# Campaigns that do not run


@pytest.mark.parametrize(
    "segment", [{}, {"query": ""}, {"primaryKey": "user_id"}], ids=["empty", "empty query", "no query"]
)
async def test_a_campaign_without_a_query_does_not_run_and_says_why(rig, tables, segment):
    campaign = await rig.done(rig.accept(segment=segment))
    assert campaign.state == "not run"
    assert "segment" in (campaign.error or "")
    with pytest.raises(ValueError, match="segment"):
        rig.campaigns.start(rig.box.id, campaign)
    assert tables.entered == 0


async def test_without_tables_no_campaign_runs(tmp_path, tables):
    rig = CampaignRig(tmp_path / "store", None)
    campaign = await rig.done(rig.accept())
    assert campaign.state == "not run"
    assert "folder of audience tables" in (campaign.error or "")
    with pytest.raises(ValueError, match="folder of audience tables"):
        rig.campaigns.start(rig.box.id, campaign)
    await rig.close()
    rig = CampaignRig(tmp_path / "store", tables)
    rig.campaigns.start_due()
    await rig.ended()
    assert (rig[campaign].state, tables.entered) == ("not run", 0)
    rig.campaigns.start(rig.box.id, rig[campaign])
    end = await rig.done(campaign)
    assert (end.state, end.error) == ("done", None)
    await rig.close()


async def test_a_failed_campaign_says_why_and_has_no_recipients(rig, tables):
    tables.error = "no such table: users"
    end = await rig.done(rig.accept())
    assert (end.state, end.error, end.users, end.finished) == ("failed", "no such table: users", None, NOW)
    assert rig.recipients(end) == {}
    assert rig.reached == []


async def test_a_running_or_finished_campaign_is_not_started_again(rig, tables, until):
    tables.gate.clear()
    campaign = rig.accept()
    with pytest.raises(ValueError, match="running"):
        rig.campaigns.start(rig.box.id, campaign)  # the state before the start
    await until(lambda: tables.inside == 1)
    with pytest.raises(ValueError, match="running"):
        rig.campaigns.start(rig.box.id, rig[campaign])
    tables.gate.set()
    end = await rig.done(campaign)
    with pytest.raises(ValueError, match="done"):
        rig.campaigns.start(rig.box.id, end)
    assert tables.entered == 1


async def test_skipped_rows_are_reported(rig, tables):
    tables.found = {"refused": 2, "first_refused": "row 3: empty", "duplicates": 5}
    end = await rig.done(rig.accept())
    assert end.state == "done"
    assert end.error == "2 rows have no user id, the first is row 3: empty; 5 rows repeat a user of an earlier row"


# Deleted campaigns


async def test_a_campaign_deleted_while_waiting_never_runs(rig, tables):
    campaign = rig.accept(schedule={"startTs": int(NOW) + 60})
    rig.store.delete(rig.box, only=campaign.id)
    rig.advance(60)
    await rig.ended()
    assert (tables.entered, rig.changed) == (0, [])


async def test_a_campaign_evicted_while_waiting_never_runs(tmp_path, tables):
    rig = CampaignRig(tmp_path / "store", tables, keep=1)
    first, second = (rig.accept(schedule={"startTs": int(NOW) + 60}) for _ in range(2))
    rig.advance(60)
    assert (await rig.done(second)).state == "done"
    assert rig.store.campaign(rig.box, first.uuid) is None
    assert tables.entered == 1
    await rig.close()


@pytest.mark.parametrize("forget", [False, True], ids=["deleted", "reset"])
async def test_a_campaign_deleted_while_running_is_stopped_without_recipients(rig, tables, until, forget):
    tables.gate.clear()
    campaign = rig.accept()
    await until(lambda: tables.inside == 1 and bool(rig.recipients(campaign)))
    if forget:
        rig.store.reset(rig.box)
    else:
        rig.store.delete(rig.box, only=campaign.id)
    await rig.ended()  # without the gate
    assert rig.recipients(campaign) == {}
    assert (rig.changed, rig.reached) == ([campaign.uuid], [])


async def test_a_campaign_deleted_between_two_batches_stores_no_more(rig, tables, until, monkeypatch):
    tables.gate.clear()
    campaign = rig.accept()
    await until(lambda: tables.inside == 1 and bool(rig.recipients(campaign)))
    # The run continues before it is stopped.
    monkeypatch.setattr(tables.gate, "wait", lambda _: bool(rig.store.delete(rig.box, only=campaign.id)) or True)
    await rig.ended()
    assert rig.recipients(campaign) == {}
    assert rig.reached == []


async def test_a_campaign_deleted_while_it_waits_for_a_slot_never_runs(rig, tables, until):
    tables.gate.clear()
    *_, last = (rig.accept() for _ in range(3))
    await until(lambda: tables.inside == 2)
    rig.store.reset(rig.box)
    await rig.ended()
    assert tables.entered == 2
    assert last.uuid not in rig.changed


# The end, and the next process


async def test_closing_stops_segments_and_the_next_process_restarts_them(tmp_path, tables, until):
    rig = CampaignRig(tmp_path / "store", tables)
    tables.gate.clear()
    started = [rig.accept() for _ in range(4)]
    later = rig.accept(schedule={"startTs": int(NOW) + 60})
    await until(lambda: tables.inside == 2)
    await rig.close()
    assert tables.inside == 0
    assert rig.campaigns._running == {}
    tables.gate.set()
    rig = CampaignRig(tmp_path / "store", tables)
    assert sorted(rig[start].state for start in started) == ["running", "running", "waiting", "waiting"]
    rig.campaigns.start_due()
    await rig.ended()
    assert [rig[start].state for start in started] == ["done"] * 4
    assert all(sorted(rig.recipients(start)) == ["ann", "bob"] for start in started)
    assert rig[later].state == "waiting"
    rig.advance(60)
    assert (await rig.done(later)).state == "done"
    await rig.close()


async def test_a_restarted_campaign_fails_without_tables(tmp_path, tables, until):
    rig = CampaignRig(tmp_path / "store", tables)
    tables.gate.clear()
    campaign = rig.accept()
    await until(lambda: tables.inside == 1)
    await rig.close()
    rig = CampaignRig(tmp_path / "store", None)
    rig.campaigns.start_due()
    end = await rig.done(campaign)
    assert end.state == "failed"
    assert "folder of audience tables" in (end.error or "")
    assert rig.recipients(end) == {}
    await rig.close()


async def test_nothing_starts_after_closing(rig, tables):
    campaign = rig.accept(schedule={"startTs": int(NOW) + 60})
    await rig.campaigns.aclose()
    rig.advance(60)
    await rig.campaigns.aclose()
    assert (rig[campaign].state, tables.entered) == ("waiting", 0)


# A full disk


async def test_a_disk_full_of_recipients_is_a_failure(rig, monkeypatch):
    def full(*_: object) -> bool:
        raise StoreError("the disk is full")

    monkeypatch.setattr(rig.store, "deliver", full)
    end = await rig.done(rig.accept())
    assert (end.state, end.error) == ("failed", "the disk is full")


async def test_a_disk_that_stays_full_leaves_the_campaign_to_the_next_process(rig, monkeypatch):
    def full(*_: object) -> None:
        raise StoreError("the disk is full")

    update, updates = rig.store.update, []

    def once(campaign: Campaign) -> None:
        updates.append(campaign.state)
        if len(updates) > 1:
            full()
        update(campaign)

    monkeypatch.setattr(rig.store, "withdraw", full)
    monkeypatch.setattr(rig.store, "update", once)
    campaign = rig.accept()
    assert (await rig.done(campaign)).state == "running"
    assert updates == ["running", "failed"]


# On the wire, with real tables


@pytest.fixture
def audience(tmp_path: Path) -> Path:
    folder = tmp_path / "audience"
    folder.mkdir()
    (folder / "users.csv").write_text("user_id,first_name,city\nann,Ann,Berlin\nbob,,Paris\neve,Eve,Berlin\n")
    return folder


MESSAGE = {"title": {"en": "Hi {{ first_name | 'there' }}"}}
IN_BERLIN = {"query": "SELECT user_id, first_name FROM users WHERE city = 'Berlin'", "primaryKey": "user_id"}


async def created(api: Api, segment: dict[str, str], **body: Any) -> str:
    sent = {"name": "Spring", "segment": segment, "message": {**MESSAGE, "iosEnabled": True}, **body}
    answer = await api.raw("POST", "/external/api/v1/campaigns", sent)
    assert answer.status == 200
    return str(answer.json["uuid"])


async def at_its_end(api: Api, uuid: str, *states: str) -> Any:
    async with api.events() as events:
        await events.until("hello")
        while (campaign := await api.get(f"/campaigns/{uuid}"))["state"] not in states:
            await events.until("campaign")
    return campaign


async def test_recipients_see_their_own_row_in_the_message(running, audience):
    async with running(audience=audience) as wire:
        api = Api(wire.emulator)
        await api.done("PUT", "/limits", {"quota": 3})
        uuid = await created(api, IN_BERLIN)
        campaign = await at_its_end(api, uuid, "done", "failed")
        assert (campaign["state"], campaign["users"], campaign["error"]) == ("done", 2, None)
        assert campaign["recipients"] == [
            {"user_id": "ann", "fields": {"first_name": "Ann"}},
            {"user_id": "eve", "fields": {"first_name": "Eve"}},
        ]
        page = await api.get(f"/campaigns/{uuid}?limit=1&after=ann")
        assert [recipient["user_id"] for recipient in page["recipients"]] == ["eve"]
        assert [campaign["uuid"] for campaign in await api.get("/campaigns")] == [uuid]
        ann = await api.user("ann")
        assert (ann["accepted"], ann["campaigns"]) == (0, 1)
        assert ann["pushes"][0]["custom_fields"] == {"first_name": "Ann"}
        assert ann["devices"]["ios"][0]["fields"] == {"first_name": "Ann"}
        assert (await api.user("bob"))["pushes"] == []
        (entry,) = (await api.get("/requests?search=user:eve"))["requests"]
        assert entry["campaign"] == uuid
        # Both recipients count against the quota.
        assert [(await wire.push("x")).status for _ in range(2)] == [204, 429]


async def test_an_invalid_query_says_why_and_can_be_started_again(running, audience):
    async with running(audience=audience) as wire:
        api = Api(wire.emulator)
        uuid = await created(api, {"query": "SELECT user_id FROM people", "primaryKey": "user_id"})
        campaign = await at_its_end(api, uuid, "done", "failed")
        assert campaign["state"] == "failed"
        assert "people" in campaign["error"]
        (audience / "people.csv").write_text("user_id\nzoe\n")
        started = await api.done("POST", f"/campaigns/{uuid}/start", {})
        assert started["state"] == "running"
        campaign = await at_its_end(api, uuid, "done")
        assert [recipient["user_id"] for recipient in campaign["recipients"]] == ["zoe"]
        status, error = await api.refused("POST", f"/campaigns/{uuid}/start", {})
        assert status == 409
        assert "done" in error


async def test_a_later_campaign_starts_when_the_clock_is_advanced_even_after_a_restart(running, audience, tmp_path):
    options = {"audience": audience, "store": tmp_path / "store", "api_key": "key"}
    async with running(**options) as wire:
        api = Api(wire.emulator)
        soon = int(time.time()) + 1800
        first = await created(api, IN_BERLIN, schedule={"type": "START_NOW", "startTs": soon})
        second = await created(api, IN_BERLIN, schedule={"startTs": (soon + 3600) * 1000})
        assert {(await api.get(f"/campaigns/{uuid}"))["state"] for uuid in (first, second)} == {"waiting"}
        await api.done("POST", "/clock", {"advance": 3600})
        assert (await at_its_end(api, first, "done"))["users"] == 2
    async with running(**options) as wire:
        api = Api(wire.emulator)
        assert (await api.get(f"/campaigns/{second}"))["state"] == "waiting"
        await api.done("POST", "/clock", {"advance": 7200})
        assert (await at_its_end(api, second, "done"))["users"] == 2
        assert len((await api.get(f"/campaigns/{first}"))["recipients"]) == 2
        assert (await api.user("ann"))["campaigns"] == 2


async def test_closing_stops_a_long_query(running, audience, tmp_path):
    endless = {"query": "SELECT count(*)::VARCHAR AS user_id FROM range(100000000000) a", "primaryKey": "user_id"}
    async with asyncio.timeout(60):
        async with running(audience=audience, store=tmp_path / "store", api_key="key") as wire:
            api = Api(wire.emulator)
            uuid = await created(api, endless)
            assert (await at_its_end(api, uuid, "running"))["finished"] is None
    async with running(store=tmp_path / "store", api_key="key") as wire:
        campaign = await at_its_end(Api(wire.emulator), uuid, "failed")
        assert "audience" in campaign["error"]
