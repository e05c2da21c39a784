"""The connection pool: full, entirely stale, or with connections that other code used before."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
import pytest
from support import wire_tls
from support.wire_faults import always, hold, only, send, step, take, when
from support.wire_judge import HELLO, Ledger
from support.wire_network import Spoil, closed, late_408, noticed, reset, spoiled, stray_204
from support.wire_rig import AMONG, OWN_OR_INJECTED, QUICK, client_of
from support.wire_server import Wire, WireServer

from pushsdk import (
    AsyncPushClient,
    Limits,
    MobilePush,
    NotSentError,
    Outcome,
    OutcomeUnknownError,
    RetryPolicy,
    Timeout,
)

PLAIN_OR_TLS = pytest.mark.parametrize("tls", [False, True], ids=["plain", "TLS"])


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
        with pytest.raises(NotSentError) as excinfo:
            await client.send("user", HELLO)
    assert len(excinfo.value.attempts) == QUICK.max_attempts
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
async def test_a_whole_pool_of_stale_connections_fails_no_call(policy: RetryPolicy, injected: bool) -> None:
    users, ledger = [f"user-{n}" for n in range(8)], Ledger()
    async with WireServer() as server, client_of(server, injected=injected, retry=policy) as client:
        await asyncio.gather(*(ledger.ask(client, f"warm-{user}") for user in users))
        with spoiled(server, stray_204) as done:
            await asyncio.gather(*(ledger.ask(client, user) for user in users))
        stats = client.stats()
    ledger.judge(server, ledger.endings)
    assert ledger.count == {Outcome.ACCEPTED: 16}
    assert (len(done), stats.stale_connections, stats.retries) == (8, 8, 0)


@OWN_OR_INJECTED
@pytest.mark.parametrize("policy", [RetryPolicy.none(), QUICK], ids=["none", "safe"])
async def test_one_call_replaces_a_whole_pool_of_stale_connections(policy: RetryPolicy, injected: bool) -> None:
    users = [f"warm-{n}" for n in range(8)]
    async with WireServer() as server, client_of(server, injected=injected, retry=policy) as client:
        await asyncio.gather(*(client.send(user, HELLO, custom_fields={"of": user}) for user in users))
        with spoiled(server, stray_204) as done:
            receipt = await client.send("user", HELLO)
    assert (len(done), len(receipt.attempts)) == (8, 1)
    assert server.processed == dict.fromkeys([*users, "user"], 1)


@OWN_OR_INJECTED
async def test_small_and_large_requests_together_open_no_more_connections_than_may_be_in_flight(injected: bool) -> None:
    # Above 48 KiB aiohttp sends the request.
    messages = [MobilePush(body={"en": f"{number} {'x' * 60_000 * (number % 2)}"}) for number in range(20)]
    async with (
        WireServer() as server,
        client_of(server, injected=injected, limits=Limits(in_flight=2)) as client,
    ):
        await asyncio.gather(*(client.send("user", message) for message in messages))
        for message in messages:
            await client.send("user", message)
    assert (server.processed, server.connections) == ({"user": 40}, 2)


SPOILS = [
    pytest.param(closed, id="closed"),
    pytest.param(reset, id="reset"),
    pytest.param(stray_204, id="a stray 204"),
    pytest.param(late_408, id="a late 408"),
    pytest.param(noticed(stray_204), id="a stray 204 that was read"),
    pytest.param(noticed(late_408), id="a late 408 that was read"),
]


@OWN_OR_INJECTED
@PLAIN_OR_TLS
@pytest.mark.parametrize("spoil", SPOILS[:4])
async def test_a_spoiled_connection_is_found_out_at_whatever_turn_of_the_loop(
    spoil: Spoil, injected: bool, tls: bool
) -> None:
    ledger = Ledger()
    async with (
        WireServer(tls=wire_tls.good() if tls else None) as server,
        client_of(server, injected=injected, timeout=Timeout(total=9.0, attempt=AMONG)) as client,
    ):
        for turns in range(6):
            await ledger.ask(client, f"warm-{turns}")
            with spoiled(server, noticed(spoil, turns)) as done:
                await ledger.ask(client, f"user-{turns}")
            assert len(done) == 1
    ledger.judge(server, ledger.endings)
    assert ledger.count == {Outcome.ACCEPTED: 12}


@OWN_OR_INJECTED
@PLAIN_OR_TLS
async def test_a_stray_answer_in_two_halves_is_no_answer(injected: bool, tls: bool) -> None:
    async def half_before_half_after(wire: Wire) -> None:
        wire.writer.write(b"HTTP/1.1 204 No Con")
        asyncio.get_running_loop().call_later(0.005, wire.writer.write, b"tent\r\n\r\n")

    async with (
        WireServer(tls=wire_tls.good() if tls else None) as server,
        client_of(server, injected=injected) as client,
    ):
        await client.send("warm", HELLO)
        with spoiled(server, noticed(half_before_half_after)):
            if injected:
                with pytest.raises(OutcomeUnknownError):
                    await client.send("user", HELLO)
            else:
                await client.send("user", HELLO)
    # aiohttp's own pool can't tell the first half from silence; the client's closes the connection.
    assert server.processed == {"warm": 1} | ({} if injected else {"user": 1})


@pytest.mark.parametrize("spoil", SPOILS)
@PLAIN_OR_TLS
async def test_a_connection_that_other_code_used_before_is_not_trusted_either(spoil: Spoil, tls: bool) -> None:
    ledger, trust = Ledger(), wire_tls.client_context() if tls else True
    async with (
        WireServer(tls=wire_tls.good() if tls else None) as server,
        aiohttp.ClientSession() as session,
        client_of(server, session=session, timeout=Timeout(total=9.0, attempt=AMONG)) as client,
    ):
        body = {"userIds": ["somebody else"], "message": {}}
        async with session.post(f"{server.base_url}/v1/push", json=body, ssl=trust):
            pass
        with spoiled(server, spoil) as done:
            ending = await ledger.ask(client, "user")
    del server.processed["somebody else"]
    assert len(done) == 1
    ledger.judge(server, ["user"])
    # Whoever can't tell a used connection from a new one may also say that it does not know.
    assert ending.outcome in (Outcome.ACCEPTED, Outcome.UNKNOWN)


@OWN_OR_INJECTED
@PLAIN_OR_TLS
async def test_a_connection_that_ends_with_its_answer_carries_no_further_request(injected: bool, tls: bool) -> None:
    async def end(wire: Wire) -> None:
        wire.writer.write(b"HTTP/1.1 204 No Content\r\n\r\n")
        wire.writer.close()  # read together with the answer

    ledger = Ledger()
    async with (
        WireServer(when(only(1), step(take, end)), tls=wire_tls.good() if tls else None) as server,
        client_of(server, injected=injected, limits=Limits(in_flight=1)) as client,
    ):
        await ledger.ask(client, "warm")
        await asyncio.gather(*(ledger.ask(client, f"user-{n}") for n in range(3)))
    ledger.judge(server, ledger.endings)
    assert ledger.count == {Outcome.ACCEPTED: 4}
