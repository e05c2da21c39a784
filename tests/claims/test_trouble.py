"""Claim stores that are down, slow or lose responses: nothing is sent without a claim, and every outcome is true."""

import asyncio
import gc
import logging
from collections.abc import Coroutine, Sequence
from typing import Any

import msgspec
import pytest
from support import fake_service as scripted
from support.shaky_claims import ShakyClaims, StoppedClaims, StoreFault
from support.virtual_time import now, turns, virtual

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
from pushsdk._runs.keyed import KeyedCall
from pushsdk.claims import Claim, MemoryClaims, Put
from pushsdk.client import AsyncPushClient
from pushsdk.emulator import Fault
from pushsdk.testing import FakeRequest, FakeService

HELLO = MobilePush(title={"en": "Hello"})
JOB = "job-42"
CLAIMED, ACCEPTED, OPEN = UserState.CLAIMED, UserState.ACCEPTED, UserState.PENDING


async def deliver(
    client: AsyncPushClient, users: str | list[str] = "user-1", *, timeout: float | None = None
) -> object:
    """Deliver the job, and return the receipt or the error."""
    try:
        return await client.send(users, HELLO, idempotency_key=JOB, timeout=timeout)
    except PushError as error:
        return error


TWO = [name.ljust(200, "-") for name in ("user-1", "user-2")]


def throttled_once() -> FakeService:
    """Return a service that accepts one user per request, and throttles the second user once."""
    responses = [Fault.status(429)]

    def fate(request: FakeRequest) -> Fault | None:
        if len(request.user_ids) > 1:
            return Fault.status(413)
        return responses.pop() if responses and request.user_ids == (TWO[1],) else None

    return FakeService(then=fate)


# A failed claim leaves an open entry, which keeps late writes of the claim out.
UNDONE = [[OPEN]]


# -- before the send --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fault", ["down", "lost"])
@virtual
async def test_nothing_is_sent_if_the_store_fails(fault: StoreFault) -> None:
    service, claims = FakeService(), ShakyClaims(add=[fault])
    async with service.client(claims=claims) as client:
        results = await deliver(client)
        assert isinstance(results, ClaimStoreError)
        assert (results.outcome, results.attempts) == (Outcome.NOT_SENT, ())
        assert str(results) == "not sent: the claim store failed (StoreDownError)"
        assert type(results.__cause__).__name__ == "StoreDownError"
        assert service.requests == []
        await asyncio.sleep(0.1)
        assert [CLAIMED] not in claims.states(), "what it wrote before it failed is taken back"
        assert isinstance(await deliver(client), Receipt)
    assert service.users() == {"user-1": 1}


@pytest.mark.parametrize("fault", ["hangs", "hangs, done"])
@virtual
async def test_nothing_is_sent_if_the_store_hangs_past_its_timeout(fault: StoreFault) -> None:
    service, claims = FakeService(), ShakyClaims(add=[fault], timeout=2.0)
    async with service.client(claims=claims) as client:
        started = now()
        assert isinstance(await deliver(client), ClaimStoreError)
        assert now() - started == pytest.approx(2.0, abs=0.01)
    assert (service.requests, claims.states()) == ([], UNDONE)


@virtual
async def test_calls_whose_claim_failed_leave_nothing_in_memory() -> None:
    def alive() -> int:
        gc.collect()
        return len([item for item in gc.get_objects() if isinstance(item, KeyedCall)])

    claims = ShakyClaims(add=["down"] * 100)
    async with FakeService().client(claims=claims) as client:
        before = alive()
        for number in range(50):
            with pytest.raises(ClaimStoreError):
                await client.send("user-1", HELLO, idempotency_key=f"job-{number}")
        assert alive() <= before + 1


@virtual
async def test_the_memory_of_a_failing_store_grows_with_the_calls_and_not_with_their_square() -> None:
    claims, calls = ShakyClaims(add=["down"] * 1000, swap=["down"] * 1000), 50
    async with FakeService().client(claims=claims) as client:
        for number in range(calls):
            with pytest.raises(ClaimStoreError):
                await client.send("user-1", HELLO, idempotency_key=f"job-{number}")
        gc.collect()
        lists = [item for item in gc.get_objects() if type(item) is list]
        assert sum(isinstance(item, claim_entry.ClaimEntry) for items in lists for item in items) <= 2 * calls
        await client.aclose(drain=0)


