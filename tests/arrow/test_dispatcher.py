"""Sending of chunks on virtual time: waits, the stop policy, the rate, claims of other processes."""

import asyncio
import itertools
import time
from collections import Counter
from contextlib import aclosing

import msgspec
import pytest
from support.arrow_plans import MESSAGE, ReportedUser, plan, reported, user
from support.fake_service import FakeService, answer, client_of, hang, refused, reset_after, start
from support.shaky_claims import ShakyClaims
from support.virtual_time import virtual

from pushsdk import ClaimStoreError, ClientClosedError, Limits, StopPolicy, Timeout, ValidationError
from pushsdk._core.policy import Share
from pushsdk._core.user_states import UserState, UserStatus
from pushsdk._runs.claim_log import ClaimLog
from pushsdk.arrow._chunks import ChunkEncoder
from pushsdk.arrow._dispatcher import PlanSender
from pushsdk.claims import MemoryClaims
from pushsdk.claims._operators import claimed, settle

ONE = Limits(in_flight=1)
PERSONAL = "placeholders"


class Fetched:
    """A queue that always seems empty: its reader is infinitely fast."""

    def __init__(self):
        self.all = []

    def put(self, item):
        self.all.append(item)

    def qsize(self):
        return 0


class DispatcherRun:
    """One dispatcher, and what it handed out."""

    def __init__(self, client, claims, *, personal=None, stop_policy=None):
        engine = client._lifetime.enter()
        self.box = Fetched()
        self.recipe = ChunkEncoder(
            MESSAGE, None, personal, run="spring", base_url=engine.settings.base_url, max_users=1000
        )
        self.dispatcher = PlanSender(
            engine,
            client._options,
            client._credentials,
            log=ClaimLog(claims, engine.work),
            stop_policy=stop_policy or StopPolicy.off(),
            varied=personal is not None,
            outcomes=self.box,
        )

    async def send(self, users=10, *, size=10):
        """Send a whole plan; return the number of users of each outcome."""

        async def chunks():
            for chunk in self.recipe.chunks(plan(users, size=size, personal=self.recipe.personal is not None)):
                yield chunk

        return await self.send_chunks(chunks())

    async def send_chunks(self, chunks):
        async with aclosing(chunks) as fed:
            await self.dispatcher.run(fed)
        return Counter(row.outcome for row in self.rows().values())

    def rows(self):
        return reported(batch() for batch in self.box.all)

    def stop(self):
        self.dispatcher.stop("asked", "it was asked to stop")


async def send(service, claims=None, users=10, *, size=10, personal=None, stop_policy=None, **options):
    """Send a plan with a client of its own."""
    async with client_of(service, **options) as client:
        run = DispatcherRun(client, claims or MemoryClaims(), personal=personal, stop_policy=stop_policy)
        return await run.send(users, size=size)


async def cancel_after(seconds, running):
    await asyncio.sleep(seconds)
    running.cancel()
    await asyncio.wait([running])
    assert running.cancelled()


def now():
    """Seconds since the test began."""
    return asyncio.get_running_loop().time() - 1000.0


def once(users):
    """The pushes to users who were pushed to once."""
    return dict.fromkeys(map(user, range(users)), 1)


# -- other processes --------------------------------------------------------------------------------------------------


@virtual
async def test_users_claimed_by_another_process_between_attempts_are_left_to_it():
    claims = MemoryClaims()
    one = FakeService(answer(503, {"Retry-After": "5"}))
    async with client_of(one) as client:
        run = DispatcherRun(client, claims)
        running = start(run.send())
        await asyncio.sleep(1.0)
        other = start(send(FakeService(then=hang(accepted=True)), claims, timeout=Timeout(attempt=30.0)))
        await running
        await cancel_after(0.0, other)
    claimed = ReportedUser(
        "UNKNOWN", None, "in flight in another process, or in one that ended: the push may have been enqueued"
    )
    assert set(run.rows().values()) == {claimed}
    assert one.users() == {}


