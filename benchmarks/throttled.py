"""Throttling: the wall-clock rate of a run of which a small share of requests is throttled.

The service responds after 30 ms, to 64 requests in flight, and to a share of them with 429 and `Retry-After: 0`, which
asks for no pause. `send_each` (a request per user) and a broadcast (1000 users per request), each with a new client per
turn, are compared with the same run without throttling in the same round.
"""

import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from benchmarks import contenders as c
from benchmarks.broadcast import EACH, RUN, turn, works
from benchmarks.harness import Numbers, Round, Series
from benchmarks.report import Goal, result
from benchmarks.sink import Sink, sink
from benchmarks.sync import faster

ROUNDS, QUICK_ROUNDS = 3, 1
SHARES = (0.0, 0.001, 0.005, 0.02)
DELAY = 0.03
# Users of a turn, which takes a second or two without throttling.
MERGED, PERSONAL = 1_000_000, 3_000
QUICK_MERGED, QUICK_PERSONAL = 500_000, 1_000


def named(kind: str, share: float) -> str:
    name = kind.partition(",")[0]
    return f"{name}, {share:.1%} of 429s" if share else name


async def once(name: str, kind: str, numbers: range, server: Sink) -> Round:
    from pushsdk import AsyncPushClient

    with tempfile.TemporaryDirectory() as folder:
        async with AsyncPushClient(server.base_url, c.API_KEY) as client:
            return await turn(name, works(client, Path(folder))[kind][1], numbers, server)


async def run(*, quick: bool) -> dict[str, Any]:
    numbers = Numbers()
    sizes = {EACH: QUICK_PERSONAL, RUN: QUICK_MERGED} if quick else {EACH: PERSONAL, RUN: MERGED}
    field = [(kind, users, share) for kind, users in sizes.items() for share in SHARES]
    series = {named(kind, share): Series(named(kind, share)) for kind, _, share in field}
    with ExitStack() as stack:
        servers = {share: stack.enter_context(sink(DELAY, throttle=share)) for share in SHARES}
        for index in range(QUICK_ROUNDS if quick else ROUNDS):
            for kind, users, share in field if index % 2 else reversed(field):
                name = named(kind, share)
                series[name].rounds.append(await once(name, kind, numbers.take(users), servers[share]))
    goals = [
        Goal(
            f"{named(kind, share)}, x without any, by wall clock",
            faster(series[named(kind, share)], series[named(kind, 0)]),
        )
        for kind, _, share in field
        if share
    ]
    return result("throttled", "user", list(series.values()), goals)
