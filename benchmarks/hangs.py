"""A service that hangs, slows down or loses answers, and recovers; and one that is slow, but not overloaded.

A client can't know that a request will not be answered. But requests that it begins while none is answered end as
UNKNOWN, so it begins no more than a probe at a time. Several cases run at a time, each with a service and a client of
its own.
"""

import asyncio
import math
import statistics
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

from benchmarks.harness import Spread
from benchmarks.offer import (
    Ended,
    Offer,
    accepted_share,
    chosen,
    contradicted,
    contradictions,
    in_waves,
    opened,
    unknown,
)
from benchmarks.report import Goal, result, table
from benchmarks.service import Rules, Running, service

AT_ONCE = 6  # cases
FAST = Rules(0.02, workers=64)
HANGS = FAST._replace(hangs=True)


class Case(NamedTuple):
    """A load, and what the service does: it is well for some seconds, then changed for others, then well again."""

    name: str
    judge: Callable[["Case", "Measured"], list[Goal]]
    rate: float
    timeout: float
    rules: Rules = FAST
    changed: Rules = HANGS
    before: float = 4.0
    during: float = 6.0
    after: float = 8.0
    quick: bool = False
    """Part of a quick run."""

    @property
    def end(self) -> float:
        """The time at which the service is well again."""
        return self.before + self.during

    @property
    def length(self) -> float:
        return self.end + self.after

    def start(self) -> AbstractContextManager[Running]:
        return service(self.rules if self.before else self.changed, records=True)


class Measured(NamedTuple):
    """Outcomes of the calls, and the number in flight when the first of them was late."""

    calls: list[Ended]
    in_flight: int
    wrong: dict[str, int]


async def measure(case: Case, running: Running) -> Measured:
    async with opened(running) as client:
        offer = Offer(client, (case.timeout,))
        if case.before:
            await offer.at(case.rate, case.before)
        in_flight = 0
        if case.during:
            running.read(case.changed)
            # Before this no answer is late, so a client can't know. A new client doesn't know what is late.
            grace = 2 * case.rules.delay if case.before else case.timeout / 2
            await offer.at(case.rate, grace)
            in_flight = running.flight()
            await offer.at(case.rate, case.during - grace)
            running.read(case.rules)
        await offer.at(case.rate, case.after)
        await offer.ended()
        return Measured(offer.calls, in_flight, dict(contradictions(offer.calls, running.pushes())))


def recovered(case: Case, measured: Measured) -> Goal:
    """Judge the calls that begin two timeouts after the end."""
    late = [call for call in measured.calls if call.began >= case.end + 2 * case.timeout]
    share = Spread.of([accepted_share(late)])
    return Goal(f"{case.name}: accepted, from two timeouts after the end", share, at_least=0.98)


def hung(case: Case, measured: Measured) -> list[Goal]:
    # A probe is the call that waits with the most time left. At a low rate that call has waited for a while, and none
    # may be in flight at first.
    probes = round(case.during / (case.timeout - 0.5 / case.rate))
    in_flight = max(1, measured.in_flight)
    most = in_flight + probes
    count = Spread.of([unknown(measured.calls)])
    name = f"{case.name}: UNKNOWN, of {in_flight} in flight and {probes} probes"
    return [Goal(name, count, at_most=most), recovered(case, measured)]


def slowed(case: Case, measured: Measured) -> list[Goal]:
    return [recovered(case, measured)]


def others(case: Case, measured: Measured) -> list[Goal]:
    """Judge the calls whose answers are not lost."""
    seconds = sorted(call.ended - call.began for call in measured.calls if call.is_accepted) or [math.inf]
    slowness = seconds[int(0.99 * len(seconds))] / case.rules.delay
    share = accepted_share(measured.calls) / (1.0 - case.rules.lost)
    return [
        Goal(f"{case.name}: accepted, of those with an answer", Spread.of([share]), at_least=0.98),
        Goal(f"{case.name}: p99 of the accepted / the time of the service", Spread.of([slowness]), at_most=3.0),
    ]


def near(case: Case, measured: Measured) -> list[Goal]:
    """Judge by the share that is answered in time if every call is sent."""
    mu = math.log(case.rules.delay) - case.rules.sigma**2 / 2
    could = statistics.NormalDist(mu, case.rules.sigma).cdf(math.log(case.timeout))
    share = Spread.of([accepted_share(measured.calls) / could])
    return [Goal(f"{case.name}: accepted, of those answered in time if sent", share, at_least=0.95)]


def slower(factor: float) -> Rules:
    return FAST._replace(delay=factor * FAST.delay)


LOSES, NEAR = Rules(0.1, workers=64, lost=0.01), Rules(0.3, sigma=1.0)
CASES = [
    Case("hangs 6 s at 500/s, 1 s", hung, 500, 1.0, quick=True),
    Case("hangs 8 s at 1/s, 2 s", hung, 1, 2.0, during=8, after=16),
    Case("hangs from the first request on, 300/s, 1 s", hung, 300, 1.0, before=0, quick=True),
    Case("hangs from the first request on, 1/s, 2 s", hung, 1, 2.0, before=0, after=16),
    Case("10 x slower for 6 s, 100/s, 2 s", slowed, 100, 2.0, changed=slower(10)),
    Case("50 x slower for 6 s, 100/s, 2 s", slowed, 100, 2.0, changed=slower(50), quick=True),
    Case("50 x slower for 6 s, 100/s, 0.5 s", slowed, 100, 0.5, changed=slower(50)),
    Case("1 answer in 100 lost, 100/s, 2 s", others, 100, 2.0, LOSES, during=0, after=12),
    Case("1 answer in 100 lost, 150/s, 5 s", others, 150, 5.0, LOSES, during=0, after=12),
    Case("1 answer in 100 lost, 30/s, 1 s", others, 30, 1.0, LOSES, during=0, after=20),
    Case("0.3 s, sigma 1, 50/s, 1 s", near, 50, 1.0, NEAR, during=0, after=12, quick=True),
    Case("0.3 s, sigma 1, 5/s, 1 s", near, 5, 1.0, NEAR, during=0, after=26),
]


def by_second(case: Case, measured: Measured) -> str:
    """Return the percentage that is accepted in each second after the end."""
    lists: dict[int, list[Ended]] = {}
    for call in measured.calls:
        lists.setdefault(math.floor(call.began - case.end), []).append(call)
    shares = [f"{accepted_share(lists[second]):.0%}" for second in sorted(lists) if second >= 0]
    return f"{case.name}: accepted by second after the end: {' '.join(shares)}"


async def run(*, quick: bool, words: Sequence[str] = ()) -> dict[str, Any]:
    rows, note = await in_waves(chosen(CASES, quick=quick, words=words), AT_ONCE, measure)
    goals = [goal for case, row in rows for goal in case.judge(case, row)]
    truth, notes = contradicted([(case, row.wrong) for case, row in rows])
    notes = [note, *(by_second(case, row) for case, row in rows if case.during), *notes]
    return {**result("hangs", "call", [], [*goals, truth]), "notes": notes}


if __name__ == "__main__":  # a manual check: `python -m benchmarks.hangs slower` runs the cases with this text
    print(table([{**asyncio.run(run(quick=False, words=sys.argv[1:])), "loop": "asyncio"}]))
