"""Scenario 10: claims a second of each store: one claim made and settled by a call each, and 64 by a call.

Without pushes. The servers are on this machine, by Unix sockets, and as durable as their tables say; what a server
does shows in the seconds, not in the CPU time of the client.
"""

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.harness import Contender, Plan, Run, Spread, compare
from benchmarks.report import Goal, result
from benchmarks.sink import sink
from pushsdk.claims import (
    Claim,
    ClaimStore,
    DirectoryClaims,
    MemoryClaims,
    PostgresClaims,
    Put,
    RedisClaims,
    SqliteClaims,
)

PLAN, QUICK = Plan(8, 0.4), Plan(2, 0.1)
WEEK = 7 * 86400.0
TOKEN = "0f" * 16
# As long as those of a push to one user.
CLAIMED, SETTLED = (Claim(TOKEN, b'{"' + b"x" * length + b'":0}') for length in (125, 135))

Make = Callable[[], ClaimStore]


async def claim(store: ClaimStore, numbers: range) -> None:
    """Make these claims by one call, and settle them by another."""
    # Spread over the alphabet, as the hashes that keys are.
    keys = [f"{number % 256:02x}{number:062x}" for number in numbers]
    for made in (CLAIMED, SETTLED):
        if any(await store.put([Put(key, made) for key in keys], WEEK)):
            raise AssertionError("the claim is somebody else's")


@asynccontextmanager
async def at_work(base_url: str, *, make: Make, size: int) -> AsyncIterator[Run]:
    async with make() as store:

        async def run(numbers: range) -> None:
            for first in range(0, len(numbers), size):
                await claim(store, numbers[first : first + size])

        yield run


@contextmanager
def stores() -> Iterator[dict[str, Make]]:
    """What makes each store; their servers run meanwhile."""
    from tests.support.servers import postgres_server, redis_server

    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory()))
        redis, aof = (stack.enter_context(redis_server(durable=durable)).url for durable in (False, True))
        postgres = stack.enter_context(postgres_server(durable=True)).url
        files = iter(range(1000))
        yield {
            "memory": MemoryClaims,
            "SQLite": lambda: SqliteClaims(folder / f"{next(files)}"),
            "SQLite, durable": lambda: SqliteClaims(folder / f"{next(files)}", durable=True),
            "directory": lambda: DirectoryClaims(folder / f"{next(files)}", durable=False),
            "directory, durable": lambda: DirectoryClaims(folder / f"{next(files)}"),
            "Redis": lambda: RedisClaims(redis, prefix=f"{next(files)}:"),
            "Redis, AOF each second": lambda: RedisClaims(aof, prefix=f"{next(files)}:"),
            "PostgreSQL": lambda: PostgresClaims(postgres, table=f"claims_{next(files)}"),
        }


async def run(*, quick: bool) -> dict[str, Any]:
    with sink() as server, stores() as makers:
        field = [
            Contender(f"{name}, {size}", partial(at_work, make=make, size=size), posts="none")
            for name, make in makers.items()
            for size in (1, 64)
        ]
        series = await compare(field, server, QUICK if quick else PLAN)
    goals = [
        Goal(f"claims a second, {each.name} at a time", Spread.of(turn.units / turn.wall for turn in each.rounds))
        for each in series.values()
    ]
    return result("claims", "claim", list(series.values()), goals)
