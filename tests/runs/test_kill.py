"""kill -9 at random moments of sending to an unreliable service; judged by the pushes that the service received.

Moments and faults are drawn with a seed; the timing depends on the machine.
"""

import asyncio
import os
import random
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from support.kill_child import KEY
from support.kill_judge import History, Plan, judge
from support.kill_nursery import Nursery, ProcessLife
from support.kill_service import CALM, ROUGH, STEADY, KillService

from pushsdk import BroadcastReport, RunFileError, read_report

pytestmark = pytest.mark.skipif("not hasattr(__import__('os'), 'fork')", reason="its processes are forked")


# The rows of larger runs are checked only at the end, not after every kill.
EVERY_ROW = 50_000


class Campaign(NamedTuple):
    """One run and its number of kills."""

    users: int
    chunk: int
    kills: int
    seed: int
    in_flight: int = 8
    do: str = "broadcast"
    on_unknown: str = "skip"
    durable: bool = False
    faults: Any = ROUGH
    culprits: frozenset[int] = frozenset()

    @property
    def hold(self) -> bool:
        return self.on_unknown == "skip"

    def left(self, report: BroadcastReport) -> int:
        """Return the number of users the next process would send to."""
        return report.not_sent + (0 if self.hold else report.unknown)


class Story(NamedTuple):
    """The course of one campaign."""

    report: BroadcastReport
    history: History
    service: KillService
    lives: int


def killer(life: ProcessLife, last: int, delay: float) -> Callable[[int], None]:
    """Kill shortly after request number ``last`` has arrived."""

    def look(requests: int) -> None:
        if requests == last:
            asyncio.get_running_loop().call_later(delay, life.kill)

    return look


