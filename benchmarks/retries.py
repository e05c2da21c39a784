"""Retries: the cost of a retry policy for a call that succeeds at once.

`RetryPolicy.safe()` against `.none()`: over an in-process transport, which makes a microsecond visible, and over the
sink. For comparison, tenacity's loop around bare aiohttp.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from benchmarks import contenders as c
from benchmarks.harness import Contender, Plan, compare, difference, user
from benchmarks.report import Goal, result
from benchmarks.sink import sink

PLAN, QUICK = Plan(40, 0.08), Plan(6, 0.05)

SAFE, NONE = f"{c.OURS}, safe()", f"{c.OURS}, none()"
SAFE_ALONE, NONE_ALONE = f"{SAFE}, no network", f"{NONE}, no network"


class InstantTransport:
    """A transport without a network: each request is written and accepted at once."""

    fast = None

    async def post(self, request: Any) -> None:
        evidence = request.evidence
        evidence.touched = evidence.started_writing = evidence.written = True
        evidence.status = 204

    async def close(self) -> None:
        """Do nothing."""


@asynccontextmanager
async def alone(base_url: str, *, retry: Any) -> AsyncIterator[c.Send]:
    """Open pushsdk without a network."""
    from pushsdk import AsyncPushClient, MobilePush

    client = AsyncPushClient(base_url, c.API_KEY, retry=retry)
    # The tests replace the transport in the same way.
    client._lifetime.serve(InstantTransport())
    async with client:

        async def send(number: int) -> None:
            await client.send(user(number), MobilePush(ios_enabled=True, title=c.TITLE, body={"en": f"Hello {number}"}))

        yield send


def field() -> list[Contender]:
    from pushsdk import RetryPolicy

    safe, none = RetryPolicy.safe(), RetryPolicy.none()
    return [
        c.singly(SAFE_ALONE, partial(alone, retry=safe), posts="none"),
        c.singly(NONE_ALONE, partial(alone, retry=none), posts="none"),
        c.singly(SAFE, partial(c.ours, retry=safe)),
        c.singly(NONE, partial(c.ours, retry=none)),
        c.singly(c.BARE, c.bare),
        c.singly(c.TENACITY, c.tenacity),
    ]


async def run(*, quick: bool) -> dict[str, Any]:
    with sink() as server:
        series = await compare(field(), server, QUICK if quick else PLAN)
    goals = [
        Goal(
            "us a call, safe() over none(), no network", difference(series[SAFE_ALONE], series[NONE_ALONE]), at_most=1
        ),
        Goal("us a call, safe() over none(), over the sink", difference(series[SAFE], series[NONE])),
        Goal("us a call, tenacity's loop around bare aiohttp", difference(series[c.TENACITY], series[c.BARE])),
    ]
    return result("retries", "request", list(series.values()), goals, baseline=series[c.BARE])
