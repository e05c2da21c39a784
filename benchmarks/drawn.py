"""Services drawn at random, on real sockets and beside a busy process on the client's core.

Nobody tuned a limit for them. For each, a new client with no limit configured takes turns with clients whose limit is
fixed. What counts is the share of the best of these that the service accepts, the start of the client included. Beside
a busy process, a limit does up to a quarter more in one turn than in another, and the best of four is the luckiest: so
each has several turns, and the median counts.
`simulated.py` does the same with many more services on a virtual clock.
"""

import asyncio
import contextlib
import logging
import math
import multiprocessing
import random
import statistics
import sys
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from benchmarks.concurrency import SENDERS, Load, opened
from benchmarks.harness import Series, Spread
from benchmarks.offer import drawn_seed
from benchmarks.report import Goal, result, table
from benchmarks.service import UNBOUND, Reading, Rules, Running, Stall, service
from benchmarks.sink import pin

SERVICES, QUICK_SERVICES = 6, 1  # on each loop
ROUNDS = 3  # turns of each client
LEAST, LATENCIES = 5.0, 30.0  # a turn of ours takes so many seconds, and so many latencies more
# Fixed limits, as multiples of the requests that are needed in flight.
PARTS = (1.2, 2.0, 4.0, 12.0)
FASTEST = 5_000  # requests a second that this client is assumed to do beside the busy process


class Drawn(NamedTuple):
    """A service, and what it becomes in the middle."""

    name: str
    kind: str
    rules: Rules
    then: Rules
    clients: int

    def limits(self, parts: Sequence[float], fastest: float) -> list[int]:
        """Return limits around what is needed, for each client, by Little's law."""
        need = max(min(rules.capacity or math.inf, fastest * self.clients) * rules.delay for rules in self[2:4])
        return sorted({max(1, min(SENDERS, math.ceil(part * need / self.clients))) for part in parts})


