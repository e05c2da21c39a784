"""``pushsdk demo``: push to a service that fails, then compare the client's reports with the service's own count."""

from __future__ import annotations

import asyncio
import random
import time
import uuid
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Annotated

from cyclopts import Parameter
from cyclopts.validators import Number
from msgspec import Struct
from rich import box
from rich.console import Console
from rich.table import Table

from pushsdk import AsyncPushClient, CampaignRequest, MobilePush, Outcome, Progress, PushError, Segment
from pushsdk.cli._options import Flag
from pushsdk.cli._progress import progress
from pushsdk.cli._terminal import print_json
from pushsdk.emulator import Emulator, Fault

__all__ = ["Plan", "Result", "demo", "run", "table"]

# Below these bounds a fault rule may find no request; above them the default timeouts would show.
Users = Annotated[int, Parameter(validator=Number(gte=500, lte=100_000))]
Messages = Annotated[int, Parameter(validator=Number(gte=50, lte=10_000))]
_TICK = 0.1  # seconds between two reports of the progress

# Short: a request is halved on 413 only while the ids are at least half of its bytes.
MESSAGE = MobilePush(title={"en": "The spring sale is open"}, body={"en": "Today only."}, ios_enabled=True)
CAMPAIGN = CampaignRequest(
    name="Spring sale",
    external_id="spring-sale",
    segment=Segment(query="SELECT user_id FROM customers", primary_key="user_id"),
    message=MESSAGE,
)


