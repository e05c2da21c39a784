"""Overload: calls at a multiple of what the service can do, each with a deadline.

What is accepted is judged by what the workers can do, in the time that each request really took them; the first
seconds do not count. Each push that the service got is compared with what the client said of it. Some services are
drawn at random.
Several cases run at a time, each with a service and a client of its own, at a few hundred calls a second in all.
"""

import asyncio
import random
import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

from benchmarks.harness import Spread
from benchmarks.offer import (
    SETTLE,
    Ended,
    Offer,
    Way,
    accepted_share,
    begun,
    chosen,
    contradicted,
    contradictions,
    drawn_seed,
    in_waves,
    opened,
    p99,
    unknown,
)
from benchmarks.report import Goal, result, table
from benchmarks.service import Rules, Running, service

AT_ONCE = 5  # cases
DRAWN = 6
EIGHT, FOUR = Rules(0.1, workers=8), Rules(0.1, workers=4)
MOST = 350  # calls a second of a case that is drawn


class Case(NamedTuple):
    """A service, the offered load as a multiple of what it can do, and the timeouts of the calls in turn."""

    name: str
    rules: Rules
    load: float
    timeouts: tuple[float, ...] = (2.0,)
    way: Way = "send"
    tls: bool = False
    quick: bool = False
    """Part of a quick run."""
    burst: float = 0.0
    """Seconds of load, each followed by as many without."""
    share: float = 0.9
    """The share of what the service can do that is asked."""

    @property
    def seconds(self) -> float:
        """The length of the load: until calls wait as long as they can, and a while longer."""
        least = min(self.timeouts)
        return SETTLE + least * self.load / (self.load - 1) + 8

    @property
    def most_unknown(self) -> float:
        """The share of the begun calls that may end as UNKNOWN."""
        return 0.02 if self.rules.sigma >= 1 else 0.01

    @property
    def length(self) -> float:
        return self.seconds + max(self.timeouts)

    def start(self) -> AbstractContextManager[Running]:
        return service(self.rules, records=True, tls=self.tls)

    def phases(self) -> Iterator[tuple[float, float]]:
        """Yield rates and seconds."""
        rate = self.load * self.rules.capacity
        if not self.burst:
            yield rate, self.seconds
            return
        for _ in range(3):
            yield rate, self.burst
            yield 0.001, self.burst


def overloads() -> list[Case]:
    half, one = EIGHT._replace(sigma=0.5), EIGHT._replace(sigma=1.0)
    return [
        Case("3x, 30 s", EIGHT, 3, (30,)),
        Case("5x, 30 s, sigma 1", FOUR._replace(sigma=1.0), 5, (30,)),
        Case("10x, 30 s", FOUR, 10, (30,)),
        Case("1.1x, 2 s", EIGHT, 1.1),
        Case("1.1x, 1 s, sigma 1", one, 1.1, (1,)),
        Case("1.3x, 2 s", EIGHT, 1.3),
        Case("1.3x, 5 s, sigma 0.5", half, 1.3, (5,)),
        Case("1.3x, 1 s, sigma 1, TLS", one, 1.3, (1,), tls=True),
        Case("2x, 2 s", EIGHT, 2, quick=True),
        Case("2x, 2 s, submit", EIGHT, 2, way="submit"),
        Case("2x, 2 s, keyed", EIGHT, 2, way="keyed"),
        Case("2x, 2 s, TLS", EIGHT, 2, tls=True),
        Case("2x, 2 s, sigma 0.5", half, 2),
        Case("2x, 2 s, sigma 1", one, 2, quick=True),
        Case("2x, 5 s, sigma 1, keyed", one, 2, (5,), way="keyed"),
        Case("5x, 1 s", FOUR, 5, (1,)),
        Case("5x, 5 s, sigma 0.5, submit", FOUR._replace(sigma=0.5), 5, (5,), way="submit"),
        Case("5x, 2 s, one worker", Rules(0.02, workers=1), 5),
        Case("10x, 1 s, TLS", FOUR, 10, (1,), tls=True, quick=True),
        Case("10x, 2 s, sigma 1, submit", FOUR._replace(sigma=1.0), 10, way="submit"),
        Case("3x, 0.5, 2 and 10 s", EIGHT, 3, (0.5, 2, 10), quick=True),
        Case("2.5x for 2 of 4 s", EIGHT, 2.5, burst=2, share=0.7),
    ]


