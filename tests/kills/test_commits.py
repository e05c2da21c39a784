"""kill -9 in the middle of a write to a run file: a plan is made again, a commit is rolled back."""

import os
import random
import signal

import pytest
from support.kill_drivers import IN_FLIGHT, Run
from support.kill_service import CALM, ROUGH, KillService

from pushsdk import RunFileError, read_report

# The system kills the process in the write that exceeds a file size.
KILLED = -signal.SIGXFSZ
# Sizes at which the planner is killed: the first ones are within the creation of the file, the last within the plan.
SIZES = [
    *(0, 4096, 49_152),
    *(pytest.param(size, marks=pytest.mark.long) for size in (1, 512, 4097, 20_480)),
]


@pytest.mark.parametrize("size", SIZES)
async def test_a_killed_planner_sends_nothing_and_plans_again(size, nursery, tmp_path):
    driver = Run(path := tmp_path / "run", 3_000, 50)
    async with KillService(3_000, faults=CALM) as service:
        end = await (await nursery.start(driver.job, service, file_size=size, deadly=True)).end()
        assert end == (KILLED, None)
        with pytest.raises(RunFileError):
            read_report(path)
        end = await (await nursery.start(driver.job, service, do="resume")).end()
        assert (end.told["error"] in ("RunFileError", "RunPlanError"), service.seen) == (True, 0)
        life = await nursery.start(driver.job, service)
        await life.end()
        await service.quiet()
        assert driver.check([life], service, doubt=0)["ACCEPTED"] == 3_000
    assert os.listdir(tmp_path) == ["run"]


async def test_a_run_survives_kills_in_the_middle_of_a_commit(nursery, tmp_path):
    driver = Run(path := tmp_path / "run", 6_000, 10)
    dice = random.Random(5)
    kills = 0
    driver.may_be_complete = True
    async with KillService(6_000, faults=ROUGH, latency=0.002) as service:
        for number, (job,) in enumerate(driver.lives(0)):
            assert number < 60, "it does not come to an end"
            # The log exceeds this size in the middle of a commit. The plan is not to be interrupted.
            size = path.stat().st_size + dice.randint(1, 4 * 4096) if number else 1_000_000
            limit = {} if number else {"limit": 10}
            life = await nursery.start(job, service, file_size=size, deadly=True, **limit)
            kills += (await life.end()).status == KILLED
            await service.quiet()
            if number:
                driver.check([life], service, doubt=kills * IN_FLIGHT * 10 + service.unknown)
    assert kills >= 3