class Plan:
    """The users, and the faults of the service, for a number of users and of personalized messages.

    From 500 users and 50 messages on every fault finds its requests, and at least 9 of 10 users are accepted. Faults
    that leave an outcome unknown are bounded, for each hit costs the users of one request.
    """

    def __init__(self, *, users: int, personalized: int, seed: int) -> None:
        draws = random.Random(seed)  # noqa: S311 - repeatable is the point
        ids = [str(uuid.UUID(int=draws.getrandbits(128), version=4)) for _ in range(users + personalized)]
        #: Users that get the same message, in requests that the client merges.
        self.merged: list[str] = ids[:users]
        #: Users that get a message of their own.
        self.single: list[str] = ids[users:]
        self.seed = seed
        self.size: int = users + personalized
        # Below the client's own bound of 1000 users, so that requests have to be halved.
        limit = min(500, max(8, users // 100))
        hits = min(10, max(1, personalized // 100))
        # One interval is left over, so that each fault gets its hits.
        every = (users // limit + personalized) // (hits + 1)
        last = every * hits
        #: Each fault, with what the service does, and after the colon what the client does.
        self.faults: list[tuple[Fault, str]] = [
            (
                Fault.status(413, name="too_large", endpoint="push", more_than_users=limit),
                f"413 above {limit} users: halved",
            ),
            (
                Fault.status(400, name="poisonous_user", endpoint="push", user=draws.choice(self.merged)),
                "400 for one user: found by halving",
            ),
            (
                Fault.status(429, name="throttled", endpoint="push", headers={"Retry-After": "1"}, first=20),
                "429, Retry-After 1: waited, retried",
            ),
            (
                Fault.reset_after(name="answer_lost", endpoint="push", every=every, first=last),
                "accepted, then reset: not retried",
            ),
            (
                Fault.reset_after(name="batch_answer_lost", endpoint="push", more_than_users=1, every=20, first=40),
                "the same to a merged request",
            ),
            (
                Fault.reset_before(name="request_lost", endpoint="push", every=every, first=last),
                "reset, not accepted: not retried",
            ),
            (
                Fault.status(503, name="unavailable", endpoint="push", every=every, first=last),
                "503, no Retry-After: not retried",
            ),
        ]

    def messages(self) -> list[tuple[str, MobilePush]]:
        """Return each user with its message."""
        personal = [MobilePush(body={"en": f"Order {number}"}, ios_enabled=True) for number in range(len(self.single))]
        return [(user, MESSAGE) for user in self.merged] + list(zip(self.single, personal, strict=True))


class Result(Struct, frozen=True, kw_only=True):
    """The client's reports beside the service's own count."""

    reported: Mapping[str, Outcome]
    """The outcome of each user that the client reported."""
    pushes: Mapping[str, int]
    """The number of pushes that the service accepted, by user."""
    campaigns: int
    """Campaigns that the service has; the client reports one."""
    requests: int
    """Requests that the service accepted."""
    faults: Mapping[str, int]
    """Hits of each fault."""
    seconds: float

    @property
    def client(self) -> dict[Outcome, int]:
        """The number of users by the outcome that the client reported."""
        counts = Counter(self.reported.values())
        return {outcome: counts[outcome] for outcome in Outcome}

    @property
    def service(self) -> dict[Outcome, int]:
        """The number of users by reported outcome whose push the service did accept."""
        counts = Counter(outcome for user, outcome in self.reported.items() if user in self.pushes)
        return {outcome: counts[outcome] for outcome in Outcome}

    @property
    def lost(self) -> int:
        """Users reported as ACCEPTED that the service never accepted."""
        return self.client[Outcome.ACCEPTED] - self.service[Outcome.ACCEPTED]

    @property
    def doubled(self) -> int:
        """Users that the service accepted more than once."""
        return sum(1 for count in self.pushes.values() if count > 1)

    @property
    def disagreements(self) -> list[str]:
        """The differences between both sides, in words; empty if there is none."""
        accepted = self.service
        counts = (
            (self.lost, "lost"),
            (self.doubled, "doubled"),
            (accepted[Outcome.REJECTED] + accepted[Outcome.NOT_SENT], "accepted, but reported REJECTED or NOT_SENT"),
            (len(self.pushes.keys() - self.reported.keys()), "accepted, but never reported"),
            (abs(self.campaigns - 1), "too many or too few campaigns"),
        )
        return [f"{count:,} {words}" for count, words in counts if count]


async def demo(*, users: Users = 20_000, personalized: Messages = 2_000, seed: int = 0, json: Flag = False) -> int:
    """Push to thousands through faults, and show that no user is lost or pushed twice.

    The service runs inside this command, on this machine only. Exits with 1 if client and service disagree.

    Parameters
    ----------
    users
        Number of users that get the same message, each by a call of its own: 500 to 100,000.
    personalized
        Number of users that get a message of their own: 50 to 10,000.
    seed
        Seed of the random user ids.
    json
        Print the result as one JSON object.
    """
    plan = Plan(users=users, personalized=personalized, seed=seed)
    with progress("auto") as tell:
        result = await run(plan, tell)
    if json:
        print_json(
            {
                "client": result.client,
                "service": {"users": len(result.pushes), "pushes": result.requests, "campaigns": result.campaigns},
                "faults": result.faults,
                "lost": result.lost,
                "doubled": result.doubled,
                "seconds": round(result.seconds, 3),
            }
        )
    else:
        Console().print(table(plan, result))
    return 1 if result.disagreements else 0


async def run(plan: Plan, tell: Callable[[Progress], None]) -> Result:
    """Send the plan to an emulator with its faults, and report the progress."""
    reported: dict[str, Outcome] = {}

    def tell_all() -> None:
        ended = Counter(reported.values())
        so_far = Progress(
            stage="sending",
            planned=plan.size,
            accepted=ended[Outcome.ACCEPTED],
            rejected=ended[Outcome.REJECTED],
            unknown=ended[Outcome.UNKNOWN],
            not_sent=plan.size - len(reported),
        )
        tell(so_far)

    async with Emulator(faults=[fault for fault, _ in plan.faults], seed=plan.seed) as service:
        started = time.perf_counter()
        async with AsyncPushClient(service.base_url, service.api_key) as client:
            await client.create_campaign(CAMPAIGN)
            await _send_all(client, plan, reported, tell_all)
        seconds = time.perf_counter() - started
    tell_all()
    return Result(
        reported=reported,
        pushes=service.users(),
        campaigns=len(service.campaigns),
        requests=len(service.pushes),
        faults=service.hits(),
        seconds=seconds,
    )


async def _send_all(
    client: AsyncPushClient, plan: Plan, reported: dict[str, Outcome], tell: Callable[[], None]
) -> None:
    async def send(user: str, message: MobilePush) -> None:
        try:
            reported[user] = (await client.send(user, message)).outcome
        except PushError as error:
            reported[user] = error.outcome

    async def watch() -> None:
        while True:
            tell()
            await asyncio.sleep(_TICK)

    watching = asyncio.create_task(watch())
    sends = [asyncio.create_task(send(user, message)) for user, message in plan.messages()]
    try:
        await asyncio.wait(sends)
    finally:
        watching.cancel()
        # On Ctrl-C, closing ends the calls sooner than cancelling each, and with an outcome each.
        await client.aclose(drain=0)
        await asyncio.gather(*sends)


def table(plan: Plan, result: Result) -> Table:
    """Return the whole result as one table for 80 columns."""
    rate = f"{result.seconds:.1f} s, {plan.size / result.seconds:,.0f} users a second."
    title = f"{len(plan.merged):,} concurrent pushes of one message, {len(plan.single):,} personal ones, one campaign"
    verdict = f"[bold green]Nothing lost, nobody doubled.[/] {rate}"
    if result.disagreements:
        verdict = f"[bold red]The two sides disagree: {', '.join(result.disagreements)}.[/] {rate}"
    grid = Table(
        title=f"{title},\nto a service inside this command that fails in {len(plan.faults)} ways",
        caption=verdict,
        box=box.SIMPLE_HEAD,
    )
    grid.title_style, grid.title_justify, grid.caption_style, grid.caption_justify = "bold", "left", "", "left"
    grid.add_column("Users", no_wrap=True)
    grid.add_column("client\nreports", justify="right", no_wrap=True)
    grid.add_column("service\naccepted", justify="right", no_wrap=True)
    grid.add_column("")
    reported, accepted = result.client, result.service
    for outcome, words in (
        (Outcome.ACCEPTED, "accepted, and reported so"),
        (Outcome.REJECTED, "rejected, and reported so"),
        (Outcome.NOT_SENT, "never left this process"),
        (Outcome.UNKNOWN, "no answer that says which"),
    ):
        grid.add_row(outcome.value, f"{reported[outcome]:,}", f"{accepted[outcome]:,}", words)
    total = f"{len(result.reported):,}", f"{len(result.pushes):,}", f"in {result.requests:,} requests"
    grid.add_row("all users", *total, style="bold")
    grid.add_row("campaigns", "1", f"{result.campaigns:,}", "", end_section=True)
    grid.add_row("Faults", "", "hits", "the service: the client", style="bold")
    for fault, words in plan.faults:
        grid.add_row(fault.name, "", f"{result.faults[fault.name or '']:,}", words)
    return grid