def drawn(chance: random.Random) -> Case:
    """Draw a case: the service, the load, the timeout, the way to send."""
    workers = round(2 ** chance.uniform(0, 5))
    delay = max(0.02 * 8 ** chance.random(), workers / 80)  # at most 80 a second
    sigma = chance.choice((0.0, 0.5, 1.0))
    rules = Rules(delay, workers=workers, sigma=sigma)
    load = min(chance.choice((1.3, 2, 5, 10)), MOST / rules.capacity)
    # A timeout that the service can keep for all but one in a thousand if no one waits.
    timeout = chance.choice([seconds for seconds in (1, 2, 5) if seconds > delay * (1 + 10 * sigma)] or [10])
    way: Way = chance.choice(("send", "submit", "keyed"))
    tls = chance.random() < 0.3
    name = f"drawn: {load:.1f}x, {timeout} s, {workers} x {delay * 1000:.0f} ms, sigma {sigma:g}, {way}"
    return Case(f"{name}{', TLS' if tls else ''}", rules, load, (timeout,), way=way, tls=tls)


class Measured(NamedTuple):
    """Outcomes of the calls of a case."""

    share: float
    """Accepted after the first seconds, as a share of what the workers could do."""
    calls: list[Ended]
    wrong: dict[str, int]


async def measure(case: Case, running: Running) -> Measured:
    claims = "memory:" if case.way == "keyed" else None
    async with opened(running, claims=claims) as client:
        offer = Offer(client, case.timeouts, case.way)
        before = running.read()
        for rate, seconds in case.phases():
            await offer.at(rate, seconds)
        end, work = offer.now, running.read() - before
        await offer.ended()
        accepted = sum(call.is_accepted and SETTLE <= call.ended < end for call in offer.calls)
        could = (end - SETTLE) * case.rules.workers * work.accepted / work.work
        return Measured(accepted / could, offer.calls, dict(contradictions(offer.calls, running.pushes())))


def goals_of(case: Case, measured: Measured) -> list[Goal]:
    calls = measured.calls
    share = unknown(calls) / max(1, begun(calls))
    goals = [
        Goal(f"{case.name}: accepted, of what it can do", Spread.of([measured.share]), at_least=case.share),
        Goal(f"{case.name}: UNKNOWN, of the begun", Spread.of([share]), at_most=case.most_unknown),
    ]
    if len(case.timeouts) > 1:
        for timeout in case.timeouts:
            part = accepted_share(call for call in calls if call.timeout == timeout)
            goals.append(Goal(f"{case.name}: accepted, of those with {timeout:g} s", Spread.of([part])))
    return goals


async def run(*, quick: bool, words: Sequence[str] = ()) -> dict[str, Any]:
    seed = drawn_seed()
    chance = random.Random(seed)
    cases = overloads() + [drawn(chance) for _ in range(DRAWN)]
    rows, note = await in_waves(chosen(cases, quick=quick, words=words), AT_ONCE, measure)
    goals = [goal for case, row in rows for goal in goals_of(case, row)]
    slowest, seconds = max(((case.name, p99(row.calls)) for case, row in rows), key=lambda pair: pair[1])
    goals.append(Goal("p99 of the accepted / their timeout, worst case", Spread.of([seconds]), at_most=1.0))
    truth, notes = contradicted([(case, row.wrong) for case, row in rows])
    notes = [f"BENCHMARK_SEED={seed}; {note}", f"the slowest accepted: {slowest}", *notes]
    return {**result("overload", "call", [], [*goals, truth]), "notes": notes}


if __name__ == "__main__":  # a manual check: `python -m benchmarks.overload TLS` runs the cases with this text
    print(table([{**asyncio.run(run(quick=False, words=sys.argv[1:])), "loop": "asyncio"}]))
