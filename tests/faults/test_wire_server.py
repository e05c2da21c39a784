"""The harness: the record of a WireServer is right, and a mistake in its script fails the test."""

import aiohttp
import pytest
from support.wire_faults import always, step, when
from support.wire_server import WireServer


async def push(session: aiohttp.ClientSession, server: WireServer, user: str) -> int:
    body = {"userIds": [user], "message": {}}
    async with session.post(f"{server.base_url}/v1/push", json=body, headers={"Api-Key": "key"}) as answer:
        return answer.status


async def test_a_mistake_in_a_script_is_not_swallowed() -> None:
    async def mistaken(_wire: object) -> None:
        raise KeyError("oops")

    with pytest.raises(ExceptionGroup, match="script of a WireServer"):
        async with WireServer(when(always, step(mistaken))) as server, aiohttp.ClientSession() as session:
            with pytest.raises(aiohttp.ClientError):
                await push(session, server, "a")