def draw(seed: int) -> Drawn:
    """Draw a service: its kind, latency, workers, rates, strays, pauses, and a change in the middle."""
    chance = random.Random(seed)

    def between(low: float, high: float) -> float:
        """Draw a number, each magnitude with the same chance."""
        return math.exp(chance.uniform(math.log(low), math.log(high)))

    kind = chance.choices(("pool", "unlimited", "rate limit", "shedding pool"), (50, 20, 18, 12))[0]
    rules = Rules(between(0.001, 0.3), sigma=chance.random())
    workers = round(between(1, 1000))
    if kind.endswith("pool"):
        rules = rules._replace(workers=workers)
    if kind == "shedding pool":
        rules = rules._replace(most=workers + max(2, workers // 2))
    if kind == "rate limit":
        rules = rules._replace(rate=between(20, 5000), retry_after=chance.choice((0, 0, 1)))
    if chance.random() < 0.4:
        rules = rules._replace(stray=between(0.002, 0.04))
    if kind == "pool" and chance.random() < 0.25:
        rules = rules._replace(pause=Stall(chance.uniform(1.5, 5), between(0.05, 0.4)))
    then = _changed(rules, between(0.15, 6)) if chance.random() < 0.3 else rules
    clients = 1 if chance.random() < 0.7 else round(between(2, 10))
    return Drawn(_named(kind, rules, then), kind, rules, then, clients)


def _changed(rules: Rules, factor: float) -> Rules:
    """Return the service with another capacity: other workers, another rate, or else another latency."""
    if rules.rate:
        return rules._replace(rate=rules.rate * factor)
    if rules.workers < UNBOUND:
        workers = max(1, round(rules.workers * factor))
        most = UNBOUND if rules.most == UNBOUND else workers + max(2, workers // 2)
        return rules._replace(workers=workers, most=most)
    return rules._replace(delay=rules.delay * factor)


def _named(kind: str, rules: Rules, then: Rules) -> str:
    parts = [kind, f"{rules.delay * 1000:.3g} ms", f"sigma {rules.sigma:.2f}"]
    for field, unit in (("workers", "workers"), ("rate", "/s"), ("delay", "s")):
        before, after = getattr(rules, field), getattr(then, field)
        if before != after:
            parts.append(f"{before:.3g} > {after:.3g} {unit}")
        elif field != "delay" and 0 < before < UNBOUND:
            parts.append(f"{before:.3g} {unit}")
    if rules.retry_after:
        parts.append("Retry-After")
    if rules.stray:
        parts.append(f"{rules.stray:.1%} stray")
    if rules.pause:
        parts.append(f"stops {rules.pause.length:.2f} of {rules.pause.every:.1f} s")
    return ", ".join(parts)


def quantiles(shares: Sequence[float]) -> tuple[float, float, float]:
    """Return the median, the 10th percentile and the worst."""
    ordered = sorted(shares)
    return statistics.median(ordered), ordered[len(ordered) // 10], ordered[0]


@contextlib.contextmanager
def busy_neighbor() -> Iterator[None]:
    """Run a process that computes without an end, on the client's core."""
    process = multiprocessing.get_context("spawn").Process(target=_compute, daemon=True)
    process.start()
    try:
        yield
    finally:
        process.kill()
        process.join()


def _compute() -> None:
    pin(0)
    while True:
        sum(range(1000))


async def turn(drawn: Drawn, running: Running, limit: int) -> Reading:
    """Send as fast as a new client can, and return what the service counted. Without a limit, the client finds one."""
    half = (LEAST + LATENCIES * drawn.rules.delay) / 2
    if limit:
        half /= 2  # a fixed limit has no start to recover from
    while running.flight():  # noqa: ASYNC110  what the last turn has left, in another process
        await asyncio.sleep(0.05)
    before = running.read(drawn.rules)
    async with opened(running.base_url, limit) as client, Load([client]).running(None):
        await asyncio.sleep(half)
        running.read(drawn.then)
        await asyncio.sleep(half)
        return running.read() - before


async def measure(drawn: Drawn, *, quick: bool) -> tuple[float, Reading, str]:
    """Return the share of the best fixed limit, what our own client did, and a line about it."""
    limits = drawn.limits(PARTS[1:3] if quick else PARTS, FASTEST)
    turns: dict[int, list[Reading]] = {limit: [] for limit in (0, *limits)}
    with service(drawn.rules) as running:
        for _ in range(1 if quick else ROUNDS):
            for limit, readings in turns.items():
                readings.append(await turn(drawn, running, limit))
    rates = {limit: statistics.median(reading.rate for reading in readings) for limit, readings in turns.items()}
    best = max(limits, key=rates.__getitem__)
    share, ours = rates[0] / rates[best], turns[0][-1]
    return share, ours, f"{share:.2f} of {rates[best]:,.0f}/s at {best}: {drawn.name}"


async def run(*, quick: bool, count: int = SERVICES) -> dict[str, Any]:
    logging.getLogger("pushsdk").addHandler(logging.NullHandler())  # each turn ends with cancelled sends
    seed = drawn_seed()
    services = [draw(seed + index) for index in range(QUICK_SERVICES if quick else count)]
    with busy_neighbor():
        rows = [await measure(drawn, quick=quick) for drawn in services]
    shares = [share for share, _, _ in rows]
    median, tenth, worst = quantiles(shares)
    name = f"share of the best fixed limit, of {len(shares)} services"
    goals = [
        Goal(f"{name}: median", Spread.of(shares)._replace(median=median)),
        Goal(f"{name}: 10th percentile", Spread.of([tenth]), at_least=0.9),
        Goal(f"{name}: worst", Spread.of([worst])),
    ]
    series = [Series(drawn.name, [ours.round()]) for drawn, (_, ours, _) in zip(services, rows, strict=True)]
    notes = [f"BENCHMARK_SEED={seed}", *sorted(line for _, _, line in rows)]
    return {**result("drawn", "request", series, goals), "notes": notes, "shares": {"real sockets": shares}}


if __name__ == "__main__":  # a manual check: `python -m benchmarks.drawn 12` on asyncio
    pin(0)
    print(table([{**asyncio.run(run(quick=False, count=int(sys.argv[1]))), "loop": "asyncio"}]))
