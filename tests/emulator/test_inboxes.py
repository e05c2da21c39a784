"""Inboxes of a running emulator: bounds, resets with requests in flight, other threads, full disks, start and end."""

import asyncio
import socket
import sqlite3

import pytest
from support.control_api import until

from pushsdk import AsyncPushClient
from pushsdk.emulator import Emulator, Fault
from pushsdk.emulator.store.database import StoreError


async def test_the_list_is_bounded_and_the_counts_are_not(running):
    async with running(keep=2, max_age=60.0) as wire:
        for user in ("ann", "bob", "ann"):
            await wire.push(user)
        assert [push.user_ids for push in wire.emulator.pushes] == [("bob",), ("ann",)]
        wire.emulator.advance(61)
        await wire.push("eve")
        assert [push.user_ids for push in wire.emulator.pushes] == [("eve",)]
        assert wire.emulator.users() == {"ann": 2, "bob": 1, "eve": 1}


async def test_delayed_requests_overtaken_by_a_reset_are_answered_and_not_stored(wire, emulator):
    inbox = emulator.inbox()
    inbox.set_faults([Fault.delay(0.05, first=2, name="slow")])
    assert [fault.name for fault in inbox.faults] == ["slow"]
    sent = asyncio.gather(wire.push("ann"), wire.campaign())
    await until(lambda: inbox.hits() == {"slow": 2})
    inbox.forget()
    push, campaign = await sent
    assert push.status == 204
    assert campaign.status == 200
    assert inbox.users() == {}
    assert inbox.pushes == ()
    assert inbox.campaigns == ()
    assert emulator.totals()["campaigns"] == 0
    await wire.push("bob")
    assert inbox.users() == {"bob": 1}


# A full disk


@pytest.fixture
def fill(monkeypatch):
    """``fill(pages)``: allow the emulator's file to grow by so many pages."""
    opened = []
    connect = sqlite3.connect

    def connecting(*args, **options):
        opened.append(connect(*args, **options))
        return opened[-1]

    def filled(pages=0):
        writer = opened[0]
        (now,) = writer.execute("PRAGMA page_count").fetchone()
        writer.execute(f"PRAGMA max_page_count = {now + pages}")

    monkeypatch.setattr(sqlite3, "connect", connecting)
    return filled


async def test_a_full_disk_is_507_and_nothing_is_partially_stored(fill, running):
    async with running() as wire:
        await wire.push("ann")
        fill()
        answer = await wire.send({"userIds": ["bob"], "message": {"title": {"en": "x" * 100_000}}})
        text = "the emulator's store can't be written: database or disk is full; free some space"
        assert answer.status == 507
        assert answer.json == {"error": text}
        assert (await wire.send(b"x" * 100_000)).status == 507
        assert wire.emulator.totals() == {"requests": 3, "users": 1, "duplicates": 0, "pushes": 1, "campaigns": 0}
        assert 507 in [(await wire.push("ann", Api_Key=f"key {number}")).status for number in range(200)]


# The start and the end


async def test_a_failed_start_leaves_the_store_free(wire, tmp_path, running, monkeypatch):
    with pytest.raises(OSError, match="in use"):
        await Emulator(port=wire.port, store=tmp_path / "kept").__aenter__()

    def fail(*_):
        raise StoreError("damaged")

    with monkeypatch.context() as patch, pytest.raises(StoreError, match="damaged"):
        patch.setattr("pushsdk.emulator.store.queries.Store.inbox", fail)
        await Emulator(store=tmp_path / "kept").__aenter__()
    async with running(store=tmp_path / "kept") as other:
        assert (await other.push("ann")).status == 204


async def test_after_closing_a_store_file_can_be_read_but_not_written_and_a_temporary_one_reset(running, tmp_path):
    async with running(store=tmp_path / "kept") as kept, running() as wire:
        await kept.push("ann")
        await wire.push("ann")
    assert kept.emulator.users() == wire.emulator.users() == {"ann": 1}
    with pytest.raises(StoreError, match="can only be read"):
        kept.emulator.inbox().forget()
    wire.emulator.reset()
    assert wire.emulator.users() == {}


@pytest.mark.parametrize(("host", "shown"), [("localhost", "127.0.0.1"), ("::1", "[::1]"), ("0.0.0.0", "127.0.0.1")])
async def test_the_address_reaches_the_emulator(host, shown):
    if host == "::1":
        try:
            socket.create_server((host, 0), family=socket.AF_INET6).close()
        except OSError:
            pytest.skip("this machine has no IPv6")
    async with Emulator(host=host, token="secret") as emulator:
        assert emulator.url.startswith(f"http://{shown}:")
        async with AsyncPushClient(emulator.base_url, emulator.api_key) as client:
            await client.send("ann", {"iosEnabled": True})
