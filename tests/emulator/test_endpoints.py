"""The two endpoints of the interface document: what is accepted, counted, refused and logged."""

import json
import re

import pytest
from support.control_api import until

from pushsdk.emulator import Fault, ServiceLimits

MESSAGE = {"type": "MOBILE_PUSH", "iosEnabled": True, "title": {"en": "Hello", "de": "Hallo"}}
BODY = json.dumps({"userIds": ["ann"], "message": {}}).encode()
CHUNKED = {"Content_Length": None, "Transfer_Encoding": "chunked"}


# Accepted requests


async def test_a_duplicate_is_the_same_content_to_the_same_user(wire, emulator):
    first = {
        "userIds": ["ann", "bob"],
        "message": {"title": {"en": "Hi", "de": "Hallo"}},
        "customFields": {"a": 1, "b": 2},
    }
    await wire.send(first)
    for other in (
        {"message": {"title": {"en": "Hi"}}},
        {"customFields": {"a": 1, "b": 3}},
        {"customFields": {}},
        {"userIds": ["eve"]},
    ):
        await wire.send(first | other)
    assert emulator.users() == {"ann": 4, "bob": 4, "eve": 1}
    assert emulator.duplicates() == {}
    same = {"customFields": {"b": 2, "a": 1}, "userIds": ["ann"], "message": {"title": {"de": "Hallo", "en": "Hi"}}}
    await wire.send(same)
    assert emulator.duplicates() == {"ann": 2}
    assert emulator.totals()["duplicates"] == 1


# Refusals


@pytest.mark.parametrize(
    ("status", "head"),
    [(401, {"Api_Key": ""}), (404, {"path": "/v1/other"}), (405, {"method": "GET"}), (415, {"Content_Type": None})],
)
async def test_a_head_for_no_endpoint_is_refused(wire, emulator, status, head):
    answer = await wire.push("ann", **head)
    assert answer.status == status
    assert list(answer.json) == ["error"]
    assert answer.headers.get("allow") == ("POST" if status == 405 else None)
    assert not any(name.startswith("access-control") for name in answer.headers)
    assert emulator.pushes == ()
    assert emulator.requests == 1


@pytest.mark.parametrize(
    ("body", "place"),
    [
        (b"[]", "`object`, got `array` - at `$`"),
        (b'{"message": {}}', "`userIds` - at `$`"),
        (b'{"userIds": ["ann"], "message": {"ttl": "secret"}}', "at `$.message.ttl`"),
        (b'{"userIds": ["ann"], "message": {"androidActionButtons": [1]}}', "at `$.message.androidActionButtons[0]`"),
        (b'{"userIds": ["secret\xff"]}', " - at `$`"),
        # Deeper than the recursion limit, in a body that strict would decode.
        (b'{"userIds": ["ann"], "message": {"x":' + b"[" * 12_500, "nested too deeply - at `$`"),
    ],
)
async def test_a_body_of_another_shape_is_refused_with_its_path_and_not_quoted(wire, emulator, body, place):
    for strict in (False, True):
        emulator.inbox().limits = ServiceLimits(strict=strict)
        answer = await wire.send(body)
        assert answer.status == 400
        assert answer.headers["content-type"] == "application/json"
        assert answer.json["error"].endswith(place)
        assert "secret" not in answer.body.decode()
    campaign = await wire.send({"segment": {"query": 1}}, path="/v1/campaigns")
    assert campaign.status == 400
    assert "$.segment.query" in campaign.json["error"]
    assert emulator.pushes == ()
    assert emulator.campaigns == ()
    assert [request.status for request in emulator.inbox().requests("is:refused")] == [400] * 3


# Bodies that arrive in parts


@pytest.mark.parametrize("is_reset", [False, True])
async def test_a_body_cut_short_is_not_accepted(running, is_reset):
    async with running() as wire, wire.connected() as (reader, writer):
        writer.write(wire.push_head(len(BODY)) + BODY[:-1])
        await until(lambda: wire.emulator.requests == 1)
        if is_reset:
            writer.transport.abort()
        else:
            writer.write_eof()
            assert await reader.read() == b""
    assert wire.emulator.users() == {}


async def test_a_body_over_the_limit_is_refused_with_413(running):
    async with running(max_body=len(BODY)) as wire:
        await wire.send(BODY)
        answer = await wire.send(BODY + b" ")
        assert answer.status == 413
        assert answer.json == {"error": f"the body is over {len(BODY)} bytes"}
        chunks = b"%x\r\n%b \r\n0\r\n\r\n" % (len(BODY) + 1, BODY)
        assert (await wire.received(wire.push_head(0, **CHUNKED) + chunks)).startswith(b"HTTP/1.1 413")
        assert wire.emulator.accepted("ann") == 1


async def test_a_client_that_expects_100_continue_gets_it(wire, emulator):
    async with wire.connected() as (reader, writer):
        writer.write(wire.push_head(len(BODY), Expect="100-continue"))
        assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        writer.write(BODY)
        assert (await reader.readline()).startswith(b"HTTP/1.1 204")
    assert emulator.accepted("ann") == 1


# The log


async def test_each_request_is_a_line_in_the_log(running):
    lines = []
    faults = [Fault.reset_after(user="x", name="cut"), Fault.status(503, user="y", name="busy")]
    async with running(log=lines.append, limits=ServiceLimits(strict=True), faults=faults) as wire:
        await wire.send({"userIds": ["a"], "message": MESSAGE})
        await wire.send({"userIds": ["a", "y"], "message": {**MESSAGE, "title": {"en": "T" * 99}}})
        await wire.send({"userIds": ["a"], "message": {**MESSAGE, "titel": 1}})
        with pytest.raises(ConnectionError):
            await wire.send({"userIds": ["x"], "message": MESSAGE})
        wire.emulator.inbox().limits = ServiceLimits()
        await wire.send({"message": MESSAGE}, path="/v1/campaigns")
        await wire.send({}, Api_Key="")
    assert all(re.match(r"\d\d:\d\d:\d\d ", line) for line in lines)
    assert [line[9:] for line in lines] == [
        'POST /v1/push 204 1 user "Hello"',
        f'POST /v1/push 503 2 users "{"T" * 60}" (fault busy)',
        "POST /v1/push 400 unknown field, did you mean title? - at `$.message.titel`",
        'POST /v1/push no response 1 user "Hello" (fault cut, accepted)',
        'POST /v1/campaigns 200 "Hello"',
        "POST /external/api/v1/push 401 the Api-Key header is missing or empty",
    ]
