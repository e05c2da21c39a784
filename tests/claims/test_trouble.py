"""Claim stores that are down, slow or lose responses: nothing is sent without a claim, and every outcome is true."""

import asyncio
import logging

import msgspec
import pytest
from support.shaky_claims import HELLO, JOB, ShakyClaims, deliver, delivering
from support.virtual_time import now, turns, virtual

from pushsdk import (
    Batching,
    ClaimStoreError,
    Outcome,
    OutcomeUnknownError,
    RateLimitedError,
    Receipt,
    RetryPolicy,
    SendAbandoned,
    Timeout,
)
from pushsdk._core.idempotency import ClaimRecord
from pushsdk._core.user_states import UserState, UserStates
from pushsdk._runs import claim_log
from pushsdk.claims import Claim
from pushsdk.claims._operators import claimed, settle
from pushsdk.emulator import Fault
from pushsdk.testing import FakeService

CLAIMED = UserState.CLAIMED
ACCEPTED = UserState.ACCEPTED
OPEN = UserState.PENDING
# A failed claim leaves an open entry, which keeps late writes of the claim out.
UNDONE = [[OPEN]]


# -- before the send --------------------------------------------------------------------------------------------------

FAILED = "the claim store failed (StoreDownError)"
SILENT = "the claim store failed (TimeoutError: is it up, its address right, a pool connection free?)"
LATE = "the claim store did not answer within the call's timeout"


@pytest.mark.parametrize(
    ("fault", "timeout", "seconds", "text"),
    [
        ("down", None, 0.0, FAILED),
        ("lost", None, 0.0, FAILED),
        ("hangs", None, 2.0, SILENT),
        ("hangs, done", None, 2.0, SILENT),
        ("hangs, done", 0.5, 0.5, LATE),
        ("slow", 0.5, 0.5, LATE),
    ],
)
@virtual
async def test_nothing_is_sent_if_the_claim_fails_and_the_next_delivery_sends(fault, timeout, seconds, text, caplog):
    async with delivering(claims=ShakyClaims(add=[fault], timeout=2.0)) as (service, claims, client):
        started = now()
        error = await deliver(client, timeout=timeout)
        assert now() - started == pytest.approx(seconds, abs=0.01)
        assert (type(error), str(error)) == (ClaimStoreError, f"not sent: {text}")
        assert (error.outcome, error.attempts) == (Outcome.NOT_SENT, ())
        assert client.stats().not_sent == 1
        assert timeout or client.stats().attempts == 0
    assert (service.requests, claims.states(), caplog.records) == ([], UNDONE, [])
    async with service.client(claims=claims) as client:
        assert isinstance(await deliver(client), Receipt)
    assert service.users() == {"user-1": 1}


@virtual
async def test_calls_to_a_silent_store_fail_with_the_pending_write():
    hangs = ShakyClaims(add=["hangs"] * 999, swap=["hangs"] * 999)
    async with delivering(claims=hangs) as (service, claims, client):
        started = now()
        first = [asyncio.create_task(deliver(client, f"user-{n}", idempotency_key=f"job-{n}")) for n in range(100)]
        await asyncio.sleep(2.0)
        results = await asyncio.gather(
            *first, *(deliver(client, f"eve-{n}", idempotency_key=f"eve-{n}") for n in range(3))
        )
        assert now() - started == pytest.approx(5.0, abs=0.01)
        assert {str(result) for result in results} == {f"not sent: {SILENT}"}
        assert claims.ops.count("add") == 1, "the others were never put"
        await client.aclose(drain=10.0)
        assert now() - started < 30.0
    assert service.requests == []


@virtual
async def test_an_outage_is_logged_once(caplog):
    async with delivering(claims=ShakyClaims(add=["down"] * 99, swap=["down"] * 99)) as (_, _, client):
        for number in range(9):
            await deliver(client, idempotency_key=f"job-{number}")
        await asyncio.sleep(9.0)
    assert caplog.text.count("the claim store failed") == 1


class Terse(ShakyClaims):
    """A store with too few answers."""

    async def put(self, puts, ttl):
        return []


class Restless(ShakyClaims):
    """A store in which another process always was faster, and left all users open."""

    async def put(self, puts, ttl):
        self.ops.append("put")
        open_to_all = ClaimRecord(fingerprint="f" * 64, claimed_at=0.0, users=UserStates(1).stored())
        return [Claim(f"{len(self.ops):032x}", open_to_all.encode())]


