"""Services drawn at random, simulated: the limit on requests in flight against the best of five fixed limits.

The service is the pool of `service.py` and the limit is the client's pure class, on a virtual clock. The client is a
model: slots, pauses, paced starts, a core that each request needs for a while, and always more to send. `python -m
benchmarks.simulated SEED COUNT [PICTURE.png]` runs so many services and lists the worst.
"""

import functools
import heapq
import inspect
import itertools
import os
import sys
from collections import defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.concurrency import Fixed
from benchmarks.drawn import Drawn, draw, quantiles
from benchmarks.harness import Spread
from benchmarks.offer import drawn_seed
from benchmarks.plot import distribution
from benchmarks.report import Goal, result, table
from benchmarks.service import Pool, Rules

SERVICES, QUICK_SERVICES = 60, 6
PARTS = (0.8, 1.1, 1.6, 3.0, 12.0)  # fixed limits, as multiples of the requests that are needed in flight
CORE = 2.5e-4  # seconds of the client's core for a request
CAP = 4096
# Seconds, and so many latencies more; but at most so many requests, if these take longer than the first two.
LEAST, FEWEST, LATENCIES, MOST = 8.0, 10.0, 40.0, 20_000
SLACK = 0.01  # seconds of lateness that paced starts make up for, beside free slots, as in the client
WORST = 20  # services that a manual check lists

Make = Callable[[float], Any]


def adaptive(now: float) -> Any:
    from pushsdk._core.concurrency import AdaptiveLimit

    return AdaptiveLimit(now, cap=CAP, wall=0.0)


def fixed(limit: int) -> Make:
    return lambda _: Fixed(limit)


@functools.cache
def _parameters(refused: Callable[..., None]) -> frozenset[str]:
    return frozenset(inspect.signature(refused).parameters)


def refuse(limit: Any, now: float, began: float, *, pause: float, is_429: bool) -> None:
    """Tell the limit about a refusal, with as much as it asks for."""
    known = _parameters(type(limit).refused)
    more = {name: value for name, value in {"began": began, "paced": is_429}.items() if name in known}
    limit.refused(now, pause=pause, **more)


class VirtualClock:
    """Time that passes from one event to the next."""

    def __init__(self) -> None:
        self.now = 0.0
        self._events: list[tuple[float, int, Callable[..., object], tuple[Any, ...]]] = []
        self._order = itertools.count()

    def time(self) -> float:
        return self.now

    def call_later(self, delay: float, callback: Callable[..., object], *args: Any) -> None:
        heapq.heappush(self._events, (self.now + delay, next(self._order), callback, args))

    def run(self, until: float) -> None:
        while self._events[0][0] <= until:
            self.now, _, callback, args = heapq.heappop(self._events)
            callback(*args)
        self.now = until


class Request:
    """A request of a simulated client, which gets the answer as a connection does."""

    def __init__(self, client: "Client", began: float) -> None:
        self.client, self.began = client, began

    def is_closing(self) -> bool:
        return False

    def write(self, answer: bytes) -> None:
        pause = answer.partition(b"Retry-After: ")[2].partition(b"\r")[0]
        self.client.work(self.client.answered, self, int(answer[9:12]), float(pause or 0))


class Client:
    """Sends as many requests as the limit allows. The service counts what it accepts."""

    def __init__(self, clock: VirtualClock, pool: Pool, limit: Any) -> None:
        self.clock, self.pool, self.limit = clock, pool, limit
        self.core_until = self.not_before = 0.0
        self.is_timed = False

    def work(self, then: Callable[..., object], *args: Any) -> None:
        """Use the core for half of a request."""
        self.core_until = max(self.core_until, self.clock.now) + CORE / 2
        self.clock.call_later(self.core_until - self.clock.now, then, *args)

    def pump(self) -> None:
        now, limit = self.clock.now, self.limit
        while limit.in_flight < limit.limit:
            if self.not_before > now:
                if not self.is_timed:
                    self.is_timed = True
                    self.clock.call_later(self.not_before - now, self._resume)
                return
            limit.started(now)
            if limit.gap:
                self.not_before = max(self.not_before, now - SLACK - limit.gap * (limit.limit - 1)) + limit.gap
            self.work(self._send)

    def answered(self, request: Request, status: int, pause: float) -> None:
        now, seconds = self.clock.now, self.clock.now - request.began
        if status == 204:
            self.limit.ended(now, seconds, ok=True, starved=True)
        else:
            refuse(self.limit, now, request.began, pause=pause, is_429=status == 429)
            self.limit.ended(now, None, ok=False, starved=True)
            if pause:
                self.not_before = max(self.not_before, now + pause)
        self.pump()

    def _send(self) -> None:
        self.pool.take(Request(self, self.clock.now))

    def _resume(self) -> None:
        self.is_timed = False
        self.pump()