@virtual
async def test_users_withdrawn_by_another_process_are_sent_to_after_concurrent_writes():
    claims = ShakyClaims()
    one = FakeService(answer(503, {"Retry-After": "5"}, after=0.5))
    two = FakeService(then=lambda _: answer(after=1.0))
    running = start(send(one, claims, 2, personal=PERSONAL, limits=ONE))
    await asyncio.sleep(0.1)
    assert claims.states() == [[UserState.CLAIMED, UserState.PENDING]]
    assert await send(two, claims, 2, personal=PERSONAL) == {"ACCEPTED": 2}
    assert await running == {"ACCEPTED": 2}
    assert one.users() == {}
    assert two.users() == once(2)


@virtual
async def test_users_settled_by_another_process_are_left_out_of_a_request():
    async def raced():
        await send(FakeService(answer(400), answer(), answer(401)), claims, limits=ONE)

    service, claims = FakeService(), ShakyClaims(get=[raced])
    async with client_of(service) as client:
        assert await DispatcherRun(client, claims).send() == {"ACCEPTED": 10}
        assert client.stats().accepted == 9
    assert service.sent == [tuple(user(number) for number in range(1, 10))]


@virtual
async def test_a_chunk_in_flight_with_another_payload_is_an_error_and_the_first_is_sent():
    service = FakeService(then=lambda _: answer(after=1.0))
    async with client_of(service) as client:
        run = DispatcherRun(client, MemoryClaims())

        async def chunks():
            for users in 10, 5:
                for chunk in run.recipe.chunks(plan(users)):
                    yield chunk
                await asyncio.sleep(0.5)

        with pytest.raises(ValidationError, match=r"^chunk chunk-0: it was claimed in this run for another payload"):
            await run.send_chunks(chunks())
    assert {row.outcome for row in run.rows().values()} == {"ACCEPTED"}
    assert len(service.sent) == 1


@virtual
async def test_while_requests_wait_for_a_retry_other_chunks_use_their_slots():
    behaviors = itertools.cycle([*[answer(after=0.002)] * 24, answer(429, {"Retry-After": "0"})])
    begin = now()
    await send(FakeService(then=lambda request: next(behaviors)), users=2000, size=1, limits=Limits(in_flight=16))
    assert now() - begin < 0.65  # 0.25 s of work, and the last retries


# -- claims that expire or fail ---------------------------------------------------------------------------------------


@virtual
async def test_a_request_is_over_before_its_claim_expires():
    claims = ShakyClaims(claim_ttl=60.0)
    timeout = Timeout(total=None, attempt=None)
    assert await send(FakeService(then=hang()), claims, timeout=timeout) == {"UNKNOWN": 10}
    assert now() == pytest.approx(30.0, abs=0.5)


@virtual
async def test_a_process_suspended_after_its_claim_pushes_nobody_whom_another_has_pushed_to():
    async def suspended():
        sends = await claimed(claims)
        assert sends[0].record.sending_until == pytest.approx(time.time() + 10.0, abs=5.0)
        await settle(claims, sends)
        await send(service, claims)
        asyncio.get_running_loop().jump(11.0)

    claims, service = ShakyClaims(add=[suspended]), FakeService()
    assert await send(service, claims) == {"ACCEPTED": 10}
    assert service.users() == once(10)


@pytest.mark.parametrize("personal", [None, PERSONAL])
@virtual
async def test_a_chunk_that_can_not_be_claimed_is_an_error_and_is_not_sent(personal):
    service = FakeService()
    claims = ShakyClaims(add=["down", "down"])
    with pytest.raises(ClaimStoreError, match=r"not sent: the claim store failed \(StoreDownError\)"):
        await send(service, claims, 20, personal=personal, limits=ONE if personal else Limits())
    assert service.written == []


@virtual
async def test_users_whose_claim_can_not_be_withdrawn_are_not_reported_as_not_sent():
    claims = ShakyClaims(swap=["down"] * 99)
    with pytest.raises(ClaimStoreError, match=r"the claim store failed \(StoreDownError\)"):
        await send(FakeService(then=answer(401)), claims)
    assert claims.states() == [[UserState.CLAIMED] * 10]


@virtual
async def test_untried_users_are_left_to_the_next_call():
    claims = MemoryClaims()
    # The first chunk is rejected, and so is each user that is tried alone; later chunks are accepted.
    stale = {f"user-{number * 39 // 7}" for number in range(8)}
    service = FakeService(then=lambda request: answer(400 if stale & {*request.user_ids} else 204))
    totals = await send(service, claims, 80, size=40, limits=ONE)
    assert totals == {"REJECTED": 8, "NOT_SENT": 32, "ACCEPTED": 40}
    assert await send(service, claims, 80, size=40, limits=ONE) == {"REJECTED": 8, "ACCEPTED": 72}
    assert set(service.users().values()) == {1}


