"""A plan that is sent by processes of which some are killed, and some do not know of each other.

Checked against the service: no user is pushed twice, none is lost, and uncertain users are reported as unknown.
"""

from __future__ import annotations

import asyncio
import json
import random
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from support.arrow_jobs import program
from support.arrow_plans import user

from pushsdk.emulator import Emulator, Fault

PATIENCE = 60.0
FAULTS = [
    Fault.status(502, probability=0.02),
    Fault.reset_after(probability=0.03),
    Fault.status(503, headers={"Retry-After": "0"}, probability=0.05),
    Fault.delay(0.01, probability=0.5),
]
PERSONAL = [None, "placeholders"]


class Sender:
    """A process that sends a plan."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    @classmethod
    async def start(cls, service: Emulator, folder: Path, **job: Any) -> Sender:
        command, environment = program()
        process = await asyncio.create_subprocess_exec(
            *command, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, env=environment
        )
        assert process.stdin is not None
        options = {"claims": str(folder / "claims"), "base_url": service.base_url, "api_key": service.api_key, **job}
        process.stdin.write(json.dumps(options).encode())
        process.stdin.close()
        return cls(process)

    def kill(self) -> None:
        self._process.kill()

    async def end(self) -> tuple[int, dict[str, str]]:
        """The exit code and the output of the process."""
        async with asyncio.timeout(PATIENCE):
            out, _ = await self._process.communicate()
        assert self._process.returncode is not None
        return self._process.returncode, dict(json.loads(line) for line in out.splitlines())


def judge(service: Emulator, outcomes: dict[str, str], users: int) -> Counter[str]:
    """Assert that no user is doubled or lost, and that the last report is true."""
    accepted = service.users()
    assert service.duplicates() == {}
    assert outcomes.keys() == {user(number) for number in range(users)}
    for size, outcome in outcomes.items():
        assert outcome in ("ACCEPTED", "UNKNOWN")
        assert outcome == "UNKNOWN" or accepted[size] == 1
    return Counter(outcomes.values())


@pytest.mark.parametrize("personal", PERSONAL)
@pytest.mark.parametrize(("dies", "pushed"), [({"adds": 1}, False), ({"swaps": 1}, True)])
async def test_users_of_a_killed_process_are_unknown_and_the_others_are_sent_to(
    tmp_path: Path, personal: str | None, dies: dict[str, int], pushed: bool
) -> None:
    async with Emulator() as service:
        job = {"users": 300, "size": 100, "personal": personal}
        first = await Sender.start(service, tmp_path, **job, dies=dies)
        assert await first.end() == (-signal.SIGKILL, {})
        assert bool(service.users()) >= pushed
        second = await Sender.start(service, tmp_path, **job, rebatched=2)
        code, outcomes = await second.end()
        assert code == 0
        totals = judge(service, outcomes, 300)
    # Others may have been on their way, or claimed, at the same moment: as many as there are requests in flight.
    if personal:
        assert 1 <= totals["UNKNOWN"] <= 64
    else:
        assert totals["UNKNOWN"] >= 100
        assert totals["UNKNOWN"] % 100 == 0


@pytest.mark.parametrize("personal", [None, pytest.param("placeholders", marks=pytest.mark.long)])
async def test_a_plan_of_repeatedly_killed_processes_is_accounted_for(tmp_path: Path, personal: str | None) -> None:
    users, dice = (600, 20) if personal else (6000, 20), random.Random(7)
    job = {"users": users[0], "size": users[1], "personal": personal}
    async with Emulator(faults=FAULTS) as service:
        for life in range(4):
            requests = service.requests
            sender = await Sender.start(service, tmp_path, **job, rebatched=life + 1)
            count = dice.randint(5, 60)
            async with asyncio.timeout(PATIENCE):
                while service.requests < requests + count:  # noqa: ASYNC110 - the emulator only counts
                    await asyncio.sleep(0.001)
            sender.kill()
            await sender.end()
        code, outcomes = await (await Sender.start(service, tmp_path, **job)).end()
        assert code == 0
        totals = judge(service, outcomes, users[0])
    assert totals["ACCEPTED"] > users[0] / 3


@pytest.mark.parametrize("personal", PERSONAL)
async def test_two_concurrent_processes_push_no_user_twice(tmp_path: Path, personal: str | None) -> None:
    job = {"users": 400 if personal else 4000, "size": 20, "personal": personal}
    async with Emulator(faults=FAULTS) as service:
        senders = [await Sender.start(service, tmp_path, **job, rebatched=size) for size in (3, 5)]
        results = [await sender.end() for sender in senders]
        assert [code for code, _ in results] == [0, 0]
        for _, outcomes in results:
            judge(service, outcomes, job["users"])
        code, outcomes = await (await Sender.start(service, tmp_path, **job)).end()
        assert code == 0
        totals = judge(service, outcomes, job["users"])
    # What the one held for the other's was settled by the end, but for the service's faults.
    assert totals["UNKNOWN"] < job["users"] / 4
