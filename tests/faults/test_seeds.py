"""Random faults, reproducible by seed: the reported outcomes are true."""

import asyncio
import random

import pytest
from support.wire_cases import MAJOR
from support.wire_faults import Step, mixed
from support.wire_judge import Ledger
from support.wire_rig import AMONG, OWN_OR_INJECTED, client_of
from support.wire_server import WireServer

from pushsdk import Limits, Outcome, Timeout

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
