"""Blocking operations in threads: all complete, none blocks the loop, and the resource is closed after the last."""

import asyncio
import os
import threading

import pytest

from pushsdk import ConfigurationError
from pushsdk.claims._blocking import StoreThreads

MOST = 3
# Seconds: a timeout that is expected to expire, and a timeout that is not.
ENOUGH = 20.0


class Thing:
    """A resource with operations that can hang until ``go_on``."""

    def __init__(self):
        self.hanging = threading.Semaphore(0)
        self.go_on = threading.Event()
        self.done = []
        self.closed = 0

    def hang(self, number):
        self.hanging.release()
        assert self.go_on.wait(ENOUGH)
        return self.do(number)

    def do(self, number):
        assert not self.closed
        self.done.append(number)
        return number

    def close(self):
        self.closed += 1
        # All results are known by then, so the error loses nothing.
        raise OSError


@pytest.fixture
def resource():
    return Thing()


@pytest.fixture
async def blocking(resource):
    blocking = StoreThreads(MOST)
    yield blocking
    resource.go_on.set()
    await blocking.aclose(ENOUGH, resource.close)


async def hung(blocking, resource, count):
    """Return operations that hang, or that wait for a thread."""
    tasks = [blocking.run(resource.hang, number) for number in range(count)]
    for _ in range(min(count, MOST)):
        assert await asyncio.to_thread(resource.hanging.acquire, timeout=ENOUGH)
    return tasks


async def test_operations_complete_if_they_have_begun_and_never_begin_if_cancelled_before(blocking, resource):
    *tasks, waiting, queued = await hung(blocking, resource, MOST + 2)
    assert not resource.hanging.acquire(blocking=False)
    for task in (*tasks, queued):
        task.cancel()
    ends = await asyncio.gather(*tasks, queued, return_exceptions=True)
    assert {type(end) for end in ends} == {asyncio.CancelledError}
    await asyncio.sleep(0)  # takes the cancelled work from the queue
    resource.go_on.set()
    assert await waiting == MOST
    await blocking.aclose(ENOUGH, resource.close)
    assert sorted(resource.done) == [*range(MOST + 1)]
    assert resource.closed == 1


async def test_the_threads_end_after_aclose_and_when_the_object_is_dropped(blocking, resource):
    dropped = StoreThreads(MOST)
    threads = [await owner.run(threading.current_thread) for owner in (blocking, dropped)]
    await blocking.aclose(ENOUGH, resource.close)
    del dropped
    for thread in threads:
        await asyncio.to_thread(thread.join, ENOUGH)
        assert not thread.is_alive()


async def test_an_operation_without_a_thread_is_not_run_later(blocking, resource, monkeypatch):
    def refuse(thread):
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        with pytest.raises(RuntimeError, match="can't start"):
            await blocking.run(resource.do, 99)
    for number in range(5):
        await blocking.run(resource.do, number)
    await blocking.aclose(ENOUGH, resource.close)
    assert resource.done == [*range(5)]
    assert resource.closed == 1


async def test_a_forked_child_is_refused(blocking, resource, monkeypatch):
    await blocking.run(resource.do, 1)
    with monkeypatch.context() as forked:
        forked.setattr(os, "getpid", lambda: -1)
        with pytest.raises(ConfigurationError, match="before a fork"):
            await blocking.run(resource.do, 2)
        await blocking.aclose(ENOUGH, resource.close)
    assert resource.closed == 0
    assert await blocking.run(resource.do, 3) == 3
