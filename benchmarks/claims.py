"""Claims per second of each store, without pushes: one claim or 64 claims per call, made and settled.

The servers run on this machine behind Unix sockets. Their work shows in wall-clock time, not in the client's CPU time.
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
from pushsdk.claims import Claim, ClaimStore, MemoryClaims, PostgresClaims, Put, RedisClaims, SqliteClaims
from pushsdk.spark import DirectoryClaims

PLAN, QUICK = Plan(8, 0.4), Plan(2, 0.1)
WEEK = 7 * 86400.0
TOKEN = "0f" * 16
# As long as the records of a push to one user.
CLAIMED, SETTLED = (Claim(TOKEN, b'{"' + b"x" * length + b'":0}') for length in (125, 135))

Make = Callable[[], ClaimStore]


async def claim(store: ClaimStore, numbers: range) -> None:
    """Make these claims in one call and settle them in another."""
    # Keys are hashes, so the first digits vary most.
    keys = [f"{number % 256:02x}{number:062x}" for number in numbers]
    for record in (CLAIMED, SETTLED):
        if any(await store.put([Put(key, record) for key in keys], WEEK)):
            raise AssertionError("another claim exists")


@asynccontextmanager
async def claiming(base_url: str, *, make: Make, size: int) -> AsyncIterator[Run]:
    async with make() as store:

        async def run(numbers: range) -> None:
            for first in range(0, len(numbers), size):
                await claim(store, numbers[first : first + size])

        yield run


@contextmanager
def stores() -> Iterator[dict[str, Make]]:
    """Yield a factory of each store while its server runs."""
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
            Contender(f"{name}, {size}", partial(claiming, make=make, size=size), posts="none")
            for name, make in makers.items()
            for size in (1, 64)
        ]
        series = await compare(field, server, QUICK if quick else PLAN)
    goals = [
        Goal(f"claims a second, {each.name} at a time", Spread.of(turn.units / turn.wall for turn in each.rounds))
        for each in series.values()
    ]
    return result("claims", "claim", list(series.values()), goals)
