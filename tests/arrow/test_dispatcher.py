"""Sending of chunks on virtual time: waits, the stop policy, the rate, claims of other processes."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Sequence
from typing import Any

import msgspec
import pytest
from support.arrow_plans import MESSAGE, ReportedUser, plan, reported, user
from support.fake_service import FakeService, answer, client_of, hang, refused, reset_after, start
from support.shaky_claims import ShakyClaims
from support.virtual_time import virtual

from pushsdk import (
    AsyncPushClient,
    Batching,
    ClaimStoreError,
    Limits,
    Outcome,
    Rate,
    RetryPolicy,
    StopPolicy,
    Timeout,
    ValidationError,
)
from pushsdk._core.idempotency import ClaimRecord
from pushsdk._core.policy import Share
from pushsdk._core.user_states import UserState, UserStates, UserStatus
from pushsdk._io.sender import RequestSender
from pushsdk._runs.claim_log import ClaimLog
from pushsdk.arrow._chunks import ChunkEncoder, PreparedChunk
from pushsdk.arrow._dispatcher import PlanSender
from pushsdk.claims import Claim, MemoryClaims, Put

NO_STOP_POLICY = StopPolicy.off()


class Fetched:
    """A queue that always seems empty: its reader is infinitely fast."""

    def __init__(self) -> None:
        self.all: list[Any] = []

    def put(self, item: Any) -> None:
        self.all.append(item)

    def qsize(self) -> int:
        return 0


class DispatcherRun:
    """One dispatcher, and what it handed out."""

    def __init__(
        self,
        client: AsyncPushClient,
        claims: MemoryClaims,
        *,
        personal: Any = None,
        stop_policy: StopPolicy | None = None,
    ) -> None:
        engine = client._lifetime.enter()
        self.client = client
        self.box = Fetched()
        self.recipe = ChunkEncoder(
            MESSAGE, None, personal, run="spring", base_url=engine.settings.base_url, max_users=1000
        )
        self.dispatcher = PlanSender(
            engine,
            client._options,
            client._credentials,
            log=ClaimLog(claims, engine),
            stop_policy=stop_policy,
            varied=personal is not None,
            outcomes=self.box,  # type: ignore[arg-type]
        )

    async def send(self, users: int, *, size: int = 10, every: float = 0.0) -> dict[str, ReportedUser]:
        """Send a whole plan, one chunk every so many seconds."""
        batches = plan(users, size=size, personal=self.recipe.personal is not None)
        await self.dispatcher.run(self._fed(self.recipe.chunks(batches), every))
        return self.reported()

    def reported(self) -> dict[str, ReportedUser]:
        return reported(batch() for batch in self.box.all)

    async def _fed(self, chunks: Iterable[PreparedChunk], interval: float) -> AsyncIterator[PreparedChunk]:
        for chunk in chunks:
            if interval:
                await asyncio.sleep(interval)
            yield chunk


def outcomes(rows: dict[str, ReportedUser]) -> Counter[str]:
    return Counter(row.outcome for row in rows.values())


def now() -> float:
    """Seconds since the test began."""
    return asyncio.get_running_loop().time() - 1000.0


# -- again and again --------------------------------------------------------------------------------------------------


@virtual
async def test_no_user_is_claimed_while_a_chunk_waits() -> None:
    service, claims = FakeService(answer(503, {"Retry-After": "5"})), ShakyClaims()
    async with client_of(service) as client:
        running = start(DispatcherRun(client, claims).send(10))
        await asyncio.sleep(3.0)
        assert claims.states() == [[UserState.PENDING] * 10]
        rows = await running
    assert (outcomes(rows), claims.ops) == ({"ACCEPTED": 10}, ["get", "add", "swap", "swap", "swap"])
    assert claims.states() == [[UserState.ACCEPTED] * 10]


@virtual
async def test_only_the_rest_of_a_partly_accepted_chunk_is_sent_again() -> None:
    script = {user(3): [answer(429)], user(7): [answer(429), refused()]}

    def then(request: Any) -> Any:
        (one,) = request.users
        return script[one].pop(0) if script.get(one) else answer()

    service, claims = FakeService(then=then), ShakyClaims()
    async with client_of(service) as client:
        rows = await DispatcherRun(client, claims, personal="placeholders").send(10)
    assert set(rows.values()) == {ReportedUser("ACCEPTED", 204, "")}
    assert Counter(request for (request,) in service.sent) == {
        **dict.fromkeys(map(user, range(10)), 1),
        user(3): 2,
        user(7): 3,
    }
    assert service.users() == dict.fromkeys(map(user, range(10)), 1)


@virtual
async def test_users_claimed_by_another_process_between_attempts_are_left_to_it() -> None:
    claims = MemoryClaims()
    one, two = FakeService(answer(503, {"Retry-After": "5"})), FakeService(hang(accepted=True))
    async with client_of(one) as first, client_of(two, timeout=Timeout(attempt=30.0)) as second:
        running = start(DispatcherRun(first, claims).send(10))
        await asyncio.sleep(1.0)
        other = start(DispatcherRun(second, claims).send(10))
        rows = await running
        other.cancel()
        await asyncio.wait([other])
    assert set(rows.values()) == {ReportedUser("UNKNOWN", None, "claimed by another process, and not settled so far")}
    assert one.users() == {}


@virtual
async def test_users_withdrawn_by_another_process_are_sent_to_after_concurrent_writes() -> None:
    claims = ShakyClaims()
    one, two = FakeService(answer(503, {"Retry-After": "5"}, after=0.5)), FakeService(then=lambda _: answer(after=1.0))
    async with client_of(one, limits=Limits(in_flight=1)) as first, client_of(two) as second:
        running = start(DispatcherRun(first, claims, personal="placeholders").send(2))
        await asyncio.sleep(0.1)
        assert claims.states() == [[UserState.CLAIMED, UserState.PENDING]]
        assert outcomes(await DispatcherRun(second, claims, personal="placeholders").send(2)) == {"ACCEPTED": 2}
        assert outcomes(await running) == {"ACCEPTED": 2}
    assert (one.users(), two.users()) == ({}, {user(0): 1, user(1): 1})


@virtual
async def test_separate_pending_ranges_of_a_chunk_are_sent_separately() -> None:
    # Of ten users that were halved, the first and the last quarter are refused for the moment.
    def then(request: Any) -> Any:
        if len(request.users) > 3:
            return answer(400)
        late = {user(0), user(9)} & {*request.users}
        return answer(425) if late and now() < 0.5 else answer()

    service = FakeService(then=then)
    async with client_of(service, retry=RetryPolicy.safe(initial_delay=1.0)) as client:
        rows = await DispatcherRun(client, MemoryClaims()).send(10)
    assert outcomes(rows) == {"ACCEPTED": 10}
    assert service.users() == dict.fromkeys(map(user, range(10)), 1)


@virtual
async def test_users_settled_by_another_process_are_left_out_of_a_request() -> None:
    class Raced(ShakyClaims):
        async def put(self, puts: Sequence[Put], ttl: float) -> list[Claim | None]:
            if not self._claims:
                record = ClaimRecord.decode(puts[0].claim.record)
                states = UserStates(10)
                states.set(0, 1, UserStatus(UserState.ACCEPTED, 204))
                reached = msgspec.structs.replace(record, users=msgspec.Raw(states.to_json())).encode()
                await MemoryClaims.put(self, [Put(puts[0].key, Claim("e" * 32, reached))], ttl)
            return await super().put(puts, ttl)

    service = FakeService()
    async with client_of(service) as client:
        assert outcomes(await DispatcherRun(client, Raced()).send(10)) == {"ACCEPTED": 10}
    assert service.sent == [tuple(user(number) for number in range(1, 10))]


@pytest.mark.parametrize("personal", [None, "placeholders"])
@virtual
async def test_a_chunk_that_can_not_be_claimed_is_an_error_and_is_not_sent(personal: str | None) -> None:
    service = FakeService()
    async with client_of(service, limits=Limits(in_flight=1)) as client:
        with pytest.raises(ClaimStoreError, match=r"not sent: the claim store failed \(StoreDownError\)"):
            await DispatcherRun(client, ShakyClaims(add=["down"]), personal=personal).send(10)
    assert service.written == []


@virtual
async def test_a_request_is_over_before_its_claim_expires() -> None:
    service, claims = FakeService(then=hang()), ShakyClaims(claim_ttl=60.0)
    async with client_of(service, timeout=Timeout(total=None, attempt=None)) as client:
        rows = await DispatcherRun(client, claims, stop_policy=NO_STOP_POLICY).send(10)
    assert (outcomes(rows), now()) == ({"UNKNOWN": 10}, pytest.approx(30.0, abs=0.5))


@virtual
async def test_users_claimed_by_another_process_before_the_message_is_given_up_are_left_to_it() -> None:
    class Distant(ShakyClaims):
        async def put(self, puts: Sequence[Put], ttl: float) -> list[Claim | None]:
            await asyncio.sleep(0.01)
            return await super().put(puts, ttl)

    claims = Distant()

    def taken() -> None:
        """Another process claims the open users, and is killed."""
        ((key, (claim, expires)),) = claims._claims.items()
        record = ClaimRecord.decode(claim.record)
        states = record.states()
        for first, last, status in list(states.runs()):
            if status.state is UserState.PENDING:
                states.set(first, last, UserStatus(UserState.CLAIMED, reason="another"))
        record = msgspec.structs.replace(record, users=msgspec.Raw(states.to_json()))
        claims._claims[key] = Claim("b" * 32, record.encode()), expires

    def then(request: Any) -> Any:
        if len(service.sent) == 9:
            asyncio.get_running_loop().call_later(0.5, taken)
        return answer(400, after=1.0)

    service = FakeService(then=then)
    async with client_of(service, limits=Limits(in_flight=1)) as client:
        rows = await DispatcherRun(client, claims, stop_policy=NO_STOP_POLICY).send(40, size=40)
    assert outcomes(rows) == {"REJECTED": 8, "UNKNOWN": 32}
    assert Counter(claims.states()[0]) == {UserState.REJECTED: 8, UserState.CLAIMED: 32}


@virtual
async def test_users_are_rejected_only_after_single_users_were_rejected() -> None:
    claims = ShakyClaims()

    def taken() -> None:
        """Another process claims the users that are tried alone, and is killed."""
        ((key, (claim, expires)),) = claims._claims.items()
        record = ClaimRecord.decode(claim.record)
        states = record.states()
        for number in range(8):
            place = number * 39 // 7
            states.set(place, place + 1, UserStatus(UserState.CLAIMED, reason="another"))
        record = msgspec.structs.replace(record, users=msgspec.Raw(states.to_json()))
        claims._claims[key] = Claim("b" * 32, record.encode()), expires

    def then(request: Any) -> Any:
        if len(service.sent) == 1:
            asyncio.get_running_loop().call_later(1.5, taken)
        elif len(service.sent) == 2:
            return refused(after=1.0)
        return answer(400, after=1.0)

    service = FakeService(then=then)
    async with client_of(service, limits=Limits(in_flight=1)) as client:
        rows = await DispatcherRun(client, claims, stop_policy=NO_STOP_POLICY).send(40, size=40)
    assert outcomes(rows) == {"REJECTED": 32, "UNKNOWN": 8}
    assert sum(len(request.user_ids) == 1 for request in service.written) >= 8


@virtual
async def test_untried_users_are_left_to_the_next_call() -> None:
    claims = MemoryClaims()
    # The first chunk is rejected, and so is each user that is tried alone; later chunks are accepted.
    stale = {f"user-{number * 39 // 7}" for number in range(8)}
    service = FakeService(then=lambda request: answer(400 if stale & {*request.user_ids} else 204))
    async with client_of(service, limits=Limits(in_flight=1)) as client:
        rows = await DispatcherRun(client, claims, stop_policy=NO_STOP_POLICY).send(80, size=40)
        assert outcomes(rows) == {"REJECTED": 8, "NOT_SENT": 32, "ACCEPTED": 40}
        assert {row.reason for row in rows.values() if row.outcome == "NOT_SENT"} == {"HTTP 400"}
    async with client_of(service, limits=Limits(in_flight=1)) as client:
        second = await DispatcherRun(client, claims, stop_policy=NO_STOP_POLICY).send(80, size=40)
    assert outcomes(second) == {"REJECTED": 8, "ACCEPTED": 72}
    assert set(service.users().values()) == {1}


@virtual
async def test_a_chunk_shared_with_another_process_counts_only_its_own_users() -> None:
    service, claims = FakeService(), ShakyClaims()
    async with client_of(service) as client:
        run = DispatcherRun(client, claims)
        chunk = list(run.recipe.chunks(plan(20, size=10)))[1]
        states = UserStates(10)
        states.set(0, 7, UserStatus(UserState.ACCEPTED, 204))
        record = ClaimRecord(fingerprint=chunk.fingerprint, claimed_at=0.0, users=msgspec.Raw(states.to_json()))
        await MemoryClaims.put(claims, [Put(chunk.key, Claim("a" * 32, record.encode()))], 1e6)
        assert outcomes(await run.send(20)) == {"ACCEPTED": 20}
        assert (sum(map(len, service.sent)), client.stats().accepted) == (13, 13)


# -- when it stops ----------------------------------------------------------------------------------------------------


@virtual
async def test_a_long_outage_stops_the_sending_without_claims() -> None:
    service, claims = FakeService(then=refused()), ShakyClaims()
    async with client_of(service) as client:
        rows = await DispatcherRun(client, claims, stop_policy=StopPolicy(max_outage=60.0)).send(2000)
    assert outcomes(rows) == {"NOT_SENT": 2000}
    assert not [state for state in claims.states() if UserState.CLAIMED in state]
    assert any("nothing was accepted for 6" in row.reason for row in rows.values())
    assert 60.0 <= now() < 70.0


@virtual
async def test_a_silent_service_stops_the_sending_too() -> None:
    service = FakeService(then=hang())
    async with client_of(service, timeout=Timeout(total=None, attempt=200.0)) as client:
        rows = await DispatcherRun(client, MemoryClaims(), stop_policy=StopPolicy(max_outage=60.0, unknown=None)).send(
            2000
        )
    assert outcomes(rows) == {"UNKNOWN": 80, "NOT_SENT": 1920}


@pytest.mark.parametrize("failures", [0, 2])
@virtual
async def test_a_slow_input_is_not_an_outage_also_if_a_failure_follows(failures: int) -> None:
    service = FakeService(*[refused()] * failures)
    async with client_of(service) as client:
        run = DispatcherRun(client, MemoryClaims(), stop_policy=StopPolicy(max_outage=60.0))
        assert outcomes(await run.send(100, every=100.0)) == {"ACCEPTED": 100}


@virtual
async def test_a_run_of_settled_users_is_not_an_outage() -> None:
    class SlowClaims(MemoryClaims):
        async def put(self, puts: Sequence[Put], ttl: float) -> list[Claim | None]:
            await asyncio.sleep(0.0 if puts[0].expected else 4.0)
            return await super().put(puts, ttl)

    service, claims = FakeService(), SlowClaims()
    for _ in range(2):
        async with client_of(service, limits=Limits(in_flight=1)) as client:
            rows = await DispatcherRun(client, claims, stop_policy=StopPolicy(max_outage=60.0)).send(300)
        assert outcomes(rows) == {"ACCEPTED": 300}
    assert len(service.sent) == 30


@virtual
async def test_after_a_stop_the_rest_of_a_personal_chunk_is_neither_sent_nor_claimed() -> None:
    service, claims = FakeService(then=answer(401)), ShakyClaims()
    async with client_of(service, limits=Limits(in_flight=2)) as client:
        rows = await DispatcherRun(client, claims, personal="placeholders").send(100, size=50)
    assert outcomes(rows) == {"NOT_SENT": 100}
    assert len(service.sent) == 2
    assert not [state for state in claims.states() if UserState.CLAIMED in state]
    assert {row.reason.partition(":")[0] for row in rows.values()} == {"HTTP 401"}


@virtual
async def test_after_a_stop_recorded_outcomes_are_still_reported() -> None:
    claims = ShakyClaims()
    async with client_of(FakeService(answer(404), reset_after()), limits=Limits(in_flight=1)) as client:
        await DispatcherRun(client, claims).send(40)
    service = FakeService(then=answer(401))
    async with client_of(service, limits=Limits(in_flight=1)) as client:
        rows = await DispatcherRun(client, claims).send(80)
    assert outcomes(rows) == {"ACCEPTED": 20, "REJECTED": 10, "UNKNOWN": 10, "NOT_SENT": 40}
    assert rows[user(0)].status == 404
    claims.ops.clear()
    async with client_of(service, limits=Limits(in_flight=1)) as client:
        second = DispatcherRun(client, claims)
        second.dispatcher.stop("asked", "it was asked to stop")
        assert outcomes(await second.send(80)) == outcomes(rows)
    assert (len(service.sent), set(claims.ops)) == (1, {"get"})


@virtual
async def test_after_a_stop_during_a_wait_outcomes_of_another_process_are_reported() -> None:
    claims = ShakyClaims()
    throttled = FakeService(answer(503, {"Retry-After": "30"}))
    async with client_of(throttled) as one, client_of(FakeService()) as two:
        run = DispatcherRun(one, claims, stop_policy=NO_STOP_POLICY)
        first = start(run.send(10))
        await asyncio.sleep(5.0)
        assert outcomes(await DispatcherRun(two, claims).send(10)) == {"ACCEPTED": 10}
        run.dispatcher.stop("asked", "it was asked to stop")
        assert outcomes(await first) == {"ACCEPTED": 10}


@virtual
async def test_throttled_users_are_not_rejected_with_the_bad_users() -> None:
    bad = {user(number) for number in range(5, 1000, 125)} | {user(number) for number in range(1500, 5000, 1000)}
    until = asyncio.get_running_loop().time() + 15.0

    def fate(request: Any) -> Any:
        if bad & set(request.users):
            return answer(400)
        return answer(429) if asyncio.get_running_loop().time() < until else answer()

    async with client_of(FakeService(then=fate)) as client:
        rows = await DispatcherRun(client, MemoryClaims(), stop_policy=NO_STOP_POLICY).send(5000, size=1000, every=1.0)
    assert {name for name, row in rows.items() if row.outcome == "REJECTED"} == bad
    assert outcomes(rows) == {"ACCEPTED": 5000 - len(bad), "REJECTED": len(bad)}


@virtual
async def test_stopped_and_the_store_fails_it_is_said_not_guessed() -> None:
    async with client_of(FakeService()) as client:
        run = DispatcherRun(client, ShakyClaims(get=["down"]))
        run.dispatcher.stop("asked", "it was asked to stop")
        with pytest.raises(ClaimStoreError, match=r"the claim store failed \(StoreDownError\)"):
            await run.send(10)


@virtual
async def test_users_reported_as_not_sent_are_pending_for_all_even_after_a_failed_withdrawal() -> None:
    claims = ShakyClaims(swap=["down"])
    async with client_of(FakeService(then=answer(401))) as client:
        assert outcomes(await DispatcherRun(client, claims).send(10)) == {"NOT_SENT": 10}
    assert not [state for state in claims.states() if UserState.CLAIMED in state]
    async with client_of(FakeService()) as another:
        assert outcomes(await DispatcherRun(another, claims).send(10)) == {"ACCEPTED": 10}


@virtual
async def test_users_whose_claim_can_not_be_withdrawn_are_not_reported_as_not_sent() -> None:
    claims = ShakyClaims(swap=["down"] * 99)
    async with client_of(FakeService(then=answer(401))) as client:
        with pytest.raises(ClaimStoreError, match=r"the claim store failed \(StoreDownError\)"):
            await DispatcherRun(client, claims).send(10)
    assert claims.states() == [[UserState.CLAIMED] * 10]


@virtual
async def test_an_accepted_user_that_was_not_settled_is_accepted_here_and_unknown_to_another_call(
    caplog: pytest.LogCaptureFixture,
) -> None:
    claims = ShakyClaims(swap=["down"] * 99)
    async with client_of(FakeService()) as client:
        assert outcomes(await DispatcherRun(client, claims).send(10)) == {"ACCEPTED": 10}
    assert "the claim store failed (StoreDownError)" in caplog.text
    async with client_of(service := FakeService()) as another:
        assert outcomes(await DispatcherRun(another, claims).send(10)) == {"UNKNOWN": 10}
    assert service.sent == []


@virtual
async def test_the_first_of_several_failures_is_raised() -> None:
    async with client_of(FakeService()) as client:
        run = DispatcherRun(client, MemoryClaims())
        run.dispatcher._fail(ValueError("the first"))
        run.dispatcher._fail(ValueError("the second"))
        with pytest.raises(ValueError, match="the first"):
            await run.send(10)


@virtual
async def test_stopped_and_the_chunk_was_another_before_it_is_said() -> None:
    claims = ShakyClaims()
    async with client_of(FakeService()) as client:
        await DispatcherRun(client, claims).send(10, size=5)
        run = DispatcherRun(client, claims)
        run.dispatcher.stop("asked", "it was asked to stop")
        with pytest.raises(ValidationError, match="claimed in this run for another payload"):
            await run.send(10, size=10)


@virtual
async def test_stopped_while_the_store_was_asked_nothing_is_sent_and_the_claim_is_given_back() -> None:
    class SlowWithdrawal(ShakyClaims):
        async def put(self, puts: Sequence[Put], ttl: float) -> list[Claim | None]:
            if "add" in self.ops and not puts[0].expected:
                await asyncio.sleep(2.0)
            return await super().put(puts, ttl)

    service, claims = FakeService(answer(401, after=1.0)), SlowWithdrawal()
    async with client_of(service) as client:
        rows = await DispatcherRun(client, claims).send(20, every=0.5)
    assert outcomes(rows) == {"NOT_SENT": 20}
    assert (len(service.sent), claims.states()) == (1, [[UserState.PENDING] * 10] * 2)


@virtual
async def test_cancelling_leaves_requests_in_flight_unknown_and_withdraws_the_rest() -> None:
    service, claims = FakeService(then=hang(accepted=True)), ShakyClaims()
    async with client_of(service, limits=Limits(in_flight=2)) as client:
        running = start(DispatcherRun(client, claims, personal="placeholders").send(10))
        await asyncio.sleep(1.0)
        running.cancel()
        await asyncio.wait([running])
    assert running.cancelled()
    assert claims.states() == [[UserState.UNKNOWN] * 2 + [UserState.PENDING] * 8]


@virtual
async def test_cancelled_while_the_store_is_asked_nothing_is_sent_and_the_claim_is_given_back() -> None:
    service, claims = FakeService(), ShakyClaims(add=["slow"])
    async with client_of(service) as client:
        running = start(DispatcherRun(client, claims).send(10))
        await asyncio.sleep(0.5)
        running.cancel()
        await asyncio.wait([running])
    assert (service.sent, claims.states()) == ([], [[UserState.PENDING] * 10])


@virtual
async def test_a_chunk_in_flight_with_another_payload_is_an_error_and_the_first_is_sent() -> None:
    service = FakeService(then=lambda _: answer(after=1.0))
    async with client_of(service) as client:
        run = DispatcherRun(client, MemoryClaims())
        chunks = [*run.recipe.chunks(plan(10)), *run.recipe.chunks(plan(5, size=5))]
        with pytest.raises(ValidationError, match="claimed in this run for another payload"):
            await run.dispatcher.run(run._fed(chunks, 0.5))
    assert (outcomes(run.reported()), len(service.sent)) == ({"ACCEPTED": 10}, 1)


@virtual
async def test_cancelling_a_split_leaves_users_in_flight_unknown_and_withdraws_rejected_parts() -> None:
    service, claims = FakeService(answer(400), then=hang(accepted=True)), ShakyClaims()
    async with client_of(service) as client:
        running = start(DispatcherRun(client, claims).send(10))
        await asyncio.sleep(1.0)
        running.cancel()
        await asyncio.wait([running])
    assert sorted(claims.states()[0]) == [UserState.PENDING] * 2 + [UserState.UNKNOWN] * 8


@virtual
async def test_a_rejected_message_is_not_split_for_each_chunk() -> None:
    service = FakeService(then=answer(400))
    async with client_of(service, limits=Limits(in_flight=1)) as client:
        rows = await DispatcherRun(client, MemoryClaims(), stop_policy=NO_STOP_POLICY).send(1000, size=100)
    # 8 users of the first chunk, and one of each other.
    assert outcomes(rows) == {"REJECTED": 17, "NOT_SENT": 983}
    assert len(service.sent) < 40


@virtual
async def test_an_error_of_ours_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    service, claims = FakeService(), ShakyClaims()
    async with client_of(service) as client:
        run = DispatcherRun(client, claims)

        async def broken(*_: Any, **__: Any) -> None:
            raise ZeroDivisionError

        monkeypatch.setattr(RequestSender, "run", broken)
        with pytest.raises(ZeroDivisionError):
            await run.send(10)
    assert claims.states() == []


@pytest.mark.parametrize("status", [302, 308, 413])
@virtual
async def test_a_rejection_that_is_not_about_users_leaves_them_pending(status: int) -> None:
    service, claims = FakeService(answer(status)), ShakyClaims()
    async with client_of(service) as client:
        rows = await DispatcherRun(client, claims).send(2)
        assert {(row.outcome, row.status) for row in rows.values()} == {("NOT_SENT", status)}
        rows = await DispatcherRun(client, claims).send(2)
        assert {row.outcome for row in rows.values()} == {"ACCEPTED"}
    assert len(service.sent) == 2


@virtual
async def test_a_chunk_that_is_too_large_stays_pending_without_splitting() -> None:
    service, claims = FakeService(answer(413)), ShakyClaims()
    async with client_of(service, batching=Batching(split_on=frozenset())) as client:
        assert outcomes(await DispatcherRun(client, claims).send(10)) == {"NOT_SENT": 10}
    assert (len(service.sent), claims.states()) == (1, [[UserState.PENDING] * 10])


@virtual
async def test_a_personal_message_that_is_too_large_is_left_and_the_others_are_sent() -> None:
    service = FakeService(then=lambda request: answer(413 if request.users == ("user-1",) else 204))
    async with client_of(service) as client:
        rows = await DispatcherRun(client, MemoryClaims(), personal="placeholders").send(3)
    assert {name: row.outcome for name, row in rows.items()} == {
        "user-0": "ACCEPTED",
        "user-1": "NOT_SENT",
        "user-2": "ACCEPTED",
    }
    assert len(service.sent) == 3


# -- in measure -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rate", "personal"),
    [
        ({"users_per_second": 100.0}, None),
        ({"requests_per_second": 10.0}, None),
        ({"users_per_second": 100.0}, "placeholders"),
    ],
)
@virtual
async def test_clients_that_share_a_rate_keep_it_from_the_first_request_on(
    rate: dict[str, float], personal: str | None
) -> None:
    sent: list[tuple[float, int]] = []

    def then(request: Any) -> Any:
        sent.append((now(), len(request.users)))
        return answer()

    async def work(place: int) -> None:
        share = Share(**{name: value / 64 for name, value in rate.items()}, index=place, count=64)
        async with client_of(FakeService(then=then), rate=share) as client:
            await DispatcherRun(client, MemoryClaims(), personal=personal).send(50)

    await asyncio.gather(*map(work, range(64)))
    # A hundred users in a second, and one request more than that, at any time.
    size = 10 if personal is None else 1
    for number, (at, _) in enumerate(sent):
        assert (number + 1) * size <= 100 * at + size + 0.5, at
    assert now() == pytest.approx(64 * 50 / 100, abs=0.5)


@virtual
async def test_a_share_of_no_rate_delays_nothing() -> None:
    async with client_of(FakeService(), rate=Share(index=63, count=64)) as client:
        await DispatcherRun(client, MemoryClaims()).send(50)
    assert now() < 0.1


@pytest.mark.parametrize(
    "rate", [Rate(users_per_second=10), Share(users_per_second=1, index=9, count=10)], ids=["all of it", "a share"]
)
@virtual
async def test_settled_users_are_skipped_without_using_the_rate(rate: Rate) -> None:
    service, claims = FakeService(), MemoryClaims()
    async with client_of(service) as client:
        await DispatcherRun(client, claims).send(1000)
    started = now()
    async with client_of(service, rate=rate) as client:
        assert outcomes(await DispatcherRun(client, claims).send(1000)) == {"ACCEPTED": 1000}
        assert now() - started < 0.1
        assert outcomes(await DispatcherRun(client, claims).send(1010)) == {"ACCEPTED": 1010}
    # What is left is ten users' worth, and its turn.
    assert now() - started < 10.0


@pytest.mark.parametrize("personal", [None, "placeholders"])
@virtual
async def test_all_places_on_the_wire_are_used_and_no_more(personal: str | None) -> None:
    service = FakeService(then=lambda request: answer(after=1.0))
    async with client_of(service, limits=Limits(in_flight=8)) as client:
        rows = await DispatcherRun(client, MemoryClaims(), personal=personal).send(640 if personal is None else 64)
    assert service.most_in_flight == 8
    assert now() == pytest.approx(8.0, abs=0.2)
    assert set(outcomes(rows)) == {Outcome.ACCEPTED}


@virtual
async def test_of_personal_chunks_few_are_claimed_at_a_time() -> None:
    claimed = []

    class Counting(ShakyClaims):
        async def put(self, puts: Sequence[Put], ttl: float) -> list[Claim | None]:
            if not puts[0].expected:
                claimed.append(sum(UserState.CLAIMED in state for state in self.states()))
            return await super().put(puts, ttl)

    service = FakeService(then=lambda request: answer(after=1.0))
    async with client_of(service, limits=Limits(in_flight=8)) as client:
        await DispatcherRun(client, Counting(), personal="placeholders").send(500, size=50)
    assert len(claimed) == 10
    assert max(claimed) <= 1


@virtual
async def test_a_claim_about_to_expire_is_withdrawn_before_sending() -> None:
    class Short(ShakyClaims):
        def __init__(self) -> None:
            super().__init__(claim_ttl=60.0)

    # The service pauses longer than half of the time that a claim lasts.
    def then(request: Any) -> Any:
        return answer(503, {"Retry-After": "45"}) if len(service.sent) == 1 else answer()

    service, claims = FakeService(then=then), Short()
    async with client_of(service, limits=Limits(in_flight=2)) as client:
        rows = await DispatcherRun(client, claims, personal="placeholders").send(10)
    assert outcomes(rows) == {"ACCEPTED": 10}
    assert service.users() == dict.fromkeys(map(user, range(10)), 1)


@virtual
async def test_a_chunk_that_outlives_its_claim_is_sent_under_several_claims() -> None:
    # A minute is kept, and a hundred users at one in a second take longer.
    service, claims = FakeService(), ShakyClaims(claim_ttl=60.0)
    async with client_of(service, rate=Rate(users_per_second=1)) as one, client_of(service) as two:
        first = start(DispatcherRun(one, claims, personal="placeholders").send(100, size=100))
        await asyncio.sleep(70.0)
        # What it finds claimed it leaves, and what was accepted it knows.
        assert outcomes(await DispatcherRun(two, claims, personal="placeholders").send(100, size=100))["NOT_SENT"] == 0
        assert outcomes(await first)["NOT_SENT"] == 0
    assert service.users() == dict.fromkeys(map(user, range(100)), 1)
