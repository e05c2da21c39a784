"""Concurrency: how much of what a service can take a client uses by itself, and how many requests it keeps in flight.

The service is a process (`service.py`). No limit is configured. Distinct messages are sent for some seconds, of which
the first part, in which the limit is found, does not count. What the service can do follows from its parameters. If
this client may be the bound, it takes turns with clients whose limit is fixed, and the best of these is what can be
done.

The last case kills runs and counts the users in doubt, beside what the wire needs: throughput x the time that a request
holds its slot when half of the throughput is asked for.
"""

import asyncio
import contextlib
import math
import multiprocessing
import sys
import tempfile
import time
from collections import Counter, deque
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

from benchmarks import contenders as c
from benchmarks.harness import Series, Spread, user
from benchmarks.report import Goal, result, table
from benchmarks.service import UNBOUND, Reading, Rules, Running, Stall, service
from benchmarks.sink import pin

QUICK, LEAST_WARM_UP = 0.15, 1.5  # a quick run takes this share of all seconds, but so many to warm up
ROUNDS, LEAD, TURN = 3, 0.6, 1.0  # turns of a client beside fixed limits; the lead of each does not count
SAMPLE = 0.5  # seconds, in which a level is reached or not
SENDERS = 2000  # tasks that send one message after another: more than any limit that is found
GROUP = 1000  # users of a request
KILLS, QUICK_KILLS = {300_000: 6, 3_000_000: 6}, {300_000: 3}  # of runs of so many users
DELAY, SPARE = 0.005, 2.5  # of the service; how many times the users that the wire needs may be in doubt


async def block(stall: Stall) -> None:
    """Block the event loop again and again."""
    while True:
        asyncio.get_running_loop().call_soon(time.sleep, stall.length)
        await asyncio.sleep(stall.every)


class Fixed:
    """A limit that stays where it is."""

    def __init__(self, limit: int) -> None:
        self.limit, self.in_flight, self.gap = limit, 0, 0.0

    def started(self, now: float) -> None:
        self.in_flight += 1

    def ended(self, *_: object, **__: object) -> None:
        self.in_flight -= 1

    def refused(self, *_: object, **__: object) -> None: ...


@contextlib.asynccontextmanager
async def opened(base_url: str, fixed: int = 0) -> AsyncIterator[Any]:
    """Open a client that tries until a message is accepted, with a fixed limit if given."""
    from pushsdk import AsyncPushClient, RetryPolicy, Timeout

    policy = RetryPolicy.safe(max_attempts=10**6)
    timeout = Timeout(total=None, attempt=None)
    async with AsyncPushClient(base_url, c.API_KEY, retry=policy, timeout=timeout) as client:
        client._lifetime.enter()
        client._lifetime.engine.sender.budget.tokens = 10**12
        if fixed:
            client._lifetime.engine.limiter._adaptive = Fixed(fixed)
        yield client


class Load:
    """Tasks that send distinct messages without an end, each to one of ``clients``, which may change."""

    def __init__(self, clients: list[Any]) -> None:
        self.clients = clients
        self.sent: Counter[int] = Counter()

    async def _send(self, number: int) -> None:
        step = number
        while True:
            step += SENDERS
            index = number % len(self.clients)
            await self.clients[index].send(user(step), {"title": {"en": f"number {step}"}, "iosEnabled": True})
            self.sent[index] += 1

    @contextlib.asynccontextmanager
    async def running(self, stall: Stall | None) -> AsyncIterator[None]:
        tasks = [asyncio.create_task(self._send(number)) for number in range(SENDERS)]
        tasks += [asyncio.create_task(block(stall))] if stall else []
        try:
            yield
            for task in tasks:
                if task.done():
                    task.result()  # raises the error of a send
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


class Case(NamedTuple):
    """A service, and what is asked: the share of what it can do, and the most in flight, x (rate x delay)."""

    name: str
    rules: Rules
    share: float = 0.9
    flight: float | None = None
    warm_up: float = 6.0
    seconds: float = 9.0
    fixed: tuple[int, ...] = ()
    """Limits to compare with, as this client may be the bound."""
    clients: int = 1
    stall: Stall | None = None
    """Blocks the event loop of the clients."""
    then: tuple[tuple[float, int, float], ...] = ()
    """Changes afterwards: seconds, workers, and the seconds until the new level is asked."""