@pytest.mark.parametrize(("make", "puts"), [(Terse, 0), (Restless, 10)])
@virtual
async def test_nothing_is_sent_if_the_store_never_grants_the_claim(make, puts):
    async with delivering(claims=make()) as (service, claims, client):
        assert isinstance(await deliver(client), ClaimStoreError)
    assert (service.requests, len(claims.ops)) == ([], puts)


# -- after the send ---------------------------------------------------------------------------------------------------


@virtual
async def test_a_failing_settlement_is_logged_and_made_later(caplog):
    async with delivering(claims=ShakyClaims(swap=["down"] * 9)) as (service, claims, client):
        receipt = await deliver(client)
        assert (receipt.already_accepted, len(receipt.attempts), claims.states()) == (0, 1, [[CLAIMED]])
        await asyncio.sleep(20.0)
        assert claims.states() == [[ACCEPTED]]
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert record.message.startswith("the claim store failed (StoreDownError): until it answers, other processes can't")
    assert service.users() == {"user-1": 1}


@pytest.mark.parametrize("fingerprint", [None, "e" * 64])
@virtual
async def test_a_claim_that_another_process_rewrote_is_settled_or_its_loss_is_logged(fingerprint, caplog):
    async with delivering(FakeService(Fault.delay(1.0, first=1))) as (_, claims, client):
        task = asyncio.create_task(deliver(client))
        await asyncio.sleep(0.5)
        (record,) = claims.records()
        claims.rewrite(msgspec.structs.replace(record, fingerprint=fingerprint or record.fingerprint))
        assert isinstance(await task, Receipt)
    if fingerprint is None:
        assert (claims.states(), caplog.text) == ([[ACCEPTED]], "")
    else:
        assert "its claim was changed before its outcome" in caplog.text


@virtual
async def test_a_rejection_of_users_that_were_settled_as_accepted_is_logged(caplog):
    async with delivering(FakeService(Fault.delay(1.0), Fault.status(400))) as (_, claims, client):
        task = asyncio.create_task(deliver(client))
        await asyncio.sleep(0.5)
        await settle(claims, await claimed(claims), ACCEPTED)
        await task
    assert "its claim was changed before its outcome" in caplog.text


@virtual
async def test_the_number_of_unwritten_outcomes_is_limited(monkeypatch):
    monkeypatch.setattr(claim_log, "MAX_FAILED", 2)
    async with delivering(claims=ShakyClaims(swap=["down"] * 30)) as (service, claims, client):
        for key in "abc":
            await client.send("user-1", HELLO, idempotency_key=key)
        claims.faults["swap"].clear()
        results = await asyncio.gather(*(deliver(client, idempotency_key=key) for key in "abc"))
    assert sorted(type(result).__name__ for result in results) == ["OutcomeUnknownError", "Receipt", "Receipt"]
    assert service.users() == {"user-1": 3}


# -- merged calls that expire -----------------------------------------------------------------------------------------


@virtual
async def test_a_merged_call_that_expires_during_its_claim_is_not_sent():
    claims = ShakyClaims(add=["slow"])
    async with delivering(claims=claims, batching=Batching(linger=3.0), timeout=3.5) as (service, _, client):
        early = asyncio.create_task(deliver(client, "early", idempotency_key="a"))
        await asyncio.sleep(2.9)
        assert isinstance(await deliver(client, "later", idempotency_key="b"), Receipt)
        assert str(await early) == f"not sent: {LATE}"
    assert (service.users(), claims.states()) == ({"later": 1}, [[OPEN], [ACCEPTED]])


@virtual
async def test_a_merged_call_whose_neighbor_is_not_claimed_expires_with_the_answer_so_far():
    service = FakeService(Fault.status(429, user="early"))
    retry = RetryPolicy.safe(throttle_delay=3.0)
    async with delivering(service, batching=Batching(linger=3.0), timeout=5.0, retry=retry) as (_, claims, client):
        await deliver(client, "later", idempotency_key="b")
        early = asyncio.create_task(deliver(client, "early", idempotency_key="a"))
        await asyncio.sleep(2.9)
        assert (await deliver(client, "later", idempotency_key="b")).already_accepted == 1
        assert type(await early) is RateLimitedError
    assert (service.users(), claims.states()) == ({"later": 1}, [[ACCEPTED], [OPEN]])