@virtual
async def test_a_configuration_error_of_the_store_is_raised_and_not_retried() -> None:
    class Foreign(ShakyClaims):
        async def put(self, puts: Sequence[Put], ttl: float) -> list[Claim | None]:
            self.ops.append("put")
            raise ConfigurationError("the claim store is in use by another event loop: make one for each client")

    service, claims = FakeService(), Foreign()
    async with service.client(claims=claims) as client:
        results = [await deliver(client) for _ in range(2)]
        await asyncio.sleep(60.0)
    assert [type(result) for result in results] == [ConfigurationError] * 2
    assert results[0] is not results[1]
    assert (claims.ops, service.requests) == (["put"] * 2, [])


@pytest.mark.parametrize("fault", ["hangs", "hangs, done"])
@virtual
async def test_a_call_ends_at_its_deadline_if_the_store_hangs(fault: StoreFault) -> None:
    service, claims = FakeService(), ShakyClaims(add=[fault])
    async with service.client(claims=claims) as client:
        started = now()
        results = await deliver(client, timeout=0.5)
        assert isinstance(results, ClaimStoreError)
        assert "did not answer within the call's timeout" in str(results)
        assert now() - started == pytest.approx(0.5, abs=0.01)
    assert (service.requests, claims.states()) == ([], UNDONE)


@virtual
async def test_a_claim_made_after_its_calls_deadline_is_given_back() -> None:
    service, claims = FakeService(), ShakyClaims(add=["slow"])
    async with service.client(claims=claims) as client:
        assert isinstance(await deliver(client, timeout=0.5), ClaimStoreError)
    assert (service.requests, claims.states()) == ([], UNDONE)


@virtual
async def test_a_claim_that_cannot_be_given_back_does_not_block_a_later_send() -> None:
    service, claims = FakeService(), ShakyClaims(add=["lost"], swap=["down"] * 9)
    async with service.client(claims=claims) as client:
        assert isinstance(await deliver(client), ClaimStoreError)
        await asyncio.sleep(0.05)
        assert claims.states() == [[CLAIMED]]
        claims.faults["swap"].clear()
        assert isinstance(await deliver(client), Receipt)
    assert service.users() == {"user-1": 1}
    assert claims.states() == [[ACCEPTED]]


class RepeatingClaims(ShakyClaims):
    """A store that sends each put twice."""

    async def put(self, puts: Sequence[Put], ttl: float) -> list[Claim | None]:
        await super().put(puts, ttl)
        return await super().put(puts, ttl)


@virtual
async def test_a_store_that_retries_a_put_finds_its_own_claim() -> None:
    service = FakeService()
    async with service.client(claims=RepeatingClaims()) as client:
        assert isinstance(await deliver(client), Receipt)
    assert service.users() == {"user-1": 1}


@virtual
async def test_a_store_that_retries_a_replacement_skips_accepted_users() -> None:
    service = throttled_once()
    async with service.client(claims=RepeatingClaims(), retry=RetryPolicy.none()) as client:
        await deliver(client, TWO)
        results = await deliver(client, TWO)
        assert isinstance(results, Receipt)
        assert results.already_accepted == 1
    assert service.users() == dict.fromkeys(TWO, 1)


class Late(ShakyClaims):
    """A store that completes its first operation of a kind long after the caller gave up."""

    held_up = "add"
    # Kept because asyncio refers to tasks weakly.
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
async def test_a_claim_that_arrives_late_blocks_no_delivery(same: bool) -> None:
    service, claims = FakeService(), Late(timeout=2.0)
    async with service.client(claims=claims) as client, service.client(claims=claims) as other:
        assert isinstance(await deliver(client), ClaimStoreError)
        await asyncio.sleep(30.0)
        assert isinstance(await deliver(client if same else other), Receipt)
    assert service.users() == {"user-1": 1}


@pytest.mark.parametrize("same", [True, False], ids=["the same process", "another"])
@virtual
async def test_a_late_claim_of_the_remaining_users_blocks_no_delivery(same: bool) -> None:
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
async def test_a_failed_claim_logs_nothing(caplog: pytest.LogCaptureFixture) -> None:
    service, claims = throttled_once(), ShakyClaims()
    async with service.client(claims=claims, retry=RetryPolicy.none()) as client:
        await deliver(client, TWO)
        claims.faults["swap"] = ["down"]
        assert isinstance(await deliver(client, TWO), PartialError)
    assert caplog.records == []


