"""Cancelled calls, closed clients and sessions: NOT_SENT if no byte left, UNKNOWN if the request may have arrived."""

import asyncio
from contextlib import suppress

import aiohttp
import pytest
from support import wire_tls
from support.wire_faults import always, hold, never_read, only, reached, take, when
from support.wire_judge import ENORMOUS, HELLO
from support.wire_network import no_connection, no_handshake, no_name
from support.wire_rig import OWN_OR_INJECTED, client_of, meeting
from support.wire_server import WireServer

from pushsdk import ClientClosedError, Outcome, OutcomeUnknownError, SendAbandoned


async def abandoned_by(client, events):
    """Return the abandoned users with their outcomes; events and report must agree."""
    report = await client.aclose()
    outcomes = {user: event.outcome for event in events if isinstance(event, SendAbandoned) for user in event.user_ids}
    assert outcomes == {user: event.outcome for event in report.abandoned for user in event.user_ids}
    return outcomes


async def cancelled(call, arrival):
    """Cancel it once it has come so far: it must end as cancelled."""
    await arrival.wait()
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call


@OWN_OR_INJECTED
@pytest.mark.parametrize("trouble", [no_name, no_connection, no_handshake])
async def test_cancelled_while_connecting_is_not_sent(trouble, injected):
    events = []
    host = "localhost" if trouble is no_name else None
    async with (
        WireServer(tls=wire_tls.good() if trouble is no_handshake else None) as server,
        trouble(server) as arrival,
        client_of(server, injected=injected, host=host, on_event=events.append) as client,
    ):
        await cancelled(asyncio.create_task(client.send("user", HELLO)), arrival)
        assert await abandoned_by(client, events) == {"user": Outcome.NOT_SENT}
    assert server.processed == {}


def silence():
    return reached(take, hold)


def deafness():
    return reached(never_read)


@OWN_OR_INJECTED
@pytest.mark.parametrize(
    ("fault", "message", "warm", "tls"),
    [
        (silence, HELLO, 0, False),
        (silence, HELLO, 1, False),
        (silence, HELLO, 1, True),
        (deafness, ENORMOUS, 0, False),
    ],
)
async def test_cancelled_while_it_may_have_arrived_is_unknown_and_gives_its_slot_back(
    fault, message, warm, tls, injected
):
    events = []
    arrival, does = fault()
    async with meeting(when(only(warm), does), tls=tls, injected=injected, on_event=events.append) as (server, client):
        if warm:
            await client.send("warm", HELLO)
        await cancelled(asyncio.create_task(client.send("user", message)), arrival)
        assert client.stats().in_flight == 0
        assert await abandoned_by(client, events) == {"user": Outcome.UNKNOWN}
    assert server.begun == warm + 1
    assert server.processed["user"] == (fault is silence)


TURNS = range(1, 40)


@OWN_OR_INJECTED
@pytest.mark.parametrize("warm", [False, True])
async def test_a_cancellation_at_any_turn_of_the_loop_is_judged_rightly(injected, warm):
    events = []
    outcomes = {}
    async with WireServer() as server:
        async with client_of(server, injected=injected, on_event=events.append) as client:
            for turns in TURNS:
                if warm:
                    await client.send(f"warm-{turns}", HELLO)
                call = asyncio.create_task(client.send(user := f"user-{turns}", HELLO))
                for _ in range(turns):
                    await asyncio.sleep(0)
                # The last one is let alone: how many turns a request takes is the machine's to say.
                if turns != TURNS[-1]:
                    call.cancel()
                with suppress(asyncio.CancelledError):
                    outcomes[user] = (await call).outcome
            outcomes |= await abandoned_by(client, events)
        await server.quiet()
    assert outcomes.keys() == {f"user-{turns}" for turns in TURNS}
    pushed = {
        outcome: {server.processed[user] for user in outcomes if outcomes[user] is outcome} for outcome in Outcome
    }
    assert pushed[Outcome.ACCEPTED] == {1}
    assert pushed[Outcome.NOT_SENT] == {0}
    assert pushed[Outcome.UNKNOWN] <= {0, 1}


# -- closed in flight -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("closed", ["client", "client with a session", "session"])
async def test_what_is_closed_in_flight_leaves_the_outcome_open(closed):
    arrival, silent = reached(take, hold)
    async with (
        WireServer(when(always, silent)) as server,
        aiohttp.ClientSession() as session,
        client_of(server, session=None if closed == "client" else session) as client,
    ):
        call = asyncio.create_task(client.send("user", HELLO))
        await arrival.wait()
        if closed == "session":
            await session.close()
        else:
            assert (await client.aclose(drain=0)).unknown == ("user",)
        with pytest.raises(OutcomeUnknownError):
            await call
    assert server.begun == 1
    assert server.processed == {"user": 1}


async def test_nothing_is_sent_on_a_session_that_was_closed_before():
    async with WireServer() as server, aiohttp.ClientSession() as session, client_of(server, session=session) as client:
        await session.close()
        with pytest.raises(ClientClosedError) as excinfo:
            await client.send("user", HELLO)
    assert len(excinfo.value.attempts) == 1
    assert server.connections == 0
    assert not excinfo.value.retryable
