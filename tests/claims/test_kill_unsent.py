"""Workers killed before the first byte of their requests: nothing was sent, so a redelivery sends the jobs."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest
from support.claim_jobs import arguments_of, store_of
from support.claim_workers import PATIENCE, Worker
from support.wire_network import black_hole

from pushsdk._core.idempotency import ClaimRecord
from pushsdk._core.user_states import UserState
from pushsdk.claims import ClaimStore
from pushsdk.emulator import Emulator, Fault

JOBS = [f"job-{number}" for number in range(60)]
PAUSED = Fault.status(429, headers={"Retry-After": "30"})
KINDS = ["sqlite", "redis"]


@asynccontextmanager
async def silent_port() -> AsyncIterator[tuple[int, asyncio.Event]]:
    """Yield a port that accepts connections and never responds, and an event for the first connection."""
    arrival = asyncio.Event()

    async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        arrival.set()
        await reader.read()
        writer.close()

    async with await asyncio.start_server(take, "127.0.0.1", 0) as server:
        yield server.sockets[0].getsockname()[1], arrival


async def redelivered(place: dict[str, Any], service: Emulator) -> set[str]:
    """Return the outcomes of the same jobs in another worker."""
    worker = await Worker.start({**place, "base_url": service.base_url, "key": service.api_key, "keys": JOBS})
    code, results = await worker.end()
    assert (code, sorted(key for key, _ in results)) == (0, sorted(JOBS))
    return {outcome for _, outcome in results}


# The fingerprint of a job includes the address, so a job that was never sent is sent wherever it is delivered next.
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("hangs", ["TLS", "connecting", "slow_key", "slow_store"])
async def test_jobs_of_a_worker_killed_before_the_first_byte_are_sent(
    kind: str, hangs: str, request: pytest.FixtureRequest
) -> None:
    place = {"kind": kind, "arguments": arguments_of(kind, request)}
    async with AsyncExitStack() as stack:
        service = await stack.enter_async_context(Emulator())
        base_url, arrival = service.base_url, asyncio.Event()
        if hangs == "TLS":
            port, arrival = await stack.enter_async_context(silent_port())
            base_url = f"https://127.0.0.1:{port}"
        elif hangs == "connecting":
            host, closed = await stack.enter_async_context(black_hole())
            base_url = f"http://{host}:{closed}"
        job = {**place, "base_url": base_url, "key": service.api_key, "keys": JOBS, "hangs": hangs}
        worker = await Worker.start(job)
        async with asyncio.timeout(PATIENCE):
            await (arrival.wait() if hangs == "TLS" else worker.says(hangs))
        worker.kill()
        await worker.end()
        assert service.requests == 0
        assert await redelivered(place, service) == {"ACCEPTED"}
        assert service.users() == {f"user of {job}": 1 for job in JOBS}


async def claimed_in(store: ClaimStore) -> int:
    records = [ClaimRecord.decode(claim.record) async for _, claim in store.scan()]
    return sum([record.states().count(UserState.CLAIMED) for record in records])


@pytest.mark.parametrize("kind", KINDS)
async def test_jobs_of_a_worker_killed_during_a_retry_after_pause_are_sent(
    kind: str, request: pytest.FixtureRequest
) -> None:
    place = {"kind": kind, "arguments": arguments_of(kind, request)}
    async with Emulator(faults=[PAUSED]) as service:
        job = {**place, "base_url": service.base_url, "key": service.api_key, "keys": JOBS, "patience": 120.0}
        worker = await Worker.start(job)
        async with store_of(kind, place["arguments"]) as store, asyncio.timeout(PATIENCE):
            # Until every request was refused and its claims were given back.
            while not service.requests or await claimed_in(store):  # noqa: ASYNC110 - another process writes
                await asyncio.sleep(0.01)
        worker.kill()
        _, result = await worker.end()
        assert result == []
        service.set_faults([])
        assert await redelivered(place, service) == {"ACCEPTED"}
        assert service.users() == {f"user of {job}": 1 for job in JOBS}