@virtual
async def test_too_few_answers_of_a_store_are_an_error_and_nothing_is_sent() -> None:
    class Terse(ShakyClaims):
        async def put(self, puts: Sequence[Put], ttl: float) -> list[Claim | None]:
            return []

    service = FakeService()
    async with service.client(claims=Terse()) as client:
        assert isinstance(await deliver(client), ClaimStoreError)
    assert service.requests == []


@virtual
async def test_a_claim_that_is_always_refused_is_an_error() -> None:
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


# -- a store that is suspended ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("step", [1, -1], ids=["in order", "backward"])
@pytest.mark.parametrize("same", [True, False], ids=["the same process", "another"])
@virtual
async def test_jobs_are_sent_after_the_store_was_suspended(same: bool, step: int) -> None:
    service, claims, jobs = FakeService(), StoppedClaims(timeout=1.0), [f"job-{n}" for n in range(8)]
    async with service.client(claims=claims) as client, service.client(claims=claims) as other:
        for timeout in (0.5, None):
            claims.is_stopped = True
            sends = [client.send("user-1", HELLO, idempotency_key=job, timeout=timeout) for job in jobs]
            results = await asyncio.gather(*sends, return_exceptions=True)
            assert {type(result) for result in results} == {ClaimStoreError}
            await asyncio.sleep(20.0)
            claims.go_on(step)
            await asyncio.sleep(5.0)
        for job in jobs:
            await (client if same else other).send("user-1", HELLO, idempotency_key=job)
    assert service.users() == {"user-1": 8}


@pytest.mark.parametrize("same", [True, False], ids=["the same process", "another"])
@virtual
async def test_an_unsent_push_is_released_after_the_store_was_suspended(same: bool) -> None:
    service, claims = scripted.FakeService(scripted.refused(after=1.0)), StoppedClaims(timeout=1.0)
    async with (
        service.client(claims=claims, retry=RetryPolicy.none()) as client,
        service.client(claims=claims) as other,
    ):
        sending = asyncio.create_task(deliver(client))
        await asyncio.sleep(0.5)
        claims.is_stopped = True
        results = await sending
        assert isinstance(results, NotSentError)
        assert results.retryable
        await asyncio.sleep(20.0)
        claims.go_on(1)
        await asyncio.sleep(5.0)
        assert isinstance(await deliver(client if same else other), Receipt)
    assert service.users() == {"user-1": 1}


@virtual
async def test_a_timed_out_job_is_sent_while_its_first_claim_is_pending() -> None:
    service, claims = FakeService(), ShakyClaims(add=["slow"])
    async with service.client(claims=claims) as client:
        assert isinstance(await deliver(client, timeout=0.5), ClaimStoreError)
        assert isinstance(await deliver(client), Receipt)
    assert service.users() == {"user-1": 1}


@pytest.mark.parametrize("stopped", [5.0, 60.0])
@virtual
async def test_closing_waits_for_a_suspended_store_until_the_drain_ends(
    stopped: float, caplog: pytest.LogCaptureFixture
) -> None:
    service, claims = FakeService(), StoppedClaims(timeout=1.0)
    client = service.client(claims=claims)
    claims.is_stopped = True
    assert isinstance(await deliver(client), ClaimStoreError)
    start = now()
    timer = asyncio.get_running_loop().call_later(stopped, claims.go_on, 1)
    await client.aclose(drain=20.0)
    assert now() - start < min(stopped, 20.0) + 4.0
    timer.cancel()
    assert "not written" not in caplog.text, "nothing was sent"
    assert not everybody()
    assert claims.states() == ([[OPEN]] if stopped < 20.0 else [])


@virtual
async def test_closing_does_not_wait_for_a_store_that_fails_at_once(caplog: pytest.LogCaptureFixture) -> None:
    service, claims = FakeService(), ShakyClaims(add=["down"] * 99, swap=["down"] * 99)
    client = service.client(claims=claims)
    assert isinstance(await deliver(client), ClaimStoreError)
    start = now()
    await client.aclose(drain=20.0)
    assert now() - start < 2.0
    assert "not written" not in caplog.text, "nothing was sent"


# -- after the send ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("faults", [["down"], ["lost"], ["hangs"], ["hangs, done"], ["slow"]], ids=str)
@virtual
async def test_a_settlement_is_retried_after_a_failure(faults: list[StoreFault]) -> None:
    service, claims = FakeService(), ShakyClaims(swap=faults)
    async with service.client(claims=claims) as client:
        assert isinstance(await deliver(client), Receipt)
    assert claims.states() == [[ACCEPTED]]


