"""Inboxes of a running emulator: bounds, resets with requests in flight, other threads."""

import asyncio
import json

import pytest

from pushsdk.emulator import Emulator, Fault, ServiceLimits
from pushsdk.emulator.store.database import StoreError

BODY = json.dumps({"userIds": ["ann"], "message": {}}).encode()


async def begun(wire, connection, until):
    """A request with its head and half of its body received."""
    count = wire.emulator.requests
    connection.write(wire.head(len(BODY)) + BODY[:-5])
    await until(lambda: wire.emulator.requests > count)


async def test_the_list_is_bounded_and_the_counts_are_not(running):
    async with running(keep=2) as wire:
        for user in ("ann", "bob", "ann"):
            await wire.push(user)
        assert [push.user_ids for push in wire.emulator.pushes] == [("bob",), ("ann",)]
        assert wire.emulator.users() == {"ann": 2, "bob": 1}


async def test_the_list_is_bounded_by_the_services_clock(running):
    async with running(max_age=60.0) as wire:
        await wire.push("ann")
        wire.emulator.advance(61)
        await wire.push("bob")
        assert [push.user_ids for push in wire.emulator.pushes] == [("bob",)]
        assert wire.emulator.users() == {"ann": 1, "bob": 1}


async def test_a_delayed_request_overtaken_by_a_reset_is_answered_and_not_stored(wire, emulator, until):
    inbox = emulator.inbox()
    inbox.set_faults([Fault.delay(0.05, first=1, name="slow")])
    sent = asyncio.ensure_future(wire.push("ann"))
    await until(lambda: inbox.hits() == {"slow": 1})
    inbox.forget()
    assert (await sent).status == 204
    assert (inbox.users(), inbox.pushes) == ({}, ())
    await wire.push("bob")
    assert inbox.users() == {"bob": 1}


async def test_a_half_received_request_overtaken_by_a_reset_is_not_stored_or_counted(wire, emulator, until):
    inbox = emulator.inbox()
    inbox.set_faults([Fault.status(503, first=1, name="outage")])
    async with wire.connected() as connection:
        await begun(wire, connection, until)
        inbox.forget()
        connection.write(BODY[-5:])
        assert (await connection.read.readline()).startswith(b"HTTP/1.1 503")
    assert (inbox.users(), inbox.hits()) == ({}, {"outage": 0})
    assert (await wire.push("ann")).status == 503


async def test_a_request_overtaken_by_a_reset_does_not_count_against_the_new_quota(wire, emulator, until):
    inbox = emulator.inbox()
    inbox.limits = ServiceLimits(quota=1)
    async with wire.connected() as connection:
        await begun(wire, connection, until)
        inbox.forget()
        connection.write(BODY[-5:])
        assert (await connection.read.readline()).startswith(b"HTTP/1.1 204")
    assert (await wire.push("bob")).status == 204
    assert (await wire.push("eve")).status == 429
    assert inbox.users() == {"bob": 1}


async def test_a_campaign_overtaken_by_a_reset_is_answered_and_never_runs(wire, emulator, until):
    inbox = emulator.inbox()
    inbox.set_faults([Fault.delay(0.05, name="slow")])
    sent = asyncio.ensure_future(wire.campaign())
    await until(lambda: inbox.hits() == {"slow": 1})
    inbox.forget()
    assert (await sent).json["uuid"]
    assert (inbox.campaigns, emulator.totals()["campaigns"]) == ((), 0)


async def test_strict_is_set_per_inbox(wire, emulator):
    emulator.inbox().limits = ServiceLimits(strict=True)
    assert (await wire.send({"userIds": ["ann"], "message": {}, "more": 1})).status == 400
    assert (await wire.send({"userIds": ["ann"], "message": {}, "more": 1}, Api_Key="another")).status == 204


# From another thread


