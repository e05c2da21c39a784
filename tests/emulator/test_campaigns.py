"""Campaigns from acceptance to the end, through the API; with real tables, and with tables that the test controls."""

import asyncio
import threading
import time
from contextlib import asynccontextmanager, contextmanager

import pytest
from support.control_api import Api, until

from pushsdk.emulator.campaigns.segment import SegmentError, SegmentResult, Tables
from pushsdk.emulator.store.database import StoreError
from pushsdk.emulator.store.queries import Store

USERS = "user_id,first_name,city\nann,Ann,Berlin\nbob,,Paris\neve,Eve,Berlin\nann,Anna,Berlin\n,Nobody,Berlin\n"
IN_BERLIN = {"query": "SELECT user_id, first_name FROM users WHERE city = 'Berlin'", "primaryKey": "user_id"}
MESSAGE = {"title": {"en": "Hi {{ first_name | 'there' }}"}, "iosEnabled": True}


class HeldTables:
    """A fake `Tables`: each run finds ann, waits for ``gate`` or its stop, then fails with ``error`` or finds bob."""

    def __init__(self):
        self.gate = threading.Event()
        self.gate.set()
        self.error = None
        self.entered = self.inside = self.most = 0

    @contextmanager
    def run(self, stopping):
        self.entered += 1
        self.inside += 1
        self.most = max(self.most, self.inside)
        try:
            yield SegmentResult(users=2, rows=2, duplicates=0, refused=0, first_refused=None), self._batches(stopping)
        finally:
            self.inside -= 1

    def _batches(self, stopping):
        yield [("ann", {})]
        while not self.gate.wait(0.01):
            if stopping():
                raise SegmentError("the query was stopped")
        if self.error is not None:
            raise SegmentError(self.error)
        yield [("bob", {})]


@pytest.fixture
def tables(monkeypatch):
    held = HeldTables()
    monkeypatch.setattr(Tables, "run", lambda *_, stopping: held.run(stopping))
    return held


@pytest.fixture
def serve(running, tmp_path):
    """``async with serve() as api``: the next emulator on the same store, by default with the table users."""
    (tmp_path / "audience").mkdir()
    (tmp_path / "audience/users.csv").write_text(USERS)

    @asynccontextmanager
    async def run(**options):
        kept = {"store": tmp_path / "store", "api_key": "key", "audience": tmp_path / "audience"}
        async with asyncio.timeout(60), running(**(kept | options)) as wire:
            yield wire

    return run


async def created(api, *, segment=IN_BERLIN, after=None, **headers):
    """Create a campaign that starts now or ``after`` these seconds; return its uuid."""
    schedule = {"type": "START_NOW"} if after is None else {"startTs": int((time.time() + after) * 1000)}
    body = {"name": "Spring", "externalId": "x", "segment": segment, "message": MESSAGE, "schedule": schedule}
    answer = await api.raw("POST", "/external/api/v1/campaigns", body, **headers)
    assert answer.status == 200
    return answer.json["uuid"]


async def reached(api, uuid, state, *, before=None):
    """Return the campaign as soon as it is in this state, or has ended otherwise than ``before``."""
    ends = {state, "done", "failed"} - {before}
    async with api.events() as events:
        await events.until("hello")
        while (campaign := await api.get(f"/campaigns/{uuid}"))["state"] not in ends:
            await events.until("campaign")
    assert campaign["state"] == state, campaign
    return campaign


def full(*_):
    raise StoreError("the disk is full")


async def states(api, *uuids):
    return [(await api.get(f"/campaigns/{uuid}"))["state"] for uuid in uuids]


# With real tables


async def test_recipients_see_their_own_row_in_the_message_and_skipped_rows_are_reported(serve):
    async with serve() as api:
        await api.done("PUT", "/limits", {"quota": 3})
        campaign = await reached(api, uuid := await created(api), "done")
        assert campaign["name"] == "Spring"
        assert campaign["external_id"] == "x"
        assert campaign["users"] == 2
        assert campaign["time"] <= campaign["started"] <= campaign["finished"]
        empty, repeated = campaign["error"].split("; ")
        assert empty.startswith("1 rows have no user id, the first is row 4")
        assert repeated == "1 rows repeat a user of an earlier row"
        ann, eve = ({"user_id": name.lower(), "fields": {"first_name": name}} for name in ("Ann", "Eve"))
        assert campaign["recipients"] == [ann, eve]
        assert (await api.get(f"/campaigns/{uuid}?limit=1&after=ann"))["recipients"] == [eve]
        user = await api.user("ann")
        assert user["accepted"] == 0
        assert user["campaigns"] == 1
        assert user["pushes"][0]["custom_fields"] == user["devices"]["ios"][0]["fields"] == ann["fields"]
        assert (await api.user("bob"))["pushes"] == []
        (entry,) = (await api.get("/requests?search=user:eve"))["requests"]
        assert entry["campaign"] == uuid
        pushes = [await api.done("POST", "/requests", {"userIds": ["x"], "message": {}}) for _ in range(2)]
        assert [push["status"] for push in pushes] == [204, 429]  # both recipients count against the quota


async def test_an_invalid_query_says_why_and_can_be_started_again(serve, tmp_path):
    async with serve() as api:
        uuid = await created(api, segment={"query": "SELECT user_id FROM people", "primaryKey": "user_id"})
        assert "people" in (await reached(api, uuid, "failed"))["error"]
        (tmp_path / "audience/people.csv").write_text("user_id\nzoe\n")
        assert (await api.done("POST", f"/campaigns/{uuid}/start", {}))["state"] == "running"
        campaign = await reached(api, uuid, "done", before="failed")
        assert [recipient["user_id"] for recipient in campaign["recipients"]] == ["zoe"]
        status, error = await api.refused("POST", f"/campaigns/{uuid}/start", {})
        assert status == 409
        assert "done" in error


