"""A request that crosses the end of its connection on the way: the service closed it before a byte had come."""

import asyncio
import socket
import sys
from pathlib import Path

import pytest
from support.programs import run_program
from support.wire_faults import always, hold, only, step, take, when
from support.wire_judge import HELLO
from support.wire_rig import OWN_OR_INJECTED, meeting

from pushsdk import MobilePush, Outcome, OutcomeUnknownError, RetryPolicy, SendAbandoned
from pushsdk._io import fast_post

NONE = RetryPolicy.none()
LINUX = pytest.mark.skipif(sys.platform != "linux", reason="only Linux says what is not acknowledged")

# In a namespace of its own, with 50 ms each way. The service ends the idle connection, and in the same turn of the loop
# the client sends.
CROSSING = """
import asyncio, sys
sys.path.append(sys.argv[3])
from support.far_network import FAR, NEAR, enter

try:
    enter(0.05)
except OSError as error:
    print("skip:", error)
    sys.exit()

from pushsdk import AsyncPushClient, PushError, RetryPolicy
from support.wire_faults import hold, only, step, take, when
from support.wire_server import WireServer

async def main(how):
    script = when(only(1), step(take, hold)) if how == "half-close" else None
    async with WireServer(script, host=NEAR) as server:
        url = server.base_url.replace(NEAR, FAR)
        async with AsyncPushClient(url, "key", retry=RetryPolicy.none(), allow_insecure=True) as client:
            message = {"body": {"en": "hi"}, "iosEnabled": True}
            await client.send("warm", message)
            (wire,) = server.open_wires
            wire.writer.close() if how == "close" else wire.writer.write_eof()
            try:
                receipt = await client.send("user", message)
                print(receipt.outcome, end=" ")
            except PushError as error:
                print(error.outcome, end=" ")
            await asyncio.sleep(0.2)
            print(server.processed["user"], client.stats().stale_connections)

if sys.argv[1] == "uvloop":
    import uvloop
    uvloop.run(main(sys.argv[2]))
else:
    asyncio.run(main(sys.argv[2]))
"""


@LINUX
@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
@pytest.mark.parametrize(("how", "result"), [("close", "ACCEPTED 1 1"), ("half-close", "UNKNOWN 1 0")])
def test_on_a_slow_network_a_request_that_crosses_the_end_is_sent_again_unless_the_service_may_read_it(
    how, result, loop
):
    pytest.importorskip(loop)
    code, output, errors = run_program(CROSSING, loop, how, str(Path(__file__).parents[1]))
    if output.startswith("skip:"):
        pytest.skip(output)
    assert (code, output.strip()) == (0, result), errors


class Kernel:
    """Stands in for what the kernel of a peer far away has acknowledged: nothing, unless ``acknowledges`` says so."""

    def __init__(self, monkeypatch):
        self.acknowledges = lambda: False
        monkeypatch.setattr(fast_post, "ioctl", self.ioctl)
        monkeypatch.setattr(fast_post, "RESET_CHECK", 0.001)

    def ioctl(self, _fd, _request, _value):
        return (0 if self.acknowledges() else 1 << 20).to_bytes(4, sys.byteorder)


@pytest.fixture
def kernel(monkeypatch):
    return Kernel(monkeypatch)


async def close_unread(wire):
    """End both halves, one after the other: what was not read makes the kernel reset the connection."""
    sock = wire.writer.get_extra_info("socket")
    wire.writer.transport.pause_reading()
    sock.shutdown(socket.SHUT_WR)
    await asyncio.sleep(0.005)
    await wire.rst()


async def half_close(wire):
    wire.writer.get_extra_info("socket").shutdown(socket.SHUT_WR)
    await asyncio.sleep(0.005)
    await take(wire)
    await hold(wire)


async def read_on_and_reset(wire):
    wire.writer.get_extra_info("socket").shutdown(socket.SHUT_WR)
    await asyncio.sleep(0.005)
    await take(wire)
    await wire.rst()


async def close_read(wire):
    await take(wire)
    await close_unread(wire)


@LINUX
@OWN_OR_INJECTED
@pytest.mark.parametrize(
    ("at", "big"),
    [(0, False), (1, False), (1, True)],
)
async def test_a_connection_that_closed_before_a_byte_came_is_replaced(at, big, injected, kernel):
    message = MobilePush(body={"en": "x" * 60_000}) if big else HELLO
    async with meeting(when(only(at), step(close_unread)), injected=injected, retry=NONE) as (server, client):
        kernel.acknowledges = lambda: server.begun <= at or server.connections > 1
        if at:
            await client.send("warm", HELLO)
        receipt = await client.send("user", message)
        stats = client.stats()
    assert receipt.outcome == Outcome.ACCEPTED
    assert len(receipt.attempts) == 1
    assert stats.stale_connections == 1
    assert server.processed["user"] == 1
    assert server.connections == 2


@LINUX
@OWN_OR_INJECTED
@pytest.mark.parametrize(
    ("end", "acknowledged"),
    [(half_close, "never"), (half_close, "later"), (read_on_and_reset, "when it was read"), (close_read, "at once")],
)
async def test_a_service_that_may_have_read_the_request_is_not_sent_it_again(end, acknowledged, injected, kernel):
    async with meeting(when(always, step(end)), injected=injected, retry=NONE) as (server, client):
        if acknowledged == "later":
            asyncio.get_running_loop().call_later(0.003, setattr, kernel, "acknowledges", lambda: True)
        elif acknowledged != "never":
            kernel.acknowledges = lambda: acknowledged == "at once" or bool(server.processed)
        with pytest.raises(OutcomeUnknownError):
            await client.send("user", HELLO)
        await server.quiet()
    assert server.processed == {"user": 1}


@LINUX
async def test_a_call_that_is_cancelled_while_the_reset_is_awaited_is_unknown(kernel):
    events = []
    async with meeting(when(always, step(half_close)), retry=NONE, on_event=events.append) as (server, client):
        call = asyncio.create_task(client.send("user", HELLO))
        while not server.begun:  # noqa: ASYNC110 - the server sets no event
            await asyncio.sleep(0)
        await asyncio.sleep(0.002)
        call.cancel()
        await asyncio.wait([call])
        await asyncio.sleep(0.005)
    assert [event.outcome for event in events if isinstance(event, SendAbandoned)] == [Outcome.UNKNOWN]
