"""Record batches: `push_batches` with a claim per chunk against a broadcast with a run file.

Only sending is compared. The plan of `push_batches` is frozen before its turn.
"""

import asyncio
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

from benchmarks import contenders as c
from benchmarks.broadcast import EACH, GROUP, MERGED, PERSONAL, RUN, Work, turn, works
from benchmarks.harness import Numbers, Series, Spread, ratio, user
from benchmarks.report import Goal, result
from benchmarks.sink import sink

ROUNDS, QUICK_ROUNDS = 5, 2
MESSAGE = {"iosEnabled": True, "title": c.TITLE, "body": {"en": "Hello {{ number | 'you' }}"}}
PERSONAL_GROUP = 100

MEMORY, FOLDER, SYNCED = "push_batches, memory", "push_batches, directory", "push_batches, directory, durable"
EACH_MEMORY, EACH_FOLDER = "personal, memory", "personal, directory, durable"


def freeze(numbers: range, *, personal: bool) -> Any:
    """Return the plan, in batches of 64 chunks."""
    import pyarrow as pa

    from pushsdk.arrow import plan_schema

    size = PERSONAL_GROUP if personal else GROUP
    rows: list[dict[str, Any]] = []
    for at in range(0, len(numbers), size):
        chunk = numbers[at : at + size]
        row: dict[str, Any] = {"chunk_id": str(chunk.start), "user_ids": list(map(user, chunk))}
        rows.append({**row, "fields": [f'{{"number":{number}}}' for number in chunk]} if personal else row)
    schema = plan_schema(personal)
    return [pa.RecordBatch.from_pylist(rows[at : at + 64], schema) for at in range(0, len(rows), 64)]


def pushing(base_url: str, make: Callable[[int], Any], *, personal: bool) -> Work:
    """Return work that runs `push_batches` to its end; `make` makes the claim store of a turn."""
    from pushsdk.arrow import push_batches

    async def push(numbers: range) -> tuple[float, float]:
        plan = freeze(numbers, personal=personal)
        started = perf_counter(), process_time()
        outcomes = push_batches(
            plan,
            MESSAGE,
            run="benchmark",
            claims=partial(make, numbers.start),
            personal="placeholders" if personal else None,
            base_url=base_url,
            api_key=c.API_KEY,
        )
        rows = await asyncio.to_thread(lambda: sum(batch.num_rows for batch in outcomes))
        if rows != len(numbers):
            raise AssertionError(f"{rows} outcomes for {len(numbers)} users")
        return started

    return push


async def compare(rounds: int) -> dict[str, Series]:
    from pushsdk import AsyncPushClient
    from pushsdk.claims import MemoryClaims
    from pushsdk.spark import DirectoryClaims

    numbers = Numbers()
    with tempfile.TemporaryDirectory() as name, sink() as server:

        def folder(start: int, *, durable: bool) -> Any:
            return DirectoryClaims(Path(name, f"claims-{start}"), durable=durable)

        async with AsyncPushClient(server.base_url, c.API_KEY) as client:
            broadcasts = works(client, Path(name))
            batches = partial(pushing, server.base_url)
            field = {
                RUN: broadcasts[RUN],
                MEMORY: (MERGED, batches(lambda start: MemoryClaims(), personal=False)),
                FOLDER: (MERGED, batches(partial(folder, durable=False), personal=False)),
                SYNCED: (MERGED, batches(partial(folder, durable=True), personal=False)),
                EACH: broadcasts[EACH],
                EACH_MEMORY: (PERSONAL, batches(lambda start: MemoryClaims(), personal=True)),
                EACH_FOLDER: (PERSONAL, batches(partial(folder, durable=True), personal=True)),
            }
            series = {name: Series(name) for name in field}
            for index in range(rounds + 1):
                order = list(field.items())
                for contender, (users, work) in order if index % 2 else reversed(order):
                    measured = await turn(contender, work, numbers.take(users), server)
                    if index:  # the first round opens the connections and warms up
                        series[contender].rounds.append(measured)
    return series


def speed(series: Series) -> Goal:
    """Return users per second of wall-clock time."""
    return Goal(f"users/s, {series.name}", Spread.of(turn.units / turn.wall for turn in series.rounds))


async def run(*, quick: bool) -> dict[str, Any]:
    series = await compare(QUICK_ROUNDS if quick else ROUNDS)
    goals = [
        Goal("x broadcast with a run file, by CPU time", ratio(series[SYNCED], series[RUN])),
        Goal("x send_each with a run file, by CPU time", ratio(series[EACH_FOLDER], series[EACH])),
        *map(speed, series.values()),
    ]
    return result("arrow", "user", list(series.values()), goals)
