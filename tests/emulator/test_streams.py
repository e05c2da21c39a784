"""The control route that streams every change."""

import asyncio
import json
import logging

import aiohttp
import pytest
from support.control_api import Api

from pushsdk.emulator import Emulator, Fault
from pushsdk.emulator.control import handlers


@pytest.fixture
def api(emulator: Emulator) -> Api:
    return Api(emulator)


@pytest.fixture
def inbox(emulator: Emulator):
    return emulator._inboxes.of(emulator.api_key)


async def test_a_stream_begins_with_hello_and_sends_each_request(api, wire):
    async with api.events() as events:
        hello = await events.next()
        assert (hello.event, hello.data) == ("hello", {})
        await wire.push("ann")
        event = await events.next()
        assert event.event == "request"
        assert event.data == (await api.get("/requests"))["requests"][0]


async def test_a_stream_sends_every_kind_of_change(api, wire, emulator):
    async with api.events() as events:
        await events.until("hello")
        answer = await wire.campaign()
        request, campaign = await events.until("request"), None
        assert request[-1].data["campaign"] == answer.json["uuid"]
        emulator._inboxes.publish_campaign(emulator.inbox()._ref.id, answer.json["uuid"], 0)
        campaign = (await events.until("campaign"))[-1]
        assert campaign.data == {"id": None, "uuid": answer.json["uuid"]}
        await api.done("PUT", "/faults", {"preset": "flaky"})
        await events.until("faults")
        await api.done("PUT", "/limits", {})
        await events.until("limits")
        await api.done("DELETE", "/requests/1")
        assert (await events.until("deleted"))[-1].data == {"id": 1, "uuid": None}
        await api.done("DELETE", "/requests?all=true")
        assert (await events.until("deleted"))[-1].data == {"id": None, "uuid": None}
        await api.done("POST", "/reset", {})
        await events.until("reset")
        await wire.push("ann")
        assert (await events.until("request"))[-1].data["first_user"] == "ann"


async def test_a_stream_belongs_to_one_inbox(api, wire):
    async with api.events() as events:
        await events.until("hello")
        await wire.push("ann", Api_Key="other")
        await wire.push("bob")
        assert (await events.next()).data["first_user"] == "bob"


async def test_a_stream_of_an_inbox_by_its_name_needs_no_key(api, wire):
    await wire.push("ann")
    (inbox,) = await api.get("/inboxes")
    async with api.events(f"?inbox={inbox['inbox']}", Api_Key=None) as events:
        assert (await events.next()).event == "hello"


async def test_more_requests_than_a_burst_are_one_resync(api, wire, emulator, inbox, monkeypatch):
    monkeypatch.setattr(handlers, "_MAX_BURST", 3)
    count = emulator._store.requests

    def after_ten(*args, **options):
        monkeypatch.setattr(emulator._store, "requests", count)
        for number in range(9):
            asyncio.run_coroutine_threadsafe(wire.push(f"u{number}"), loop).result(60)
        return count(*args, **options)

    loop = asyncio.get_running_loop()
    async with api.events() as events:
        await events.next()
        monkeypatch.setattr(emulator._store, "requests", after_ten)
        await wire.push("first")
        assert (await events.next()).data["first_user"] == "first"
        assert (await events.next()).event == "resync"
        await wire.push("last")
        assert (await events.next()).data["first_user"] == "last"


async def test_a_request_that_comes_while_others_are_read_is_sent_once(api, wire, emulator, monkeypatch):
    requests = emulator._store.requests

    def meanwhile(*args, **options):
        monkeypatch.setattr(emulator._store, "requests", requests)
        asyncio.run_coroutine_threadsafe(wire.push("bob"), loop).result(60)
        return requests(*args, **options)

    loop = asyncio.get_running_loop()
    async with api.events() as events:
        await events.until("hello")
        monkeypatch.setattr(emulator._store, "requests", meanwhile)
        await wire.push("ann")
        users = [(await events.next()).data["first_user"]]
        await wire.push("eve")
        while users[-1] != "eve":
            users.append((await events.next()).data["first_user"])
    assert users == ["ann", "bob", "eve"]


async def test_a_new_stream_begins_at_the_newest_change(api, wire):
    await wire.push("ann")
    async with api.events() as events:
        assert (await events.next()).event == "hello"
        await wire.push("bob")
        assert (await events.next()).data["first_user"] == "bob"


