"""The limit on requests in flight as senders see it: raised by demand, bounded and shown."""

import asyncio
import itertools

import aiohttp
from support.fake_service import MESSAGE, FakeService, answer, client_of, idle, outcome_of, titled
from support.throttling import Bucket
from support.virtual_time import now, virtual

from pushsdk import Limits, Outcome, PushError, Rate
from pushsdk._io.transport import DESCRIPTORS, most_in_flight


@virtual
async def test_the_limit_rises_while_sends_wait_but_not_above_its_cap_and_is_shown():
    service = FakeService(then=answer(after=0.05))
    async with client_of(service, limits=Limits(in_flight=60)) as client:
        await client.send("a", MESSAGE)
        assert client.stats().limit == 16
        await asyncio.gather(*(client.send("a", titled(number)) for number in range(1500)))
        assert client.stats().limit == 60
        assert idle(client)
    assert service.most_in_flight == 60


@virtual
async def test_429s_while_little_was_sent_do_not_hold_back_a_later_burst():
    refused = answer(429, {"Retry-After": "1"})
    async with client_of(FakeService(*[answer(), answer(), refused] * 40, then=answer(after=0.01))) as client:

        async def send(number):
            await asyncio.sleep(number)
            await client.send("a", titled(number))

        await asyncio.gather(*map(send, range(80)))
        # None is too late.
        await asyncio.gather(*(client.send("a", titled(number), timeout=5.0) for number in range(1000)))


@virtual
async def test_a_burst_after_an_idle_time_starts_at_the_rate_that_is_known():
    bucket, service = Bucket(100, 10), FakeService(then=answer(after=0.08))
    async with client_of(service, timeout=120.0) as client:

        async def accepted(calls, **options):
            sends = [client.submit("a", titled(number), **options) for number in range(calls)]
            return [getattr(await outcome_of(send), "outcome", None) for send in sends].count(Outcome.ACCEPTED)

        await accepted(1000)
        service.then = lambda request: answer(after=0.08) if bucket.take(request.started)[0] else answer(429)
        steady = []
        for _ in range(300):
            steady.append(asyncio.create_task(accepted(15, timeout=10.0)))
            await asyncio.sleep(0.1)
        await asyncio.gather(*steady)
        await asyncio.sleep(5.0)
        assert await accepted(300) > 200


@virtual
async def test_a_fixed_rate_does_not_slow_the_recovery_from_an_outage():
    service = FakeService(*[answer(429, after=0.001)] * 60, then=answer(after=0.001))
    async with client_of(service, rate=Rate(requests_per_second=100)) as client:

        async def send(number):
            await asyncio.sleep(0.04 * number)
            await client.send("a", titled(number))

        ended = await asyncio.gather(*map(send, range(600)), return_exceptions=True)
        assert sum(isinstance(end, PushError) for end in ended) < 20


@virtual
async def test_as_many_other_requests_in_a_run_are_sent_as_wait_for_a_retry(tmp_path):
    behaviors = itertools.cycle([*[answer(after=0.002)] * 24, answer(429, {"Retry-After": "0"})])
    tasks = []

    def then(request):
        tasks.append(len(asyncio.all_tasks()))
        return next(behaviors)

    requests = [{"userIds": [f"user-{number}"], "message": titled(number)} for number in range(2000)]
    async with client_of(FakeService(then=then), limits=Limits(in_flight=16)) as client:
        begin = now()
        await client.send_each(requests, run=tmp_path / "run")
        assert now() - begin < 0.65  # 0.25 s of work, and the last retries
    assert max(tasks) < 50  # 16 that send, and about as many that wait


async def test_without_a_cap_descriptors_and_the_pool_are_the_bound(monkeypatch):
    assert most_in_flight(Limits()) <= DESCRIPTORS // 2
    assert most_in_flight(Limits(in_flight=9)) == 9
    for limits in {"limit": 5}, {"limit": 0, "limit_per_host": 5}:
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(**limits)) as session:
            assert most_in_flight(Limits(), session) == 5
    monkeypatch.setattr("resource.getrlimit", lambda _: [1])
    assert most_in_flight(Limits()) == 1