class Played(NamedTuple):
    """Requests that a service accepted, and how many it had on average."""

    accepted: int
    flight: float


def seconds_of(drawn: Drawn) -> float:
    """Return the length of a simulation."""
    most = max(_capacity(rules, drawn.clients) for rules in (drawn.rules, drawn.then))
    delay = drawn.rules.delay
    return max(LEAST + FEWEST * delay, min(LEAST + LATENCIES * delay, MOST / most))


def _capacity(rules: Rules, clients: int) -> float:
    return min(rules.capacity or clients / CORE, clients / CORE)


def play(drawn: Drawn, make: Make, seed: int) -> Played:
    """Simulate a service and its clients, with a limit that ``make`` returns for each."""
    clock, seconds = VirtualClock(), seconds_of(drawn)
    pool = Pool(drawn.rules, clock, seed)
    clock.call_later(seconds / 2, pool.change, drawn.then)
    for _ in range(drawn.clients):
        Client(clock, pool, make(0.0)).pump()
    clock.run(seconds)
    pool.count()
    return Played(pool.accepted, pool.area / seconds)


class Share(NamedTuple):
    """One service: accepted as a share of the best fixed limit, and in flight as a multiple of that one's."""

    share: float
    flight: float
    kind: str
    name: str


def compare(seed: int) -> Share:
    drawn = draw(seed)
    ours = play(drawn, adaptive, seed)
    limits = drawn.limits(PARTS, 1 / CORE)
    best = max((play(drawn, fixed(limit), seed) for limit in limits), key=lambda row: row.accepted)
    name = f"{seed}: {drawn.clients} x {drawn.name}"
    return Share(ours.accepted / max(1, best.accepted), ours.flight / max(best.flight, 0.01), drawn.kind, name)


def _spread() -> None:
    """Let the process run on any core: the scenario is pinned to one."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, range(os.cpu_count() or 1))


def shares(seed: int, count: int) -> list[Share]:
    with ProcessPoolExecutor(initializer=_spread) as pool:
        return sorted(pool.map(compare, range(seed, seed + count), chunksize=2))


def by_kind(rows: Sequence[Share]) -> dict[str, list[float]]:
    """Return the shares of each kind of service."""
    kinds: dict[str, list[float]] = defaultdict(list)
    for row in rows:
        kinds[row.kind].append(row.share)
    return dict(sorted(kinds.items()))


def drawable(rows: Sequence[Share]) -> dict[str, list[float]]:
    """Return the rows of the picture."""
    return {"all simulated": [row.share for row in rows], **by_kind(rows)}


def judged(rows: Sequence[Share]) -> list[Goal]:
    every = [row.share for row in rows]
    median, tenth, worst = quantiles(every)
    goals = [
        Goal(f"share of the best fixed limit, of {len(every)} services: median", Spread.of(every)),
        Goal("10th percentile", Spread.of([tenth]), at_least=0.85),
        Goal("worst", Spread.of([worst]), at_least=0.45),
    ]
    for kind, values in by_kind(rows).items():
        median, tenth, worst = quantiles(values)
        figures = f"{kind}, {len(values)}: median {median:.2f}, 10th percentile {tenth:.2f}, worst"
        goals.append(Goal(figures, Spread.of([worst]), at_least=0.7 if kind == "pool" else None))
    goals.append(Goal("in flight, x that of the best fixed limit", Spread.of(row.flight for row in rows)))
    return goals


async def run(*, quick: bool) -> dict[str, Any]:
    seed = drawn_seed()
    rows = shares(seed, QUICK_SERVICES if quick else SERVICES)
    notes = [f"BENCHMARK_SEED={seed}", *(f"{row.share:.2f}: {row.name}" for row in rows[:5])]
    return {**result("simulated", "request", [], judged(rows)), "notes": notes, "shares": drawable(rows)}


def main(seed: int, count: int, picture: str = "") -> None:
    rows = shares(seed, count)
    print(table([{**result("simulated", "request", [], judged(rows)), "loop": ""}]))
    print("\n".join(f"  {row.share:.2f} {row.flight:5.1f}: {row.name}" for row in rows[:WORST]))
    if picture:
        distribution(drawable(rows), Path(picture))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:])
