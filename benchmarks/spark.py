"""Spark: a broadcast by Spark against a broadcast by a plain process, to the same audience, in turns.

Runs only with `--only spark` and `.[engines]`. Compares wall-clock time, because the work is spread over processes, and
only of the sending. Driver, executors and sink share the cores of this machine, so two tasks gain less than they would
on two machines.
"""

import asyncio
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks import contenders as c
from benchmarks.broadcast import parquet
from benchmarks.harness import Spread, user
from benchmarks.report import Goal, result
from benchmarks.sink import Sink, checksum, sink

SHARED, QUICK_SHARED = 2_000_000, 200_000
PERSONAL, QUICK_PERSONAL = 20_000, 2_000
ROUNDS, QUICK_ROUNDS = 3, 1
FEW = 1_000

ALL_ALIKE = {"iosEnabled": True, "title": c.TITLE, "body": {"en": "Hello"}}
EACH_OWN = {"iosEnabled": True, "title": c.TITLE, "body": {"en": "Hello {{ user_id | 'you' }}"}}


class Seconds(NamedTuple):
    """The seconds of one turn."""

    plan: float
    send: float


Turn = Callable[[Path, Path], Seconds]


class _Stages:
    """`on_progress` callback that records when planning ended."""

    def __init__(self) -> None:
        self.sending = 0.0

    def __call__(self, progress: Any) -> None:
        if progress.stage != "planning" and not self.sending:
            self.sending = time.perf_counter()


def plain(base_url: str, *, personal: bool) -> Turn:
    """Return a turn of one process with a run file."""
    from pushsdk import Audience, PushClient

    def turn(users: Path, run: Path) -> Seconds:
        stages, started = _Stages(), time.perf_counter()
        with PushClient(base_url, c.API_KEY) as client:
            audience = Audience.read(users)
            if personal:
                client.send_each(audience.personalize(EACH_OWN, into="text"), run=run, on_progress=stages)
            else:
                client.broadcast(audience, ALL_ALIKE, run=run, on_progress=stages)
        return Seconds(stages.sending - started, time.perf_counter() - stages.sending)

    return turn


def by_spark(base_url: str, session: Any, *, personal: bool, tasks: int) -> Turn:
    """Return a turn of Spark, from a frame."""
    from pushsdk.spark import broadcast

    def turn(users: Path, run: Path) -> Seconds:
        started = time.perf_counter()
        report = broadcast(
            session.read.parquet(str(users)),
            EACH_OWN if personal else ALL_ALIKE,
            run,
            personal="placeholders" if personal else None,
            tasks=tasks,
            base_url=base_url,
        )
        return Seconds(time.perf_counter() - started - report.seconds, report.seconds)

    return turn


@contextmanager
def spark(folder: Path) -> Iterator[Any]:
    """Run a Spark session on all cores, from which this process was pinned away."""
    from pyspark.sql import SparkSession

    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, range(os.cpu_count() or 1))
    os.environ |= {"PYSPARK_PYTHON": sys.executable, "PUSHSDK_API_KEY": c.API_KEY}
    session = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.log.level", "ERROR")
        .config("spark.driver.memory", "1g")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.local.dir", str(folder))
        .getOrCreate()
    )
    try:
        yield session
    finally:
        session.stop()


def verified(turn: Turn, users: Path, run: Path, server: Sink, *, number: int) -> Seconds:
    """Measure one turn, and raise AssertionError unless the sink counted each user once."""
    before = server.counts()
    seconds = turn(users, run)
    counts = server.counts().since(before)
    if (counts.users, counts.checksum) != (number, checksum(map(user, range(number)))):
        raise AssertionError(f"{counts} for {number} users")
    return seconds


def compared(server: Sink, session: Any, folder: Path, *, personal: bool, users: int, rounds: int) -> Iterator[Goal]:
    """Yield the goals of all three contenders, after all rounds."""
    field = {"a plain process": plain(server.base_url, personal=personal)}
    for tasks in (1, 2):
        name = f"Spark, {tasks} task{'s' * (tasks > 1)}"
        field[name] = by_spark(server.base_url, session, personal=personal, tasks=tasks)
    runs = (folder / f"run-{personal}-{number}" for number in count())
    rounds_of: dict[str, list[Seconds]] = {name: [] for name in field}
    for _ in range(2):  # the first time warms up
        few = {
            name: verified(turn, _audience(folder, FEW), next(runs), server, number=FEW) for name, turn in field.items()
        }
    audience = _audience(folder, users)
    for index in range(rounds):
        for name, turn in list(field.items())[:: 1 if index % 2 else -1]:
            rounds_of[name].append(verified(turn, audience, next(runs), server, number=users))
    kind, (base, *others) = "each his own" if personal else "one for all", field
    for name, turns in rounds_of.items():
        yield Goal(f"{kind}, {name}: users/s sent", Spread.of(users / turn.send for turn in turns))
        yield Goal(f"{kind}, {name}: s to plan {users:,}", Spread.of(turn.plan for turn in turns))
        yield Goal(f"{kind}, {name}: s to send {FEW:,}", Spread.of([few[name].send]))
    for name in others:
        pairs = zip(rounds_of[base], rounds_of[name], strict=True)
        yield Goal(f"{kind}, {name}, x {base}", Spread.of(ours.send / theirs.send for ours, theirs in pairs))


def _audience(folder: Path, users: int) -> Path:
    place = folder / str(users)
    if not place.exists():
        place.mkdir()
        parquet(users, place)
    return place / "users.parquet"


async def run(*, quick: bool) -> dict[str, Any]:
    rounds = QUICK_ROUNDS if quick else ROUNDS
    sizes = {False: QUICK_SHARED if quick else SHARED, True: QUICK_PERSONAL if quick else PERSONAL}
    goals: list[Goal] = []
    with tempfile.TemporaryDirectory() as name, sink() as server, spark(Path(name)) as session:
        for personal, users in sizes.items():
            work = partial(compared, server, session, Path(name), personal=personal, users=users, rounds=rounds)
            goals += await asyncio.to_thread(lambda work=work: list(work()))
    return result("spark", "user", [], goals)
