"""Each fault alone, and at random: the reported outcome, the number of attempts, agreement with the server's record."""

import asyncio
import random

import pytest
from support.wire_cases import CASES, MAJOR
from support.wire_faults import Step, always, first, mixed
from support.wire_judge import Ledger
from support.wire_rig import AFTER, AMONG, CALM, OWN_OR_INJECTED, QUICK, client_of, rigged
from support.wire_server import WireServer

from pushsdk import Limits, Outcome, Timeout

EVERY_CASE = pytest.mark.parametrize("case", CASES)
EVERY_MAJOR = pytest.mark.parametrize("case", MAJOR)


async def met(rig, case):
    """Return the ending of a call that meets the fault; it must wait for nothing that it need not."""
    ledger = Ledger()
    loop = asyncio.get_running_loop()
    if case.at == "pool":
        await ledger.ask(rig.client, "warm")
    started = loop.time()
    ending = await ledger.ask(rig.client, "user", campaign=case.campaign, big=case.big)
    assert loop.time() - started < CALM.attempt / 2, "it waited for something that it need not"
    ledger.judge(rig.server, ledger.endings)
    return ending


@OWN_OR_INJECTED
@EVERY_CASE
async def test_a_fault_that_always_happens_ends_as_the_table_says(case, injected):
    async with rigged(case, always, hang=1.0, injected=injected) as rig:
        ending = await met(rig, case)
    if case.race and ending.outcome is Outcome.NOT_SENT:
        assert ending.tries <= QUICK.max_attempts
        return
    assert ending.outcome is case.outcome
    assert type(ending.error) is (case.error or type(None))
    assert ending.status == case.status
    tries = QUICK.max_attempts if case.repeated else 1
    assert (ending.tries if case.outcome is Outcome.NOT_SENT else ending.left) == tries
    assert rig.server.begun == {"request": tries, "pool": 2}.get(case.at, rig.server.begun)
    assert rig.server.connections <= max(2, tries)
    assert rig.server.api_keys <= {"key"}


@OWN_OR_INJECTED
@EVERY_MAJOR
async def test_the_client_is_well_again_when_the_fault_is_over(case, injected):
    hits = 1 if case.hangs else 2
    ledger = Ledger()
    users = [f"user-{n}" for n in range(hits + 2)]
    async with rigged(case, first(hits), patience=AFTER, injected=injected) as rig:
        for number, user in enumerate(users):
            # After the fault, a generous timeout: a slow machine must not fail the test.
            timeout = None if number < hits else CALM
            await ledger.ask(rig.client, user, campaign=case.campaign, timeout=timeout)
    ledger.judge(rig.server, users)
    outcomes = [ending.outcome for ending in ledger.endings.values()]
    assert outcomes[hits:] == [Outcome.ACCEPTED] * 2
    expected = Outcome.ACCEPTED if case.repeated else case.outcome
    assert set(outcomes[:hits]) <= ({expected, Outcome.ACCEPTED} if case.race else {expected})


# -- at random --------------------------------------------------------------------------------------------------------


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
    ledger = Ledger()
    limits = Limits(in_flight=16)
    async with (
        bad_weather(seed) as server,
        client_of(server, injected=injected, timeout=WEATHERED, limits=limits) as client,
    ):
        await asyncio.gather(*(ledger.ask(client, user) for user in USERS))
        stats = client.stats()
    ledger.judge(server, USERS)
    assert stats.accepted == ledger.count[Outcome.ACCEPTED]
    assert stats.unknown == ledger.count[Outcome.UNKNOWN]
    assert stats.rejected == ledger.count[Outcome.REJECTED]
    assert stats.not_sent == ledger.count[Outcome.NOT_SENT]
    assert ledger.count[Outcome.ACCEPTED] > len(USERS) // 2
    # The retry budget: 500 tokens at 5 each or more, and one back for each first success.
    assert server.begun <= len(USERS) * 1.2 + 100
