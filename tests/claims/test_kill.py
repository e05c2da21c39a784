"""Jobs delivered more than once by processes that are killed, checked against the pushes that the service accepted."""

import asyncio
import random
import signal
from collections import Counter, defaultdict

import pytest
from support.claim_jobs import SHARED, arguments_of, deliver, store_of
from support.claim_workers import PATIENCE, Worker

from pushsdk import AsyncPushClient, Batching, RetryPolicy, Timeout
from pushsdk.emulator import Emulator, Fault
from pushsdk.emulator.faults import preset

KEY = "key-of-the-jobs"
LONG = ["directory", "postgres"]
# Outcomes of a delivery, from the least to the most informative about the job.
STRENGTH = ["NOT_SENT", "REJECTED", "UNKNOWN", "ALREADY_ACCEPTED", "ACCEPTED"]
FAULTS = [
    Fault.status(500, probability=0.1),
    Fault.reset_after(probability=0.1),
    Fault.status(429, probability=0.1),
    Fault.delay(0.05, probability=0.5),
]


@pytest.mark.parametrize("kind", SHARED)
@pytest.mark.parametrize(("end", "pushed"), [("claimed", 0), ("answered", 1)])
async def test_a_job_of_a_killed_worker_is_unknown_and_not_pushed_again(
    kind: str, end: str, pushed: int, request: pytest.FixtureRequest
) -> None:
    arguments = arguments_of(kind, request)
    async with Emulator() as service:
        job = {"kind": kind, "arguments": arguments, "base_url": service.base_url, "key": service.api_key}
        worker = await Worker.start({**job, "keys": ["job"], "end": end})
        assert await worker.end() == (-signal.SIGKILL, [])
        assert sum(service.users().values()) == pushed
        before = service.requests
        worker = await Worker.start({**job, "keys": ["job", "job", "another"]})
        code, result = await worker.end()
        assert (code, sorted(result)) == (0, [("another", "ACCEPTED"), ("job", "UNKNOWN"), ("job", "UNKNOWN")])
        assert service.requests == before + 1
        assert service.duplicates() == {}


@pytest.mark.parametrize(
    "kind", ["sqlite", "redis", *(pytest.param(framework, marks=pytest.mark.long) for framework in LONG)]
)
async def test_jobs_of_killed_workers_are_accounted_for_and_never_doubled(
    kind: str, request: pytest.FixtureRequest
) -> None:
    arguments, dice = arguments_of(kind, request), random.Random(5)
    jobs = [f"job-{number}" for number in range(400)]
    last: dict[str, str] = {}
    async with Emulator(faults=FAULTS) as service:
        job = {"kind": kind, "arguments": arguments, "base_url": service.base_url, "key": service.api_key}
        for life in range(4):
            # Both workers get the jobs not known to be accepted, and new jobs.
            unsettled = [
                job for job in jobs[: 100 * (life + 1)] if last.get(job) not in ("ACCEPTED", "ALREADY_ACCEPTED")
            ]
            workers = [await Worker.start({**job, "keys": dice.sample(unsettled, len(unsettled))}) for _ in range(2)]
            if life < 3:
                count = service.requests
                size = dice.randint(1, 20)
                async with asyncio.timeout(PATIENCE):
                    while service.requests < count + size:  # noqa: ASYNC110 - the emulator only counts
                        await asyncio.sleep(0.001)
                workers[0].kill()
            for worker in workers:
                _, results = await worker.end()
                for key, outcome in results:
                    last[key] = max(outcome, last.get(key, outcome), key=STRENGTH.index)
        accepted = service.users()
        assert service.duplicates() == {}
    assert last.keys() == set(jobs)
    for user, outcome in last.items():
        most = 0 if outcome in ("NOT_SENT", "REJECTED") else 1
        least = 1 if outcome in ("ACCEPTED", "ALREADY_ACCEPTED") else 0
        assert least <= accepted.get(f"user of {user}", 0) <= most, outcome
    # Most of the hundred new jobs of the last round, in which no worker was killed.
    assert Counter(last.values())["ACCEPTED"] > 40


@pytest.mark.parametrize("kind", SHARED)
async def test_concurrent_deliveries_to_a_flaky_service_push_once(kind: str, request: pytest.FixtureRequest) -> None:
    arguments, dice = arguments_of(kind, request), random.Random(3)
    deliveries = [f"job-{number}" for number in range(400) for _ in range(dice.choice((2, 3)))]
    dice.shuffle(deliveries)
    results: dict[str, list[str]] = defaultdict(list)
    retry = RetryPolicy.safe(initial_delay=0.005, max_delay=0.02, throttle_delay=0.005)
    async with Emulator(faults=preset("flaky").faults) as service:
        places = [store_of(kind, arguments) for _ in range(3)]
        patience = Timeout(total=20.0, attempt=1.0)
        clients = [
            AsyncPushClient(
                service.base_url,
                service.api_key,
                claims=store,
                retry=retry,
                timeout=patience,
                batching=Batching(max_users=5),
            )
            for store in places
        ]

        async def one(number: int, key: str) -> None:
            results[key].append(await deliver(clients[number % 3], key))

        await asyncio.gather(*(one(number, key) for number, key in enumerate(deliveries)))
        for client, store in zip(clients, places, strict=True):
            await client.aclose()
            await store.aclose()
        accepted = service.users()
        assert service.duplicates() == {}
    for key, outcomes in results.items():
        assert outcomes.count("ACCEPTED") <= 1
        if {"ACCEPTED", "ALREADY_ACCEPTED"} & set(outcomes):
            assert accepted[f"user of {key}"] == 1
        elif "UNKNOWN" not in outcomes:
            assert f"user of {key}" not in accepted
    assert sum("ACCEPTED" in outcomes for outcomes in results.values()) > 200
