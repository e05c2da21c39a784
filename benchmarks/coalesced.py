"""Scenario 2: one message to many users, a task for each user, as a service that handles events would.

pushsdk merges what meets in one turn of the loop. Against it: bare aiohttp with a request per user (from WORKERS
tasks, which is kinder to it than a task per user), and the floor: as many tasks, each waiting for a future, the futures
resolved a thousand at a time, and no network. What is above the floor is the price of merging.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from benchmarks import contenders as c
from benchmarks.harness import Contender, Plan, Run, compare, ratio, user
from benchmarks.report import Goal, result
from benchmarks.sink import sink

PLAN, QUICK = Plan(12, 0.35), Plan(4, 0.15)
TASKS, QUICK_TASKS = 50_000, 10_000
BATCH = 1000
STEADY = 1000  # tasks of the steady form, each of which sends one after the other

FLOOR = "floor: a future per task"
OURS_STEADY = f"{c.OURS}, {STEADY:,} tasks"


@asynccontextmanager
async def waves(base_url: str) -> AsyncIterator[Run]:
    """A task per user, all at once."""
    from pushsdk import AsyncPushClient, MobilePush

    message = MobilePush(title=c.TITLE, body={"en": "Hello"})
    async with AsyncPushClient(base_url, c.API_KEY) as client:

        async def one(number: int) -> None:
            await client.send(user(number), message)

        async def run(numbers: range) -> None:
            await asyncio.gather(*(one(number) for number in numbers))

        yield run


@asynccontextmanager
async def steady(base_url: str) -> AsyncIterator[Run]:
    """The same users from STEADY tasks."""
    from pushsdk import AsyncPushClient, MobilePush

    message = MobilePush(title=c.TITLE, body={"en": "Hello"})
    async with AsyncPushClient(base_url, c.API_KEY) as client:

        async def run(numbers: range) -> None:
            shared = iter(numbers)

            async def worker() -> None:
                for number in shared:
                    await client.send(user(number), message)

            await asyncio.gather(*(worker() for _ in range(STEADY)))

        yield run


@asynccontextmanager
async def floor(_base_url: str) -> AsyncIterator[Run]:
    """The least that any merging client does on asyncio."""
    loop = asyncio.get_running_loop()
    waiting: list[asyncio.Future[None]] = []

    def resolve() -> None:
        for future in waiting:
            future.set_result(None)
        waiting.clear()

    async def one(number: int) -> None:
        user(number)
        future: asyncio.Future[None] = loop.create_future()
        if not waiting:
            loop.call_soon(resolve)
        waiting.append(future)
        if len(waiting) == BATCH:
            resolve()
        await future

    async def run(numbers: range) -> None:
        await asyncio.gather(*(one(number) for number in numbers))

    yield run


async def run(*, quick: bool) -> dict[str, Any]:
    tasks = QUICK_TASKS if quick else TASKS
    contenders = [
        c.singly(c.BARE, c.bare),
        Contender(c.OURS, waves, posts="merged", fixed=tasks),
        Contender(OURS_STEADY, steady, posts="merged", fixed=tasks),
        Contender(FLOOR, floor, posts="none", fixed=tasks),
    ]
    with sink() as server:
        series = await compare(contenders, server, QUICK if quick else PLAN)
    ours = series[c.OURS]
    goals = [
        Goal("x bare aiohttp, a request per user", ratio(ours, series[c.BARE]), at_least=7),
        Goal(f"x bare aiohttp, from {STEADY:,} tasks", ratio(series[OURS_STEADY], series[c.BARE])),
        Goal("x the floor", ratio(ours, series[FLOOR]), at_least=0.5),
    ]
    merged = 1 / ours.median(lambda turn: turn.requests / turn.units)
    return {
        **result("coalesced", "user", list(series.values()), goals, baseline=series[c.BARE]),
        "notes": [f"{tasks:,} tasks at once; {merged:,.0f} users per request"],
    }