POOL, DEPLOY = Rules(0.05, workers=32), Rules(0.05, workers=200)
BLOCKED = Stall(0.2, 0.05)
CASES = [
    Case("1 ms", Rules(0.001), fixed=(16, 64, 256)),
    Case("20 ms", Rules(0.02), fixed=(64, 256, 1024)),
    Case("50 ms", Rules(0.05), fixed=(128, 512, 1024)),
    Case("200 ms", Rules(0.2), fixed=(512, 1024, 2000)),
    Case("4 workers, 50 ms", POOL._replace(workers=4), share=0.92, flight=2.5),
    Case("32 workers, 50 ms", POOL, share=0.92, flight=2.5),
    Case("300 workers, 50 ms", POOL._replace(workers=300), share=0.92, flight=2.5, fixed=(256, 384, 768)),
    Case("200 > 20 > 200 workers, 50 ms", DEPLOY, share=0.85, seconds=14, then=((12, 20, 5), (20, 200, 10))),
    Case("lognormal, 64 workers, 50 ms", Rules(0.05, workers=64, sigma=1.0), share=0.85),
    Case("1 % tenfold, 32 workers, 50 ms", POOL._replace(outliers=0.01), share=0.85),
    Case("200 ms of pause in 5 s, 32 workers", POOL._replace(pause=Stall(5, 0.2)), share=0.85),
    Case("429 above 500/s", Rules(0.05, rate=500), seconds=18),
    Case("429 above 500/s, Retry-After", Rules(0.05, rate=500, retry_after=1), seconds=18),
    Case("429 above 100/s", Rules(0.005, rate=100)),
    Case("0.5 % stray 429, 32 workers", POOL._replace(stray=0.005)),
    Case("4 % stray 429, 32 workers", POOL._replace(stray=0.04)),
    Case("503 beyond 64", Rules(0.1, most=64), seconds=18),
    Case("10 clients, 100 workers, 50 ms", POOL._replace(workers=100), clients=10, warm_up=12, seconds=18),
    Case("loop blocked 50 of 200 ms, 32 workers", POOL, share=0.8, stall=BLOCKED),
    Case("loop blocked 50 of 200 ms, 20 ms", Rules(0.02), share=0.8, stall=BLOCKED, fixed=(128, 512, 1024)),
]


class Turns(NamedTuple):
    """The periods of our clients and of fixed limits, the capacity of each of ours, and how many each client sent."""

    ours: list[Reading]
    fixed: dict[int, list[Reading]]
    capacity: list[float]
    sent: list[int]
    levels: list[float]
    """Seconds until each new level was reached; infinite if it was not."""


async def measure(case: Case, scale: float) -> Turns:
    limits = case.fixed if scale == 1 else case.fixed[1:2]
    turns = Turns([], {limit: [] for limit in limits}, [], [], [])
    async with contextlib.AsyncExitStack() as stack:
        running = stack.enter_context(service(case.rules))
        ours = [await stack.enter_async_context(opened(running.base_url)) for _ in range(case.clients)]
        fixed = [await stack.enter_async_context(opened(running.base_url, limit)) for limit in turns.fixed]
        load = Load(ours)
        await stack.enter_async_context(load.running(case.stall))
        await asyncio.sleep(max(LEAST_WARM_UP, case.warm_up * scale))
        load.sent.clear()
        if fixed:
            field = [(ours, turns.ours)]
            field += [([client], readings) for client, readings in zip(fixed, turns.fixed.values(), strict=True)]
            for index in range(ROUNDS if scale == 1 else 1):
                for clients, readings in reversed(field) if index % 2 else field:
                    load.clients = clients
                    await asyncio.sleep(LEAD)
                    readings.append(await running.period(TURN))
                turns.capacity.append(case.rules.capacity)
        else:
            for seconds, workers, _ in ((case.seconds, case.rules.workers, 0.0), *case.then):
                rules = case.rules._replace(workers=workers)
                running.read(rules)
                samples = [await running.period(SAMPLE * scale) for _ in range(round(seconds / SAMPLE))]
                turns.ours.extend(samples)
                turns.capacity.extend([rules.capacity] * len(samples))
                turns.levels.append(level(samples, rules))
            turns.sent.extend(load.sent[index] for index in range(case.clients))
    return turns


def level(samples: list[Reading], rules: Rules) -> float:
    """Return the seconds until the first sample near what the workers do, and without a long queue."""
    seconds = 0.0
    for sample in samples:
        seconds += sample.wall
        if sample.rate >= 0.9 * rules.capacity and sample.flight <= 2.5 * rules.workers + 4:
            return seconds
    return math.inf


def total(readings: Iterable[Reading]) -> Reading:
    return Reading(*map(sum, zip(*readings, strict=True)))


