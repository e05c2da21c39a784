"""One message to many users, with merged sends.

pushsdk merges the sends of one turn of the event loop. It is compared with bare aiohttp, which sends a request per user
from WORKERS tasks, and with a floor per shape: the same tasks, each waiting for a future, a thousand futures resolved
at a time, no network. The cost above the floor is the cost of merging.

The shape sets the cost of a task: tasks that send repeatedly are cheap, a task per send costs more, and 50,000 tasks at
once exceed the processor's cache and keep the garbage collector busy. `submit` sends the same without tasks.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, NamedTuple

from benchmarks import contenders as c
from benchmarks.harness import Contender, Plan, Run, compare, ratio, user
from benchmarks.report import Goal, result
from benchmarks.sink import sink

PLAN, QUICK = Plan(10, 0.35), Plan(3, 0.08)
USERS, QUICK_USERS = 50_000, 10_000  # of each turn
TOGETHER = 1000
BATCH = 1000

Drive = Callable[[Callable[[int], Awaitable[object]], range], Awaitable[None]]


async def steadily(send: Callable[[int], Awaitable[object]], numbers: range, *, tasks: int) -> None:
    """Send from `tasks` tasks, each of which sends repeatedly."""
    shared = iter(numbers)

    async def worker() -> None:
        for number in shared:
            await send(number)

    await asyncio.gather(*(worker() for _ in range(tasks)))


async def in_waves(send: Callable[[int], Awaitable[object]], numbers: range, *, tasks: int) -> None:
    """Send from a task per number, `tasks` of them at a time."""
    for first in range(0, len(numbers), tasks):
        await asyncio.gather(*(send(number) for number in numbers[first : first + tasks]))


class Shape(NamedTuple):
    """The tasks that send."""

    name: str
    drive: Drive


def shapes(users: int) -> list[Shape]:
    return [
        Shape(f"{TOGETHER:,} tasks", partial(steadily, tasks=TOGETHER)),
        Shape(f"waves of {TOGETHER:,}", partial(in_waves, tasks=TOGETHER)),
        Shape(f"{users:,} at once", partial(in_waves, tasks=users)),
    ]


@asynccontextmanager
async def ours(base_url: str, *, drive: Drive) -> AsyncIterator[Run]:
    """Open pushsdk with its defaults."""
    from pushsdk import AsyncPushClient, MobilePush

    message = MobilePush(ios_enabled=True, title=c.TITLE, body={"en": "Hello"})
    async with AsyncPushClient(base_url, c.API_KEY) as client:

        async def send(number: int) -> None:
            await client.send(user(number), message)

        yield partial(drive, send)


@asynccontextmanager
async def submitted(base_url: str, *, size: int) -> AsyncIterator[Run]:
    """Open pushsdk, and submit so many sends at a time."""
    from pushsdk import AsyncPushClient, MobilePush

    message = MobilePush(ios_enabled=True, title=c.TITLE, body={"en": "Hello"})
    async with AsyncPushClient(base_url, c.API_KEY) as client:

        async def run(numbers: range) -> None:
            for first in range(0, len(numbers), size):
                for future in [client.submit(user(number), message) for number in numbers[first : first + size]]:
                    await future

        yield run


@asynccontextmanager
async def floor(_base_url: str, *, drive: Drive) -> AsyncIterator[Run]:
    """Open the least that a merging client must do on asyncio."""
    loop = asyncio.get_running_loop()
    waiting: list[asyncio.Future[None]] = []

    def resolve() -> None:
        for future in waiting:
            future.set_result(None)
        waiting.clear()

    async def send(number: int) -> None:
        user(number)
        future: asyncio.Future[None] = loop.create_future()
        if not waiting:
            loop.call_soon(resolve)
        waiting.append(future)
        if len(waiting) == BATCH:
            resolve()
        await future

    yield partial(drive, send)


async def run(*, quick: bool) -> dict[str, Any]:
    users = QUICK_USERS if quick else USERS
    contenders = [c.singly(c.BARE, c.bare)]
    for shape in shapes(users):
        contenders += [
            Contender(f"{c.OURS}, {shape.name}", partial(ours, drive=shape.drive), posts="merged", fixed=users),
            Contender(f"floor, {shape.name}", partial(floor, drive=shape.drive), posts="none", fixed=users),
        ]
    pairs: dict[str, str] = {}
    for size, name in ((TOGETHER, f"waves of {TOGETHER:,}"), (users, f"{users:,} at once")):
        title = f"submit, {name}"
        contenders.append(Contender(title, partial(submitted, size=size), posts="merged", fixed=users))
        # The contender with tasks.
        pairs[title] = f"{c.OURS}, {name}"
    with sink() as server:
        series = await compare(contenders, server, QUICK if quick else PLAN)
    goals, notes = [], []
    for shape in shapes(users):
        merging, least = series[f"{c.OURS}, {shape.name}"], series[f"floor, {shape.name}"]
        goals += [
            Goal(f"x bare aiohttp, {shape.name}", ratio(merging, series[c.BARE]), at_least=7),
            Goal(f"x the floor, {shape.name}", ratio(merging, least), at_least=0.5),
        ]
        merged = 1 / merging.median(lambda turn: turn.requests / turn.units)
        bound = ratio(least, series[c.BARE]).median
        notes.append(f"{shape.name}: {merged:,.0f} users per request; the floor is {bound:.1f} x bare aiohttp")
    for title, tasks in pairs.items():
        goals.append(Goal(f"x send in tasks, {title}", ratio(series[title], series[tasks]), at_least=1.5))
    return {**result("coalesced", "user", list(series.values()), goals, baseline=series[c.BARE]), "notes": notes}