async def test_another_thread_can_set_and_read_an_inbox(wire, emulator):
    inbox = emulator.inbox("theirs")

    def work():
        inbox.label("nightly")
        inbox.limits = ServiceLimits(max_users=1)
        inbox.set_faults([Fault.status(500, first=1, name="once")])
        sent = [asyncio.run_coroutine_threadsafe(wire.push(*users, Api_Key="theirs"), loop) for users in ("a", "b")]
        statuses = sorted(call.result(60).status for call in sent)
        too_many = asyncio.run_coroutine_threadsafe(wire.push("a", "b", Api_Key="theirs"), loop).result(60)
        totals = inbox.hits(), sum(inbox.users().values()), len(inbox.pushes), inbox.duplicates(), inbox.campaigns
        inbox.forget()
        emulator.advance(1)
        return statuses, too_many.status, totals, inbox.users(), inbox.hits(), inbox.limits, inbox.faults

    loop = asyncio.get_running_loop()
    statuses, too_many, totals, *after = await asyncio.to_thread(work)
    assert (statuses, too_many) == ([204, 500], 413)
    assert totals == ({"once": 1}, 1, 1, {}, ())
    assert after == [{}, {"once": 0}, ServiceLimits(max_users=1), (Fault.status(500, first=1, name="once"),)]
    assert emulator._service.ahead == 1


async def test_reads_from_threads_agree_while_the_loop_writes(wire, emulator):
    inbox, done = emulator.inbox(), asyncio.Event()

    def look():
        count = []
        while not done.is_set():
            pushes = len(inbox.pushes)
            count += [pushes, inbox.accepted("ann")]  # accepted is read later
        return count

    looks = [asyncio.create_task(asyncio.to_thread(look)) for _ in range(2)]
    for _ in range(20):
        await asyncio.gather(*(wire.push("ann") for _ in range(5)))
    done.set()
    for count in await asyncio.gather(*looks):
        assert count == sorted(count)
    assert (inbox.accepted("ann"), len(inbox.pushes)) == (100, 100)


# A full disk


def fill(emulator, pages=0):
    """Bound the growth of the file."""
    writer = emulator._inboxes._store.open()._writer
    (now,) = writer.execute("PRAGMA page_count").fetchone()
    writer.execute(f"PRAGMA max_page_count = {now + pages}")


async def test_a_full_disk_is_507_and_nothing_is_partially_stored(wire, emulator):
    await wire.push("ann")
    fill(emulator)
    answer = await wire.send({"userIds": ["bob"], "message": {"title": {"en": "x" * 100_000}}})
    assert answer.status == 507
    assert answer.json == {"error": "the emulator's store can't be written: database or disk is full; free some space"}
    assert (emulator.users(), len(emulator.pushes)) == ({"ann": 1}, 1)
    assert emulator.totals() == {"requests": 2, "users": 1, "duplicates": 0, "pushes": 1, "campaigns": 0}


async def test_a_full_disk_refuses_only_requests_that_do_not_fit(wire, emulator):
    await wire.push("ann")
    fill(emulator, pages=20)
    sent = [wire.send({"userIds": [user], "message": {"title": {"en": text}}}) for user, text in NEIGHBOURS]
    assert [answer.status for answer in await asyncio.gather(*sent)] == [204, 507, 204]
    assert emulator.users() == {"ann": 1, "bob": 1, "eve": 1}


NEIGHBOURS = [("bob", "small"), ("zoe", "x" * 1_000_000), ("eve", "small")]


async def test_a_request_that_did_not_fit_does_not_count_against_the_quota(wire, emulator):
    inbox = emulator.inbox()
    inbox.limits = ServiceLimits(quota=1)
    await wire.push(Api_Key="another")
    fill(emulator, pages=20)
    assert (await wire.send({"userIds": ["ann"], "message": {"title": {"en": "x" * 1_000_000}}})).status == 507
    assert (await wire.push("ann")).status == 204


async def test_a_refusal_that_does_not_fit_is_507_too(wire, emulator):
    await wire.push("ann")
    fill(emulator)
    assert (await wire.send(b"x" * 100_000)).status == 507


async def test_a_new_inbox_that_does_not_fit_is_507(wire, emulator):
    await wire.push("ann")
    fill(emulator)
    statuses = [(await wire.push("ann", Api_Key=f"key {number}")).status for number in range(200)]
    assert 507 in statuses


