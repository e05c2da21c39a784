"""Blocking operations in threads: all complete, none blocks the loop, and the resource is closed after the last."""

import asyncio
import logging
import os
import threading
import time
from collections.abc import AsyncIterator

import pytest

from pushsdk import ConfigurationError
from pushsdk.claims._blocking import StoreThreads

MOST = 3
# Seconds: a timeout that is expected to expire, and a timeout that is not.
SOON, ENOUGH = 0.05, 20.0


class Thing:
    """A resource with operations that can hang until ``go_on``."""

    def __init__(self) -> None:
        self.hanging = threading.Semaphore(0)
        self.go_on = threading.Event()
        self.done: list[str] = []
        self.closed = 0

    def hang(self, name: str = "hung") -> str:
        self.hanging.release()
        assert self.go_on.wait(ENOUGH)
        return self.do(name)

    def do(self, name: str) -> str:
        assert not self.closed
        self.done.append(name)
        return name

    def close(self) -> None:
        self.closed += 1


@pytest.fixture
def resource() -> Thing:
    return Thing()


@pytest.fixture
async def blocking(resource: Thing) -> AsyncIterator[StoreThreads]:
    blocking = StoreThreads(MOST)
    yield blocking
    resource.go_on.set()
    await blocking.aclose(ENOUGH, resource.close)


async def hung(blocking: StoreThreads, resource: Thing, number: int = 1) -> list[asyncio.Future[str]]:
    """Return operations that hang."""
    tasks = [blocking.run(resource.hang, f"{index}") for index in range(number)]
    for _ in range(min(number, MOST)):
        assert await asyncio.to_thread(resource.hanging.acquire, timeout=ENOUGH)
    return tasks


async def test_operations_beyond_the_thread_limit_are_queued(blocking: StoreThreads, resource: Thing) -> None:
    tasks = await hung(blocking, resource, MOST + 2)
    assert not resource.hanging.acquire(blocking=False)
    resource.go_on.set()
    assert await asyncio.gather(*tasks) == [f"{number}" for number in range(MOST + 2)]


async def test_an_operation_that_has_begun_completes_although_its_caller_was_cancelled(
    blocking: StoreThreads, resource: Thing
) -> None:
    tasks = await hung(blocking, resource, MOST)
    for task in tasks:
        task.cancel()
    assert {type(number) for number in await asyncio.gather(*tasks, return_exceptions=True)} == {asyncio.CancelledError}
    resource.go_on.set()
    await blocking.aclose(ENOUGH, resource.close)
    assert (sorted(resource.done), resource.closed) == ([f"{number}" for number in range(MOST)], 1)


async def test_a_queued_operation_whose_caller_was_cancelled_never_begins(
    blocking: StoreThreads, resource: Thing
) -> None:
    *tasks, queued = await hung(blocking, resource, MOST + 1)
    queued.cancel()
    await asyncio.sleep(0)
    resource.go_on.set()
    await asyncio.gather(*tasks)
    await blocking.aclose(ENOUGH, resource.close)
    assert (sorted(resource.done), resource.closed) == ([f"{number}" for number in range(MOST)], 1)


# -- closing ----------------------------------------------------------------------------------------------------------


async def test_aclose_waits_for_submitted_work_then_closes(blocking: StoreThreads, resource: Thing) -> None:
    tasks = await hung(blocking, resource, MOST + 1)
    closing = [asyncio.create_task(blocking.aclose(ENOUGH, resource.close)) for _ in range(2)]
    await asyncio.sleep(0)
    with pytest.raises(ConfigurationError, match="is closed"):
        await blocking.run(resource.do, "late")
    assert resource.closed == 0
    resource.go_on.set()
    await asyncio.gather(*closing)
    assert (resource.closed, len(await asyncio.gather(*tasks))) == (1, MOST + 1)
    await blocking.aclose(ENOUGH, resource.close)
    assert resource.closed == 1


@pytest.mark.parametrize("number", [1, MOST, MOST + 2])
async def test_aclose_gives_up_on_hanging_operations_and_the_last_closes(
    blocking: StoreThreads, resource: Thing, number: int
) -> None:
    tasks = await hung(blocking, resource, number)
    started = time.monotonic()
    await blocking.aclose(SOON, resource.close)
    assert SOON * 0.9 < time.monotonic() - started < ENOUGH / 2
    await blocking.aclose(SOON, resource.close)
    assert (resource.closed, [task.done() for task in tasks]) == (0, [False] * number)
    resource.go_on.set()
    assert await asyncio.gather(*tasks) == [f"{index}" for index in range(number)]
    await blocking.aclose(ENOUGH, resource.close)
    assert resource.closed == 1


async def test_a_cancelled_aclose_still_closes(blocking: StoreThreads, resource: Thing) -> None:
    tasks = await hung(blocking, resource)
    closing = asyncio.create_task(blocking.aclose(ENOUGH, resource.close))
    await asyncio.sleep(0)
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    resource.go_on.set()
    await asyncio.gather(*tasks)
    await blocking.aclose(ENOUGH, resource.close)
    assert resource.closed == 1


async def test_an_error_of_close_is_ignored(blocking: StoreThreads, resource: Thing) -> None:
    def close() -> None:
        resource.close()
        raise OSError

    await blocking.run(resource.do, "done")
    await blocking.aclose(ENOUGH, close)
    assert resource.closed == 1


async def test_the_threads_end_after_aclose_and_when_the_object_is_dropped(
    blocking: StoreThreads, resource: Thing
) -> None:
    dropped = StoreThreads(MOST)
    threads = [await owner.run(threading.current_thread) for owner in (blocking, dropped)]
    await blocking.aclose(ENOUGH, resource.close)
    del dropped
    for thread in threads:
        await asyncio.to_thread(thread.join, ENOUGH)
        assert not thread.is_alive()


def test_an_operation_that_outlives_its_loop_logs_nothing(resource: Thing, caplog: pytest.LogCaptureFixture) -> None:
    blocking = StoreThreads(MOST)

    async def give_up() -> None:
        await hung(blocking, resource, MOST + 1)
        await blocking.aclose(SOON, resource.close)

    asyncio.run(give_up())
    resource.go_on.set()
    asyncio.run(blocking.aclose(ENOUGH, resource.close))
    assert (len(resource.done), resource.closed) == (MOST + 1, 1)
    assert [record for record in caplog.records if record.levelno > logging.DEBUG] == []


# -- trouble ----------------------------------------------------------------------------------------------------------


async def test_an_operation_without_a_thread_is_not_run_later(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    resource = Thing()
    blocking = StoreThreads(MOST)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        with pytest.raises(RuntimeError, match="can't start"):
            await blocking.run(resource.do, "refused")
    for number in range(5):
        await blocking.run(resource.do, f"{number}")
    await blocking.aclose(ENOUGH, resource.close)
    assert (resource.done, resource.closed) == ([f"{number}" for number in range(5)], 1)


async def test_a_forked_child_is_refused_even_if_the_lock_was_taken(
    blocking: StoreThreads, resource: Thing, monkeypatch: pytest.MonkeyPatch
) -> None:
    await blocking.run(resource.do, "late")
    with monkeypatch.context() as forked, blocking._lock:
        forked.setattr(os, "getpid", lambda: -1)
        with pytest.raises(ConfigurationError, match="before a fork"):
            await blocking.run(resource.do, "late")
        await blocking.aclose(ENOUGH, resource.close)
    assert resource.closed == 0
    assert await blocking.run(resource.do, "here") == "here"