async def survive(campaign: Campaign, nursery: Nursery, path: Path) -> Story:
    """Start the run, kill and resume it as often as required, then resume it until it is complete."""
    job = {
        "run": str(path),
        "users": campaign.users,
        "chunk": campaign.chunk,
        "in_flight": campaign.in_flight,
        "on_unknown": campaign.on_unknown,
        "durable": campaign.durable,
    }
    dice = random.Random(campaign.seed)
    kills = lives = 0
    plan: Plan | None = None
    pending = campaign.users
    async with KillService(
        campaign.users, seed=campaign.seed, faults=campaign.faults, culprits=campaign.culprits
    ) as service:
        while True:
            lives += 1
            do = campaign.do if lives == 1 else "resume"
            life = await nursery.start({**job, "do": do, "base_url": service.base_url})
            if kills < campaign.kills:
                # Early, so later kills have something to interrupt.
                last = service.seen + dice.randint(1, max(2, pending // campaign.chunk // (campaign.kills - kills + 1)))
                delay = dice.random() * 0.006
                service.when_seen = killer(life, last, delay)
            end = await life.end()
            service.when_seen = lambda requests: None
            await service.quiet()
            report = read_report(path)
            plan = plan or Plan(path)
            pending = campaign.left(report)
            is_exact = not pending or campaign.users <= EVERY_ROW
            history = judge(path, plan, report, service.pushes, hold=campaign.hold, every=is_exact)
            if end.killed:
                assert pending, "killed, but not in the middle"
                kills += 1
                doubt = kills * campaign.in_flight * campaign.chunk
                assert report.unknown <= doubt + service.unknown, "more doubt than the kills and faults account for"
            else:
                assert end == (0, {"accepted": report.accepted, "planned": campaign.users, "stopped": None})
                if not pending:
                    break
            assert lives < campaign.kills + 20, "it does not come to an end"
    assert kills == campaign.kills
    assert service.keys == {KEY}
    assert service.most_in_hand <= campaign.in_flight
    return Story(report, history, service, lives)


BIG = [
    pytest.param(Campaign(500_000, 500, kills=12, seed=1, culprits=frozenset({7, 250_123})), id="skip"),
    pytest.param(Campaign(500_000, 500, kills=12, seed=2, on_unknown="resend", faults=STEADY), id="resend"),
    pytest.param(Campaign(500_000, 1000, kills=8, seed=3, do="each"), id="each"),
    pytest.param(Campaign(500_000, 1000, kills=6, seed=4, durable=True), id="durable"),
]


@pytest.mark.long
@pytest.mark.parametrize("campaign", BIG)
async def test_a_run_of_half_a_million_survives_its_kills(campaign: Campaign, nursery: Nursery, tmp_path: Path) -> None:
    story = await survive(campaign, nursery, tmp_path / "run")
    if not campaign.hold:
        assert story.report.accepted == campaign.users, "sent again until everybody has it"
    if campaign.do == "each":
        assert story.service.messages <= {(user, user // campaign.chunk) for user in range(campaign.users)}


def test_the_kills_are_thirty_at_least() -> None:
    assert sum(param.values[0].kills for param in BIG) >= 30
    assert all(param.values[0].users >= 500_000 for param in BIG)


SMALL = [
    Campaign(20_000, 50, kills=4, seed=11, culprits=frozenset({7, 12_345})),
    Campaign(20_000, 50, kills=5, seed=12, on_unknown="resend", faults=STEADY),
    Campaign(20_000, 50, kills=4, seed=13, on_unknown="resend", faults=CALM),
    Campaign(20_000, 50, kills=3, seed=14, do="each", durable=True),
]


@pytest.mark.parametrize("campaign", SMALL, ids=lambda campaign: f"seed {campaign.seed}")
async def test_a_small_run_survives_its_kills(campaign: Campaign, nursery: Nursery, tmp_path: Path) -> None:
    story = await survive(campaign, nursery, tmp_path / "run")
    assert story.report.accepted + story.report.rejected + story.report.unknown == campaign.users


# File sizes at which the system kills the planner, in the write that exceeds them. The first ones are
# within the creation of the run file, the last within the plan of 3,000 users.
SIZES = [
    *(0, 4096, 20_480, 49_152),
    *(pytest.param(size, marks=pytest.mark.long) for size in (1, 512, 1024, 4097, 8192, 16_384, 24_576, 32_768)),
]


@pytest.mark.parametrize("size", SIZES)
async def test_a_killed_planner_sends_nothing_and_plans_again(size: int, nursery: Nursery, tmp_path: Path) -> None:
    path = tmp_path / "run"
    async with KillService(3_000, seed=1, faults=CALM) as service:
        job = {
            "run": str(path),
            "users": 3_000,
            "chunk": 50,
            "in_flight": 8,
            "base_url": service.base_url,
        }
        end = await (await nursery.start({**job, "do": "broadcast", "file_size": size, "deadly": True})).end()
        assert end == (-signal.SIGXFSZ, None)
        with pytest.raises(RunFileError):
            read_report(path)
        end = await (await nursery.start({**job, "do": "resume"})).end()
        assert end.told is not None
        assert end.told["error"] == "RunFileError"
        assert service.seen == 0
        end = await (await nursery.start({**job, "do": "broadcast"})).end()
        assert end == (0, {"accepted": 3_000, "planned": 3_000, "stopped": None})
        await service.quiet()
        judge(path, Plan(path), read_report(path), service.pushes, hold=True, every=True)
    assert os.listdir(tmp_path) == ["run"]


async def test_a_run_survives_kills_in_the_middle_of_a_commit(nursery: Nursery, tmp_path: Path) -> None:
    path, dice, kills = tmp_path / "run", random.Random(5), 0
    async with KillService(12_000, seed=5, faults=ROUGH, latency=0.002) as service:
        job = {"run": str(path), "users": 12_000, "chunk": 10, "in_flight": 8, "base_url": service.base_url}
        await (await nursery.start({**job, "do": "broadcast", "limit": 10})).end()
        plan, end = Plan(path), None
        while end is None or end.status:
            # The log exceeds this size in the middle of a commit, and the system kills the process there.
            size = path.stat().st_size + dice.randint(1, 4 * 4096)
            end = await (await nursery.start({**job, "do": "resume", "file_size": size, "deadly": True})).end()
            await service.quiet()
            report = read_report(path)
            judge(path, plan, report, service.pushes, hold=True, every=True)
            kills += end.status == -signal.SIGXFSZ
            assert kills < 60, "it does not come to an end"
    assert report.not_sent == 0
    assert kills >= 5
    assert report.unknown <= kills * 8 * 10 + service.unknown
