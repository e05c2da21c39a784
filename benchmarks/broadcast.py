"""Broadcasts: ten million users from a Parquet file, the cost of the run file, and `send_each`.

The large case runs in its own process (`python -m benchmarks.broadcast USERS FOLDER`), so its peak memory can be read.
The other cases take turns in this process, and only their sending is compared.
"""

import asyncio
import gc
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from benchmarks import contenders as c
from benchmarks.harness import Numbers, Round, Series, Spread, difference, ratio, user, with_workers
from benchmarks.memory import peak_mib
from benchmarks.report import Goal, result
from benchmarks.sink import Counts, Sink, checksum, pin, sink

USERS, QUICK_USERS = 10_000_000, 1_000_000
GROUP = 1000
ROUNDS, QUICK_ROUNDS = 9, 3
# Users of a turn, which takes a few tenths of a second.
MERGED, PERSONAL = 1_000_000, 5_000

SENDS, RUN, DURABLE = "send() of 1000 users each", "broadcast, run file", "broadcast, durable"
SEND, EACH = "send() one by one", "send_each, run file"


def personal(number: int) -> dict[str, Any]:
    """Return a message for one user only."""
    return {"iosEnabled": True, "title": c.TITLE, "body": {"en": f"Hello {number}"}}


def parquet(users: int, folder: Path) -> Path:
    """Write a file of distinct, unsorted ids, and return its path."""
    import duckdb

    path = folder / "users.parquet"
    with duckdb.connect() as db:
        db.execute(
            f"COPY (SELECT 'user-' || ((i * 7919) % {users}) AS user_id FROM range({users}) t(i)) "
            f"TO '{path}' (FORMAT parquet)"
        )
    return path


class Stages:
    """`on_progress` callback that records when planning ended, and pins the process to one core from then on."""

    def __init__(self) -> None:
        self.wall = self.cpu = 0.0

    def __call__(self, progress: Any) -> None:
        if progress.stage != "planning" and not self.wall:
            pin(0)
            self.wall, self.cpu = time.perf_counter(), time.process_time()


async def whole(users: int, folder: Path) -> dict[str, Any]:
    """Plan and send a broadcast, as a job would, and return the figures."""
    from pushsdk import AsyncPushClient, Audience

    path = folder / "users.parquet"
    expected = checksum(user(number) for number in range(users))
    stages = Stages()
    with sink() as server:
        async with AsyncPushClient(server.base_url, c.API_KEY) as client:
            wall, cpu = time.perf_counter(), time.process_time()
            report = await client.broadcast(
                Audience.read(path),
                {"iosEnabled": True, "title": c.TITLE, "body": {"en": "Hello"}},
                run=folder / "run",
                on_progress=stages,
            )
            ended, cpu_ended = time.perf_counter(), time.process_time()
        counts = server.counts()
    if (counts.users, counts.checksum, report.accepted) != (users, expected, users):
        raise AssertionError(f"{counts}, {report} for {users} users")
    return {
        "plan": stages.wall - wall,
        "plan_cpu": stages.cpu - cpu,
        "send": ended - stages.wall,
        "send_cpu": cpu_ended - stages.cpu,
        "all": ended - wall,
        "peak_mib": peak_mib(),
        "requests": counts.requests,
        "sink": counts.cpu / (ended - wall),
        "file_mib": (folder / "run").stat().st_size / (1 << 20),
    }


def measure(users: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as name:
        parquet(users, Path(name))
        command = [sys.executable, "-m", "benchmarks.broadcast", str(users), name]
        measured: dict[str, Any] = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)
    return measured


Work = Callable[[range], Awaitable[tuple[float, float]]]


async def turn(name: str, work: Work, numbers: range, server: Sink) -> Round:
    """Measure and verify one turn. `work` returns the wall and CPU time at which sending began."""
    gc.collect()
    before = server.counts()
    wall, cpu = await work(numbers)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    counts: Counts = server.counts().since(before)
    if (counts.users, counts.checksum) != (len(numbers), checksum(map(user, numbers))):
        raise AssertionError(f"{name}: {counts} for {len(numbers)} users")
    return Round(len(numbers), cpu, wall, counts.requests, counts.cpu / wall, counts.body_bytes)


