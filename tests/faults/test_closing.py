"""Closed clients and sessions: NOT_SENT if no byte left, UNKNOWN if the request may have arrived."""

import asyncio

import aiohttp
import pytest
from support.wire_faults import always, hold, reached, take, when
from support.wire_judge import HELLO
from support.wire_rig import client_of
from support.wire_server import WireServer

from pushsdk import ClientClosedError, OutcomeUnknownError


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
    assert (server.begun, server.processed) == (1, {"user": 1})


async def test_nothing_is_sent_on_a_session_that_was_closed_before():
    async with (
        WireServer() as server,
        aiohttp.ClientSession() as session,
        client_of(server, session=session) as client,
    ):
        await session.close()
        with pytest.raises(ClientClosedError) as excinfo:
            await client.send("user", HELLO)
    assert (len(excinfo.value.attempts), server.connections, excinfo.value.retryable) == (1, 0, False)
