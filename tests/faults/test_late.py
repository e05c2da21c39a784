"""A late process: stopped, suspended, or with a blocked loop. An answer that has arrived counts."""

import asyncio
import signal
import sys
from collections import Counter

import pytest
from support.wire_answers import response
from support.wire_faults import always, hold, only, reached, read_request, say_when, send, step, take, when
from support.wire_judge import HELLO, Ledger
from support.wire_rig import OWN_OR_INJECTED, meeting
from support.wire_server import WireServer

from pushsdk import Outcome, Timeout


async def stall(_wire):
    """The process of client and server stands still for an hour before the loop reads the next time."""
    asyncio.get_running_loop().jump(3600.0)


@OWN_OR_INJECTED
@pytest.mark.parametrize(
    ("data", "tls", "outcome"),
    [
        (response(204), False, Outcome.ACCEPTED),
        (response(204), True, Outcome.ACCEPTED),
        (response(400, b"{}"), False, Outcome.REJECTED),
    ],
    ids=["204", "204 over TLS", "400"],
)
async def test_an_answer_that_waits_in_the_socket_of_a_late_process_counts(data, tls, outcome, injected):
    async with meeting(when(only(1), step(read_request, send(data), stall)), tls=tls, injected=injected) as (_, client):
        ledger = Ledger()
        await ledger.ask(client, "warm")
        assert (await ledger.ask(client, "user")).outcome is outcome


async def test_a_drain_that_ends_late_takes_in_what_was_answered():
    arrival, silent = reached(take, hold)
    async with meeting(when(always, silent), timeout=Timeout(total=None)) as (server, client):
        call = asyncio.create_task(client.send("user", HELLO))
        await arrival.wait()
        closing = asyncio.create_task(client.aclose(drain=1.0))
        await asyncio.sleep(0)
        (wire,) = server.open_wires
        await send(response(204))(wire)
        await stall(wire)
        report = await closing
    assert (report.accepted, report.unknown, (await call).outcome) == (("user",), (), Outcome.ACCEPTED)


CLIENT = """
import asyncio, sys
from pushsdk import AsyncPushClient, PushError, RetryPolicy, Timeout

async def main():
    timeout = Timeout(total=None, attempt=0.5)
    async with AsyncPushClient(sys.argv[1], "key", retry=RetryPolicy.none(), timeout=timeout) as client:
        async def send(number):
            try:
                receipt = await client.send(f"user-{number}", {"body": {"en": "hi"}}, custom_fields={"of": str(number)})
            except PushError as error:
                return error.outcome
            return receipt.outcome
        print(*await asyncio.gather(*map(send, range(4))))

asyncio.run(main())
"""


@pytest.mark.skipif(not hasattr(signal, "SIGSTOP"), reason="no process can be stopped on Windows")
async def test_a_process_that_is_stopped_for_longer_than_its_timeouts_takes_in_its_answers():
    all_taken, answer = asyncio.Event(), asyncio.Event()

    async def wait_for_the_answer(_wire):
        await answer.wait()

    def script(moment, number):
        if moment == "request":
            arrival = [say_when(all_taken)] if number == 3 else []
            return step(take, *arrival, wait_for_the_answer, send(response(204))).run
        return None

    async with WireServer(script) as server:
        child = await asyncio.create_subprocess_exec(
            sys.executable, "-c", CLIENT, server.base_url, stdout=asyncio.subprocess.PIPE
        )
        await all_taken.wait()
        child.send_signal(signal.SIGSTOP)
        answer.set()
        await asyncio.sleep(0.6)
        child.send_signal(signal.SIGCONT)
        output, _ = await child.communicate()
    assert Counter(output.split()) == {b"ACCEPTED": 4}
    assert set(server.processed.values()) == {1}
