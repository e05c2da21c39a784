"""Each fault on the wire, and in the oracle."""

import asyncio

import aiohttp
import pytest

from pushsdk.emulator import Fault


async def test_a_status_is_answered_with_its_headers_and_body(wire, emulator):
    emulator.set_faults([Fault.status(429, headers={"Retry-After": "1"}, body='{"why": "load"}')])
    answer = await wire.push("ann")
    assert (answer.status, answer.headers["retry-after"], answer.json) == (429, "1", {"why": "load"})
    assert answer.headers["content-type"] == "application/json"
    assert emulator.users() == {}


async def test_a_status_body_keeps_its_content_type(wire, emulator):
    emulator.set_faults([Fault.status(502, headers={"content-type": "text/html"}, body="<p>bad gateway")])
    answer = await wire.push("ann")
    assert (answer.headers["content-type"], answer.text) == ("text/html", "<p>bad gateway")


@pytest.mark.parametrize("code", [200, 204, 302, 400, 503, 599, 999])
async def test_any_status_can_be_answered(wire, emulator, code):
    emulator.set_faults([Fault.status(code)])
    answer = await wire.push("ann")
    assert (answer.status, answer.text, emulator.accepted("ann")) == (code, "", code < 300)


async def test_a_status_that_has_no_body_sends_none(wire, emulator):
    emulator.set_faults([Fault.status(204, body="x")])
    assert (await wire.push("ann")).text == ""


async def test_a_gateway_can_fail_after_the_service_accepted(wire, emulator):
    emulator.set_faults([Fault.status(504, accepted=True)])
    assert (await wire.push("ann")).status == 504
    assert (await wire.campaign()).status == 504
    assert (emulator.accepted("ann"), len(emulator.campaigns)) == (1, 1)


async def test_a_delayed_request_is_accepted_in_the_end(wire, emulator):
    emulator.set_faults([Fault.delay(0.02)])
    started = asyncio.get_running_loop().time()
    assert (await wire.push("ann")).status == 204
    assert asyncio.get_running_loop().time() - started >= 0.02
    assert emulator.hits() == {"1: delay": 1}


async def test_a_delayed_request_is_accepted_after_its_client_disconnected(wire, emulator, until):
    emulator.set_faults([Fault.delay(0.02)])
    body = b'{"userIds":["ann"],"message":{}}'
    await wire.vanish(wire.head(len(body)) + body)
    await until(lambda: emulator.accepted("ann") == 1)


@pytest.mark.parametrize(
    ("fault", "accepted"),
    [
        (Fault.reset_before(), 0),
        (Fault.reset_after(), 1),
    ],
)
async def test_a_reset_is_a_reset_on_either_side_of_acceptance(wire, emulator, fault, accepted):
    emulator.set_faults([fault])
    with pytest.raises(ConnectionResetError):
        await wire.push("ann")
    assert emulator.accepted("ann") == accepted


@pytest.mark.parametrize("fault", [Fault.reset_before, Fault.hang, Fault.truncated])
async def test_a_fault_after_a_disconnect_is_harmless(wire, emulator, fault, until):
    emulator.set_faults([Fault.delay(0.02), fault(name="last")])
    body = b'{"userIds":["ann"],"message":{}}'
    await wire.vanish(wire.head(len(body)) + body)
    await until(lambda: emulator.hits()["last"] == 1)
    emulator.set_faults([])
    await asyncio.sleep(0.03)
    assert (await wire.push("bob")).status == 204


@pytest.mark.parametrize("accepted", [False, True])
async def test_a_hang_sends_nothing_until_the_client_disconnects(wire, emulator, accepted, until):
    emulator.set_faults([Fault.hang(accepted=accepted)])
    hung = asyncio.ensure_future(wire.push("ann"))
    await until(lambda: emulator.hits() == {"1: hang": 1})
    done, _ = await asyncio.wait((hung,), timeout=0.02)
    assert not done
    hung.cancel()
    await until(lambda: not emulator._service.lost)
    assert emulator.accepted("ann") == accepted


@pytest.mark.parametrize(
    ("at", "size"),
    [
        ("status", b"HTTP/1.1 20"),
        ("headers", b"HTTP/1.1 200 OK\r\nContent-Type: application/js"),
        ("body", b'HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 47\r\n\r\n{"uuid": "'),
    ],
)
async def test_a_truncated_response_ends_at_its_place(wire, emulator, at, size):
    emulator.set_faults([Fault.truncated(at=at)])
    body = b'{"userIds":["ann"],"message":{}}'
    assert await wire.bytes(wire.head(len(body)) + body) == size
    assert emulator.accepted("ann") == 1


async def test_aiohttp_sees_a_truncated_body_behind_a_good_status(wire, emulator):
    emulator.set_faults([Fault.truncated(at="body", endpoint="campaigns")])
    url, headers = f"{emulator.base_url}/v1/campaigns", {"Api-Key": emulator.api_key}
    async with aiohttp.ClientSession(headers=headers) as session, session.post(url, json={}) as response:
        assert response.status == 200
        with pytest.raises(aiohttp.ClientPayloadError):
            await response.read()
    assert len(emulator.campaigns) == 1


async def test_conditions_look_at_the_request_itself(wire, emulator):
    emulator.set_faults(
        [
            Fault.status(413, more_than_users=2, name="many"),
            Fault.status(422, user="eve", name="eve"),
            Fault.status(500, endpoint="campaigns", name="campaigns"),
            Fault.status(414, more_than_bytes=200, name="long"),
        ]
    )
    answers = [
        await wire.push("ann", "bob", "cid"),
        await wire.push("ann", "eve"),
        await wire.campaign(),
        await wire.push("x" * 200),
        await wire.push("ann", "bob"),
    ]
    assert [answer.status for answer in answers] == [413, 422, 500, 414, 204]
    assert emulator.hits() == {"many": 1, "eve": 1, "campaigns": 1, "long": 1}


async def test_a_refused_request_meets_no_fault(wire, emulator):
    emulator.set_faults([Fault.status(503)])
    assert (await wire.push("ann", Api_Key="")).status == 401
    assert (await wire.send({"userIds": []})).status == 400
    assert emulator.hits() == {"1: status": 0}


async def test_faults_can_be_replaced_while_it_runs(running):
    faults = [Fault.status(503)]
    async with running(faults=faults) as wire:
        assert list(wire.emulator.faults) == faults
        assert (await wire.push("ann")).status == 503
        wire.emulator.set_faults([Fault.status(502, probability=1)], seed=7)
        assert (await wire.push("ann")).status == 502
        wire.emulator.set_faults(())
        assert (await wire.push("ann")).status == 204
    wire.emulator.reset()


async def test_the_same_seed_and_order_give_the_same_faults(running):
    stories = []
    for seed in (1, 1, 2):
        async with running(faults=[Fault.status(503, probability=0.5)], seed=seed) as wire:
            stories.append([(await wire.push("ann")).status for _ in range(16)])
    assert stories[0] == stories[1] != stories[2]