async def test_a_long_query_ends_with_its_emulator_and_fails_in_one_without_tables(serve):
    query = "SELECT count(*)::VARCHAR AS user_id FROM range(100000000000) a"
    async with serve() as api:
        uuid = await created(api, segment={"query": query, "primaryKey": "user_id"})
        assert (await reached(api, uuid, "running"))["finished"] is None
    async with serve(audience=None) as api:
        assert "folder of audience tables" in (await reached(api, uuid, "failed"))["error"]


# Starts


async def test_later_campaigns_start_at_their_times_and_others_by_hand(serve, tables):
    async with serve() as api:
        by_hand = await created(api, after=-1e12)  # an implausible time
        last, first = [await created(api, after=after) for after in (3600, 1800)]
        assert await states(api, by_hand, last, first) == ["waiting"] * 3
        soon = await reached(api, await created(api, after=0.2), "done")  # by itself
        assert soon["users"] == 2
        assert soon["started"] >= soon["start"]
        await api.done("POST", "/clock", {"advance": 1800})
        await reached(api, first, "done")
        assert await states(api, by_hand, last) == ["waiting"] * 2
    async with serve() as api:
        await api.done("POST", "/clock", {"advance": 3600})
        await reached(api, last, "done")
        assert await states(api, by_hand) == ["waiting"]
        assert tables.entered == 3
        assert (await api.done("POST", f"/campaigns/{by_hand}/start", {}))["state"] == "running"
        await reached(api, by_hand, "done")


async def test_a_segment_runs_only_with_the_token(serve, tables):
    token = {"Authorization": "Bearer secret"}
    async with serve(token="secret") as stranger:
        api = Api(stranger.emulator, **token)
        foreign = await created(stranger)
        own = await created(api)
        await reached(api, own, "done")
        campaign = await api.get(f"/campaigns/{foreign}")
        assert campaign["state"] == "not run"
        assert "token" in campaign["error"]
        assert tables.entered == 1
        await api.done("POST", f"/campaigns/{foreign}/start", {})
        await reached(api, foreign, "done")


# Campaigns that do not run


async def test_a_campaign_without_a_query_or_tables_does_not_run_and_says_why(serve, tables):
    async with serve(audience=None) as api:
        for segment, reason in (
            ({}, "no segment"),
            ({"primaryKey": "user_id"}, "no segment"),
            (IN_BERLIN, "folder of audience tables"),
        ):
            uuid = await created(api, segment=segment)
            campaign = await api.get(f"/campaigns/{uuid}")
            assert campaign["state"] == "not run"
            assert reason in campaign["error"]
            status, error = await api.refused("POST", f"/campaigns/{uuid}/start", {})
            assert status == 409
            assert reason in error
    async with serve() as api:
        assert await states(api, uuid) == ["not run"]
        await api.done("POST", f"/campaigns/{uuid}/start", {})
        assert (await reached(api, uuid, "done"))["error"] is None
    assert tables.entered == 1


@pytest.mark.parametrize("is_full", [False, True])
async def test_a_failed_campaign_says_why_and_has_no_recipients(serve, tables, is_full, monkeypatch):
    tables.error = "no such table: users"
    if is_full:
        monkeypatch.setattr(Store, "deliver", full)
    async with serve() as api:
        campaign = await reached(api, await created(api), "failed")
        assert campaign["users"] is None
        assert campaign["recipients"] == []
        assert campaign["error"] == ("the disk is full" if is_full else tables.error)


async def test_a_disk_that_stays_full_leaves_the_campaign_to_the_next_process(serve, tables, monkeypatch):
    update = Store.update
    updates = []

    def once(store, campaign):
        updates.append(campaign.state)
        if len(updates) > 1:
            full()
        update(store, campaign)

    with monkeypatch.context() as patch:
        patch.setattr(Store, "withdraw", full)
        patch.setattr(Store, "update", once)
        async with serve() as api:
            uuid = await created(api)
            await until(lambda: updates == ["running", "failed"])
    async with serve() as api:
        assert (await reached(api, uuid, "done"))["users"] == 2


# Deleted and interrupted campaigns


async def test_a_campaign_deleted_between_two_batches_stores_no_more(serve, tables, monkeypatch):
    async with serve() as api:
        # The run continues before it is stopped.
        monkeypatch.setattr(tables.gate, "wait", lambda _: api.emulator.inbox().forget() or True)
        await created(api)
        await until(lambda: (tables.entered, tables.inside) == (1, 0))
        assert [(await api.user(user))["campaigns"] for user in ("ann", "bob")] == [0, 0]


async def test_the_next_process_restarts_campaigns_and_runs_two_at_a_time(serve, tables):
    tables.gate.clear()
    async with serve() as api:
        uuids = [await created(api) for _ in range(4)]
        later = await created(api, after=3600)
        await until(lambda: tables.inside == 2)
    api.emulator.advance(3600)
    await asyncio.sleep(0)  # nothing starts any more
    assert tables.inside == 0
    assert tables.entered == 2
    tables.gate.set()
    async with serve() as api:
        for uuid in uuids:
            campaign = await reached(api, uuid, "done")
            assert [recipient["user_id"] for recipient in campaign["recipients"]] == ["ann", "bob"]
        assert await states(api, later) == ["waiting"]
    assert tables.entered == 6
    assert tables.most == 2
