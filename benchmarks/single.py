"""Single sends with distinct messages, which can't be merged; 64 in flight."""

from functools import partial
from typing import Any

from benchmarks import contenders as c
from benchmarks.harness import Contender, Plan, compare, ratio
from benchmarks.report import Goal, result
from benchmarks.sink import sink

PLAN, QUICK = Plan(12, 0.35), Plan(3, 0.08)


def field() -> list[Contender]:
    return [
        c.singly(c.BARE, c.bare),
        c.singly(c.OURS, c.ours),
        c.singly(c.AIOHTTP_RETRY, c.aiohttp_retry),
        c.singly(c.SDK_AIOHTTP, partial(c.generated, backend="aiohttp")),
        c.singly(c.HTTPX, c.httpx_client),
        c.singly(c.SDK_HTTPX, partial(c.generated, backend="httpx")),
    ]


async def run(*, quick: bool) -> dict[str, Any]:
    with sink() as server:
        series = await compare(field(), server, QUICK if quick else PLAN)
    ours = series[c.OURS]
    goals = [
        Goal("x bare aiohttp", ratio(ours, series[c.BARE]), at_least=0.85),
        Goal("x generated SDK on aiohttp", ratio(ours, series[c.SDK_AIOHTTP]), at_least=4),
        Goal("x generated SDK on httpx", ratio(ours, series[c.SDK_HTTPX]), at_least=10),
    ]
    return result("single", "request", list(series.values()), goals, baseline=series[c.BARE])