# -- rejections -------------------------------------------------------------------------------------------------------


@virtual
async def test_users_are_rejected_only_after_single_users_were_rejected():
    def take():
        """Another process claims the users that are tried alone, and is killed."""
        (record,) = claims.records()
        states = record.states()
        for number in range(8):
            place = number * 39 // 7
            states.set(place, place + 1, UserStatus(UserState.CLAIMED, reason="another"))
        claims.rewrite(msgspec.structs.replace(record, users=states.stored()))

    def then(request):
        if len(service.sent) == 1:
            asyncio.get_running_loop().call_later(1.5, take)
        return refused(after=1.0) if len(service.sent) == 2 else answer(400, after=1.0)

    service = FakeService(then=then)
    claims = ShakyClaims()
    assert await send(service, claims, 40, size=40, limits=ONE) == {"REJECTED": 32, "UNKNOWN": 8}
    assert sum(len(request.user_ids) == 1 for request in service.written) >= 8


# -- when it stops ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("then", "expected"), [(refused(), {"NOT_SENT": 2000}), (hang(), {"UNKNOWN": 160, "NOT_SENT": 1840})]
)
@virtual
async def test_a_long_outage_stops_the_sending_without_claims(then, expected):
    claims = ShakyClaims()
    stop_policy = StopPolicy(max_outage=60.0, unknown=None)
    timeout = Timeout(total=None, attempt=200.0)
    assert await send(FakeService(then=then), claims, 2000, stop_policy=stop_policy, timeout=timeout) == expected
    assert not [state for state in claims.states() if UserState.CLAIMED in state]


@virtual
async def test_after_a_stop_recorded_outcomes_are_still_reported():
    claims = ShakyClaims()
    await send(FakeService(answer(404), reset_after()), claims, 40, limits=ONE)
    service = FakeService(then=answer(401))
    expected = {"ACCEPTED": 20, "REJECTED": 10, "UNKNOWN": 10, "NOT_SENT": 40}
    assert await send(service, claims, 80, limits=ONE) == expected
    claims.ops.clear()
    async with client_of(service, limits=ONE) as client:
        run = DispatcherRun(client, claims)
        run.stop()
        assert await run.send(80) == expected
        run = DispatcherRun(client, ShakyClaims(get=["down"]))
        run.stop()
        with pytest.raises(ClaimStoreError, match=r"the claim store failed \(StoreDownError\)"):
            await run.send()
    assert len(service.sent) == 1
    assert set(claims.ops) == {"get"}


@virtual
async def test_a_client_closed_in_the_middle_does_not_seem_complete():
    service = FakeService(then=lambda _: answer(after=1.0))
    claims = ShakyClaims()
    client = client_of(service, limits=ONE)
    running = start(DispatcherRun(client, claims).send(200))
    await asyncio.sleep(2.5)
    await client.aclose()
    with pytest.raises(ClientClosedError, match="closed before the end of the plan: call again"):
        await running
    assert await send(service, claims, 200) == {"ACCEPTED": 200}
    assert service.users() == once(200)


@virtual
async def test_cancelled_while_the_store_is_asked_nothing_is_sent_and_the_claim_is_given_back():
    service = FakeService()
    claims = ShakyClaims(add=["slow"])
    await cancel_after(0.5, start(send(service, claims)))
    assert service.sent == []
    assert claims.states() == [[UserState.PENDING] * 10]


# -- in measure -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("personal", [None, PERSONAL])
@virtual
async def test_clients_that_share_a_rate_keep_it_from_the_first_request_on(personal):
    sent = []

    def then(request):
        sent.append(now())
        return answer()

    async def work(place):
        share = Share(users_per_second=100.0 / 16, index=place, count=16)
        await send(FakeService(then=then), users=50, personal=personal, rate=share)

    await asyncio.gather(*map(work, range(16)))
    # A hundred users in a second, and one request more than that, at any time.
    size = 10 if personal is None else 1
    for number, at in enumerate(sent):
        assert (number + 1) * size <= 100 * at + size + 0.5, at
    assert now() == pytest.approx(16 * 50 / 100, abs=0.5)
