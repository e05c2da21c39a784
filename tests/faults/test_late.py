"""A late process (stopped, suspended, with a blocked loop) and a call that ends as it is answered: what came counts."""

import asyncio
import signal
import sys
import time
from collections import Counter

import pytest
from support.wire_answers import response
from support.wire_faults import always, hold, only, reached, read_request, say_when, send, step, take, when
from support.wire_judge import HELLO, Ledger
from support.wire_rig import OWN_OR_INJECTED, meeting
from support.wire_server import WireServer

from pushsdk import AttemptEnded, Outcome, RetryPolicy, SendAbandoned, Timeout


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
    assert report.accepted == ("user",)
    assert report.unknown == ()
    assert (await call).outcome == Outcome.ACCEPTED


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
    all_taken = asyncio.Event()
    answer = asyncio.Event()

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


# -- read in the turn in which the call ends --------------------------------------------------------------------------


JSON = "application/json"
ANSWERS = {
    "204": (response(204), Outcome.ACCEPTED),
    "204 with Content-Length: 0, twice": (response(204, Content_Length="0\r\ncontent-length:0"), Outcome.ACCEPTED),
    "204 with something behind it": (response(204, Content_Length=2) + b"{}", Outcome.ACCEPTED),
    "200 with JSON": (response(200, b"{}", Content_Type=JSON), Outcome.ACCEPTED),
    "200 with JSON without a type": (response(200, b"{}"), Outcome.ACCEPTED),
    "200 without a body": (response(200), Outcome.ACCEPTED),
    "200 with HTML": (response(200, b"<html>"), Outcome.UNKNOWN),
    "200 with JSON whose body is to come": (response(200, Content_Type=JSON, Content_Length=9), Outcome.ACCEPTED),
    "200 whose body is to come": (response(200, Content_Length=9), Outcome.UNKNOWN),
    "429": (response(429, Retry_After=9), Outcome.REJECTED),
    "500": (response(500), Outcome.UNKNOWN),
    "half a head": (response(204)[:-3], Outcome.UNKNOWN),
    "102": (b"HTTP/1.1 102 Processing\r\n\r\n", Outcome.UNKNOWN),
}
PATIENCE = 0.05
NONE = RetryPolicy.none()


async def block(_wire):
    """Let the answer come, and the timers of the calls become due, before the loop turns again."""
    time.sleep(0.001)  # noqa: ASYNC251 - the loop is blocked
    asyncio.get_running_loop().jump(PATIENCE)


@pytest.mark.parametrize(
    ("injected", "tls", "warm", "submitted"),
    [
        (False, False, 0, False),
        (False, False, 1, False),
        (False, True, 1, True),
        (True, False, 1, True),
        (True, True, 0, False),
    ],
)
@pytest.mark.parametrize("name", ANSWERS)
async def test_an_answer_that_was_read_counts_though_its_call_is_cancelled_in_the_same_turn(
    name, injected, tls, warm, submitted
):
    (data, outcome) = ANSWERS[name]
    events = []
    script = when(only(warm), step(read_request, send(data), block))
    async with meeting(script, tls=tls, injected=injected, retry=NONE, on_event=events.append) as (_, client):
        if warm:
            await client.send("warm", HELLO)
        call = client.submit("user", HELLO) if submitted else asyncio.create_task(client.send("user", HELLO))
        asyncio.get_running_loop().call_later(PATIENCE, call.cancel)
        await asyncio.wait([call])
        assert call.cancelled()
    assert [event.outcome for event in events if isinstance(event, SendAbandoned)] == [outcome]
    attempt = [event.attempt for event in events if isinstance(event, AttemptEnded)][-1]
    assert attempt.outcome == outcome
    assert attempt.retry_after == (9.0 if name == "429" else None)
