"""Sends at a rate, whatever the service can do, and what became of each by the client and by the service."""

import asyncio
import os
import random
import statistics
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager, ExitStack
from typing import Any, Literal, NamedTuple, Protocol, TypeVar

from benchmarks import contenders as c
from benchmarks.harness import Spread, user
from benchmarks.report import Goal
from benchmarks.service import Pushes, Running

SETTLE = 3.0  # seconds at the beginning of a load that do not count
LATE = 0.02  # seconds of the event loop's lateness from which a run says little
Way = Literal["send", "submit", "keyed"]


def drawn_seed() -> int:
    """Return BENCHMARK_SEED, or else a new seed, for what is drawn at random. A run prints it."""
    return int(os.environ.get("BENCHMARK_SEED") or random.SystemRandom().randrange(1_000_000))


def opened(running: Running, **options: Any) -> AbstractAsyncContextManager[Any]:
    """Return a client of this service, with its defaults unless options are given."""
    from pushsdk import AsyncPushClient

    # Without a handler of events, each submitted send that fails is logged.
    options = {"ssl": running.context, "on_event": lambda _: None, **options}
    return AsyncPushClient(running.base_url, c.API_KEY, **options)


class Ended(NamedTuple):
    """One call: when it began and ended on the clock of the load, its timeout, and its outcome by the client."""

    user: str
    began: float
    ended: float
    timeout: float
    outcome: str

    @property
    def is_accepted(self) -> bool:
        return self.outcome == "ACCEPTED"


class Offer:
    """Sends distinct messages at a rate, with each of the timeouts in turn, and notes how each call ends."""

    def __init__(self, client: Any, timeouts: Sequence[float], way: Way = "send") -> None:
        self.client, self.timeouts, self.way = client, timeouts, way
        self.calls: list[Ended] = []
        self._loop = asyncio.get_running_loop()
        self._start = self._loop.time()
        self._tasks: set[asyncio.Task[None]] = set()
        self._number = 0

    @property
    def now(self) -> float:
        return self._loop.time() - self._start

    async def at(self, rate: float, seconds: float) -> None:
        """Begin calls at this rate for some seconds, at intervals that differ by half."""
        began, due = self.now, 0.5 / rate
        while due < seconds:
            await asyncio.sleep(began + due - self.now)
            self._tasks.add(task := asyncio.create_task(self._call(self._number)))
            task.add_done_callback(self._tasks.discard)
            self._number += 1
            due += random.uniform(0.5, 1.5) / rate
        await asyncio.sleep(began + seconds - self.now)

    async def ended(self) -> None:
        """Wait until all calls have ended. Raises what a call raised beside a PushError."""
        await asyncio.gather(*self._tasks)

    async def _call(self, number: int) -> None:
        from pushsdk import PushError

        began, name, timeout = self.now, user(number), self.timeouts[number % len(self.timeouts)]
        message = {"title": {"en": f"number {number}"}, "iosEnabled": True}
        try:
            if self.way == "submit":
                ending = await self.client.submit(name, message, timeout=timeout)
            elif self.way == "keyed":
                ending = await self.client.send(name, message, timeout=timeout, idempotency_key=name)
            else:
                ending = await self.client.send(name, message, timeout=timeout)
        except PushError as error:
            ending = error
        self.calls.append(Ended(name, began, self.now, timeout, ending.outcome.name))


def begun(calls: Iterable[Ended]) -> int:
    """Return how many of the calls were begun: those that may have pushed, or were rejected."""
    return sum(call.outcome != "NOT_SENT" for call in calls)


def unknown(calls: Iterable[Ended]) -> int:
    return sum(call.outcome == "UNKNOWN" for call in calls)


def accepted_share(calls: Iterable[Ended]) -> float:
    return statistics.fmean([call.is_accepted for call in calls] or [0.0])


def p99(calls: Iterable[Ended]) -> float:
    """Return the 99th percentile of the seconds of the accepted calls, as parts of their timeouts."""
    parts = sorted((call.ended - call.began) / call.timeout for call in calls if call.is_accepted)
    return parts[int(0.99 * len(parts))] if parts else 0.0


def contradictions(calls: Iterable[Ended], pushes: Pushes) -> Counter[str]:
    """Return how many answers the service contradicts, by kind."""
    wrong: Counter[str] = Counter()
    for call in calls:
        times = pushes[c.API_KEY, call.user]
        wrong["doubled"] += times > 1
        wrong["NOT_SENT, but pushed"] += call.outcome == "NOT_SENT" and times > 0
        wrong["ACCEPTED, but not pushed"] += call.is_accepted and times == 0
    return +wrong


class Case(Protocol):
    """One case of a scenario."""

    @property
    def name(self) -> str: ...

    @property
    def quick(self) -> bool:
        """Part of a quick run."""

    @property
    def length(self) -> float:
        """Seconds that the case takes."""

    def start(self) -> AbstractContextManager[Running]:
        """Start the service."""


C = TypeVar("C", bound=Case)
M = TypeVar("M")


def chosen(cases: Sequence[C], *, quick: bool, words: Sequence[str]) -> list[C]:
    """Return the cases of a quick run, or those with one of the words in their names, the shortest first."""
    chosen = [case for case in cases if case.quick or not quick]
    if words:
        chosen = [case for case in chosen if any(word in case.name for word in words)]
    return sorted(chosen, key=lambda case: case.length)


async def in_waves(
    cases: Sequence[C], at_once: int, measure: Callable[[C, Running], Coroutine[Any, Any, M]]
) -> tuple[list[tuple[C, M]], str]:
    """Measure so many cases at a time, and return a note on the client process.

    The services of a wave start before its first load, as starting a process takes time from the client.
    """
    rows: list[tuple[C, M]] = []
    lateness: list[float] = []
    wall, cpu = time.perf_counter(), time.process_time()
    for first in range(0, len(cases), at_once):
        wave = cases[first : first + at_once]
        with ExitStack() as stack:
            services = [stack.enter_context(case.start()) for case in wave]
            watch = asyncio.create_task(_watch(lateness))
            rows += zip(wave, await asyncio.gather(*map(measure, wave, services)), strict=True)
            watch.cancel()
    busy = (time.process_time() - cpu) / (time.perf_counter() - wall)
    late = sorted(lateness)[int(0.99 * len(lateness))]
    advice = ": run again when the machine is idle" if late > LATE else ""
    return rows, f"the clients took {busy:.0%} of a core; p99 of their loop's lateness {late * 1000:.0f} ms{advice}"


async def _watch(lateness: list[float]) -> None:
    """Note by how much the event loop is late."""
    loop = asyncio.get_running_loop()
    while True:
        before = loop.time()
        await asyncio.sleep(0.01)
        lateness.append(loop.time() - before - 0.01)


def contradicted(rows: Sequence[tuple[Case, dict[str, int]]]) -> tuple[Goal, list[str]]:
    """Return the goal that the service contradicts no answer, and a note for each case in which it does."""
    count = sum(sum(wrong.values()) for _, wrong in rows)
    notes = [f"{case.name}: {wrong}" for case, wrong in rows if wrong]
    return Goal("answers that the service contradicts", Spread.of([count]), at_most=0), notes
