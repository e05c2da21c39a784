"""Campaigns from acceptance to the end, with tables controlled by the test, and some with real ones."""

import asyncio
import json
import threading
import time
from contextlib import contextmanager
from uuid import uuid4

import pytest
from support.control_api import Api, until

from pushsdk.emulator.campaigns.lifecycle import Campaigns
from pushsdk.emulator.campaigns.segment import SegmentError, SegmentResult
from pushsdk.emulator.shapes import read_campaign
from pushsdk.emulator.store.database import StoreError
from pushsdk.emulator.store.queries import Store
from pushsdk.emulator.store.records import RequestContent, RequestRecord

NOW = 1_800_000_000.0
SEGMENT = {"query": "SELECT * FROM users", "primaryKey": "user_id"}


class HeldTables:
    """A fake `Tables`: each run finds ann, waits for ``gate`` or its stop, then fails with ``error`` or finds bob."""

    def __init__(self):
        self.gate = threading.Event()
        self.gate.set()
        self.error = None
        self.found = {}
        self.entered = self.inside = self.most = 0

    @contextmanager
    def run(self, query, primary_key, *, stopping):
        self.entered += 1
        self.inside += 1
        self.most = max(self.most, self.inside)
        counts = {"users": 2, "rows": 2, "duplicates": 0, "refused": 0, "first_refused": None, **self.found}
        try:
            yield SegmentResult(**counts), self._batches(stopping)
        finally:
            self.inside -= 1

    def _batches(self, stopping):
        yield [("ann", {"city": "Berlin"})]
        while not self.gate.wait(0.01):
            if stopping():
                raise SegmentError("the query was stopped")
        if self.error is not None:
            raise SegmentError(self.error)
        yield [("bob", {})]


class CampaignRig:
    """Campaigns over a store, with a fake clock. ``changed`` has their uuids, ``reached`` the numbers of users."""

    def __init__(self, path, tables):
        self.store = Store(path)
        self.box = self.store.inbox("key")
        self.ahead = 0.0
        self.clock = lambda: NOW + self.ahead
        self.changed = []
        self.reached = []
        self.campaigns = Campaigns(self.store, tables, now=lambda: self.clock(), changed=self._change)

    def _change(self, inbox, uuid, users):
        self.changed.append(uuid)
        if users:
            self.reached.append((inbox, users))

    def accept(self, **body):
        """Accept a campaign as the service does: read, store, start."""
        sent = json.dumps({"segment": SEGMENT, **body}).encode()
        campaign = self.campaigns.accept(str(uuid4()), sent, read_campaign(sent))
        content = RequestContent(campaign=campaign)
        record = RequestRecord(inbox=self.box.id, time=NOW, body=sent, content=content, endpoint="campaigns")
        self.store.write([record])
        stored = self[campaign]
        self.campaigns.start_due()
        return stored

    def __getitem__(self, campaign):
        return self.store.campaign(self.box, campaign.uuid)

    def advance(self, seconds):
        self.ahead += seconds
        self.campaigns.start_due()

    def recipients(self, campaign):
        return {recipient.user_id: recipient.fields for recipient in self.store.recipients(campaign)}

    async def done(self, campaign):
        """Wait until the campaign has ended."""
        await until(lambda: self[campaign].state in {"done", "failed"})
        return self[campaign]

    async def close(self):
        async with asyncio.timeout(60):
            await self.campaigns.aclose()
        self.store.close()


@pytest.fixture
def tables():
    return HeldTables()


@pytest.fixture
async def make(tmp_path):
    """``make(tables)`` is the next process on the same store. The test closes each one but the last."""
    rigs = []

    def begin(tables):
        rigs.append(CampaignRig(tmp_path / "store", tables))
        return rigs[-1]

    yield begin
    await rigs[-1].close()


@pytest.fixture
async def rig(make, tables):
    return make(tables)


# Starts


async def test_a_campaign_without_a_schedule_runs_at_once_and_reports_skipped_rows(rig, tables):
    tables.found = {"refused": 2, "first_refused": "row 3: empty", "duplicates": 5}
    campaign = rig.accept(name="Spring", externalId="x")
    end = await rig.done(campaign)
    assert (end.state, end.users) == ("done", 2)
    assert end.error == "2 rows have no user id, the first is row 3: empty; 5 rows repeat a user of an earlier row"
    assert (end.name, end.external_id, end.started, end.finished) == ("Spring", "x", NOW, NOW)
    assert rig.recipients(end) == {"ann": {"city": "Berlin"}, "bob": {}}
    assert (rig.changed, rig.reached) == ([campaign.uuid] * 2, [(rig.box.id, 2)])


async def test_later_campaigns_start_in_the_order_of_their_times(rig, tables):
    by_hand = rig.accept(schedule={"type": "LATER"})
    last, first, second = (rig.accept(schedule={"startTs": int(NOW) + after}) for after in (3600, 60, 120))
    rig.advance(59)
    assert rig.changed == []
    rig.advance(1)
    assert (await rig.done(first)).started == NOW + 60
    assert rig.changed == [first.uuid] * 2
    rig.advance(3540)
    assert ((await rig.done(second)).state, (await rig.done(last)).state) == ("done", "done")
    assert rig.changed[2] == second.uuid
    assert (rig[by_hand].state, rig[by_hand].start, tables.entered) == ("waiting", None, 3)
    assert rig.campaigns.start(rig.box.id, rig[by_hand]).state == "running"
    assert (await rig.done(by_hand)).state == "done"


