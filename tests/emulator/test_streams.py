"""Server-sent events: one stream per reader, over real sockets."""

import asyncio

import pytest
from support.control_api import until

from pushsdk.emulator.control import handlers
from pushsdk.emulator.store.queries import Store


async def test_a_stream_sends_every_kind_of_change_from_now_on(running):
    async with running() as wire, wire.events() as events:
        hello = await events.next()
        assert hello.event == "hello"
        assert hello.data == {}
        await wire.push("ann")
        assert (await events.next()).data == (await wire.get("/requests"))["requests"][0]
        for call, event, data in (
            (("PUT", "/faults", {"preset": "flaky"}), "faults", {}),
            (("PUT", "/limits", {}), "limits", {}),
            (("DELETE", "/requests/1"), "deleted", {"id": 1}),
            (("DELETE", "/requests?all=true"), "deleted", {"id": None}),
            (("POST", "/reset", {}), "reset", {}),
        ):
            await wire.done(*call)
            assert (await events.until(event))[-1].data.items() >= data.items()
        await wire.push("bob")
        assert (await events.until("request"))[-1].data["first_user"] == "bob"


@pytest.mark.parametrize(
    ("keep", "meanwhile", "told"),
    [
        (1000, ["bob"], ["ann", "bob", "eve"]),
        (1, ["bob"], ["bob", "eve"]),
        (1000, [f"u{number}" for number in range(9)], ["resync", "eve"]),
    ],
)
async def test_requests_that_come_while_others_are_read(running, monkeypatch, keep, meanwhile, told):
    monkeypatch.setattr(handlers, "_MAX_BURST", 3)
    loop = asyncio.get_running_loop()
    patch = pytest.MonkeyPatch()
    read = Store.requests

    def reading(*args, **options):
        patch.undo()
        for user in meanwhile:
            asyncio.run_coroutine_threadsafe(wire.push(user), loop).result(60)
        return read(*args, **options)

    async def next_one():
        event = await events.next()
        return event.data["first_user"] if event.event == "request" else event.event

    async with running(keep=keep) as wire, wire.events() as events:
        await events.until("hello")
        patch.setattr(Store, "requests", reading)
        await wire.push("ann")
        seen = [await next_one() for _ in told[:-1]]
        await wire.push("eve")
        assert [*seen, await next_one()] == told


async def test_a_quiet_stream_sends_heartbeats_without_reading_the_store_and_then_events(wire, monkeypatch):
    monkeypatch.setattr(handlers, "_QUIET_LOOKS", 2)
    async with wire.events() as events:
        await events.until("hello")
        with monkeypatch.context() as unread:
            unread.delattr(Store, "requests")
            assert await events.line() == ": heartbeat"
        await wire.push("ann")
        while not (line := await events.line()).startswith("event"):
            pass
        assert line == "event: request"


async def test_a_stalled_reader_delays_no_other_and_is_bounded(wire):
    """Writing stops when the socket is full; the requests that come meanwhile are then a resync."""
    message = {"title": {f"l{number}": "x" * 300 for number in range(50)}}
    count, before = 1000, asyncio.all_tasks()  # with over 15 KB each: more than two sockets hold
    async with wire.events() as stalled, wire.events(), wire.events() as other:
        await stalled.until("hello")
        for number in range(40, count + 1, 40):
            await asyncio.gather(*(wire.send({"userIds": ["ann"], "message": message}) for _ in range(40)))
            while (newest := await other.next()).event != "request" or newest.data["id"] < number:
                pass
        *sent, _ = await stalled.until("resync")
        assert 0 < len(sent) < count
    await until(lambda: asyncio.all_tasks() <= before)
