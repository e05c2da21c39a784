"""kill -9 at random moments of sending to an unreliable service; judged by the pushes that the service received.

Moments and faults are drawn with a seed; the timing depends on the machine.
"""

import asyncio
import random

import pytest
from support.claim_stores import place_of
from support.kill_child import KEY
from support.kill_drivers import IN_FLIGHT, ArrowPlan, Jobs, Run
from support.kill_service import ROUGH, STEADY, KillService


def killer(life, last, delay):
    """Kill shortly after request number ``last`` has arrived."""

    def look(requests):
        if requests == last:
            asyncio.get_running_loop().call_later(delay, life.kill)

    return look


async def survive(driver, nursery, service, *, kills):
    """Kill and start processes as often as required, then start them until nobody is left; return the last totals."""
    dice = random.Random(kills)
    killed = 0
    totals = {}
    for number, jobs in enumerate(driver.lives(kills)):
        assert number < kills + 20, "it does not come to an end"
        lives = [await nursery.start(job, service) for job in jobs]
        if killed < kills:
            last = service.seen + dice.randint(1, driver.requests(kills - killed))
            service.when_seen = killer(lives[0], last, dice.random() * 0.006)
        ends = [await life.end() for life in lives]
        service.when_seen = lambda requests: None
        await service.quiet()
        assert [end.status for end in ends if not end.killed] == [0] * (len(ends) - ends[0].killed)
        killed += ends[0].killed
        # Processes that send at the same time are in doubt about each other's requests.
        doubt = killed * IN_FLIGHT * driver.chunk + service.unknown if len(lives) == 1 else driver.users
        totals = driver.check(lives, service, doubt=doubt)
    assert killed == kills
    assert service.api_keys == {KEY}
    return totals


RUNS = [
    (500, {}),
    (500, {"on_unknown": "resend"}),
    (1000, {"do": "each"}),
    (1000, {"durable": True}),
]


@pytest.mark.parametrize("users", [10_000, pytest.param(500_000, marks=pytest.mark.long)])
@pytest.mark.parametrize(("chunk", "options"), RUNS)
async def test_a_run_survives_its_kills(users, chunk, options, nursery, request):
    faults = STEADY if "on_unknown" in options else ROUGH
    kills = 3 if users == 10_000 else 10
    driver = Run(request.getfixturevalue("tmp_path") / "run", users, chunk * users // 500_000, **options)
    culprits = frozenset() if "on_unknown" in options else frozenset({7, users // 2})
    async with KillService(users, faults=faults, culprits=culprits) as service:
        totals = await survive(driver, nursery, service, kills=kills)
        assert service.most_in_hand <= IN_FLIGHT
    assert "on_unknown" not in options or totals["ACCEPTED"] == users, "sent again until everybody has it"


LONG = [pytest.param(*case, marks=pytest.mark.long) for case in (("directory", 3), ("postgres", 3), ("objects", 100))]


@pytest.mark.parametrize(("kind", "kills"), [("sqlite", 3), ("redis", 3), ("objects", 3), *LONG])
async def test_jobs_of_killed_workers_are_accounted_for(kind, kills, nursery, request):
    jobs = max(400, 30 * kills)
    async with KillService(jobs, faults=ROUGH) as service:
        driver = Jobs(kind, place_of(kind, request), jobs, 3)
        totals = await survive(driver, nursery, service, kills=kills)
    assert totals["ACCEPTED"] > jobs / 2


@pytest.mark.parametrize(
    ("kind", "personal"),
    [
        ("directory", None),
        pytest.param("directory", "placeholders", marks=pytest.mark.long),
        pytest.param("objects", None, marks=pytest.mark.long),
    ],
)
async def test_an_arrow_plan_of_killed_processes_is_accounted_for(kind, personal, nursery, request):
    users, chunk = (600, 1) if personal else (3_000, 20)
    async with KillService(users, faults=ROUGH) as service:
        driver = ArrowPlan(kind, place_of(kind, request), users, chunk, personal=personal)
        totals = await survive(driver, nursery, service, kills=3)
    assert totals["ACCEPTED"] > users / 2
