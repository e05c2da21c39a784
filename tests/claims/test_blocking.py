"""Blocking operations in threads: all complete, none blocks the loop, and one thread closes the resource last."""

import asyncio
import threading
from functools import partial

import pytest

from pushsdk.claims._blocking import StoreThreads

# Seconds: a timeout that is not expected to expire.
ENOUGH = 20.0


class Thing:
    """A resource with operations that can hang until ``go_on``."""

    def __init__(self):
        self.hanging = threading.Semaphore(0)
        self.go_on = threading.Event()
        self.done = []

    def hang(self, number):
        self.hanging.release()
        assert self.go_on.wait(ENOUGH)
        return self.do(number)

    def do(self, number):
        self.done.append(number)
        return number

    def close(self):
        self.done.append("closed")
        # All results are known by then, so the error loses nothing.
        raise OSError


@pytest.fixture
def resource():
    return Thing()


@pytest.fixture
async def blocking(resource):
    blocking = StoreThreads(1)
    yield blocking
    resource.go_on.set()
    await blocking.aclose(ENOUGH, resource.close)


async def test_operations_end_before_the_close_if_begun_and_never_begin_if_cancelled_before(blocking, resource):
    begun, waiting, queued = [blocking.run(partial(resource.hang, number)) for number in range(3)]
    assert await asyncio.to_thread(resource.hanging.acquire, timeout=ENOUGH)
    assert not resource.hanging.acquire(blocking=False)
    for task in (begun, queued):
        task.cancel()
    await blocking.aclose(0, resource.close)
    resource.go_on.set()
    assert await waiting == 1
    await blocking.aclose(ENOUGH)
    assert resource.done == [0, 1, "closed"]


async def test_the_threads_end_after_aclose_and_when_the_object_is_dropped(blocking, resource):
    dropped = StoreThreads(1)
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
            await blocking.run(partial(resource.do, 99))
    for number in range(5):
        await blocking.run(partial(resource.do, number))
    await blocking.aclose(ENOUGH, resource.close)
    assert resource.done == [*range(5), "closed"]