async def test_a_request_deleted_before_it_is_sent_is_left_out(api, wire, emulator, until, monkeypatch):
    """By the bound on stored requests, which publishes no event."""
    requests = emulator._store.requests

    def without(*args, **options):
        monkeypatch.setattr(emulator._store, "requests", requests)
        emulator._store.delete(emulator.inbox()._ref)
        return requests(*args, **options)

    async with api.events() as events:
        await events.until("hello")
        monkeypatch.setattr(emulator._store, "requests", without)
        await wire.push("ann")
        await until(lambda: emulator._store.requests is not without and not emulator.inbox().requests())
        await wire.push("bob")
        assert (await events.next()).data["first_user"] == "bob"


async def test_a_quiet_stream_sends_heartbeats(api, monkeypatch):
    monkeypatch.setattr(handlers, "_HEARTBEAT", 0.01)
    async with api.events() as events:
        await events.until("hello")
        assert await events.line() == ": heartbeat"


async def test_the_end_of_the_emulator_ends_streams_at_once(running):
    async with running() as wire:
        api = Api(wire.emulator)
        async with asyncio.timeout(30), api.events() as events:
            await events.until("hello")
            await wire.emulator.__aexit__(None, None, None)
            await events.rest()
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_a_disconnected_reader_leaves_no_waiter(api, emulator, inbox, until):
    async with api.events() as events:
        await events.until("hello")
        await until(lambda: inbox.events._waiters)
    await until(lambda: not inbox.events._waiters and not emulator._service.lost)


async def test_a_reset_of_the_reader_is_not_logged(api, wire, emulator, until, caplog):
    caplog.set_level(logging.DEBUG)
    async with api.events() as events:
        await events.until("hello")
        await asyncio.gather(*(wire.push(f"u{number}") for number in range(20)))
        events.writer.transport.abort()
        await asyncio.gather(*(wire.push(f"u{number}") for number in range(20)))
    await until(lambda: not emulator._service.lost)
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


async def test_a_stalled_reader_delays_no_other_and_is_bounded(api, wire, emulator, inbox, until):
    """Writing stops when the socket is full; the dropped events are then a resync."""
    message = {"title": {f"l{number}": "x" * 300 for number in range(50)}}
    async with api.events() as stalled, api.events() as other:
        await stalled.until("hello")
        stalled._reader._transport.pause_reading()
        await other.until("hello")
        (transport,) = _written_to(emulator, stalled)
        rounds = sent = 0
        # Above this size the stream stops writing.
        high = transport.get_write_buffer_limits()[1]
        while transport.get_write_buffer_size() <= high:
            await asyncio.gather(*(wire.send({"userIds": ["ann"], "message": message}) for _ in range(40)))
            sent += 40
            while (newest := await other.next()).event == "request" and newest.data["id"] < sent:
                pass
            rounds += 1
            assert rounds < 200
        size = transport.get_write_buffer_size()
        for _ in range(1200):
            inbox.events.publish("faults")
        await other.until("resync")
        assert transport.get_write_buffer_size() == size
        assert size < 4_000_000
        stalled._reader._transport.resume_reading()
        await stalled.until("resync")


def _written_to(emulator: Emulator, events) -> list[asyncio.WriteTransport]:
    name = events.writer.get_extra_info("sockname")
    transports = [handler.transport for handler in emulator._service.lost]
    return [transport for transport in transports if transport.get_extra_info("peername") == name]


async def test_a_stream_comes_in_chunks_over_one_connection(emulator, wire):
    headers = {"Api-Key": emulator.api_key}
    async with (
        aiohttp.ClientSession(headers=headers) as session,
        session.get(f"{emulator.url}/_emulator/v1/events") as response,
    ):
        assert response.headers["Content-Type"] == "text/event-stream"
        assert response.headers["Cache-Control"] == "no-store"
        assert await response.content.readline() == b"event: hello\n"
        await wire.push("ann")
        while not (line := await response.content.readline()).startswith(b'data: {"'):
            pass
        assert json.loads(line[6:])["first_user"] == "ann"


async def test_a_faulty_request_is_sent_to_streams(running):
    async with running(faults=[Fault.reset_after()]) as wire:
        api = Api(wire.emulator)
        async with api.events() as events:
            await events.until("hello")
            with pytest.raises(ConnectionError):
                await wire.push("ann")
            event = (await events.next()).data
        assert (event["accepted"], event["status"], event["fault"]) == (True, None, "1: reset_after")
