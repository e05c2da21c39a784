"""The sync client: its cost for threads, in wall-clock time.

32 threads that send by `PushClient` against 32 tasks that send by `AsyncPushClient`, with distinct messages. The floor
of such a client is the same threads, each waiting for a function that the event loop of another thread calls, without
any request.
"""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from queue import SimpleQueue
from typing import Any

from benchmarks import contenders as c
from benchmarks.harness import Contender, Plan, Run, Series, Spread, compare, ratio, user
from benchmarks.report import Goal, result
from benchmarks.sink import sink

PLAN, QUICK = Plan(10, 1.0), Plan(3, 0.2)
SENDS, QUICK_SENDS = 10_000, 2_000  # of each turn: 100,000 in all
THREADS = 32

Blocking = Callable[[int], object]


def in_threads(send: Blocking) -> Run:
    """Return a function that calls `send` for each number, from THREADS threads."""

    def work(shared: "SimpleQueue[int]") -> None:
        while True:
            number = shared.get()
            if number < 0:
                return
            send(number)

    async def run(numbers: range) -> None:
        shared: SimpleQueue[int] = SimpleQueue()
        for number in (*numbers, *[-1] * THREADS):
            shared.put(number)
        threads = [threading.Thread(target=work, args=(shared,)) for _ in range(THREADS)]
        for thread in threads:
            thread.start()
        await asyncio.to_thread(lambda: [thread.join() for thread in threads])

    return run


def in_tasks(send: c.Send) -> Run:
    """Return a function that awaits `send` for each number, from THREADS tasks."""

    async def run(numbers: range) -> None:
        shared = iter(numbers)

        async def work() -> None:
            for number in shared:
                await send(number)

        await asyncio.gather(*(work() for _ in range(THREADS)))

    return run


@asynccontextmanager
async def tasks(base_url: str) -> AsyncIterator[Run]:
    """Open AsyncPushClient with its defaults."""
    async with c.ours(base_url) as send:
        yield in_tasks(send)


@asynccontextmanager
async def threads(base_url: str) -> AsyncIterator[Run]:
    """Open PushClient with its defaults."""
    from pushsdk import MobilePush, PushClient

    with PushClient(base_url, c.API_KEY) as client:

        def send(number: int) -> None:
            client.send(user(number), MobilePush(ios_enabled=True, title=c.TITLE, body={"en": f"Hello {number}"}))

        yield in_threads(send)


@asynccontextmanager
async def floor(_base_url: str) -> AsyncIterator[Run]:
    """Open the least that a call into the thread of an event loop costs."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()

    def send(number: int) -> None:
        queue: SimpleQueue[int] = SimpleQueue()
        loop.call_soon_threadsafe(queue.put, number)
        queue.get()

    yield in_threads(send)
    loop.call_soon_threadsafe(loop.stop)
    await asyncio.to_thread(thread.join)
    loop.close()


def faster(ours: Series, theirs: Series) -> Spread:
    """Return the units per second of wall-clock time as a multiple of `theirs`, round by round."""
    rounds = zip(ours.rounds, theirs.rounds, strict=True)
    return Spread.of((a.units / a.wall) / (b.units / b.wall) for a, b in rounds)


async def run(*, quick: bool) -> dict[str, Any]:
    sends = QUICK_SENDS if quick else SENDS
    ours, theirs = f"PushClient, {THREADS} threads", f"AsyncPushClient, {THREADS} tasks"
    contenders = [
        Contender(theirs, tasks, fixed=sends),
        Contender(ours, threads, fixed=sends),
        Contender(f"floor, {THREADS} threads", floor, posts="none", fixed=sends),
    ]
    with sink() as server:
        series = await compare(contenders, server, QUICK if quick else PLAN)
    goals = [
        Goal("x AsyncPushClient, by wall clock", faster(series[ours], series[theirs]), at_least=0.5),
        Goal("x AsyncPushClient, by CPU time", ratio(series[ours], series[theirs])),
    ]
    return result("sync", "send", list(series.values()), goals, baseline=series[theirs])