@virtual
async def test_a_failing_settlement_is_logged_and_does_not_fail_the_call(
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
async def test_a_failed_settlement_is_made_with_the_next_delivery() -> None:
    service, claims = FakeService(), ShakyClaims(swap=["down"] * 9)
    async with service.client(claims=claims) as client:
        await deliver(client)
        assert claims.states() == [[CLAIMED]]
        claims.faults["swap"].clear()
        results = await deliver(client)
        assert isinstance(results, Receipt)
        assert results.already_accepted == 1
        assert claims.states() == [[ACCEPTED]]
    assert service.users() == {"user-1": 1}


@virtual
async def test_a_slow_settlement_does_not_delay_the_call_past_its_deadline() -> None:
    service, claims = FakeService(), ShakyClaims(swap=["slow"])
    async with service.client(claims=claims) as client:
        started = now()
        assert isinstance(await deliver(client, timeout=0.5), Receipt)
        assert now() - started == pytest.approx(0.5, abs=0.01)
        assert claims.states() == [[CLAIMED]]
    assert claims.states() == [[ACCEPTED]], "the end of the client waits for it"


@virtual
async def test_a_claim_rewritten_by_another_process_is_settled(caplog: pytest.LogCaptureFixture) -> None:
    service, claims = FakeService(Fault.delay(1.0, first=1)), ShakyClaims()
    async with service.client(claims=claims) as client:
        task = asyncio.create_task(deliver(client))
        await asyncio.sleep(0.5)
        ((key, (claim, expires)),) = claims._claims.items()
        claims._claims[key] = Claim("x" * 32, claim.record), expires
        assert isinstance(await task, Receipt)
    assert claims.states() == [[ACCEPTED]]
    assert caplog.records == []


@virtual
async def test_a_claim_lost_to_another_payload_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    service, claims = FakeService(Fault.delay(1.0, first=1)), ShakyClaims()
    async with service.client(claims=claims) as client:
        task = asyncio.create_task(deliver(client))
        await asyncio.sleep(0.5)
        ((key, (claim, expires)),) = claims._claims.items()
        other = msgspec.structs.replace(ClaimRecord.decode(claim.record), fingerprint="e" * 64)
        claims._claims[key] = Claim("x" * 32, other.encode()), expires
        assert isinstance(await task, Receipt)
    assert "a claim was lost before its outcome was written" in caplog.text


@virtual
async def test_the_number_of_unwritten_outcomes_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claim_log, "MAX_FAILED", 2)
    service, claims = FakeService(), ShakyClaims(swap=["down"] * 30)
    async with service.client(claims=claims) as client:
        for key in "abc":
            await client.send("user-1", HELLO, idempotency_key=key)
        claims.faults["swap"].clear()
        later_calls = [client.send("user-1", HELLO, idempotency_key=key) for key in "abc"]
        results = await asyncio.gather(*later_calls, return_exceptions=True)
    assert [result.already_accepted for result in results if isinstance(result, Receipt)] == [1, 1]
    assert any(isinstance(result, OutcomeUnknownError) for result in results)
    assert service.users() == {"user-1": 3}


# -- calls that are cancelled ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("faults", "outcome", "states"),
    [
        pytest.param({"add": ["slow"]}, Outcome.NOT_SENT, UNDONE, id="claiming"),
        pytest.param({"swap": ["slow"]}, Outcome.ACCEPTED, [[ACCEPTED]], id="settling"),
        pytest.param({"get": ["slow"]}, Outcome.NOT_SENT, [], id="reading the record"),
    ],
)
@virtual
async def test_a_call_cancelled_during_a_store_operation_is_settled_and_reported(
    faults: dict[str, list[StoreFault]], outcome: Outcome, states: list[list[UserState]]
) -> None:
    # The record is read if the service was not reached.
    service = FakeService(Fault.refused()) if "get" in faults else FakeService()
    results, once, claims = list[object](), RetryPolicy(max_attempts=1), ShakyClaims(**faults)
    async with service.client(claims=claims, on_event=results.append, retry=once) as client:
        task = asyncio.create_task(client.send("user-1", HELLO, idempotency_key=JOB))
        await asyncio.sleep(0.5)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert claims.states() == states
        report = await client.aclose()
    (event,) = (result for result in results if isinstance(result, SendAbandoned))
    assert (event.outcome, event.user_ids) == (outcome, ("user-1",))
    assert report.abandoned == (event,)
    stats = client.stats()
    assert stats.abandoned == 1
    assert (stats.not_sent, stats.accepted) == (int(outcome is Outcome.NOT_SENT), int(outcome is Outcome.ACCEPTED))


