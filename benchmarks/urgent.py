"""An urgent send behind 6,000 distinct sends that wait, beside the same send alone and one that is not urgent.

The service has 32 workers of 20 ms, so what waits takes almost four seconds.
"""

import asyncio
import time
from typing import Any

from benchmarks.harness import Spread, user
from benchmarks.offer import opened
from benchmarks.report import Goal, result, table
from benchmarks.service import Rules, Running, service

WAITING, QUICK_WAITING, ROUNDS = 6_000, 2_000, 3
POOL = Rules(0.02, workers=32)
CODE = {"title": {"en": "Your code is 123456"}, "iosEnabled": True}


async def timed(client: Any) -> float:
    """Return the seconds until the receipt of one send."""
    started = time.perf_counter()
    await client.send("urgent-user", CODE)
    return time.perf_counter() - started


async def turn(running: Running, waiting: int, options: dict[str, bool]) -> tuple[float, float]:
    """Return the seconds alone, and those behind so many sends."""
    async with opened(running) as client:
        chosen = client.with_options(**options)
        await timed(chosen)
        alone = await timed(chosen)
        for number in range(waiting):
            client.submit(user(number), {"title": {"en": f"number {number}"}, "iosEnabled": True})
        await asyncio.sleep(0.3)  # the slots are in use, and their number is being found
        behind = await timed(chosen)
        await client.flush()
        return alone, behind


async def run(*, quick: bool) -> dict[str, Any]:
    waiting, rounds = (QUICK_WAITING, 1) if quick else (WAITING, ROUNDS)
    goals, notes = [], []
    with service(POOL) as running:
        usual = [await turn(running, waiting, {})]
        goals += [
            Goal("seconds alone", Spread.of(alone for alone, _ in usual)),
            Goal(f"seconds behind {waiting:,} sends", Spread.of(behind for _, behind in usual)),
        ]
        try:
            urgent = [await turn(running, waiting, {"urgent": True}) for _ in range(rounds)]
        except TypeError as error:
            notes.append(f"left out: with_options(urgent=True): {error}")
        else:
            most = 0.1 + POOL.delay
            goals += [
                Goal("seconds alone, urgent", Spread.of(alone for alone, _ in urgent)),
                Goal(
                    f"seconds behind {waiting:,} sends, urgent, worst of {rounds}",
                    Spread.of([max(behind for _, behind in urgent)]),
                    at_most=most,
                ),
            ]
    return {**result("urgent", "send", [], goals), "notes": notes}


if __name__ == "__main__":  # a manual check
    print(table([{**asyncio.run(run(quick=False)), "loop": "asyncio"}]))
