"""Two tenants on one client, which send equal messages at the same time, each with a key of its own.

The name of a user begins with its tenant, so the service can tell which pushes came under a wrong key. A message is
sent by both tenants, to some users each, in the same turn of the event loop.
"""

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from itertools import count, islice
from typing import Any

from benchmarks.harness import Spread
from benchmarks.report import Goal, result, table
from benchmarks.service import Reading, Rules, Running, service

PUSHES, QUICK_PUSHES = 20_000, 2_000  # of each kind
TENANTS, USERS = ("acme", "globex"), 2  # users of each tenant and message
ROUND = 25  # messages that are sent at once
THREADS = 16
FAST = Rules(0.005)
tenant: ContextVar[str] = ContextVar("tenant")


def key_of(name: str) -> str:
    return f"key-{name}"


def key() -> str:
    return key_of(tenant.get())


async def later_key() -> str:
    await asyncio.sleep(0)
    return key()


def message(number: int) -> dict[str, Any]:
    return {"title": {"en": f"number {number // USERS}"}, "iosEnabled": True}


def by_context(client: Any, name: str) -> Any:
    """Choose the tenant for the calls of this context."""
    tenant.set(name)
    return client


def by_options(client: Any, name: str) -> Any:
    return client.with_options(api_key=key_of(name))


Choose = Callable[[Any, str], Any]


async def sends(client: Any, choose: Choose, pushes: int) -> None:
    """Send from a task per push, as handlers of requests do."""

    async def handler(name: str, number: int) -> None:
        await choose(client, name).send(f"{name}:{number}", message(number))

    numbers = iter(range(pushes // len(TENANTS)))
    while batch := list(islice(numbers, USERS * ROUND)):
        await asyncio.gather(*(handler(name, number) for number in batch for name in TENANTS))


async def submits(client: Any, choose: Choose, pushes: int) -> None:
    """Submit all pushes from one task."""
    for number in range(pushes // len(TENANTS)):
        for name in TENANTS:
            choose(client, name).submit(f"{name}:{number}", message(number))
        if number % (USERS * ROUND) == 0:
            await client.flush()
    await client.flush()


def threads(base_url: str, pushes: int) -> None:
    """Send from threads, with one PushClient."""
    from pushsdk import PushClient

    numbers = count()

    def worker() -> None:
        while (number := next(numbers)) < pushes:
            name = TENANTS[number % 2]
            by_context(client, name).send(f"{name}:{number}", message(number // 2))

    with PushClient(base_url, key) as client, ThreadPoolExecutor(THREADS) as pool:
        for future in [pool.submit(worker) for _ in range(THREADS)]:
            future.result()


async def async_client(running: Running, work: Callable[[Any], Awaitable[None]], api_key: Any) -> None:
    from pushsdk import AsyncPushClient

    async with AsyncPushClient(running.base_url, api_key) as client:
        await work(client)


Kind = Callable[[Running, int], Awaitable[None]]
KINDS: dict[str, Kind] = {
    "a callable": lambda to, n: async_client(to, lambda client: sends(client, by_context, n), key),
    "an async callable": lambda to, n: async_client(to, lambda client: sends(client, by_context, n), later_key),
    "submit, a callable": lambda to, n: async_client(to, lambda client: submits(client, by_context, n), key),
    "threads, a callable": lambda to, n: asyncio.to_thread(threads, to.base_url, n),
    "with_options(api_key=...)": lambda to, n: async_client(
        to, lambda client: sends(client, by_options, n), "key-nobody"
    ),
}


def judged(name: str, pushes: int, running: Running, work: Reading) -> list[Goal]:
    """Compare the record of the service with what was sent."""
    record = running.pushes()
    wrong = sum(times for (used, user), times in record.items() if used != key_of(user.partition(":")[0]))
    if (len({user for _, user in record}), record.total()) != (pushes, pushes):
        raise AssertionError(f"{name}: {record.total()} pushes to {len(record)} users, of {pushes}")
    return [
        Goal(f"{name}: pushes under a wrong key, of {pushes:,}", Spread.of([wrong]), at_most=0),
        Goal(f"{name}: requests per push", Spread.of([work.accepted / pushes]), at_most=0.9),
    ]


async def run(*, quick: bool) -> dict[str, Any]:
    goals, notes = [], []
    for name, kind in KINDS.items():
        pushes = QUICK_PUSHES if quick else PUSHES
        with service(FAST, records=True) as running:
            try:
                await kind(running, pushes)
            except TypeError as error:
                notes.append(f"left out: {name}: {error}")
            else:
                goals += judged(name, pushes, running, running.read())
    return {**result("tenants", "push", [], goals), "notes": notes}


if __name__ == "__main__":  # a manual check
    print(table([{**asyncio.run(run(quick=True)), "loop": "asyncio"}]))
