"""The lifetime of a client: its loop, its process, its end, and nothing left behind."""

import asyncio
import os

import pytest
from support.programs import run_program
from support.wire_judge import HELLO
from support.wire_server import WireServer

from pushsdk import (
    AsyncPushClient,
    CampaignRequest,
    ClientClosedError,
    ConfigurationError,
    Outcome,
)

NOWHERE = "https://push.example"

USES = [
    lambda client: client.send("u", HELLO),
    lambda client: client.create_campaign(CampaignRequest(name="c")),
    lambda client: client.with_options(timeout=1.0).send("u", HELLO),
    lambda client: client.__aenter__(),
    lambda client: client.flush(),
]
EVERY_USE = pytest.mark.parametrize("use", USES)


@EVERY_USE
async def test_a_closed_client_is_not_used_again(use):
    async with WireServer() as server:
        async with AsyncPushClient(server.base_url, "key") as client:
            pass
        with pytest.raises(ClientClosedError, match="make a new client") as excinfo:
            await use(client)
    assert server.connections == 0
    assert excinfo.value.outcome == Outcome.NOT_SENT


async def test_a_client_that_was_never_opened_can_be_closed_twice_and_its_view_is_closed_with_it():
    client = AsyncPushClient(NOWHERE, "key")
    view = client.with_options(timeout=1.0)
    assert not client.closed
    for _ in range(2):
        assert (await view.aclose()).accepted == ()
        assert client.closed
        assert view.closed


@pytest.mark.parametrize("use", [*USES, lambda client: client.aclose()])
def test_a_client_in_use_by_a_loop_is_refused_by_another(use):
    async def second():
        with pytest.raises(ConfigurationError, match="another event loop"):
            await use(client)

    # Made outside of any loop.
    client = AsyncPushClient(NOWHERE, "key")
    first = asyncio.new_event_loop()
    first.run_until_complete(client.__aenter__())
    asyncio.run(second())
    first.run_until_complete(client.aclose())
    first.close()


LOOP_IS_GONE = """
import asyncio, socket, sys, threading
import pushsdk

arrival, listener = threading.Event(), socket.create_server(("127.0.0.1", 0))

def serve():
    wire = listener.accept()[0]
    wire.recv(65536)
    wire.sendall(b"HTTP/1.1 204 No Content\\r\\n\\r\\n")
    wire.recv(65536)
    arrival.set()
    threading.Event().wait()

threading.Thread(target=serve, daemon=True).start()
if sys.argv[1] == "uvloop":
    import uvloop
    first = uvloop.new_event_loop()
else:
    first = asyncio.new_event_loop()
message = {"body": {"en": "hi"}, "iosEnabled": True}
limits = pushsdk.Limits(in_flight=1)
client = pushsdk.AsyncPushClient(f"http://127.0.0.1:{listener.getsockname()[1]}", "key", limits=limits)
first.run_until_complete(client.send("u", message))
call = first.create_task(client.send("v", message))
while not arrival.is_set():
    first.run_until_complete(asyncio.sleep(0.001))
waiting = first.create_task(client.send("w", {**message, "ttl": 9}))
first.run_until_complete(asyncio.sleep(0.001))
first.close()

report = asyncio.run(client.aclose())
print(report.unknown, report.not_sent, client.closed, asyncio.run(client.aclose()).unknown)
"""


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_a_client_whose_loop_is_gone_is_closed_in_another(loop):
    pytest.importorskip(loop)
    code, output, errors = run_program(LOOP_IS_GONE, loop)
    assert (code, output.strip()) == (0, "('v',) ('w',) True ()"), errors


SETTLED = """
import asyncio
from pushsdk.testing import FakeService

first = asyncio.new_event_loop()
client = FakeService().client(on_event=lambda _: first.stop())
task = first.create_task(client.send("u", {"body": {"en": "hi"}, "iosEnabled": True}))
first.run_forever()
first.close()
print(task.done(), asyncio.run(client.aclose()).accepted)
"""


def test_a_call_that_ended_in_the_last_turn_of_its_loop_is_in_the_report():
    code, output, errors = run_program(SETTLED)
    assert (code, output.strip()) == (0, "False ('u',)"), errors


FORK = """
    import asyncio, os, sys
    from pushsdk import AsyncPushClient, ConfigurationError
    client = AsyncPushClient("https://127.0.0.1:9", "key")
    opened = sys.argv[1] != "unopened"
    loop = asyncio.new_event_loop()

    async def main():
        await client.send("u", {})

    async def parent():
        if opened:
            await client.__aenter__()
        if sys.argv[1] == "in the loop" and not os.fork():
            try:
                await client.send("u", {})
            except ConfigurationError as error:
                os._exit(42 if "fork" in str(error) else 2)
        elif sys.argv[1] == "in the loop":
            os._exit(os.waitstatus_to_exitcode(os.wait()[1]))

    loop.run_until_complete(parent())
    if os.fork():
        sys.exit(os.waitstatus_to_exitcode(os.wait()[1]))
    code = 1
    try:
        (loop.run_until_complete if sys.argv[1] == "same loop" else asyncio.run)(main())
    except ConfigurationError as error:
        code = 42 if "fork" in str(error) else 2
    os._exit(code)
"""


@pytest.mark.parametrize("state", ["opened", "unopened", "same loop", "in the loop"])
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork() here")
def test_a_client_is_refused_after_a_fork(state):
    result = run_program(FORK, state, options=("-W", "ignore"))
    assert result.code == 42, result.err
