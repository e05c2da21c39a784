"""Each fault on the wire, and in the oracle."""

import asyncio
from contextlib import nullcontext

import pytest
from support.control_api import until

from pushsdk.emulator import Fault

BODY = b'{"userIds":["ann"],"message":{}}'


@pytest.mark.parametrize(
    ("fault", "kind", "text", "accepted"),
    [
        (Fault.status(429, retry_after=0, body='{"a": 1}'), "application/json", '{"a": 1}', 0),
        (Fault.status(299), None, "", 1),
        (Fault.status(204, body="x"), "application/json", "", 1),
        (Fault.status(504, accepted=True), None, "", 1),
    ],
)
async def test_a_status_is_answered_with_its_headers_and_body(wire, emulator, fault, kind, text, accepted):
    emulator.set_faults([fault])
    answer = await wire.push("ann")
    assert answer.status == fault.code
    assert answer.headers.get("content-type") == kind
    assert answer.body.decode() == text
    assert answer.headers.get("retry-after") == (None if fault.retry_after is None else str(fault.retry_after))
    assert (await wire.campaign()).status == fault.code
    assert emulator.accepted("ann") == accepted
    assert len(emulator.campaigns) == accepted


async def test_a_delayed_request_is_accepted_even_after_its_client_disconnected(wire, emulator):
    emulator.set_faults([Fault.delay(0.02)])
    started = asyncio.get_running_loop().time()
    assert (await wire.push("ann")).status == 204
    assert asyncio.get_running_loop().time() - started >= 0.02
    await wire.vanish(wire.push_head(len(BODY)) + BODY)
    await until(lambda: emulator.accepted("ann") == 2)
    assert emulator.hits() == {"1: delay": 2}


HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/js"


@pytest.mark.parametrize(
    ("fault", "received", "accepted"),
    [
        (Fault.reset_before(), None, 0),
        (Fault.reset_after(), None, 1),
        (Fault.truncated(at="status"), b"HTTP/1.1 20", 1),
        (Fault.truncated(at="headers"), HEAD, 1),
        (Fault.truncated(at="body"), HEAD + b'on\r\nContent-Length: 47\r\n\r\n{"uuid": "', 1),
    ],
)
async def test_a_connection_is_reset_or_ends_within_the_response(wire, emulator, fault, received, accepted):
    emulator.set_faults([fault])
    with pytest.raises(ConnectionResetError) if received is None else nullcontext():
        assert await wire.received(wire.push_head(len(BODY)) + BODY) == received
    assert emulator.accepted("ann") == accepted


@pytest.mark.parametrize("fault", [Fault.reset_before, Fault.hang, Fault.truncated])
async def test_a_fault_after_a_disconnect_is_harmless(running, fault, caplog):
    async with running(faults=[Fault.delay(0.02), fault(name="last", first=1)]) as wire:
        await wire.vanish(wire.push_head(len(BODY)) + BODY)
        await until(lambda: wire.emulator.hits()["last"] == 1)
        assert (await wire.push("bob")).status == 204
    assert caplog.records == []


@pytest.mark.parametrize("accepted", [False, True])
async def test_a_hang_sends_nothing_until_the_client_disconnects(wire, emulator, accepted):
    emulator.set_faults([Fault.hang(accepted=accepted)])
    hung = asyncio.ensure_future(wire.push("ann"))
    await until(lambda: emulator.hits() == {"1: hang": 1})
    done, _ = await asyncio.wait((hung,), timeout=0.02)
    assert not done
    hung.cancel()
    await asyncio.wait((hung,))
    assert emulator.accepted("ann") == accepted


async def test_conditions_look_at_requests_that_the_service_does_not_refuse(wire, emulator):
    many = Fault.status(413, more_than_users=2, name="many")
    long = Fault.status(414, more_than_bytes=200, name="long")
    emulator.set_faults([many, Fault.status(500, endpoint="campaigns", name="campaigns"), long])
    pushes = [("ann", "bob", "cid"), ("x" * 200,), ("ann", "bob")]
    assert [(await wire.push(*users)).status for users in pushes] == [413, 414, 204]
    assert (await wire.campaign()).status == 500
    assert (await wire.send({"userIds": [], "more": "x" * 200})).status == 400
    assert emulator.hits() == {"many": 1, "campaigns": 1, "long": 1}
