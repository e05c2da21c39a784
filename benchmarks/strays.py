"""Refusals without a reason from the first request on, while the client knows nothing about the service.

A service of 32 workers of 10 ms refuses a share of the requests with 429 and `Retry-After: 0`. `send_each` with a run
file and a new client in each turn is compared with the same run without strays, by the wall clock.
"""

import asyncio
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from benchmarks.broadcast import personal
from benchmarks.harness import Series, Spread, user
from benchmarks.offer import opened
from benchmarks.report import Goal, result, table
from benchmarks.service import Rules, Running, service

ROUNDS, SENDS, QUICK_SENDS = 2, 12_000, 3_000
POOL, SHARES = Rules(0.01, workers=32), (0.0, 0.005, 0.04)


def named(share: float) -> str:
    return f"{share:.1%} of strays"


async def turn(sends: int, running: Running) -> float:
    """Return the seconds of one run."""
    requests = ({"userIds": [user(number)], "message": personal(number)} for number in range(sends))
    with tempfile.TemporaryDirectory() as folder:
        async with opened(running) as client:
            started = time.perf_counter()
            report = await client.send_each(requests, run=Path(folder, "run"))
            seconds = time.perf_counter() - started
    if report.accepted != sends:
        raise AssertionError(report)
    return seconds


async def run(*, quick: bool) -> dict[str, Any]:
    sends = QUICK_SENDS if quick else SENDS
    seconds: dict[float, list[float]] = {share: [] for share in SHARES}
    series = {share: Series(named(share)) for share in SHARES}
    with ExitStack() as stack:
        services = {share: stack.enter_context(service(POOL._replace(stray=share))) for share in SHARES}
        for index in range(1 if quick else ROUNDS):
            for share in reversed(SHARES) if index % 2 else SHARES:
                before = services[share].read()
                seconds[share].append(await turn(sends, services[share]))
                series[share].rounds.append((services[share].read() - before).round())
    goals = []
    for share in SHARES[1:]:
        parts = [clean / slow for clean, slow in zip(seconds[0.0], seconds[share], strict=True)]
        goals.append(Goal(f"{named(share)}: throughput, x without any", Spread.of(parts), at_least=0.92))
    return result("strays", "user", list(series.values()), goals)


if __name__ == "__main__":  # a manual check
    print(table([{**asyncio.run(run(quick=False)), "loop": "asyncio"}]))
