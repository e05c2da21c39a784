"""Single sends with distinct messages, which can't be merged; 64 in flight. Each call encodes its message.

Over plain HTTP, and over TLS as the scenario `single_tls`. Each contender has its own process; one works at a time.
"""

from functools import partial
from importlib.util import find_spec
from typing import Any

from benchmarks import contenders as c
from benchmarks.harness import Contender, Plan, apart, compare, ratio
from benchmarks.report import Goal, result
from benchmarks.sink import sink

PLAN, QUICK = Plan(12, 0.35), Plan(3, 0.08)
OPTIONAL = (c.PYREQWEST, c.PYQWEST, c.HTTPX2)
BOUNDS = {c.BARE: 0.85, c.SDK_AIOHTTP: 4.0, c.SDK_HTTPX: 10.0}


def field(ca: str) -> list[Contender]:
    openers = {
        c.BARE: c.bare,
        c.OURS: c.ours,
        c.RAW: c.raw,
        c.AIOHTTP_RETRY: c.aiohttp_retry,
        c.PYREQWEST: c.pyreqwest_client,
        c.PYQWEST: c.pyqwest_client,
        c.SDK_AIOHTTP: partial(c.generated, backend="aiohttp"),
        c.HTTPX: c.httpx_client,
        c.HTTPX2: partial(c.httpx_client, module="httpx2"),
        c.SDK_HTTPX: partial(c.generated, backend="httpx"),
    }
    return [
        Contender(name, partial(apart, partial(opener, ca=ca)))
        for name, opener in openers.items()
        if name not in missing()
    ]


def missing() -> list[str]:
    """Return the contenders that are not installed."""
    return [name for name in OPTIONAL if find_spec(name) is None]


async def run(*, quick: bool, tls: bool = False) -> dict[str, Any]:
    with sink(tls=tls) as server:
        series = await compare(field(server.ca), server, QUICK if quick else PLAN)
    goals = [
        Goal(f"x {name}", ratio(series[c.OURS], each), at_least=BOUNDS.get(name))
        for name, each in series.items()
        if name != c.OURS
    ]
    notes = [f"without {name}, which is not installed" for name in missing()]
    name = "single_tls" if tls else "single"
    return {**result(name, "request", list(series.values()), goals, baseline=series[c.BARE]), "notes": notes}
