"""Expired deadlines and closed clients: NOT_SENT if no byte left, UNKNOWN if the request may have arrived."""

import asyncio

import aiohttp
import pytest
from support.wire_faults import always, hold, only, reached, step, take, when
from support.wire_judge import HELLO
from support.wire_network import no_connection
from support.wire_rig import OWN_OR_INJECTED, client_of
from support.wire_server import WireServer

from pushsdk import ClientClosedError, NotSentError, OutcomeUnknownError, Timeout


@OWN_OR_INJECTED
async def test_a_call_ends_at_its_deadline_and_says_what_is_known(injected: bool) -> None:
    loop = asyncio.get_running_loop()
    async with (
        WireServer(when(only(1), step(take, hold))) as server,
        client_of(server, injected=injected) as client,
    ):
        await client.send("warm", HELLO)
        started = loop.time()
        with pytest.raises(OutcomeUnknownError):
            await client.send("user", HELLO, timeout=0.1)
        took = loop.time() - started
    assert 0.1 <= took < 0.2
    assert server.processed == {"warm": 1, "user": 1}


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


@pytest.mark.parametrize("closed", ["client", "client with a session", "session"])
async def test_what_is_closed_in_flight_leaves_the_outcome_open(closed: str) -> None:
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
    assert (server.begun, server.processed) == (1, {"user": 1})


async def test_nothing_is_sent_on_a_session_that_was_closed_before() -> None:
    async with (
        WireServer() as server,
        aiohttp.ClientSession() as session,
        client_of(server, session=session) as client,
    ):
        await session.close()
        with pytest.raises(ClientClosedError) as excinfo:
            await client.send("user", HELLO)
    assert (len(excinfo.value.attempts), server.connections, excinfo.value.retryable) == (1, 0, False)
