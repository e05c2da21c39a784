"""``pushsdk demo``: an example to copy. Push through faults, then compare client and service."""

import asyncio
import sys
import time
import uuid
from collections import Counter
from collections.abc import Mapping
from typing import Annotated, Any

from cyclopts import Parameter
from cyclopts.validators import Number

from pushsdk import AsyncPushClient, CampaignRequest, MobilePush, Outcome, PushError, Segment
from pushsdk.cli.exit import Exit
from pushsdk.cli.options import Json
from pushsdk.cli.terminal import print_json, say
from pushsdk.emulator import Emulator, Fault

SALE = MobilePush(title={"en": "The spring sale is open"}, body={"en": "Today only."}, ios_enabled=True)
SEGMENT = Segment(query="SELECT user_id FROM customers", primary_key="user_id")
AGREED = {"lost": 0, "doubled": 0, "wrong": 0, "campaigns": 1}
CAMPAIGN = CampaignRequest(name="Spring sale", external_id="spring-sale", segment=SEGMENT, message=SALE)


def faults_for(users: int, unlucky: str) -> list[Fault]:
    """Return the service's faults, each named by the service's action and the client's reaction."""
    limit = users // 100
    return [
        Fault.status(413, endpoint="push", more_than_users=limit, name=f"413 above {limit} users: split"),
        Fault.status(400, endpoint="push", user=unlucky, name="400 for one user: found by splitting"),
        Fault.status(429, endpoint="push", retry_after=1, first=5, name="429, Retry-After: retried"),
        Fault.reset_after(endpoint="push", every=100, name="accepted, then reset: not retried"),
        Fault.reset_after(
            endpoint="push", more_than_users=1, every=20, first=40, name="same for merged calls: not retried"
        ),
        Fault.reset_before(endpoint="push", every=100, name="reset, not accepted: not retried"),
        Fault.status(503, endpoint="push", every=100, name="503, no Retry-After: not retried"),
    ]


async def demo(
    *, users: Annotated[int, Parameter(validator=Number(gte=5_000, lte=50_000))] = 20_000, json: Json = False
) -> int:
    """Push to thousands of users through faults, and compare client and service.

    The service runs inside this command. Exits with 1 if client and service disagree.

    Args:
        users: Push one message to this many users, in one call each, and personal messages to a tenth as many.
    """
    ids = [str(uuid.uuid4()) for _ in range(users + users // 10)]
    personal = [MobilePush(body={"en": f"Order {number}"}, ios_enabled=True) for number in range(users // 10)]
    faults = faults_for(users, unlucky=ids[0])
    reported: dict[str, Outcome] = {}
    if not json:
        say(f"{users:,} concurrent pushes of one message, {len(personal):,} personal ones, one campaign,")
        say(f"to a service inside this command that fails in {len(faults)} ways ...")
        sys.stdout.flush()

    async with Emulator(faults=faults) as service:
        async with AsyncPushClient(service.base_url, service.api_key) as client:

            async def send(user: str, message: MobilePush) -> None:
                try:
                    reported[user] = (await client.send(user, message)).outcome
                except PushError as error:
                    reported[user] = error.outcome

            started = time.perf_counter()
            await client.create_campaign(CAMPAIGN)
            await asyncio.gather(*map(send, ids, [SALE] * users + personal))
            seconds = time.perf_counter() - started
        counts = {**compare(reported, service.users()), "campaigns": len(service.campaigns), "hits": service.hits()}

    agree = AGREED.items() <= counts.items()
    if json:
        print_json({**counts, "seconds": round(seconds, 3)})
    else:
        print_table(counts)
        differences = ", ".join(f"{name}={counts[name]}" for name in AGREED)
        say("Every user is accounted for, and nobody was pushed twice." if agree else f"They disagree: {differences}.")
        say(f"{seconds:.1f} s, {len(ids) / seconds:,.0f} users a second; next: pushsdk emulator")
    return Exit.DONE if agree else Exit.INCOMPLETE


def compare(reported: Mapping[str, Outcome], pushes: Mapping[str, int]) -> dict[str, Any]:
    """Return the users by outcome, how many of them the service accepted, and the differences."""
    counts = Counter(reported.values())
    accepted = Counter(outcome for user, outcome in reported.items() if user in pushes)
    return {
        "client": counts,
        "service": accepted,
        "lost": counts[Outcome.ACCEPTED] - accepted[Outcome.ACCEPTED],
        "doubled": sum(number > 1 for number in pushes.values()),
        "wrong": accepted[Outcome.REJECTED] + accepted[Outcome.NOT_SENT] + len(pushes.keys() - reported.keys()),
    }


def print_table(counts: Mapping[str, Any]) -> None:
    """Print the users by outcome, and the requests that each fault met."""
    say("")
    say(f"{'users':<10}{'client reports':>16}{'service accepted':>18}")
    for outcome in Outcome:
        say(f"{outcome.value:<10}{counts['client'][outcome]:>16,}{counts['service'][outcome]:>18,}")
    say("")
    say("hits  fault: what the client does")
    for name, number in counts["hits"].items():
        say(f"{number:>4,}  {name}")
    say("")
