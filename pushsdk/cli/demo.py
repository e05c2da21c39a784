"""``pushsdk demo``: push to a service that fails, then hold what the client reports against what the service knows."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from typing import Annotated

from cyclopts import Parameter
from cyclopts.validators import Number
from rich.console import Console

from pushsdk import AsyncPushClient, MobilePush, Outcome, Progress, PushError
from pushsdk.cli._demo_books import Result, compare
from pushsdk.cli._demo_plan import CAMPAIGN, MESSAGE, Plan, personal
from pushsdk.cli._demo_table import table
from pushsdk.cli._options import Flag
from pushsdk.cli._progress import progress
from pushsdk.cli._tell import print_json
from pushsdk.emulator import Emulator

__all__ = ["demo"]

# From these on every fault rule finds its requests; beyond the upper bounds the default timeouts would show.
Users = Annotated[int, Parameter(validator=Number(gte=500, lte=100_000))]
Messages = Annotated[int, Parameter(validator=Number(gte=50, lte=10_000))]
_TICK = 0.1  # seconds between two looks at the progress


async def demo(*, users: Users = 20_000, personalized: Messages = 2_000, seed: int = 0, json: Flag = False) -> int:
    """Push to thousands through faults, and see that nobody is lost or pushed twice.

    The service runs inside this command, on this machine only. Exits with 1 where client and service disagree.

    Parameters
    ----------
    users
        How many users get the same message, each by a call of its own: 500 to 100,000.
    personalized
        How many users get a message of their own: 50 to 10,000.
    seed
        Where the draws of user ids start.
    json
        Print the result as one JSON object.
    """
    plan = Plan(users=users, personalized=personalized, seed=seed)
    with progress("auto") as tell:
        result = await run(plan, tell)
    if json:
        print_json(result.as_json())
    else:
        Console().print(table(plan, result))
    return 1 if result.complaints else 0


async def run(plan: Plan, tell: Callable[[Progress], None]) -> Result:
    """Send all of the plan to an emulator that has its faults, and tell how far it is."""
    reported: list[tuple[str, Outcome]] = []

    def tell_all() -> None:
        ended = Counter(outcome for _, outcome in reported)
        so_far = Progress(
            stage="sending",
            planned=plan.size,
            accepted=ended[Outcome.ACCEPTED],
            rejected=ended[Outcome.REJECTED],
            unknown=ended[Outcome.UNKNOWN],
            not_sent=plan.size - len(reported),
        )
        tell(so_far)

    async with Emulator(faults=plan.faults, seed=plan.seed) as service:
        started = time.perf_counter()
        async with AsyncPushClient(service.base_url, service.api_key) as client:
            created = await client.create_campaign(CAMPAIGN)
            await _send_all(client, plan, reported, tell_all)
        seconds = time.perf_counter() - started
    tell_all()
    return Result(
        users=compare(reported, service.users()),
        created=[created.uuid],
        campaigns=[campaign.uuid for campaign in service.campaigns],
        pushes=len(service.pushes),
        faults=service.hits(),
        seconds=seconds,
    )


async def _send_all(
    client: AsyncPushClient, plan: Plan, reported: list[tuple[str, Outcome]], tell: Callable[[], None]
) -> None:
    watch = asyncio.create_task(_watch(tell))
    sends = [asyncio.create_task(_send(client, user, message, reported)) for user, message in _messages(plan)]
    try:
        await asyncio.wait(sends)
    finally:
        watch.cancel()
        # On Ctrl-C, closing ends them sooner than cancelling each, and with an outcome each; else there is none left.
        await client.aclose(drain=0)
        await asyncio.gather(*sends)


def _messages(plan: Plan) -> list[tuple[str, MobilePush]]:
    """Every user with the message to it."""
    merged = [(user, MESSAGE) for user in plan.merged]
    return merged + [(user, personal(number)) for number, user in enumerate(plan.single, start=1)]


async def _send(client: AsyncPushClient, user: str, message: MobilePush, reported: list[tuple[str, Outcome]]) -> None:
    try:
        outcome = (await client.send(user, message)).outcome
    except PushError as error:
        outcome = error.outcome
    reported.append((user, outcome))


async def _watch(tell: Callable[[], None]) -> None:
    while True:
        tell()
        await asyncio.sleep(_TICK)