async def test_a_later_campaign_starts_by_itself_when_due(rig):
    loop = asyncio.get_running_loop()
    start = loop.time() - 0.95  # almost a second has passed
    campaign = rig.accept(schedule={"startTs": int((NOW + 1) * 1000)})
    rig.clock = lambda: NOW + loop.time() - start
    rig.campaigns.start_due()
    assert rig.changed == []
    assert (await rig.done(campaign)).state == "done"


async def test_a_campaign_started_by_hand_is_not_started_again(rig, tables):
    tables.gate.clear()
    campaign = rig.accept(schedule={"startTs": int(NOW) + 60})
    rig.campaigns.start(rig.box.id, campaign)
    with pytest.raises(ValueError, match="running"):
        rig.campaigns.start(rig.box.id, campaign)  # the state before the start
    await until(lambda: tables.inside == 1)
    with pytest.raises(ValueError, match="running"):
        rig.campaigns.start(rig.box.id, rig[campaign])
    rig.advance(60)
    tables.gate.set()
    end = await rig.done(campaign)
    with pytest.raises(ValueError, match="done"):
        rig.campaigns.start(rig.box.id, end)
    rig.campaigns.start_due()
    await rig.campaigns.aclose()
    assert (end.state, tables.entered) == ("done", 1)


# Campaigns that do not run


async def test_a_campaign_without_a_query_or_tables_does_not_run_and_says_why(make, tables):
    rig = make(None)
    without_tables = rig.accept()
    cases = [({}, "no segment"), ({"primaryKey": "user_id"}, "no segment"), (SEGMENT, "folder of audience tables")]
    for segment, reason in cases:
        campaign = rig.accept(segment=segment)
        assert (campaign.state, reason in str(campaign.error)) == ("not run", True)
        with pytest.raises(ValueError, match=reason):
            rig.campaigns.start(rig.box.id, campaign)
    await rig.close()
    rig = make(tables)
    rig.campaigns.start_due()
    assert rig[without_tables].state == "not run"
    rig.campaigns.start(rig.box.id, rig[without_tables])
    end = await rig.done(without_tables)
    assert (end.state, end.error, tables.entered) == ("done", None, 1)


@pytest.mark.parametrize("is_full", [False, True])
async def test_a_failed_campaign_says_why_and_has_no_recipients(rig, tables, is_full, monkeypatch):
    def full(*_):
        raise StoreError("the disk is full")

    tables.error = "no such table: users"
    if is_full:
        monkeypatch.setattr(rig.store, "deliver", full)
    end = await rig.done(rig.accept())
    assert (end.state, end.users, end.finished) == ("failed", None, NOW)
    assert end.error == ("the disk is full" if is_full else tables.error)
    assert (rig.recipients(end), rig.reached) == ({}, [])


async def test_a_disk_that_stays_full_leaves_the_campaign_to_the_next_process(rig, monkeypatch):
    def full(*_):
        raise StoreError("the disk is full")

    update, updates = rig.store.update, []

    def once(campaign):
        updates.append(campaign.state)
        if len(updates) > 1:
            full()
        update(campaign)

    monkeypatch.setattr(rig.store, "withdraw", full)
    monkeypatch.setattr(rig.store, "update", once)
    campaign = rig.accept()
    await until(lambda: len(updates) == 2)
    await rig.campaigns.aclose()
    assert (updates, rig[campaign].state) == (["running", "failed"], "running")


# Deleted campaigns


async def test_a_campaign_deleted_while_waiting_never_runs(rig, tables):
    deleted, last = (rig.accept(schedule={"startTs": int(NOW) + 60}) for _ in range(2))
    rig.store.delete(rig.box, only=deleted.id)
    rig.advance(60)
    assert (await rig.done(last)).state == "done"
    await rig.campaigns.aclose()
    assert (tables.entered, set(rig.changed)) == (1, {last.uuid})


async def test_campaigns_deleted_by_a_reset_stop_and_leave_no_recipients(rig, tables):
    tables.gate.clear()
    first, second, waiting = (rig.accept() for _ in range(3))
    await until(lambda: bool(rig.recipients(first) and rig.recipients(second)))
    rig.store.reset(rig.box)
    await until(lambda: tables.inside == 0)  # without the gate
    await rig.campaigns.aclose()
    assert (rig.recipients(first), rig.reached, tables.entered) == ({}, [], 2)
    assert waiting.uuid not in rig.changed


