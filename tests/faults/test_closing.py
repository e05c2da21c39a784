"""Out of time, closed, or no connection to be had: what never left is NOT_SENT, what may have arrived is UNKNOWN."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
import pytest
from support.wire_faults import always, hold, only, reached, send, step, take, when
from support.wire_judge import HELLO, Ledger
from support.wire_network import no_connection, spoiled, stray_204
from support.wire_rig import QUICK, client_of
from support.wire_server import WireServer

from pushsdk import (
    AsyncPushClient,
    ClientClosedError,
    NotSentError,
    Outcome,
    OutcomeUnknownError,
    RetryPolicy,
    Timeout,
)

OWN_OR_INJECTED = pytest.mark.parametrize("injected", [False, True], ids=["own session", "injected session"])


@OWN_OR_INJECTED
@pytest.mark.parametrize("total", [0.02, 0.1])
async def test_a_call_ends_at_its_deadline_and_says_what_is_known(total: float, injected: bool) -> None:
    loop = asyncio.get_running_loop()
    async with (
        WireServer(when(always, step(take, hold))) as server,
        client_of(server, injected=injected, timeout=Timeout(total=total)) as client,
    ):
        started = loop.time()
        with pytest.raises(OutcomeUnknownError):
            await client.send("user", HELLO)
        took = loop.time() - started
    assert total <= took < total + 0.05
    assert server.processed == {"user": 1}


@OWN_OR_INJECTED
async def test_out_of_time_before_there_is_a_connection_is_not_sent(injected: bool) -> None:
    async with (
        WireServer() as server,
        no_connection(server),
        client_of(server, injected=injected, timeout=Timeout(total=0.05, connect=None)) as client,
    ):
        with pytest.raises(NotSentError):
            await client.send("user", HELLO)
    assert server.connections == 0


@OWN_OR_INJECTED
async def test_closing_the_client_in_flight_leaves_it_open(injected: bool) -> None:
    arrived, silent = reached(take, hold)
    async with WireServer(when(always, silent)) as server, client_of(server, injected=injected) as client:
        call = asyncio.create_task(client.send("user", HELLO))
        await arrived.wait()
        report = await client.aclose(drain=0)
        with pytest.raises(OutcomeUnknownError):
            await call
    assert (report.unknown, server.begun, server.processed) == (("user",), 1, {"user": 1})


async def test_closing_the_injected_session_in_flight_leaves_it_open() -> None:
    arrived, silent = reached(take, hold)
    async with (
        WireServer(when(always, silent)) as server,
        aiohttp.ClientSession() as session,
        client_of(server, session=session) as client,
    ):
        call = asyncio.create_task(client.send("user", HELLO))
        await arrived.wait()
        await session.close()
        with pytest.raises(OutcomeUnknownError):
            await call
    assert (server.begun, server.processed) == (1, {"user": 1})


async def test_nothing_is_sent_on_a_session_that_was_closed_before() -> None:
    async with (
        WireServer() as server,
        aiohttp.ClientSession() as session,
        client_of(server, session=session) as client,
    ):
        await session.close()
        with pytest.raises(ClientClosedError) as caught:
            await client.send("user", HELLO)
    assert (len(caught.value.attempts), server.connections) == (1, 0)


class Queue(aiohttp.TraceConfig):
    """Says when the n-th request had to queue for a connection."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.left, self.reached = number, asyncio.Event()
        self.on_connection_queued_start.append(self.note)

    async def note(self, *_: object) -> None:
        self.left -= 1
        if not self.left:
            self.reached.set()


HELD = step(take, send(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n"), hold)


@asynccontextmanager
async def one_lane(server: WireServer, queue: Queue) -> AsyncIterator[tuple[AsyncPushClient, aiohttp.ClientResponse]]:
    """A client on a session with a single connection, and the answer that holds it."""
    connector = aiohttp.TCPConnector(limit=1)
    timeout = Timeout(total=2.0, attempt=0.5, connect=0.03)
    async with (
        aiohttp.ClientSession(connector=connector, trace_configs=[queue]) as session,
        client_of(server, session=session, timeout=timeout) as client,
        session.post(f"{server.base_url}/v1/push", json={"userIds": ["holder"], "message": {}}) as holder,
    ):
        yield client, holder
        holder.close()


async def test_no_place_in_the_pool_is_not_sent() -> None:
    async with WireServer(when(always, HELD)) as server, one_lane(server, Queue(1)) as (client, _):
        with pytest.raises(NotSentError) as caught:
            await client.send("user", HELLO)
    assert len(caught.value.attempts) == QUICK.attempts
    assert server.processed == {"holder": 1}


async def test_a_place_in_the_pool_that_comes_free_is_used() -> None:
    queue = Queue(2)
    async with WireServer(when(only(0), HELD)) as server, one_lane(server, queue) as (client, holder):
        call = asyncio.create_task(client.send("user", HELLO))
        await queue.reached.wait()
        holder.close()
        receipt = await call
    assert len(receipt.attempts) == 2
    assert server.processed == {"holder": 1, "user": 1}


@OWN_OR_INJECTED
@pytest.mark.parametrize("policy", [RetryPolicy.none(), QUICK], ids=["none", "safe"])
async def test_a_whole_pool_of_spoiled_connections_costs_nobody_anything(policy: RetryPolicy, injected: bool) -> None:
    users, ledger = [f"user-{n}" for n in range(10)], Ledger()
    async with WireServer() as server, client_of(server, injected=injected, retry=policy) as client:
        await asyncio.gather(*(ledger.ask(client, f"warm-{user}") for user in users))
        with spoiled(server, stray_204) as done:
            await asyncio.gather(*(ledger.ask(client, user) for user in users))
        stats = client.stats()
    ledger.judge(server, ledger.endings)
    assert ledger.count == {Outcome.ACCEPTED: 20}
    assert (len(done), stats.stale_connections, stats.retries) == (10, 10, 0)


@OWN_OR_INJECTED
@pytest.mark.parametrize("policy", [RetryPolicy.none(), QUICK], ids=["none", "safe"])
async def test_one_call_goes_through_a_whole_pool_of_spoiled_connections(policy: RetryPolicy, injected: bool) -> None:
    users = [f"warm-{n}" for n in range(10)]
    async with WireServer() as server, client_of(server, injected=injected, retry=policy) as client:
        await asyncio.gather(*(client.send(user, HELLO, custom_fields={"of": user}) for user in users))
        with spoiled(server, stray_204) as done:
            receipt = await client.send("user", HELLO)
    assert (len(done), len(receipt.attempts)) == (10, 1)
    assert server.processed == dict.fromkeys([*users, "user"], 1)
