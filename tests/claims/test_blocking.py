"""Blocking operations in threads: all complete, none blocks the loop, and the last closes the resource."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import time
from collections.abc import AsyncIterator

import pytest

from pushsdk import ConfigurationError
from pushsdk._io.threads import DaemonThreads
from pushsdk.claims._blocking import BlockingResource

MOST = 3
# Seconds: a timeout that is expected to expire, and a timeout that is not.
SOON, ENOUGH = 0.05, 20.0


class Thing:
    """A resource whose operations can hang until ``go_on``."""

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
def thing() -> Thing:
    return Thing()


@pytest.fixture
async def blocking(thing: Thing) -> AsyncIterator[BlockingResource[Thing]]:
    blocking = BlockingResource(lambda: thing, threads=MOST)
    yield blocking
    thing.go_on.set()
    await blocking.aclose(ENOUGH)


async def hung(blocking: BlockingResource[Thing], thing: Thing, number: int = 1) -> list[asyncio.Future[str]]:
    """Return operations that hang."""
    tasks = [blocking.run(lambda it, each=each: it.hang(f"{each}")) for each in range(number)]
    for _ in range(min(number, MOST)):
        assert await asyncio.to_thread(thing.hanging.acquire, timeout=ENOUGH)
    return tasks


async def test_work_runs_in_daemon_threads_and_returns_or_raises(
    blocking: BlockingResource[Thing], thing: Thing
) -> None:
    assert await blocking.run(lambda it: (it is thing, threading.current_thread().daemon)) == (True, True)
    with pytest.raises(ZeroDivisionError):
        await blocking.run(lambda it: 1 // 0)


async def test_operations_beyond_the_thread_limit_are_queued(blocking: BlockingResource[Thing], thing: Thing) -> None:
    tasks = await hung(blocking, thing, MOST + 2)
    assert not thing.hanging.acquire(blocking=False)
    thing.go_on.set()
    assert await asyncio.gather(*tasks) == [f"{each}" for each in range(MOST + 2)]


async def test_the_resource_is_opened_once_and_again_after_a_failure() -> None:
    made: list[str] = []

    def make() -> Thing:
        made.append(threading.current_thread().name)
        if len(made) == 1:
            raise ZeroDivisionError
        return Thing()

    blocking = BlockingResource(make, threads=MOST)
    with pytest.raises(ZeroDivisionError):
        await blocking.run(lambda it: it)
    assert len(set(await asyncio.gather(*(blocking.run(lambda it: it) for _ in range(10))))) == 1
    assert (len(made), {name.partition("_")[0] for name in made}) == (2, {"pushsdk-claims"})
    await blocking.aclose(ENOUGH)


async def test_work_completes_although_its_caller_was_cancelled(
    blocking: BlockingResource[Thing], thing: Thing
) -> None:
    tasks = await hung(blocking, thing, MOST + 1)
    for task in tasks:
        task.cancel()
    assert {type(each) for each in await asyncio.gather(*tasks, return_exceptions=True)} == {asyncio.CancelledError}
    thing.go_on.set()
    await blocking.aclose(ENOUGH)
    assert (sorted(thing.done), thing.closed) == ([f"{each}" for each in range(MOST + 1)], 1)


# -- closing ----------------------------------------------------------------------------------------------------------


async def test_aclose_waits_for_submitted_work_then_closes(blocking: BlockingResource[Thing], thing: Thing) -> None:
    tasks = await hung(blocking, thing, MOST + 1)
    closing = [asyncio.create_task(blocking.aclose(ENOUGH)) for _ in range(2)]
    await asyncio.sleep(0)
    with pytest.raises(ConfigurationError, match="is closed"):
        await blocking.run(lambda it: it)
    assert thing.closed == 0
    thing.go_on.set()
    await asyncio.gather(*closing)
    assert (thing.closed, len(await asyncio.gather(*tasks))) == (1, MOST + 1)
    await blocking.aclose(ENOUGH)
    assert thing.closed == 1


@pytest.mark.parametrize("number", [1, MOST, MOST + 2])
async def test_aclose_gives_up_on_hanging_operations_and_the_last_closes(
    blocking: BlockingResource[Thing], thing: Thing, number: int
) -> None:
    tasks = await hung(blocking, thing, number)
    started = time.monotonic()
    await blocking.aclose(SOON)
    assert SOON * 0.9 < time.monotonic() - started < ENOUGH / 2
    await blocking.aclose(SOON)
    assert (thing.closed, [task.done() for task in tasks]) == (0, [False] * number)
    thing.go_on.set()
    assert await asyncio.gather(*tasks) == [f"{each}" for each in range(number)]
    await blocking.aclose(ENOUGH)
    assert thing.closed == 1


async def test_a_hanging_open_blocks_neither_the_loop_nor_aclose(thing: Thing) -> None:
    def make() -> Thing:
        thing.hang("made")
        return thing

    blocking = BlockingResource(make, threads=MOST)
    tasks = [blocking.run(lambda it: it.do("done")) for _ in range(2)]
    assert await asyncio.to_thread(thing.hanging.acquire, timeout=ENOUGH)
    await blocking.aclose(SOON)
    thing.go_on.set()
    await asyncio.gather(*tasks)
    await blocking.aclose(ENOUGH)
    assert (thing.done, thing.closed) == (["made", "done", "done"], 1)


async def test_a_cancelled_aclose_still_closes(blocking: BlockingResource[Thing], thing: Thing) -> None:
    tasks = await hung(blocking, thing)
    closing = asyncio.create_task(blocking.aclose(ENOUGH))
    await asyncio.sleep(0)
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    thing.go_on.set()
    await asyncio.gather(*tasks)
    await blocking.aclose(ENOUGH)
    assert thing.closed == 1


async def test_an_error_of_close_is_ignored() -> None:
    class Failing(Thing):
        def close(self) -> None:
            super().close()
            raise OSError

    failing = Failing()
    blocking = BlockingResource(lambda: failing, threads=MOST)
    await blocking.run(lambda it: it)
    await blocking.aclose(ENOUGH)
    assert failing.closed == 1


@pytest.mark.parametrize("is_used", [True, False])
async def test_a_resource_that_was_not_opened_is_not_closed(is_used: bool) -> None:
    def make() -> Thing:
        raise ZeroDivisionError

    blocking = BlockingResource(make, threads=MOST)
    if is_used:
        with pytest.raises(ZeroDivisionError):
            await blocking.run(lambda it: it)
    assert blocking.is_used is is_used
    await blocking.aclose(ENOUGH)
    assert blocking.is_used


async def test_the_threads_end_after_aclose_and_when_the_object_is_dropped(
    blocking: BlockingResource[Thing], thing: Thing
) -> None:
    dropped = BlockingResource(lambda: thing, threads=MOST)
    threads = [await each.run(lambda it: threading.current_thread()) for each in (blocking, dropped)]
    await blocking.aclose(ENOUGH)
    del dropped
    for thread in threads:
        await asyncio.to_thread(thread.join, ENOUGH)
        assert not thread.is_alive()


def test_an_operation_that_outlives_its_loop_logs_nothing(thing: Thing, caplog: pytest.LogCaptureFixture) -> None:
    blocking = BlockingResource(lambda: thing, threads=MOST)

    async def give_up() -> None:
        await hung(blocking, thing, MOST + 1)
        await blocking.aclose(SOON)

    asyncio.run(give_up())
    thing.go_on.set()
    asyncio.run(blocking.aclose(ENOUGH))
    assert (len(thing.done), thing.closed) == (MOST + 1, 1)
    assert [record for record in caplog.records if record.levelno > logging.DEBUG] == []


# -- trouble ----------------------------------------------------------------------------------------------------------


async def test_an_operation_without_a_thread_is_not_run_later(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(threads: DaemonThreads) -> None:
        raise RuntimeError("can't start new thread")

    thing = Thing()
    blocking = BlockingResource(lambda: thing, threads=MOST)
    with monkeypatch.context() as patch:
        patch.setattr(DaemonThreads, "_start", refuse)
        with pytest.raises(RuntimeError, match="can't start"):
            await blocking.run(lambda it: it.do("refused"))
    assert not blocking.is_used
    for each in range(5):
        await blocking.run(lambda it, each=each: it.do(f"{each}"))
    await blocking.aclose(ENOUGH)
    assert (thing.done, thing.closed) == ([f"{each}" for each in range(5)], 1)


async def test_a_forked_child_is_refused_even_if_the_lock_was_taken(
    blocking: BlockingResource[Thing], thing: Thing, monkeypatch: pytest.MonkeyPatch
) -> None:
    await blocking.run(lambda it: it)
    with monkeypatch.context() as forked, blocking._lock:
        forked.setattr(os, "getpid", lambda: -1)
        with pytest.raises(ConfigurationError, match="before a fork"):
            await blocking.run(lambda it: it)
        await blocking.aclose(ENOUGH)
    assert thing.closed == 0
    assert await blocking.run(lambda it: it.do("here")) == "here"
