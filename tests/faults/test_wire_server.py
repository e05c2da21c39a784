"""The harness: a mistake in the script of a WireServer fails the test."""

import aiohttp
import pytest
from support.wire_faults import always, step, when
from support.wire_server import WireServer


async def test_a_mistake_in_a_script_is_not_swallowed():
    async def mistaken(_wire):
        raise KeyError("oops")

    with pytest.raises(ExceptionGroup, match="script of a WireServer"):
        async with WireServer(when(always, step(mistaken))) as server, aiohttp.ClientSession() as session:
            with pytest.raises(aiohttp.ClientError):
                await session.post(f"{server.base_url}/v1/push", json={})
