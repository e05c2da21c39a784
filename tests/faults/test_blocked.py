"""A call that ends in the very turn in which its answer is read: what was read counts."""

import asyncio
import time

import pytest
from support.wire_answers import response
from support.wire_faults import only, read_request, send, step, when
from support.wire_judge import HELLO
from support.wire_rig import meeting

from pushsdk import AttemptEnded, Outcome, RetryPolicy, SendAbandoned

JSON = "application/json"
ANSWERS = {
    "204": (response(204), Outcome.ACCEPTED),
    "204 with Content-Length: 0": (response(204, Content_Length=0), Outcome.ACCEPTED),
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
        pytest.param(False, False, 0, False, id="new connection"),
        pytest.param(False, False, 1, False, id="pooled connection"),
        pytest.param(False, True, 1, True, id="submitted, TLS"),
        pytest.param(True, False, 1, True, id="submitted, injected session"),
        pytest.param(True, True, 0, False, id="injected session, TLS"),
    ],
)
@pytest.mark.parametrize("name", ANSWERS)
async def test_an_answer_that_was_read_counts_though_its_call_is_cancelled_in_the_same_turn(
    name, injected, tls, warm, submitted
):
    (data, outcome), events = ANSWERS[name], []
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
    assert (attempt.outcome, attempt.retry_after) == (outcome, 9.0 if name == "429" else None)