@virtual
async def test_a_merged_call_that_expires_after_its_claim_was_cut_short_is_not_sent():
    options = {"timeout": Timeout(total=6.0, attempt=0.5), "retry": RetryPolicy.safe(initial_delay=5.0)}
    claims = ShakyClaims(add=["slow"])
    async with delivering(claims=claims, batching=Batching(linger=3.0), **options) as (service, _, client):
        early = asyncio.create_task(deliver(client, "early", idempotency_key="a"))
        await asyncio.sleep(2.9)
        await deliver(client, "later", idempotency_key="b")
        assert (await early).outcome is Outcome.NOT_SENT
    assert "early" not in service.users()


# -- calls that are cancelled ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("faults", "outcome", "states"),
    [
        ({"add": ["slow"]}, Outcome.NOT_SENT, UNDONE),
        ({"swap": ["slow"]}, Outcome.ACCEPTED, [[ACCEPTED]]),
        ({"get": ["slow"]}, Outcome.NOT_SENT, []),
    ],
)
@pytest.mark.parametrize("times", [1, 2])
@virtual
async def test_a_call_cancelled_during_a_store_operation_is_settled_and_reported(faults, outcome, states, times):
    # The record is read if the service was not reached.
    service = FakeService(Fault.refused()) if "get" in faults else FakeService()
    events = []
    once = RetryPolicy(max_attempts=1)
    claims = ShakyClaims(**{op: list(script) for op, script in faults.items()})
    async with service.client(claims=claims, on_event=events.append, retry=once) as client:
        task = asyncio.create_task(client.send("user-1", HELLO, idempotency_key=JOB))
        await asyncio.sleep(0.5)
        for _ in range(times):
            task.cancel()
            await turns(2)
        with pytest.raises(asyncio.CancelledError):
            await task
        assert claims.states() == states
        report = await client.aclose()
    (event,) = (event for event in events if isinstance(event, SendAbandoned))
    assert (event.outcome, event.user_ids, report.abandoned) == (outcome, ("user-1",), (event,))
    stats = client.stats()
    assert (stats.abandoned, stats.not_sent + stats.accepted) == (1, 1)


def everybody():
    """Return all tasks but the current one."""
    return [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]


@pytest.mark.parametrize(
    ("times", "faults"), [(1, {}), (2, {}), (1, {"add": ["slow"] * 2}), (1, {"swap": ["slow"] * 2}), (100, {})]
)
@virtual
async def test_cancelling_all_tasks_leaves_no_unsent_user_claimed(times, faults):
    for count in range(14):
        claims = ShakyClaims(**{op: list(script) for op, script in faults.items()})
        async with delivering(claims=claims) as (service, _, client):
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


@pytest.mark.parametrize(
    ("answer", "timeout", "drain", "kind", "state"),
    [
        (Fault.delay(2.0, first=1), None, 4.0, Receipt, ACCEPTED),
        # The outcome outlives its call.
        (Fault.hang(first=1), 0.5, 0.0, OutcomeUnknownError, UserState.UNKNOWN),
    ],
)
@virtual
async def test_closing_waits_for_requests_and_settlements(answer, timeout, drain, kind, state):
    service = FakeService(answer)
    claims = ShakyClaims(timeout=99.0, swap=["slow"])
    client = service.client(claims=claims)
    task = asyncio.create_task(deliver(client, timeout=timeout))
    await asyncio.sleep(0.1)
    await client.aclose(drain=drain)
    assert claims.states() == [[state]]
    assert isinstance(task.result(), kind)


@pytest.mark.parametrize(("operations", "sent"), [(["swap"], True), (["add", "swap"], False)])
@virtual
async def test_closing_does_not_wait_for_a_failing_store_and_names_lost_outcomes(operations, sent, caplog):
    service = FakeService()
    claims = ShakyClaims(**{operation: ["down"] * 999 for operation in operations})
    client = service.client(claims=claims)
    assert isinstance(await deliver(client), Receipt if sent else ClaimStoreError)
    start = now()
    await client.aclose(drain=20.0)
    assert now() - start < 2.0
    lost = "the client was closed: the outcomes of 1 job were not written to the claim store"
    assert [record.message.startswith(lost) for record in caplog.records if "not written" in record.message] == (
        [True] * sent
    )
    assert bool(service.users()) is sent
