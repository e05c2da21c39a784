"""The connection pool: full, entirely stale, or with connections that other code used before."""

import asyncio

import pytest
from support import wire_tls
from support.wire_faults import only, step, take, when
from support.wire_judge import Ledger
from support.wire_network import closed, noticed, reset, spoiled, stray_204, told
from support.wire_rig import AMONG, HTTP_OR_HTTPS, OWN_OR_INJECTED, QUICK, client_of, meeting
from support.wire_server import WireServer

from pushsdk import Limits, Outcome, RetryPolicy, Timeout

PATIENT = Timeout(total=9.0, attempt=AMONG)


def serving(tls, script=None):
    return WireServer(script, tls=wire_tls.good() if tls else None)


@OWN_OR_INJECTED
@pytest.mark.parametrize("policy", [RetryPolicy.none(), QUICK])
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
    assert stats.stale_connections == 16
    assert stats.retries == 0


@OWN_OR_INJECTED
@HTTP_OR_HTTPS
@pytest.mark.parametrize("spoil", [closed, reset, stray_204, told(b"HTTP/1.1 408 Request")])
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
@HTTP_OR_HTTPS
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
