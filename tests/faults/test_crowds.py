"""Each fault among good requests: only the requests that it hits fail."""

import asyncio
from collections.abc import Container

import pytest
from support.wire_case import Case
from support.wire_cases import MAJOR
from support.wire_faults import first
from support.wire_judge import Ledger
from support.wire_rig import WireRig, rigged

from pushsdk import Outcome

EVERY_MAJOR = pytest.mark.parametrize("case", MAJOR, ids=lambda case: case.name)
HUNDRED, LANES = 100, 8


async def ask_all(rig: WireRig, case: Case, users: list[str], *, alone: bool = True) -> Ledger:
    """Ask for all of them at once."""
    ledger = Ledger()
    asks = (ledger.ask(rig.client, user, campaign=case.campaign, alone=alone) for user in users)
    await asyncio.gather(*asks)
    return ledger


def afflicted(ledger: Ledger, case: Case) -> int:
    """Return the number of calls that failed; each must have failed as the table says."""
    strange = [ending for ending in ledger.endings.values() if ending.outcome is not Outcome.ACCEPTED or ending.error]
    # If something hangs, the client's timeout is short, and on a busy machine it may expire without the fault too.
    others = {Outcome.UNKNOWN} if case.hangs else set()
    assert {ending.outcome for ending in strange} <= {case.outcome} | others
    assert case.hangs or {type(ending.error) for ending in strange} <= {case.error}
    return len(strange)


def hits(case: Case) -> Container[int]:
    """Return how many requests one fault may affect."""
    if case.hangs:
        return range(LANES)
    if case.repeated or case.error is None:
        return {0}
    return {0, 1} if case.race else {1}


@EVERY_MAJOR
async def test_callers_of_a_shared_request_share_its_outcome(case: Case) -> None:
    users = [f"user-{n}" for n in range(10)]
    async with rigged(case, first(1)) as rig:
        if case.at == "pool":
            await rig.client.send("warm", {"body": {"en": "warm up"}})
        ledger = await ask_all(rig, case, users, alone=case.campaign)
    del rig.server.processed["warm"]
    ledger.judge(rig.server, users)
    count = afflicted(ledger, case)
    if not case.campaign:
        assert count in ({0} if case.splits else [len(users) * hit for hit in range(2) if hit in hits(case)])
    errors = [id(ending.error) for ending in ledger.endings.values() if ending.error]
    assert len(set(errors)) == len(errors), "each caller has an error of its own"
