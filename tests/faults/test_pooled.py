"""The connection pool: full, entirely stale, or with connections that other code used before."""

import asyncio

import aiohttp
import pytest
from support import wire_tls
from support.wire_faults import hold, only, send, step, take, when
from support.wire_judge import HELLO, Ledger
from support.wire_network import closed, late_408, noticed, reset, spoiled, stray_204
from support.wire_rig import AMONG, OWN_OR_INJECTED, QUICK, client_of, meeting
from support.wire_server import WireServer

from pushsdk import Limits, NotSentError, Outcome, RetryPolicy, Timeout

PLAIN_OR_TLS = pytest.mark.parametrize("tls", [False, True], ids=["plain", "TLS"])
PATIENT = Timeout(total=9.0, attempt=AMONG)


def serving(tls, script=None):
    return WireServer(script, tls=wire_tls.good() if tls else None)


HELD = step(take, send(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n"), hold)


async def test_a_call_waits_for_a_place_in_the_pool_and_without_one_is_not_sent():
    queued = asyncio.Semaphore(0)

    async def note(*_):
        queued.release()

    hooks = aiohttp.TraceConfig()
    hooks.on_connection_queued_start.append(note)
    async with (
        WireServer(when(only(0), HELD)) as server,
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=1), trace_configs=[hooks]) as session,
        client_of(server, session=session, timeout=Timeout(total=2.0, attempt=0.5, connect=0.03)) as client,
        session.post(f"{server.base_url}/v1/push", json={"userIds": ["holder"], "message": {}}) as holder,
    ):
        with pytest.raises(NotSentError) as excinfo:
            await client.send("first", HELLO)
        tries = QUICK.max_attempts
        assert len(excinfo.value.attempts) == tries
        call = asyncio.create_task(client.send("second", HELLO))
        for _ in range(tries + 2):
            await queued.acquire()
        holder.close()
        assert len((await call).attempts) == 2
    assert server.processed == {"holder": 1, "second": 1}


@OWN_OR_INJECTED
@pytest.mark.parametrize("policy", [RetryPolicy.none(), QUICK], ids=["none", "safe"])
async def test_a_whole_pool_of_stale_connections_is_replaced_and_fails_no_call(policy, injected):
    ledger = Ledger()
    async with meeting(injected=injected, retry=policy) as (server, client):
        for turn, calls in enumerate((8, 8, 1)):
            with spoiled(server, stray_204) as done:
                await asyncio.gather(*(ledger.ask(client, f"user-{turn}-{n}") for n in range(calls)))
            assert len(done) == (8 if turn else 0)
        stats = client.stats()
    ledger.judge(server, ledger.endings)
    assert ledger.count == {Outcome.ACCEPTED: 17}
    assert (stats.stale_connections, stats.retries) == (16, 0)


@OWN_OR_INJECTED
@PLAIN_OR_TLS
@pytest.mark.parametrize("spoil", [closed, reset, stray_204, late_408], ids=["closed", "reset", "204", "408"])
async def test_a_spoiled_connection_is_found_out_at_whatever_turn_of_the_loop(spoil, injected, tls):
    ledger = Ledger()
    async with serving(tls) as server, client_of(server, injected=injected, timeout=PATIENT) as client:
        for turns in range(6):
            await ledger.ask(client, f"warm-{turns}")
            with spoiled(server, noticed(spoil, turns)) as done:
                await ledger.ask(client, f"user-{turns}")
            assert len(done) == 1
    ledger.judge(server, ledger.endings)
    assert ledger.count == {Outcome.ACCEPTED: 12}


@OWN_OR_INJECTED
@PLAIN_OR_TLS
async def test_a_connection_that_ends_with_its_answer_carries_no_further_request(injected, tls):
    async def end(wire):
        wire.writer.write(b"HTTP/1.1 204 No Content\r\n\r\n")
        wire.writer.close()  # read together with the answer

    ledger = Ledger()
    async with (
        serving(tls, when(only(1), step(take, end))) as server,
        client_of(server, injected=injected, limits=Limits(in_flight=1)) as client,
    ):
        await ledger.ask(client, "warm")
        await asyncio.gather(*(ledger.ask(client, f"user-{n}") for n in range(3)))
    ledger.judge(server, ledger.endings)
    assert ledger.count == {Outcome.ACCEPTED: 4}