@virtual
async def test_a_call_whose_store_fails_counts_as_not_sent() -> None:
    service = FakeService()
    async with service.client(claims=ShakyClaims(add=["down"])) as client:
        assert isinstance(await deliver(client, ["user-1", "user-2"]), ClaimStoreError)
        assert (client.stats().not_sent, client.stats().attempts) == (2, 0)


def everybody() -> list[asyncio.Task[Any]]:
    """Return all tasks but the current one."""
    return [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]


@pytest.mark.parametrize("times", [1, 2, 100])
@pytest.mark.parametrize("faults", [{}, {"add": ["slow"]}, {"swap": ["slow"]}], ids=str)
@virtual
async def test_cancelling_all_tasks_leaves_no_unsent_user_claimed(
    times: int, faults: dict[str, list[StoreFault]]
) -> None:
    for count in range(14):
        service, claims = FakeService(), ShakyClaims(**{op: list(waiter) for op, waiter in faults.items()})
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
            # A hundred cancellations in a row stop the writer for good.
            if not service.requests and times < 100:
                assert [CLAIMED] not in claims.states()
                assert isinstance(await deliver(client), Receipt)
        assert service.duplicates() == {}


# -- closing the client ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fault", ["hangs", "hangs, done", "slow"])
@virtual
async def test_closing_waits_for_a_claim_no_longer_than_the_stores_timeout(fault: StoreFault) -> None:
    service, claims = FakeService(), ShakyClaims(add=[fault], timeout=5.0)
    client = service.client(claims=claims)
    task = asyncio.create_task(deliver(client))
    await asyncio.sleep(0.1)
    started = now()
    await client.aclose(drain=0)
    assert now() - started < 11.0
    results = await task
    assert isinstance(results, NotSentError)
    assert (service.requests, claims.states()) == ([], UNDONE)


@virtual
async def test_closing_reports_calls_whose_claim_was_not_made() -> None:
    service = FakeService()
    client = service.client(claims=ShakyClaims(add=["hangs"], timeout=2.0))
    task = asyncio.create_task(deliver(client))
    await asyncio.sleep(0.1)
    report = await client.aclose(drain=1)
    assert report.not_sent == ("user-1",)
    assert isinstance(await task, ClaimStoreError)


@virtual
async def test_closing_waits_for_requests_and_settlements() -> None:
    service, claims = FakeService(Fault.delay(2.0, first=1)), ShakyClaims(swap=["slow"])
    client = service.client(claims=claims)
    task = asyncio.create_task(deliver(client))
    await asyncio.sleep(0.1)
    report = await client.aclose()
    assert report.accepted == ("user-1",)
    assert claims.states() == [[ACCEPTED]]
    assert isinstance(await task, Receipt)


@virtual
async def test_closing_without_a_drain_waits_for_outcomes_that_outlive_their_calls() -> None:
    service, claims = FakeService(Fault.hang(first=1)), ShakyClaims(swap=["slow"])
    client = service.client(claims=claims)
    task = asyncio.create_task(deliver(client, timeout=0.5))
    await asyncio.sleep(0.1)
    await client.aclose(drain=0)
    assert claims.states() == [[UserState.UNKNOWN]]
    assert isinstance(await task, OutcomeUnknownError)


@virtual
async def test_flush_waits_for_claims() -> None:
    service, claims = FakeService(), ShakyClaims(add=["slow"])
    async with service.client(claims=claims) as client:
        task = asyncio.create_task(deliver(client))
        await asyncio.sleep(0.1)
        await client.flush()
        assert claims.states() == [[ACCEPTED]]
        await task


@virtual
@pytest.mark.parametrize(
    ("operations", "sent", "lost"),
    [
        (["swap"], True, ["the client was closed: the outcomes of 1 call were not written to the claim store"]),
        (["add", "swap"], False, []),
    ],
)
async def test_a_closed_client_reports_only_outcomes_that_there_are(
    caplog: pytest.LogCaptureFixture, operations: list[str], sent: bool, lost: list[str]
) -> None:
    service, claims = FakeService(), ShakyClaims(**{operation: ["down"] * 999 for operation in operations})
    async with service.client(claims=claims) as client:
        assert isinstance(await deliver(client), Receipt if sent else ClaimStoreError)
    texts = [record.message.partition(" and stay")[0] for record in caplog.records]
    assert [text for text in texts if "not written" in text] == lost
    assert bool(service.users()) is sent