def judged(case: Case, turns: Turns) -> tuple[list[Series], list[Goal], list[str]]:
    """Return the rows, the goals and the notes of one case."""
    ours, capacity = total(turns.ours), [most or math.inf for most in turns.capacity]
    series, notes = [Series(case.name, [ours.round()])], []
    is_bound = bool(case.rules.capacity)
    if case.fixed:
        best = max(turns.fixed, key=lambda limit: total(turns.fixed[limit]).rate)
        rate = total(turns.fixed[best]).rate
        series.append(Series(f"{case.name}, fixed {best}", [total(turns.fixed[best]).round()]))
        is_bound = is_bound and rate >= 0.9 * case.rules.capacity
        capacity = [min(most, turn.rate) for most, turn in zip(capacity, turns.fixed[best], strict=True)]
        if case.rules.capacity:
            notes.append(f"{case.name}: {case.rules.capacity:,.0f}/s by its workers, {rate:,.0f}/s at a fixed {best}")
    shares = Spread.of(turn.rate / most for turn, most in zip(turns.ours, capacity, strict=True))
    most = sum(turn.wall * most for turn, most in zip(turns.ours, capacity, strict=True))
    share = shares._replace(median=ours.accepted / most)
    goals = [Goal(f"{case.name}: share of what it can do", share, at_least=case.share)]
    if not case.then:
        load = Spread.of([ours.area / max(1, ours.accepted) / case.rules.delay])
        goals.append(Goal(f"{case.name}: in flight / (rate x delay)", load, at_most=case.flight if is_bound else None))
    if case.rules.rate or case.rules.most < UNBOUND:
        refused = Spread.of([ours.refused / max(1, ours.refused + ours.accepted)])
        goals.append(Goal(f"{case.name}: refused", refused, at_most=0.05))
    if case.clients > 1:
        fairness = Spread.of([min(turns.sent) / max(turns.sent)])
        goals.append(Goal(f"{case.name}: smallest client / largest", fairness, at_least=0.5))
    for (_, workers, asked), seconds in zip(case.then, turns.levels[1:], strict=True):
        goals.append(Goal(f"{case.name}: seconds to the level of {workers}", Spread.of([seconds]), at_most=asked))
    return series, goals, notes


def _broadcast(base_url: str, path: Path, users: int, in_flight: int | None) -> None:
    from pushsdk import AsyncPushClient, Limits

    async def main() -> None:
        async with AsyncPushClient(base_url, c.API_KEY, limits=Limits(in_flight=in_flight)) as client:
            await client.broadcast(map(user, range(users)), {"title": c.TITLE, "iosEnabled": True}, run=path)

    pin(0)
    asyncio.run(main())


def broadcast(running: Running, path: Path, users: int, *, until: int, in_flight: int | None = None) -> float:
    """Kill a run once so many of its requests are accepted. Return its requests per second in the second before."""
    before = running.read().accepted
    arguments = (running.base_url, path, users, in_flight)
    process = multiprocessing.get_context("spawn").Process(target=_broadcast, args=arguments)
    process.start()
    counts = deque([(time.perf_counter(), 0)])
    while process.is_alive() and counts[-1][1] < until:
        time.sleep(0.001)
        counts.append((time.perf_counter(), running.read().accepted - before))
        while counts[1][1] == 0 or counts[0][0] < counts[-1][0] - 1.0:
            counts.popleft()
            if len(counts) == 1:
                break
    process.kill()
    process.join()
    time.sleep(0.1)  # the service finishes its work
    (began, first), (ended, last) = counts[0], counts[-1]
    return (last - first) / (ended - began)


def killed(running: Running, folder: Path, users: int, until: int) -> tuple[float, float]:
    """Return the users in doubt of a run that is killed, and those that may be."""
    from pushsdk import read_report

    before, path = running.read().accepted, folder / f"{users}-{until}.run"
    rate = broadcast(running, path, users, until=until)
    report, accepted = read_report(path), (running.read().accepted - before) * GROUP
    if not report.accepted <= accepted <= report.accepted + report.unknown:
        raise AssertionError(f"{accepted} users accepted by the service, {report}")
    slots = max(1, round(0.75 * rate * DELAY))  # half of the rate, if a slot is held for 1.5 times the delay
    half = broadcast(running, folder / f"{users}-{until}-half.run", users, until=until, in_flight=slots)
    return float(report.unknown), SPARE * GROUP * rate * slots / half + 4 * GROUP


def kills(counts: dict[int, int]) -> list[Goal]:
    """Kill so many runs of each size, each at another time."""
    goals = []
    with service(Rules(DELAY)) as running, tempfile.TemporaryDirectory() as folder:
        for users, count in counts.items():
            moments = [users // GROUP * number // (count + 1) for number in range(1, count + 1)]
            pairs = [killed(running, Path(folder), users, until) for until in moments]
            name = f"kill -9 of a run of {users:,}"
            goals.append(Goal(f"{name}: users in doubt, mean of {count}", Spread.of([fmean(d for d, _ in pairs)])))
            worst = max(doubts / most for doubts, most in pairs)
            goals.append(Goal(f"{name}: in doubt / may be, worst of {count}", Spread.of([worst]), at_most=1.0))
    return goals


async def run(*, quick: bool) -> dict[str, Any]:
    series, goals, notes = [], [], []
    for case in CASES:
        rows, judgements, remarks = judged(case, await measure(case, QUICK if quick else 1.0))
        series += rows
        goals += judgements
        notes += remarks
    goals += kills(QUICK_KILLS if quick else KILLS)
    return {**result("concurrency", "request", series, goals), "notes": notes}


if __name__ == "__main__":  # a manual check: `python -m benchmarks.concurrency 32 429` runs the cases of these texts
    CASES = [case for case in CASES if any(text in case.name for text in sys.argv[1:])]
    print(table([{**asyncio.run(run(quick=False)), "loop": "asyncio"}]))
