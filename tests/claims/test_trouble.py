"""A claim store that is down, slow or loses answers: before the send nothing is sent, after it the outcome is true."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Sequence
from typing import Any

import msgspec
import pytest
from support.shaky_claims import Fault, ShakyClaims, StoppedClaims
from support.virtual_time import turns, virtual

from pushsdk import (
    ClaimStoreError,
    ConfigurationError,
    MobilePush,
    NotSentError,
    Outcome,
    OutcomeUnknownError,
    PartialError,
    PushError,
    Receipt,
    RetryPolicy,
    SendAbandoned,
)
from pushsdk._core.idempotency import ClaimRecord
from pushsdk._core.user_states import UserState, UserStates
from pushsdk._runs import claim_entry, claim_log
from pushsdk.claims import Claim, ClaimStore, MemoryClaims, Put
from pushsdk.client import AsyncPushClient
from pushsdk.testing import FakeRequest, FakeResponse, FakeService

HELLO = MobilePush(title={"en": "Hello"})
JOB = "job-42"
CLAIMED, ACCEPTED, OPEN = UserState.CLAIMED, UserState.ACCEPTED, UserState.PENDING


async def deliver(
    client: AsyncPushClient, users: str | list[str] = "user-1", *, timeout: float | None = None
) -> object:
    """The receipt, or the error."""
    try:
        return await client.send(users, HELLO, idempotency_key=JOB, timeout=timeout)
    except PushError as error:
        return error


TWO = [name.ljust(200, "-") for name in ("user-1", "user-2")]


def throttled_once() -> FakeService:
    """Takes no more than one user at a time, and the second of them not at first."""
    left = [FakeResponse.status(429)]

    def fate(request: FakeRequest) -> FakeResponse:
        if len(request.user_ids) > 1:
            return FakeResponse.status(413)
        return left.pop() if left and request.user_ids == (TWO[1],) else FakeResponse.accept()

    return FakeService(then=fate)


def now() -> float:
    return asyncio.get_running_loop().time()


# What is left of a claim that failed: what may still come late is kept out by an entry that everybody may take.
UNDONE = [[OPEN]]


# -- before the send --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fault", ["down", "lost"])
@virtual
async def test_a_store_that_fails_is_an_error_and_nothing_is_sent(fault: Fault) -> None:
    service, claims = FakeService(), ShakyClaims(add=[fault])
    async with service.client(claims=claims) as client:
        told = await deliver(client)
        assert isinstance(told, ClaimStoreError)
        assert (told.outcome, told.attempts) == (Outcome.NOT_SENT, ())
        assert str(told) == "not sent: the claim store failed (StoreDownError)"
        assert type(told.__cause__).__name__ == "StoreDownError"
        assert service.requests == []
        await asyncio.sleep(0.1)
        assert [CLAIMED] not in claims.states(), "what it wrote before it failed is taken back"
        assert isinstance(await deliver(client), Receipt)
    assert service.users() == {"user-1": 1}


@pytest.mark.parametrize("fault", ["hangs", "hangs, done"])
@virtual
async def test_a_store_that_hangs_is_an_error_after_its_timeout_and_nothing_is_sent(fault: Fault) -> None:
    service, claims = FakeService(), ShakyClaims(add=[fault], timeout=2.0)
    async with service.client(claims=claims) as client:
        started = now()
        assert isinstance(await deliver(client), ClaimStoreError)
        assert now() - started == pytest.approx(2.0, abs=0.01)
    assert (service.requests, claims.states()) == ([], UNDONE)


@virtual
async def test_a_store_that_can_not_be_used_is_an_error_of_its_own_and_is_not_asked_again() -> None:
    class Foreign(ShakyClaims):
        async def put(self, puts: Sequence[Put], ttl: float) -> list[Claim | None]:
            self.ops.append("put")
            raise ConfigurationError("the claim store is in use by another event loop: make one for each client")

    service, claims = FakeService(), Foreign()
    async with service.client(claims=claims) as client:
        told = [await deliver(client) for _ in range(2)]
        await asyncio.sleep(60.0)
    assert [type(each) for each in told] == [ConfigurationError] * 2
    assert told[0] is not told[1]
    assert (claims.ops, service.requests) == (["put"] * 2, [])


@pytest.mark.parametrize("fault", ["hangs", "hangs, done"])
@virtual
async def test_a_call_ends_at_its_deadline_whatever_the_store_does(fault: Fault) -> None:
    service, claims = FakeService(), ShakyClaims(add=[fault])
    async with service.client(claims=claims) as client:
        started = now()
        told = await deliver(client, timeout=0.5)
        assert isinstance(told, ClaimStoreError)
        assert "did not answer within the call's timeout" in str(told)
        assert now() - started == pytest.approx(0.5, abs=0.01)
    assert (service.requests, claims.states()) == ([], UNDONE)


@virtual
async def test_a_claim_that_came_too_late_for_its_call_is_given_back() -> None:
    service, claims = FakeService(), ShakyClaims(add=["slow"])
    async with service.client(claims=claims) as client:
        assert isinstance(await deliver(client, timeout=0.5), ClaimStoreError)
    assert (service.requests, claims.states()) == ([], UNDONE)


@virtual
async def test_a_call_cancelled_while_it_claims_gives_back_what_it_claimed() -> None:
    service, claims = FakeService(), ShakyClaims(add=["slow"])
    async with service.client(claims=claims) as client:
        task = asyncio.create_task(client.send("user-1", HELLO, idempotency_key=JOB))
        await asyncio.sleep(0.5)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert (claims.ops, claims.states()) == (["add", "swap"], UNDONE)
    assert service.requests == []


@virtual
async def test_a_claim_that_can_not_be_given_back_is_known_to_have_sent_nothing() -> None:
    service, claims = FakeService(), ShakyClaims(add=["lost"], swap=["down"] * 9)
    async with service.client(claims=claims) as client:
        assert isinstance(await deliver(client), ClaimStoreError)
        await asyncio.sleep(0.05)
        assert claims.states() == [[CLAIMED]]
        claims.faults["swap"].clear()
        assert isinstance(await deliver(client), Receipt)
    assert service.users() == {"user-1": 1}
    assert claims.states() == [[ACCEPTED]]


@virtual
async def test_a_store_that_asks_again_by_itself_meets_its_own_claim() -> None:
    class Repeating(ShakyClaims):
        async def put(self, puts: Sequence[Put], ttl: float) -> list[Claim | None]:
            await super().put(puts, ttl)
            return await super().put(puts, ttl)

    service = FakeService()
    async with service.client(claims=Repeating()) as client:
        assert isinstance(await deliver(client), Receipt)
    assert service.users() == {"user-1": 1}


@virtual
async def test_a_store_that_asks_to_swap_again_by_itself_leaves_out_who_was_reached() -> None:
    class Repeating(ShakyClaims):
        async def put(self, puts: Sequence[Put], ttl: float) -> list[Claim | None]:
            await super().put(puts, ttl)
            return await super().put(puts, ttl)

    service = throttled_once()
    async with service.client(claims=Repeating(), retry=RetryPolicy.none()) as client:
        await deliver(client, TWO)
        told = await deliver(client, TWO)
        assert isinstance(told, Receipt)
        assert told.already_accepted == 1
    assert service.users() == dict.fromkeys(TWO, 1)


@virtual
async def test_what_is_known_to_have_sent_nothing_stays_known_when_the_next_claim_fails_too() -> None:
    service, claims = FakeService(), ShakyClaims(add=["lost"], swap=["down"] * 9)
    async with service.client(claims=claims) as client:
        for _ in range(2):
            assert isinstance(await deliver(client), ClaimStoreError)
            await asyncio.sleep(0.05)
        claims.faults["swap"].clear()
        assert isinstance(await deliver(client), Receipt)
    assert service.users() == {"user-1": 1}


@virtual
async def test_what_could_not_be_settled_stays_known_when_the_next_claim_fails_too() -> None:
    service, claims = FakeService(), ShakyClaims(swap=["down"] * 9)
    async with service.client(claims=claims) as client:
        assert isinstance(await deliver(client), Receipt)
        assert isinstance(await deliver(client), ClaimStoreError)
        claims.faults["swap"].clear()
        assert isinstance(await deliver(client), Receipt)
    assert service.users() == {"user-1": 1}


class Late(ShakyClaims):
    """The first operation of this kind is held up on its way, and done long after it was given up."""

    held_up = "add"
    # A task that nobody holds may go before it ran.
    late: asyncio.Task[None]

    async def put(self, puts: Sequence[Put], ttl: float) -> list[Claim | None]:
        if self.held_up == ("swap" if puts[0].expected else "add"):
            await self._hold_up(MemoryClaims.put(self, puts, ttl))
        return await super().put(puts, ttl)

    async def _hold_up(self, work: Coroutine[Any, Any, object]) -> None:
        self.held_up = "nothing"

        async def arrive() -> None:
            await asyncio.sleep(20.0)
            await work

        self.late = asyncio.create_task(arrive())
        await asyncio.get_running_loop().create_future()


@pytest.mark.parametrize("same", [True, False], ids=["the same process", "another"])
@virtual
async def test_a_claim_that_arrives_long_after_its_call_holds_nobody(same: bool) -> None:
    service, claims = FakeService(), Late(timeout=2.0)
    async with service.client(claims=claims) as client, service.client(claims=claims) as other:
        assert isinstance(await deliver(client), ClaimStoreError)
        await asyncio.sleep(30.0)
        assert isinstance(await deliver(client if same else other), Receipt)
    assert service.users() == {"user-1": 1}


@pytest.mark.parametrize("same", [True, False], ids=["the same process", "another"])
@virtual
async def test_a_claim_of_the_rest_that_arrives_long_after_its_call_holds_nobody(same: bool) -> None:
    service, claims = throttled_once(), Late(timeout=2.0)
    claims.held_up = "nothing"
    async with (
        service.client(claims=claims, retry=RetryPolicy.none()) as client,
        service.client(claims=claims) as other,
    ):
        await deliver(client, TWO)
        claims.held_up = "swap"
        assert isinstance(await deliver(client, TWO), PartialError)
        await asyncio.sleep(30.0)
        assert isinstance(await deliver(client if same else other, TWO), Receipt)
    assert service.users() == dict.fromkeys(TWO, 1)


@virtual
async def test_a_claim_that_merely_failed_raises_no_alarm(caplog: pytest.LogCaptureFixture) -> None:
    service, claims = throttled_once(), ShakyClaims()
    async with service.client(claims=claims, retry=RetryPolicy.none()) as client:
        await deliver(client, TWO)
        claims.faults["swap"] = ["down"]
        assert isinstance(await deliver(client, TWO), PartialError)
    assert caplog.records == []


@pytest.mark.parametrize("record", [b"", b"{}", b"hello", b'{"fingerprint":1}'])
@virtual
async def test_what_is_no_record_is_an_error_and_nothing_is_sent(record: bytes) -> None:
    class Odd(ShakyClaims):
        async def put(self, puts: Sequence[Put], ttl: float) -> list[Claim | None]:
            return [Claim("x" * 32, record)]

    service = FakeService()
    async with service.client(claims=Odd()) as client:
        assert isinstance(await deliver(client), ClaimStoreError)
    assert service.requests == []


@virtual
async def test_a_store_that_answers_too_little_is_an_error_and_nothing_is_sent() -> None:
    class Terse(ShakyClaims):
        async def put(self, puts: Sequence[Put], ttl: float) -> list[Claim | None]:
            return []

    service = FakeService()
    async with service.client(claims=Terse()) as client:
        assert isinstance(await deliver(client), ClaimStoreError)
    assert service.requests == []


@virtual
async def test_a_claim_that_others_always_take_first_is_an_error_in_the_end() -> None:
    class Restless(ShakyClaims):
        async def put(self, puts: Sequence[Put], ttl: float) -> list[Claim | None]:
            if not puts[0].expected:
                await super().put(puts, ttl)
            else:
                self.ops.append("swap")
            open_to_all = ClaimRecord(fingerprint="f" * 64, claimed_at=0.0, users=msgspec.Raw(UserStates(1).to_json()))
            return [Claim(f"{len(self.ops):032x}", open_to_all.encode())]

    service, claims = FakeService(), Restless()
    async with service.client(claims=claims) as client:
        assert isinstance(await deliver(client), ClaimStoreError)
    assert claims.ops.count("swap") == claim_entry.MOST_REFUSALS - 1
    assert service.requests == []


# -- a store that is stopped, and goes on ------------------------------------------------------------------------------


@pytest.mark.parametrize("step", [1, -1], ids=["in order", "backward"])
@pytest.mark.parametrize("same", [True, False], ids=["the same process", "another"])
@virtual
async def test_jobs_that_were_not_sent_while_the_store_was_stopped_are_sent_when_it_goes_on(
    same: bool, step: int
) -> None:
    service, claims, jobs = FakeService(), StoppedClaims(timeout=1.0), [f"job-{n}" for n in range(10)]
    async with service.client(claims=claims) as client, service.client(claims=claims) as other:
        for timeout in (0.5, None):
            claims.is_stopped = True
            sends = [client.send("user-1", HELLO, idempotency_key=job, timeout=timeout) for job in jobs]
            told = await asyncio.gather(*sends, return_exceptions=True)
            assert {type(each) for each in told} == {ClaimStoreError}
            await asyncio.sleep(20.0)
            claims.go_on(step)
            await asyncio.sleep(5.0)
        for job in jobs:
            await (client if same else other).send("user-1", HELLO, idempotency_key=job)
    assert service.users() == {"user-1": 10}


@pytest.mark.parametrize("same", [True, False], ids=["the same process", "another"])
@virtual
async def test_a_push_that_was_not_sent_is_released_when_the_store_goes_on(same: bool) -> None:
    service, claims = FakeService(FakeResponse.refused(after=1.0)), StoppedClaims(timeout=1.0)
    async with (
        service.client(claims=claims, retry=RetryPolicy.none()) as client,
        service.client(claims=claims) as other,
    ):
        sending = asyncio.create_task(deliver(client))
        await asyncio.sleep(0.5)
        claims.is_stopped = True
        told = await sending
        assert isinstance(told, NotSentError)
        assert told.retryable
        await asyncio.sleep(20.0)
        claims.go_on(1)
        await asyncio.sleep(5.0)
        assert isinstance(await deliver(client if same else other), Receipt)
    assert service.users() == {"user-1": 1}


@virtual
async def test_a_job_that_timed_out_is_sent_by_the_same_process_while_its_first_claim_is_on_its_way() -> None:
    service, claims = FakeService(), ShakyClaims(add=["slow"])
    async with service.client(claims=claims) as client:
        assert isinstance(await deliver(client, timeout=0.5), ClaimStoreError)
        assert isinstance(await deliver(client), Receipt)
    assert service.users() == {"user-1": 1}


@pytest.mark.parametrize("stopped", [5.0, 60.0])
@virtual
async def test_closing_waits_as_long_as_the_drain_for_a_store_that_is_stopped(
    stopped: float, caplog: pytest.LogCaptureFixture
) -> None:
    service, claims = FakeService(), StoppedClaims(timeout=1.0)
    client = service.client(claims=claims)
    claims.is_stopped = True
    assert isinstance(await deliver(client), ClaimStoreError)
    began = now()
    timer = asyncio.get_running_loop().call_later(stopped, claims.go_on, 1)
    await client.aclose(drain=20.0)
    assert now() - began < min(stopped, 20.0) + 4.0
    timer.cancel()
    assert ("closed" in caplog.records[-1].message) is (stopped > 20.0)
    assert not everybody()
    assert claims.states() == ([[OPEN]] if stopped < 20.0 else [])


@virtual
async def test_closing_does_not_wait_for_a_store_that_fails_at_once(caplog: pytest.LogCaptureFixture) -> None:
    service, claims = FakeService(), ShakyClaims(add=["down"] * 99, swap=["down"] * 99)
    client = service.client(claims=claims)
    assert isinstance(await deliver(client), ClaimStoreError)
    began = now()
    await client.aclose(drain=20.0)
    assert now() - began < 2.0
    assert "closed" in caplog.records[-1].message


# -- after the send ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("faults", [["down"], ["lost"], ["hangs"], ["hangs, done"], ["slow"]], ids=str)
@virtual
async def test_a_settlement_that_fails_once_is_made_all_the_same(faults: list[Fault]) -> None:
    service, claims = FakeService(), ShakyClaims(swap=faults)
    async with service.client(claims=claims) as client:
        assert isinstance(await deliver(client), Receipt)
    assert claims.states() == [[ACCEPTED]]


@virtual
async def test_a_settlement_that_fails_changes_nothing_for_the_caller_and_is_told(
    caplog: pytest.LogCaptureFixture,
) -> None:
    service, claims = FakeService(), ShakyClaims(swap=["down"] * 9)
    async with service.client(claims=claims) as client:
        receipt = await deliver(client)
        assert isinstance(receipt, Receipt)
        assert (receipt.already_accepted, len(receipt.attempts)) == (0, 1)
        await asyncio.sleep(20.0)
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert record.message == (
        "the claim store failed (StoreDownError): until it answers, "
        "other processes can't read the outcomes of new calls"
    )
    assert claims.states() == [[ACCEPTED]], "in the end"
    assert service.users() == {"user-1": 1}


@virtual
async def test_what_could_not_be_settled_is_known_here_and_settled_at_the_next_delivery() -> None:
    service, claims = FakeService(), ShakyClaims(swap=["down"] * 9)
    async with service.client(claims=claims) as client:
        await deliver(client)
        assert claims.states() == [[CLAIMED]]
        claims.faults["swap"].clear()
        told = await deliver(client)
        assert isinstance(told, Receipt)
        assert told.already_accepted == 1
        assert claims.states() == [[ACCEPTED]]
    assert service.users() == {"user-1": 1}


@virtual
async def test_a_store_that_is_slow_to_settle_does_not_hold_the_call_past_its_deadline() -> None:
    service, claims = FakeService(), ShakyClaims(swap=["slow"])
    async with service.client(claims=claims) as client:
        started = now()
        assert isinstance(await deliver(client, timeout=0.5), Receipt)
        assert now() - started == pytest.approx(0.5, abs=0.01)
        assert claims.states() == [[CLAIMED]]
    assert claims.states() == [[ACCEPTED]], "the end of the client waits for it"


@virtual
async def test_a_call_cancelled_while_it_settles_is_settled() -> None:
    service, claims = FakeService(), ShakyClaims(swap=["slow"])
    async with service.client(claims=claims) as client:
        task = asyncio.create_task(client.send("user-1", HELLO, idempotency_key=JOB))
        await asyncio.sleep(0.5)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert claims.states() == [[ACCEPTED]]


@virtual
async def test_a_claim_that_another_process_took_over_is_settled_all_the_same(caplog: pytest.LogCaptureFixture) -> None:
    service, claims = FakeService(FakeResponse.accept(after=1.0)), ShakyClaims()
    async with service.client(claims=claims) as client:
        task = asyncio.create_task(deliver(client))
        await asyncio.sleep(0.5)
        ((key, (claim, expires)),) = claims._claims.items()
        claims._claims[key] = Claim("x" * 32, claim.record), expires
        assert isinstance(await task, Receipt)
    assert claims.states() == [[ACCEPTED]]
    assert caplog.records == []


@virtual
async def test_a_claim_that_was_lost_to_another_payload_is_an_alarm(caplog: pytest.LogCaptureFixture) -> None:
    service, claims = FakeService(FakeResponse.accept(after=1.0)), ShakyClaims()
    async with service.client(claims=claims) as client:
        task = asyncio.create_task(deliver(client))
        await asyncio.sleep(0.5)
        ((key, (claim, expires)),) = claims._claims.items()
        other = msgspec.structs.replace(ClaimRecord.decode(claim.record), fingerprint="e" * 64)
        claims._claims[key] = Claim("x" * 32, other.encode()), expires
        assert isinstance(await task, Receipt)
    assert "a claim was lost before its outcome was written" in caplog.text


@virtual
async def test_what_could_not_be_written_is_remembered_within_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claim_log, "MAX_FAILED", 2)
    service, claims = FakeService(), ShakyClaims(swap=["down"] * 30)
    async with service.client(claims=claims) as client:
        for key in "abc":
            await client.send("user-1", HELLO, idempotency_key=key)
        claims.faults["swap"].clear()
        again = [client.send("user-1", HELLO, idempotency_key=key) for key in "abc"]
        told = await asyncio.gather(*again, return_exceptions=True)
    assert [each.already_accepted for each in told if isinstance(each, Receipt)] == [1, 1]
    assert any(isinstance(each, OutcomeUnknownError) for each in told)
    assert service.users() == {"user-1": 3}


# -- calls that are cancelled ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("faults", "outcome"),
    [
        pytest.param({"add": ["slow"]}, Outcome.NOT_SENT, id="claiming"),
        pytest.param({"swap": ["slow"]}, Outcome.ACCEPTED, id="settling"),
    ],
)
@virtual
async def test_a_call_cancelled_while_the_store_works_is_told_like_any_other(
    faults: dict[str, list[Fault]], outcome: Outcome
) -> None:
    service, told = FakeService(), list[object]()
    async with service.client(claims=ShakyClaims(**faults), on_event=told.append) as client:
        task = asyncio.create_task(client.send("user-1", HELLO, idempotency_key=JOB))
        await asyncio.sleep(0.5)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        report = await client.aclose()
    (event,) = (each for each in told if isinstance(each, SendAbandoned))
    assert (event.outcome, event.user_ids) == (outcome, ("user-1",))
    assert report.abandoned == (event,)
    stats = client.stats()
    assert (stats.abandoned, stats.not_sent, stats.accepted) == (
        1,
        int(outcome is Outcome.NOT_SENT),
        int(outcome is Outcome.ACCEPTED),
    )


@virtual
async def test_a_call_whose_store_fails_counts_as_not_sent() -> None:
    service = FakeService()
    async with service.client(claims=ShakyClaims(add=["down"])) as client:
        assert isinstance(await deliver(client, ["user-1", "user-2"]), ClaimStoreError)
        assert (client.stats().not_sent, client.stats().attempts) == (2, 0)


def everybody() -> list[asyncio.Task[Any]]:
    """All tasks but this one."""
    return [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]


@pytest.mark.parametrize("times", [1, 2, 100])
@pytest.mark.parametrize("faults", [{}, {"add": ["slow"]}, {"swap": ["slow"]}], ids=str)
@virtual
async def test_when_all_tasks_are_cancelled_nothing_stays_claimed_that_was_not_sent(
    times: int, faults: dict[str, list[Fault]]
) -> None:
    for count in range(14):
        service, claims = FakeService(), ShakyClaims(**{op: list(each) for op, each in faults.items()})
        async with service.client(claims=claims) as client:
            task = asyncio.create_task(deliver(client))
            await turns(count)
            for _ in range(times):
                for each in everybody():
                    each.cancel()
                await turns(1)
            await asyncio.gather(task, return_exceptions=True)
            await turns(5)
            assert not everybody()
            # Who goes on cancelling whatever is begun has his way in the end.
            if not service.requests and times < 100:
                assert [CLAIMED] not in claims.states()
                assert isinstance(await deliver(client), Receipt)
        assert service.duplicates() == {}


# -- the end of the client --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fault", ["hangs", "hangs, done", "slow"])
@virtual
async def test_closing_does_not_wait_longer_for_a_claim_than_the_store_may_take(fault: Fault) -> None:
    service, claims = FakeService(), ShakyClaims(add=[fault], timeout=5.0)
    client = service.client(claims=claims)
    task = asyncio.create_task(deliver(client))
    await asyncio.sleep(0.1)
    started = now()
    await client.aclose(drain=0)
    assert now() - started < 11.0
    told = await task
    assert isinstance(told, NotSentError)
    assert (service.requests, claims.states()) == ([], UNDONE)


@virtual
async def test_closing_reports_whose_claim_never_came() -> None:
    service = FakeService()
    client = service.client(claims=ShakyClaims(add=["hangs"], timeout=2.0))
    task = asyncio.create_task(deliver(client))
    await asyncio.sleep(0.1)
    report = await client.aclose(drain=1)
    assert report.not_sent == ("user-1",)
    assert isinstance(await task, ClaimStoreError)


@virtual
async def test_closing_waits_for_what_is_sent_and_settled() -> None:
    service, claims = FakeService(FakeResponse.accept(after=2.0)), ShakyClaims(swap=["slow"])
    client = service.client(claims=claims)
    task = asyncio.create_task(deliver(client))
    await asyncio.sleep(0.1)
    report = await client.aclose()
    assert report.accepted == ("user-1",)
    assert claims.states() == [[ACCEPTED]]
    assert isinstance(await task, Receipt)


@virtual
async def test_flush_waits_for_what_is_claimed() -> None:
    service, claims = FakeService(), ShakyClaims(add=["slow"])
    async with service.client(claims=claims) as client:
        task = asyncio.create_task(deliver(client))
        await asyncio.sleep(0.1)
        await client.flush()
        assert claims.states() == [[ACCEPTED]]
        await task


def test_an_abstract_store_is_not_made() -> None:
    with pytest.raises(TypeError):
        ClaimStore()  # type: ignore[abstract]
