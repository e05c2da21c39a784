"""Rounds: every contender takes its turn in every round, and only figures of one round are compared.

The machine is shared and its cores are noisy, so nothing is read from one long run. A ratio is the median of
the per-round ratios, with its quartiles as the spread. Units are requests, or users where a request carries many.
"""

import asyncio
import gc
import statistics
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, NamedTuple

from benchmarks.sink import Counts, Sink, checksum

WORKERS = 64
WARM_UP = 2 * WORKERS

Posts = Literal["each", "merged", "none"]
Run = Callable[[range], Awaitable[None]]


class Plan(NamedTuple):
    """How long a scenario may take: rounds, and the seconds of each contender's turn."""

    rounds: int
    turn: float


@dataclass
class Contender:
    """One way to do the work. `open(base_url)` yields a coroutine function that does it for a range of numbers."""

    name: str
    open: Callable[[str], AbstractAsyncContextManager[Run]]
    posts: Posts = "each"  # a request per user; every user once in fewer requests; no request at all
    fixed: int = 0  # units of each turn, 0: as many as fill it


@dataclass
class Round:
    """One turn of one contender."""

    units: int
    cpu: float
    wall: float
    requests: int
    sink_share: float
    body_bytes: int

    @property
    def us(self) -> float:
        return self.cpu / self.units * 1e6


@dataclass
class Series:
    """All turns of one contender."""

    name: str
    rounds: list[Round] = field(default_factory=list)

    def median(self, figure: Callable[[Round], float]) -> float:
        return statistics.median(figure(turn) for turn in self.rounds)

    def summary(self) -> dict[str, Any]:
        return {
            "contender": self.name,
            "per_cpu_second": self.median(lambda turn: turn.units / turn.cpu),
            "per_second": self.median(lambda turn: turn.units / turn.wall),
            "cpu_us": self.median(lambda turn: turn.us),
            "requests_per_unit": self.median(lambda turn: turn.requests / turn.units),
            "body_bytes_per_unit": self.median(lambda turn: turn.body_bytes / turn.units),
            "sink_share": max(turn.sink_share for turn in self.rounds),
            "rounds": [asdict(turn) for turn in self.rounds],
        }


class Spread(NamedTuple):
    """A median and its quartiles, over rounds."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Iterable[float]) -> "Spread":
        ordered = list(values)
        if len(ordered) < 2:
            return cls(ordered[0], ordered[0], ordered[0])
        low, median, high = statistics.quantiles(ordered, n=4, method="inclusive")
        return cls(median, low, high)


def ratio(ours: Series, theirs: Series) -> Spread:
    """How many times the units per CPU second of `theirs`, round by round."""
    return Spread.of(b.us / a.us for a, b in zip(ours.rounds, theirs.rounds, strict=True))


def difference(ours: Series, theirs: Series) -> Spread:
    """How many microseconds of CPU per unit over `theirs`, round by round."""
    return Spread.of(a.us - b.us for a, b in zip(ours.rounds, theirs.rounds, strict=True))


def user(number: int) -> str:
    """The id of one user; no two numbers of a run are the same."""
    return f"user-{number}"


async def with_workers(send: Callable[[int], Awaitable[None]], numbers: range) -> None:
    """Call `send` for each number from WORKERS tasks, so that as many are in flight."""
    shared = iter(numbers)

    async def worker() -> None:
        for number in shared:
            await send(number)

    async with asyncio.TaskGroup() as group:
        for _ in range(WORKERS):
            group.create_task(worker())


class Numbers:
    """Hands out ranges of user numbers, each number once in a process."""

    def __init__(self) -> None:
        self._next = 1_000_000  # all ids have the same length, so bodies have too

    def take(self, count: int) -> range:
        first, self._next = self._next, self._next + count
        return range(first, self._next)


def verify(contender: Contender, numbers: range, took: Counts) -> None:
    """Nothing lost, nothing doubled: by the sink's count, not by the contender's word."""
    if contender.posts == "none":
        expected: tuple[int, int] = (0, 0)
    else:
        expected = (len(numbers), checksum(map(user, numbers)))
    if (took.users, took.checksum) != expected:
        raise AssertionError(f"{contender.name}: {took} for {len(numbers)} users")
    if contender.posts == "each" and took.requests != len(numbers):
        raise AssertionError(f"{contender.name}: {took.requests} requests for {len(numbers)} users")


async def turn(contender: Contender, run: Run, numbers: range, sink: Sink) -> Round:
    """One measured, verified turn."""
    gc.collect()
    before = sink.counts()
    wall, cpu = time.perf_counter(), time.process_time()
    await run(numbers)
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    took = sink.counts().since(before)
    verify(contender, numbers, took)
    return Round(len(numbers), cpu, wall, took.requests, took.cpu / wall, took.body_bytes)


async def compare(contenders: Sequence[Contender], sink: Sink, plan: Plan) -> dict[str, Series]:
    """All contenders, round after round, in an order that reverses from round to round."""
    numbers, series = Numbers(), {contender.name: Series(contender.name) for contender in contenders}
    async with AsyncExitStack() as stack:
        runs = [(c, await stack.enter_async_context(c.open(sink.base_url))) for c in contenders]
        sizes = {}
        for contender, run in runs:
            await run(numbers.take(WARM_UP))
            probe = await turn(contender, run, numbers.take(contender.fixed or 3 * WARM_UP), sink)
            sizes[contender.name] = contender.fixed or max(WARM_UP, int(plan.turn / probe.wall * probe.units))
        gc.collect()
        gc.freeze()
        for index in range(plan.rounds):
            for contender, run in runs if index % 2 else reversed(runs):
                # Idle connections may have been dropped while the others had their turns: not measured.
                await run(numbers.take(WARM_UP))
                taken = await turn(contender, run, numbers.take(sizes[contender.name]), sink)
                series[contender.name].rounds.append(taken)
    gc.unfreeze()
    return series
