"""``pushsdk demo``: an example to copy. Push through faults, then compare client and service."""

import asyncio
import sys
import time
import uuid
from collections import Counter
from typing import Annotated

from cyclopts import Parameter
from cyclopts.validators import Number

from pushsdk import AsyncPushClient, CampaignRequest, MobilePush, Outcome, PushError, Segment
from pushsdk.cli.options import Json
from pushsdk.cli.terminal import print_json, say
from pushsdk.emulator import Emulator, Fault

SALE = MobilePush(title={"en": "The spring sale is open"}, body={"en": "Today only."}, ios_enabled=True)
SEGMENT = Segment(query="SELECT user_id FROM customers", primary_key="user_id")
CAMPAIGN = CampaignRequest(name="Spring sale", external_id="spring-sale", segment=SEGMENT, message=SALE)


def faults_for(users: int, unlucky: str) -> list[tuple[Fault, str]]:
    """Return the faults of the service, each with what the service does and what the client does."""
    limit = users // 100
    return [
        (Fault.status(413, endpoint="push", more_than_users=limit), f"413 above {limit} users: split"),
        (Fault.status(400, endpoint="push", user=unlucky), "400 for one user: found by splitting"),
        (Fault.status(429, endpoint="push", headers={"Retry-After": "1"}, first=5), "429, Retry-After: retried"),
        (Fault.reset_after(endpoint="push", every=100), "accepted, then reset: not retried"),
        (Fault.reset_after(endpoint="push", more_than_users=1, every=20, first=40), "same for merged calls"),
        (Fault.reset_before(endpoint="push", every=100), "reset, not accepted: not retried"),
        (Fault.status(503, endpoint="push", every=100), "503, no Retry-After: not retried"),
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

    async with Emulator(faults=[fault for fault, _ in faults]) as service:
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
        pushes, campaigns, hits = service.users(), len(service.campaigns), list(service.hits().values())

    counts = Counter(reported.values())
    accepted = Counter(outcome for user, outcome in reported.items() if user in pushes)
    lost = counts[Outcome.ACCEPTED] - accepted[Outcome.ACCEPTED]
    doubled = sum(1 for number in pushes.values() if number > 1)
    wrong = accepted[Outcome.REJECTED] + accepted[Outcome.NOT_SENT] + len(pushes.keys() - reported.keys())
    agree = not (lost or doubled or wrong) and campaigns == 1
    if json:
        result = {"client": counts, "service": accepted, "lost": lost, "doubled": doubled, "wrong": wrong}
        print_json({**result, "campaigns": campaigns, "hits": hits, "seconds": round(seconds, 3)})
        return 0 if agree else 1

    say("")
    say(f"{'users':<10}{'client reports':>16}{'service accepted':>18}")
    for outcome in Outcome:
        say(f"{outcome.value:<10}{counts[outcome]:>16,}{accepted[outcome]:>18,}")
    say(f"{'all':<10}{len(reported):>16,}{len(pushes):>18,}")
    say("")
    say("hits  fault: what the client does")
    for number, (_, description) in zip(hits, faults, strict=True):
        say(f"{number:>4,}  {description}")
    say("")
    verdict = "No push lost or doubled" if agree else f"They disagree: {lost=}, {doubled=}, {wrong=}, {campaigns=}"
    say(f"{verdict}. {seconds:.1f} s, {len(ids) / seconds:,.0f} users a second.")
    say("next: pushsdk emulator")
    return 0 if agree else 1