def works(client: Any, folder: Path) -> dict[str, tuple[int, Work]]:
    """Return the contenders: the users of a turn and the function that sends to them, by name."""
    message = {"iosEnabled": True, "title": c.TITLE, "body": {"en": "Hello"}}

    async def sends(numbers: range) -> tuple[float, float]:
        groups = [[user(number) for number in numbers[at : at + GROUP]] for at in range(0, len(numbers), GROUP)]
        started = time.perf_counter(), time.process_time()
        await with_workers(lambda index: client.send(groups[index], message), range(len(groups)))
        return started

    def run(*, durable: bool) -> Work:
        async def broadcast(numbers: range) -> tuple[float, float]:
            stages = Stages()
            file = folder / f"{numbers.start}-{durable}"
            await client.broadcast(
                map(user, numbers), message, run=file, dedupe=False, durable=durable, on_progress=stages
            )
            file.unlink()
            return stages.wall, stages.cpu

        return broadcast

    async def send(numbers: range) -> tuple[float, float]:
        started = time.perf_counter(), time.process_time()
        await with_workers(lambda number: client.send(user(number), personal(number)), numbers)
        return started

    async def each(numbers: range) -> tuple[float, float]:
        stages = Stages()
        requests = ({"userIds": [user(number)], "message": personal(number)} for number in numbers)
        file = folder / f"{numbers.start}-each"
        await client.send_each(requests, run=file, on_progress=stages)
        file.unlink()
        return stages.wall, stages.cpu

    return {
        SENDS: (MERGED, sends),
        RUN: (MERGED, run(durable=False)),
        DURABLE: (MERGED, run(durable=True)),
        SEND: (PERSONAL, send),
        EACH: (PERSONAL, each),
    }


async def compare(rounds: int) -> dict[str, Series]:
    from pushsdk import AsyncPushClient

    numbers = Numbers()
    with tempfile.TemporaryDirectory() as name, sink() as server:
        async with AsyncPushClient(server.base_url, c.API_KEY) as client, c.bare(server.base_url) as bare:

            async def posts(numbers: range) -> tuple[float, float]:
                started = time.perf_counter(), time.process_time()
                await with_workers(bare, numbers)
                return started

            field = {**works(client, Path(name)), c.BARE: (PERSONAL, posts)}
            series = {name: Series(name) for name in field}
            for index in range(rounds + 1):
                order = list(field.items())
                for name, (users, work) in order if index % 2 else reversed(order):
                    measured = await turn(name, work, numbers.take(users), server)
                    if index:  # round 0 opens connections and warms up
                        series[name].rounds.append(measured)
    return series


async def run(*, quick: bool) -> dict[str, Any]:
    users = QUICK_USERS if quick else USERS
    large, small = measure(users), measure(users // 10)
    series = await compare(QUICK_ROUNDS if quick else ROUNDS)
    cost = ratio(series[RUN], series[SENDS])
    goals = [
        Goal("users/s planned from Parquet", Spread.of([users / large["plan"]]), at_least=2_000_000),
        Goal("users/s sent with a run file", Spread.of([users / large["send"]]), at_least=1_000_000),
        Goal("users/s from the first row to the last response", Spread.of([users / large["all"]]), at_least=1_000_000),
        Goal(f"MiB peak, {users:,} users", Spread.of([large["peak_mib"]]), at_most=300),
        Goal(f"MiB peak, {users // 10:,} users", Spread.of([small["peak_mib"]])),
        Goal("broadcast with a run file, x send() of 1000 users", cost, at_least=0.9),
        Goal("durable broadcast, x send() of 1000 users", ratio(series[DURABLE], series[SENDS])),
        Goal("send_each with a run file, x bare aiohttp", ratio(series[EACH], series[c.BARE]), at_least=1),
        Goal("send_each with a run file, x send() one by one", ratio(series[EACH], series[SEND])),
        Goal("us of CPU per user that a run file adds", difference(series[RUN], series[SENDS])),
    ]
    notes = [
        (
            f"{users:,} users: planned in {large['plan']:.2f} s, sent in {large['send']:.2f} s and "
            f"{large['requests']:,} requests ({large['send_cpu']:.2f} s of CPU), the sink busy {large['sink']:.0%}; "
            f"the run file {large['file_mib']:.0f} MiB; single measurements"
        ),
        f"{users // 10:,} users: planned in {small['plan']:.2f} s, sent in {small['send']:.2f} s",
    ]
    return {**result("broadcast", "user", list(series.values()), goals), "notes": notes}


def main() -> None:
    # Not pinned yet: DuckDB plans with several threads, and the sink is idle until sending begins.
    json.dump(asyncio.run(whole(int(sys.argv[1]), Path(sys.argv[2]))), sys.stdout)


if __name__ == "__main__":
    main()