async def test_a_key_over_the_most_inboxes_is_507(wire, emulator, monkeypatch):
    await wire.push("ann")
    monkeypatch.setattr("pushsdk.emulator.inboxes._MAX_INBOXES", 1)
    answer = await wire.push("ann", Api_Key="another")
    assert (answer.status, emulator.inbox("another").users()) == (507, {})
    assert answer.json == {"error": "there are 1 inboxes: restart the emulator, or use fewer keys"}


async def test_a_reset_makes_room_on_a_full_disk(wire, emulator):
    text = {"title": {"en": "x" * 100_000}}
    fill(emulator, pages=100)
    statuses = []
    while 507 not in statuses:
        statuses.append((await wire.send({"userIds": ["ann"], "message": text})).status)
    emulator.reset()
    assert emulator.users() == {}
    assert (await wire.send({"userIds": ["bob"], "message": text})).status == 204
    assert emulator.users() == {"bob": 1}


# The end


async def test_an_unusable_store_leaves_the_port_free(tmp_path, running):
    (tmp_path / "kept").write_text("hello")
    broken = Emulator(store=tmp_path / "kept")
    with pytest.raises(StoreError, match="no emulator store"):
        await broken.__aenter__()
    with pytest.raises(RuntimeError, match="no address"):
        _ = broken.base_url
    (tmp_path / "kept").unlink()
    async with broken:
        assert broken.users() == {}


async def test_a_port_in_use_leaves_the_store_free(wire, tmp_path, running):
    with pytest.raises(OSError, match="in use"):
        await Emulator(port=wire.port, store=tmp_path / "kept").__aenter__()
    async with running(store=tmp_path / "kept") as other:
        assert (await other.push("ann")).status == 204


async def test_a_failed_start_is_rolled_back(tmp_path, running, monkeypatch):
    from pushsdk.emulator.campaigns.lifecycle import Campaigns

    def fail(self):
        raise StoreError("damaged")

    monkeypatch.setattr(Campaigns, "start_due", fail)
    with pytest.raises(StoreError, match="damaged"):
        await Emulator(store=tmp_path / "kept").__aenter__()
    monkeypatch.undo()
    async with running(store=tmp_path / "kept") as wire:
        assert (await wire.push("ann")).status == 204


def test_hosts_are_names():
    with pytest.raises(ValueError, match=r"^hosts\[1\] must be a name .*, for example push\.test:8080; got"):
        Emulator(hosts=["push.test", "http://push.test"])


def test_the_clock_needs_a_running_emulator():
    with pytest.raises(RuntimeError, match="use it in `async with`"):
        Emulator().advance(1)


async def test_after_closing_a_store_file_can_be_read_but_not_written(running, tmp_path):
    async with running(store=tmp_path / "kept") as wire:
        await wire.push("ann")
    assert wire.emulator.users() == {"ann": 1}
    with pytest.raises(StoreError, match="can only be read"):
        wire.emulator.inbox().forget()


async def test_after_closing_a_temporary_store_can_be_reset(running):
    async with running() as wire:
        await wire.push("ann")
    wire.emulator.reset()
    assert wire.emulator.users() == {}


@pytest.mark.parametrize(
    ("host", "shown"),
    [("127.0.0.1", "127.0.0.1"), ("localhost", "127.0.0.1"), ("::1", "[::1]"), ("0.0.0.0", "127.0.0.1")],
)
async def test_the_address_reaches_the_emulator(host, shown):
    async with Emulator(host=host, token="secret") as emulator:
        assert emulator.url == f"http://{shown}:{emulator._port}"
        reader, writer = await asyncio.open_connection(shown.strip("[]"), emulator._port)
        head = (
            f"POST /external/api/v1/push HTTP/1.1\r\nHost: {shown}:{emulator._port}\r\nApi-Key: {emulator.api_key}\r\n"
        )
        writer.write(f"{head}Content-Type: application/json\r\nContent-Length: {len(BODY)}\r\n\r\n".encode() + BODY)
        assert (await reader.readline()).startswith(b"HTTP/1.1 204")
        writer.close()
