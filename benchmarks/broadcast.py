"""Scenario 6: broadcasts. Ten million users from a Parquet file with a run file; what the run file costs; send_each.

The large case runs in a process of its own (`python -m benchmarks.broadcast USERS FOLDER`), whose peak resident set is
read at its end. The others take turns in this one, and only the sending is compared: planning is stated beside it.
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
# Users of a turn: some tenths of a second.
MERGED, PERSONAL = 1_000_000, 5_000

SENDS, RUN, DURABLE = "send() of 1000 users each", "broadcast, run file", "broadcast, durable"
SEND, EACH = "send() one by one", "send_each, run file"


def personal(number: int) -> dict[str, Any]:
    """The message to one user only."""
    return {"title": c.TITLE, "body": {"en": f"Hello {number}"}}


def parquet(users: int, folder: Path) -> Path:
    """A file of distinct ids, in an order that helps nobody."""
    import duckdb

    path = folder / "users.parquet"
    with duckdb.connect() as db:
        db.execute(
            f"COPY (SELECT 'user-' || ((i * 7919) % {users}) AS user_id FROM range({users}) t(i)) "
            f"TO '{path}' (FORMAT parquet)"
        )
    return path


class Stages:
    """When planning ended: `on_progress` of a broadcast. From then on one core has to do."""

    def __init__(self) -> None:
        self.wall = self.cpu = 0.0

    def __call__(self, progress: Any) -> None:
        if progress.stage != "planning" and not self.wall:
            pin(0)
            self.wall, self.cpu = time.perf_counter(), time.process_time()


async def whole(users: int, folder: Path) -> dict[str, Any]:
    """Plan and send all of it, as a job would."""
    from pushsdk import AsyncPushClient, Audience

    path = folder / "users.parquet"
    expected = checksum(user(number) for number in range(users))
    stages = Stages()
    with sink() as server:
        async with AsyncPushClient(server.base_url, c.API_KEY) as client:
            wall, cpu = time.perf_counter(), time.process_time()
            report = await client.broadcast(
                Audience.read(path), {"title": c.TITLE, "body": {"en": "Hello"}}, run=folder / "run", on_progress=stages
            )
            ended, cpu_ended = time.perf_counter(), time.process_time()
        took = server.counts()
    if (took.users, took.checksum, report.accepted) != (users, expected, users):
        raise AssertionError(f"{took}, {report} for {users} users")
    return {
        "plan": stages.wall - wall,
        "plan_cpu": stages.cpu - cpu,
        "send": ended - stages.wall,
        "send_cpu": cpu_ended - stages.cpu,
        "all": ended - wall,
        "peak_mib": peak_mib(),
        "requests": took.requests,
        "sink": took.cpu / (ended - wall),
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
    """One measured, verified turn; `work` says when its sending began."""
    gc.collect()
    before = server.counts()
    wall, cpu = await work(numbers)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    took: Counts = server.counts().since(before)
    if (took.users, took.checksum) != (len(numbers), checksum(map(user, numbers))):
        raise AssertionError(f"{name}: {took} for {len(numbers)} users")
    return Round(len(numbers), cpu, wall, took.requests, took.cpu / wall, took.body_bytes)


def works(client: Any, folder: Path) -> dict[str, tuple[int, Work]]:
    """Contender: users of a turn, and how they are sent."""
    message = {"title": c.TITLE, "body": {"en": "Hello"}}

    async def sends(numbers: range) -> tuple[float, float]:
        groups = [[user(each) for each in numbers[at : at + GROUP]] for at in range(0, len(numbers), GROUP)]
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
        async with AsyncPushClient(server.base_url, c.API_KEY) as client:
            field = works(client, Path(name))
            series = {name: Series(name) for name in field}
            for index in range(rounds + 1):
                order = list(field.items())
                for name, (users, work) in order if index % 2 else reversed(order):
                    taken = await turn(name, work, numbers.take(users), server)
                    if index:  # the first round opens the connections and warms up
                        series[name].rounds.append(taken)
    return series


def one(value: float) -> Spread:
    return Spread(value, value, value)


async def run(*, quick: bool) -> dict[str, Any]:
    users = QUICK_USERS if quick else USERS
    found, small = measure(users), measure(users // 10)
    series = await compare(QUICK_ROUNDS if quick else ROUNDS)
    cost = ratio(series[RUN], series[SENDS])
    goals = [
        Goal("users/s planned from Parquet", one(users / found["plan"]), at_least=2_000_000),
        Goal("users/s sent with a run file", one(users / found["send"]), at_least=1_000_000),
        Goal("users/s from the first row to the last answer", one(users / found["all"]), at_least=1_000_000),
        Goal(f"MiB peak, {users:,} users", one(found["peak_mib"]), at_most=300),
        Goal(f"MiB peak, {users // 10:,} users", one(small["peak_mib"])),
        Goal("broadcast with a run file, x send() of 1000 users", cost, at_least=0.9),
        Goal("durable broadcast, x send() of 1000 users", ratio(series[DURABLE], series[SENDS])),
        Goal("send_each with a run file, x send() one by one", ratio(series[EACH], series[SEND]), at_least=0.9),
        Goal("us of CPU per user that a run file adds", difference(series[RUN], series[SENDS])),
    ]
    notes = [
        (
            f"{users:,} users: planned in {found['plan']:.2f} s, sent in {found['send']:.2f} s and "
            f"{found['requests']:,} requests ({found['send_cpu']:.2f} s of CPU), the sink busy {found['sink']:.0%}; "
            f"the run file {found['file_mib']:.0f} MiB; single measurements"
        ),
        f"{users // 10:,} users: planned in {small['plan']:.2f} s, sent in {small['send']:.2f} s",
    ]
    return {**result("broadcast", "user", list(series.values()), goals), "notes": notes}


def main() -> None:
    # Not pinned yet: DuckDB reads with as many threads as it was given, and the sink has nothing to do meanwhile.
    json.dump(asyncio.run(whole(int(sys.argv[1]), Path(sys.argv[2]))), sys.stdout)


if __name__ == "__main__":
    main()
