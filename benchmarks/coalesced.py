"""Scenario 2: one message to many users, a task for each user, as a service that handles events would.

pushsdk merges what meets in one turn of the loop. Against it: bare aiohttp with a request per user (from WORKERS
tasks, which is kinder to it than a task per user), and the floor: as many tasks, each waiting for a future, the futures
resolved a thousand at a time, and no network. What is above the floor is the price of merging.

Tasks come in waves. A thousand at a time stay in the processor's cache; 50,000 at once do not, and the cycle
collector walks over them: then the floor itself is several times as dear, whatever a client does.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from benchmarks import contenders as c
from benchmarks.harness import Contender, Plan, Run, compare, ratio, user
from benchmarks.report import Goal, result
from benchmarks.sink import sink

PLAN, QUICK = Plan(12, 0.35), Plan(4, 0.12)
USERS, QUICK_USERS = 50_000, 20_000  # of each turn, and of the largest wave
WAVE = 1000
BATCH = 1000


async def in_waves(send: Callable[[int], Awaitable[object]], numbers: range, wave: int) -> None:
    """A task per number, `wave` of them at a time."""
    for first in range(0, len(numbers), wave):
        await asyncio.gather(*(send(number) for number in numbers[first : first + wave]))


@asynccontextmanager
async def waves(base_url: str, *, wave: int) -> AsyncIterator[Run]:
    """pushsdk, a `send` per task."""
    from pushsdk import AsyncPushClient, MobilePush

    message = MobilePush(title=c.TITLE, body={"en": "Hello"})
    async with AsyncPushClient(base_url, c.API_KEY) as client:

        async def one(number: int) -> None:
            await client.send(user(number), message)

        async def run(numbers: range) -> None:
            await in_waves(one, numbers, wave)

        yield run


@asynccontextmanager
async def floor(_base_url: str, *, wave: int) -> AsyncIterator[Run]:
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
        await in_waves(one, numbers, wave)

    yield run


def name(what: str, wave: int) -> str:
    return f"{what}, {wave:,} tasks"


async def run(*, quick: bool) -> dict[str, Any]:
    users = QUICK_USERS if quick else USERS
    sizes = (WAVE, users)
    contenders = [c.singly(c.BARE, c.bare)]
    for wave in sizes:
        contenders += [
            Contender(name(c.OURS, wave), partial(waves, wave=wave), posts="merged", fixed=users),
            Contender(name("floor", wave), partial(floor, wave=wave), posts="none", fixed=users),
        ]
    with sink() as server:
        series = await compare(contenders, server, QUICK if quick else PLAN)
    goals, notes = [], []
    for wave in sizes:
        ours, least = series[name(c.OURS, wave)], series[name("floor", wave)]
        goals += [
            Goal(f"x bare aiohttp, {wave:,} tasks at once", ratio(ours, series[c.BARE]), at_least=7),
            Goal(f"x the floor, {wave:,} tasks at once", ratio(ours, least), at_least=0.5),
        ]
        merged = 1 / ours.median(lambda turn: turn.requests / turn.units)
        bound = ratio(least, series[c.BARE]).median
        notes.append(
            f"{wave:,} tasks at once: {merged:,.0f} users per request; the floor is {bound:.1f} x bare aiohttp"
        )
    return {**result("coalesced", "user", list(series.values()), goals, baseline=series[c.BARE]), "notes": notes}
