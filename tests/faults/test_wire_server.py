"""The harness: what a plain aiohttp session sees of a WireServer, and that the server's record is right."""

import aiohttp
import pytest
from support import wire_tls
from support.wire_faults import (
    Step,
    always,
    fin,
    hold,
    never_read,
    on_accept,
    read_half,
    read_head,
    read_request,
    rst,
    send,
    step,
    take,
    when,
)
from support.wire_server import WireServer

# One that a hang runs into, and one that nothing else does.
TIGHT = aiohttp.ClientTimeout(total=0.1, sock_connect=0.05)
LOOSE = aiohttp.ClientTimeout(total=5)


async def push(session: aiohttp.ClientSession, server: WireServer, user: str = "u", **options: object) -> int:
    body = {"userIds": [user], "message": {}}
    async with session.post(f"{server.base_url}/v1/push", json=body, headers={"Api-Key": "key"}, **options) as answer:
        return answer.status


async def test_a_good_server_keeps_true_books() -> None:
    async with WireServer() as server, aiohttp.ClientSession() as session:
        assert [await push(session, server, user) for user in ("a", "b", "a")] == [204] * 3
    assert server.processed == {"a": 2, "b": 1}
    assert (server.connections, server.begun, len(server.requests)) == (1, 3, 3)
    assert server.requests[0].path == "/ext/api/v1/push"
    assert server.api_keys == {"key"}
    assert server.bytes_received == sum(len(request.head) + len(request.body) for request in server.requests)


BREAKS: dict[str, tuple[Step, type[Exception], int, int]] = {
    "reset after the head": (step(read_head, rst), aiohttp.ClientOSError, 0, 0),
    "closed mid-body": (step(read_half, fin), aiohttp.ServerDisconnectedError, 0, 0),
    "closed unprocessed": (step(read_request, fin), aiohttp.ServerDisconnectedError, 1, 0),
    "reset unprocessed, over TLS": (step(read_request, rst), aiohttp.ClientOSError, 1, 0),
    "half a status line, over TLS": (step(take, send(b"HTTP/1.1 20"), fin), aiohttp.ServerDisconnectedError, 1, 1),
    "silence": (step(take, hold), TimeoutError, 1, 1),
    "nothing is read": (on_accept(never_read), TimeoutError, 0, 0),
}


@pytest.mark.parametrize("name", BREAKS)
async def test_a_break_is_seen_by_the_client_and_kept_in_the_books(name: str) -> None:
    does, error, whole, processed = BREAKS[name]
    async with (
        WireServer(when(always, does), tls=wire_tls.good() if "TLS" in name else None) as server,
        aiohttp.ClientSession() as session,
    ):
        with pytest.raises(error):
            patience = TIGHT if error is TimeoutError else LOOSE
            await push(session, server, timeout=patience, ssl=wire_tls.client_context())
    assert (len(server.requests), server.processed["u"]) == (whole, processed)


async def test_a_mistake_in_a_script_is_not_swallowed() -> None:
    async def mistaken(_wire: object) -> None:
        raise KeyError("oops")

    with pytest.raises(ExceptionGroup, match="script of a WireServer"):
        async with WireServer(when(always, step(mistaken))) as server, aiohttp.ClientSession() as session:
            with pytest.raises(aiohttp.ClientError):
                await push(session, server)
