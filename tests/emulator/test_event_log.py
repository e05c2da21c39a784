"""The event log: consecutive marks from any thread, and no lost wake-up."""

import asyncio
import threading

import pytest

from pushsdk.emulator import inboxes
from pushsdk.emulator.inboxes import EventLog


@pytest.mark.parametrize(("mark", "position"), [(0, False), (1, False), (2, True), (5, True)])
def test_a_reader_too_far_behind_gets_none(monkeypatch, mark, position):
    monkeypatch.setattr(inboxes, "_MAX_EVENTS", 3)
    events = EventLog()
    for _ in range(5):
        events.publish("reset")
    assert (events.since(mark) is not None) is position


async def test_a_cancelled_waiter_is_removed():
    events = EventLog()
    waiting = asyncio.create_task(events.changed(0))
    await asyncio.sleep(0)
    waiting.cancel()
    events.publish("faults")  # at the same moment
    with pytest.raises(asyncio.CancelledError):
        await waiting
    await asyncio.sleep(0)
    waiting = asyncio.create_task(events.changed(1))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert events._waiters == set()


def test_marks_from_several_threads_are_consecutive():
    events = EventLog()

    def publish():
        for _ in range(200):
            events.publish("faults")
            assert events.since(0) is not None

    threads = [threading.Thread(target=publish) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [event.mark for event in events.since(0)] == list(range(1, 801))


async def test_no_event_of_another_thread_is_missed():
    events = EventLog()
    permits = threading.Semaphore(0)

    def publish():
        for _ in range(300):
            events.publish("faults")
            permits.acquire()

    thread = threading.Thread(target=publish)
    thread.start()
    async with asyncio.timeout(60):
        for mark in range(300):
            await events.changed(mark)
            permits.release()
    thread.join()