async def test_a_campaign_deleted_between_two_batches_stores_no_more(rig, tables, monkeypatch):
    tables.gate.clear()
    campaign = rig.accept()
    await until(lambda: bool(rig.recipients(campaign)))
    # The run continues before it is stopped.
    monkeypatch.setattr(tables.gate, "wait", lambda _: bool(rig.store.delete(rig.box, only=campaign.id)) or True)
    await until(lambda: tables.inside == 0)
    assert (rig.recipients(campaign), rig.reached) == ({}, [])


# The end, and the next process


async def test_closing_stops_segments_and_the_next_process_restarts_them_two_at_a_time(make, tables):
    rig = make(tables)
    tables.gate.clear()
    started = [rig.accept() for _ in range(4)]
    later = rig.accept(schedule={"startTs": int(NOW) + 60})
    await until(lambda: tables.inside == 2)
    await rig.campaigns.aclose()
    rig.advance(60)  # nothing starts any more
    await rig.close()
    assert (tables.inside, tables.entered) == (0, 2)
    tables.gate.set()
    rig = make(tables)
    assert [rig[start].state for start in (*started, later)] == ["running", "running", "waiting", "waiting", "waiting"]
    rig.campaigns.start_due()
    assert [(await rig.done(start)).state for start in started] == ["done"] * 4
    assert all(sorted(rig.recipients(start)) == ["ann", "bob"] for start in started)
    assert (rig[later].state, tables.entered, tables.most) == ("waiting", 6, 2)


# On the wire, with real tables


@pytest.fixture
def audience(tmp_path):
    folder = tmp_path / "audience"
    folder.mkdir()
    (folder / "users.csv").write_text("user_id,first_name,city\nann,Ann,Berlin\nbob,,Paris\neve,Eve,Berlin\n")
    return folder


MESSAGE = {"title": {"en": "Hi {{ first_name | 'there' }}"}}
IN_BERLIN = {"query": "SELECT user_id, first_name FROM users WHERE city = 'Berlin'", "primaryKey": "user_id"}


async def created(api, segment, **body):
    sent = {"name": "Spring", "segment": segment, "message": {**MESSAGE, "iosEnabled": True}, **body}
    answer = await api.raw("POST", "/external/api/v1/campaigns", sent)
    assert answer.status == 200
    return answer.json["uuid"]


async def at_its_end(api, uuid, *states):
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
        campaign = await at_its_end(api, uuid, "done")
        assert (campaign["users"], campaign["error"]) == (2, None)
        ann, eve = ({"user_id": name.lower(), "fields": {"first_name": name}} for name in ("Ann", "Eve"))
        assert campaign["recipients"] == [ann, eve]
        assert (await api.get(f"/campaigns/{uuid}?limit=1&after=ann"))["recipients"] == [eve]
        user = await api.user("ann")
        assert (user["accepted"], user["campaigns"]) == (0, 1)
        assert user["pushes"][0]["custom_fields"] == user["devices"]["ios"][0]["fields"] == ann["fields"]
        assert (await api.user("bob"))["pushes"] == []
        (entry,) = (await api.get("/requests?search=user:eve"))["requests"]
        assert entry["campaign"] == uuid
        # Both recipients count against the quota.
        assert [(await wire.push("x")).status for _ in range(2)] == [204, 429]


async def test_an_invalid_query_says_why_and_can_be_started_again(running, audience):
    async with running(audience=audience) as wire:
        api = Api(wire.emulator)
        uuid = await created(api, {"query": "SELECT user_id FROM people", "primaryKey": "user_id"})
        assert "people" in (await at_its_end(api, uuid, "failed"))["error"]
        (audience / "people.csv").write_text("user_id\nzoe\n")
        assert (await api.done("POST", f"/campaigns/{uuid}/start", {}))["state"] == "running"
        campaign = await at_its_end(api, uuid, "done")
        assert [recipient["user_id"] for recipient in campaign["recipients"]] == ["zoe"]
        status, error = await api.refused("POST", f"/campaigns/{uuid}/start", {})
        assert (status, "done" in error) == (409, True)


async def test_a_query_ends_with_its_emulator_and_a_later_campaign_waits_for_the_next(running, audience, tmp_path):
    options = {"audience": audience, "store": tmp_path / "store", "api_key": "key"}
    endless = {"query": "SELECT count(*)::VARCHAR AS user_id FROM range(100000000000) a", "primaryKey": "user_id"}
    async with asyncio.timeout(60):
        async with running(**options) as wire:
            api = Api(wire.emulator)
            stopped = await created(api, endless)
            later = await created(api, IN_BERLIN, schedule={"startTs": (int(time.time()) + 1800) * 1000})
            assert (await at_its_end(api, stopped, "running"))["finished"] is None
            assert (await api.get(f"/campaigns/{later}"))["state"] == "waiting"
        async with running(**options) as wire:
            api = Api(wire.emulator)
            assert (await at_its_end(api, stopped, "running"))["finished"] is None
            await api.done("POST", "/clock", {"advance": 3600})
            assert (await at_its_end(api, later, "done"))["users"] == 2
            assert (await api.user("ann"))["campaigns"] == 1
    async with running(store=tmp_path / "store", api_key="key") as wire:  # without tables
        assert "audience" in (await at_its_end(Api(wire.emulator), stopped, "failed"))["error"]
