"""Rounds: every contender takes a turn in every round, and only figures of the same round are compared.

The cores of a shared machine are noisy, so a ratio is the median of the per-round ratios, with quartiles as its spread.
Units are requests, or users if a request carries many.
"""

import asyncio
import gc
import multiprocessing
import statistics
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import asdict, dataclass, field
from multiprocessing.connection import Connection
from typing import Any, Literal, NamedTuple

from benchmarks.sink import Counts, Sink, checksum, pin

WORKERS = 64
WARM_UP = 2 * WORKERS

Posts = Literal["each", "merged", "none"]
# Sends to a range of numbers. Returns the seconds of CPU and of wall time if it has measured them in another process.
Run = Callable[[range], Awaitable[tuple[float, float] | None]]
Opener = Callable[[str], AbstractAsyncContextManager[Callable[[int], Awaitable[None]]]]


class Plan(NamedTuple):
    """The length of a scenario: rounds, and seconds of each contender's turn."""

    rounds: int
    turn: float


@dataclass
class Contender:
    """One way to send. `open(base_url)` yields a coroutine function that sends to a range of numbers."""

    name: str
    open: Callable[[str], AbstractAsyncContextManager[Run]]
    posts: Posts = "each"  # a request per user; fewer requests; no request
    fixed: int = 0  # units of each turn; 0 means as many as fill the turn


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
    """Return the units per CPU second as a multiple of `theirs`, round by round."""
    return Spread.of(b.us / a.us for a, b in zip(ours.rounds, theirs.rounds, strict=True))


def difference(ours: Series, theirs: Series) -> Spread:
    """Return the microseconds of CPU per unit above `theirs`, round by round."""
    return Spread.of(a.us - b.us for a, b in zip(ours.rounds, theirs.rounds, strict=True))


def user(number: int) -> str:
    """Return the id of a user."""
    return f"user-{number}"


async def with_workers(send: Callable[[int], Awaitable[None]], numbers: range, workers: int = WORKERS) -> None:
    """Call `send` for each number from so many tasks, which is the number of sends in flight."""
    shared = iter(numbers)

    async def worker() -> None:
        for number in shared:
            await send(number)

    async with asyncio.TaskGroup() as group:
        for _ in range(workers):
            group.create_task(worker())


@asynccontextmanager
async def apart(opener: Opener, base_url: str) -> AsyncIterator[Run]:
    """Open a contender in a process of its own, as an application has one client.

    In one process with the others its heap would have room that it lacks alone: asyncio reads into 256 KiB, for which
    malloc maps memory at each read, or not, by the state of the heap.
    """
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    is_uvloop = type(asyncio.get_running_loop()).__module__.startswith("uvloop")
    process = context.Process(target=_take_turns, args=(theirs, opener, base_url, is_uvloop), daemon=True)
    process.start()
    theirs.close()

    async def run(numbers: range) -> tuple[float, float]:
        ours.send(numbers)  # blocks this loop, which has nothing else to do
        seconds: tuple[float, float] = ours.recv()
        return seconds

    try:
        yield run
        ours.send(range(0))
        process.join(10)
    finally:
        process.kill()


def _take_turns(pipe: Connection, opener: Opener, base_url: str, is_uvloop: bool) -> None:
    pin(0)
    factory = None
    if is_uvloop:
        import uvloop

        factory = uvloop.new_event_loop

    async def turns() -> None:
        async with opener(base_url) as send:
            while numbers := pipe.recv():
                wall, cpu = time.perf_counter(), time.process_time()
                await with_workers(send, numbers)
                pipe.send((time.process_time() - cpu, time.perf_counter() - wall))

    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(turns())


class Numbers:
    """User numbers, of which each is taken once in a process."""

    def __init__(self) -> None:
        self._next = 1_000_000  # all ids, and so all bodies, have the same length

    def take(self, count: int) -> range:
        first, self._next = self._next, self._next + count
        return range(first, self._next)


def verify(contender: Contender, numbers: range, counts: Counts) -> None:
    """Raise AssertionError unless the sink counted each user once."""
    if contender.posts == "none":
        expected: tuple[int, int] = (0, 0)
    else:
        expected = (len(numbers), checksum(map(user, numbers)))
    if (counts.users, counts.checksum) != expected:
        raise AssertionError(f"{contender.name}: {counts} for {len(numbers)} users")
    if contender.posts == "each" and counts.requests != len(numbers):
        raise AssertionError(f"{contender.name}: {counts.requests} requests for {len(numbers)} users")


async def turn(contender: Contender, run: Run, numbers: range, sink: Sink) -> Round:
    """Measure and verify one turn."""
    gc.collect()
    before = sink.counts()
    wall, cpu = time.perf_counter(), time.process_time()
    measured = await run(numbers)
    cpu, wall = measured or (time.process_time() - cpu, time.perf_counter() - wall)
    counts = sink.counts().since(before)
    verify(contender, numbers, counts)
    return Round(len(numbers), cpu, wall, counts.requests, counts.cpu / wall, counts.body_bytes)


async def compare(contenders: Sequence[Contender], sink: Sink, plan: Plan) -> dict[str, Series]:
    """Run all contenders, round by round; the order reverses after each round."""
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
                # Reopens connections that were closed while idle; not measured.
                await run(numbers.take(WARM_UP))
                result = await turn(contender, run, numbers.take(sizes[contender.name]), sink)
                series[contender.name].rounds.append(result)
    gc.unfreeze()
    return series
