"""Random faults, reproducible by seed: the reported outcomes are true."""

import asyncio
import random

import pytest
from support.wire_cases import MAJOR
from support.wire_faults import Step, mixed
from support.wire_judge import HELLO, Ending, Ledger
from support.wire_rig import AMONG, OWN_OR_INJECTED, client_of
from support.wire_server import WireServer

from pushsdk import Limits, Outcome, PartialError, PushError, Timeout

WEATHERED = Timeout(total=9.0, attempt=AMONG, connect=5.0)
USERS = [f"user-{n}" for n in range(150)]
# Those that hang take their time each: a few of them will do.
STEPS = [case.fault for case in MAJOR if isinstance(case.fault, Step) and not (case.hangs or case.tls or case.campaign)]
HANGING = [case.fault for case in MAJOR if isinstance(case.fault, Step) and case.hangs and not case.campaign]


def bad_weather(seed):
    """A server that does anything at a third of the times."""
    return WireServer(mixed(seed, 0.3, [*STEPS, *random.Random(seed).sample(HANGING, 2)]))


@OWN_OR_INJECTED
@pytest.mark.parametrize("seed", range(2))
async def test_a_safe_client_neither_loses_nor_doubles_in_bad_weather(seed, injected):
    ledger, limits = Ledger(), Limits(in_flight=16)
    async with (
        bad_weather(seed) as server,
        client_of(server, injected=injected, timeout=WEATHERED, limits=limits) as client,
    ):
        await asyncio.gather(*(ledger.ask(client, user) for user in USERS))
        stats = client.stats()
    ledger.judge(server, USERS)
    assert (stats.accepted, stats.unknown) == (ledger.count[Outcome.ACCEPTED], ledger.count[Outcome.UNKNOWN])
    assert (stats.rejected, stats.not_sent) == (ledger.count[Outcome.REJECTED], ledger.count[Outcome.NOT_SENT])
    assert ledger.count[Outcome.ACCEPTED] > len(USERS) // 2
    # The retry budget: 500 tokens at 5 each or more, and one back for each first success.
    assert server.begun <= len(USERS) * 1.2 + 100


async def push_group(client, ledger, group):
    """One call for several users, entered user by user."""
    try:
        await client.send(group, HELLO)
    except PartialError as error:
        ledger.endings |= {user: Ending(outcome, error) for user, outcome in error.outcomes.items()}
    except PushError as error:
        ledger.endings |= {user: Ending(error.outcome, error) for user in error.user_ids}
    else:
        ledger.endings |= {user: Ending(Outcome.ACCEPTED) for user in group}


@pytest.mark.parametrize("seed", range(20, 22))
async def test_calls_of_shared_requests_get_the_true_outcome_of_each_user(seed):
    draw, ledger, waiting, groups = random.Random(seed), Ledger(), list(USERS), []
    while waiting:
        size = draw.randint(1, 6)
        groups.append(waiting[:size])
        waiting = waiting[size:]
    async with bad_weather(seed) as server, client_of(server, timeout=WEATHERED, limits=Limits(in_flight=2)) as client:
        # In waves, so that several merged requests are in flight: a queued batch keeps filling.
        for wave in range(0, len(groups), 7):
            await asyncio.gather(*(push_group(client, ledger, group) for group in groups[wave : wave + 7]))
    ledger.judge(server, USERS)
    assert server.begun < len(groups) * 2
