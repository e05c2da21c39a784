"""The event log: consecutive marks from any thread, and no lost wake-up."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from pushsdk.emulator import inboxes
from pushsdk.emulator.inboxes import EventLog


def test_a_reader_too_far_behind_gets_none(monkeypatch):
    monkeypatch.setattr(inboxes, "_MAX_EVENTS", 3)
    events = EventLog()
    for _ in range(5):
        events.publish("reset")
    assert [events.since(mark) is not None for mark in (1, 2, 5)] == [False, True, True]


def test_a_waiter_whose_loop_has_ended_is_forgotten():
    events = EventLog()

    async def wait_in_vain():
        async with asyncio.timeout(0):
            await events.changed(0)

    with pytest.raises(TimeoutError):
        asyncio.run(wait_in_vain())
    events.publish("faults")
    assert events.mark == 1


async def test_events_of_several_threads_have_consecutive_marks_and_none_is_missed():
    events, permits = EventLog(), threading.Semaphore(0)

    def publish():
        for _ in range(100):
            permits.acquire()
            events.publish("faults")
            assert events.since(0) is not None

    with ThreadPoolExecutor() as pool:
        threads = [pool.submit(publish) for _ in range(3)]
        try:
            async with asyncio.timeout(20):
                for mark in range(300):
                    permits.release()
                    await events.changed(mark)
        finally:
            permits.release(300)
    assert [thread.exception() for thread in threads] == [None] * 3
    assert [event.mark for event in events.since(0)] == list(range(1, 301))
