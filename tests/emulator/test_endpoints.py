"""The two endpoints of the interface document, and the refusals that the document leaves open."""

import json

import aiohttp
import pytest

from pushsdk.emulator.guard import Guard, Refused

MESSAGE = {"title": {"en": "Hello"}, "body": {"en": "World"}}


async def test_a_push_is_answered_with_204_and_no_body(wire, emulator):
    answer = await wire.push("ann", "bob")
    assert (answer.status, answer.text) == (204, "")
    assert emulator.users() == {"ann": 1, "bob": 1}


async def test_a_campaign_is_answered_with_its_uuid(wire, emulator):
    answer = await wire.campaign()
    assert (answer.status, answer.headers["content-type"]) == (200, "application/json")
    assert answer.json == {"uuid": emulator.campaigns[0].uuid}


async def test_a_record_shows_the_request_as_it_was_sent(wire, emulator):
    sent = {"userIds": ["ann"], "message": {**MESSAGE, "later": 1}, "customFields": {"a": [1]}, "more": None}
    await wire.send(sent)
    (push,) = emulator.pushes
    assert (push.id, push.user_ids, json.loads(push.body)) == (1, ("ann",), sent)
    assert (push.message, push.custom_fields) == (sent["message"], {"a": [1]})
    assert push.time > 1_700_000_000


async def test_a_campaign_record_shows_the_request_as_it_was_sent(wire, emulator):
    await wire.campaign()
    assert emulator.campaigns[0].request == {"name": "Spring", "message": MESSAGE}


async def test_every_documented_field_is_accepted(wire):
    button = {"label": "a", "url": "b", "clickAction": "DEEP_LINKING", "keyVals": {"a": "b"}}
    component = {"actionId": "a", "url": "b", "clickAction": "c", "keyVals": {}, "useWebview": False}
    message = {
        "type": "MOBILE_PUSH",
        "iosEnabled": True,
        "androidEnabled": False,
        "title": {"en": "x"},
        "subtitle": {},
        "body": {"en": "x"},
        "collapseId": "x",
        "ttl": 1,
        "action": "DEFAULT",
        "androidActionUrl": "x",
        "iosActionUrl": "x",
        "keyVals": {"a": "b"},
        "bigImageUrl": "x",
        "largeIconUrl": "x",
        "priority": "NORMAL",
        "smallIconResourceId": "x",
        "androidChannel": "x",
        "androidActionButtons": [button],
        "soundFileName": "x",
        "richMediaUrl": "x",
        "mediaType": "IMAGE",
        "interruptionLevel": "PASSIVE",
        "badgeCount": 0,
        "relevanceScore": "SCORE_MAX",
        "contentAvailable": True,
        "actionCategory": {"type": "PREDEFINED_CATEGORY", "name": "x", "actionComponents": [component]},
    }
    campaign = {
        "name": "x",
        "externalId": "x",
        "segment": {"query": "x", "primaryKey": "x"},
        "message": message,
        "schedule": {"type": "START_NOW", "startTs": 1},
    }
    assert (await wire.send({"userIds": ["ann"], "message": message, "customFields": {}})).status == 204
    assert (await wire.send(campaign, path="/v1/campaigns")).status == 200


@pytest.mark.parametrize(
    ("body", "place"),
    [
        ([], "`object`, got `array` - at `$`"),
        ({"message": {}}, "`userIds` - at `$`"),
        ({"userIds": ["ann"]}, "`message` - at `$`"),
        ({"userIds": "ann", "message": {}}, "$.userIds"),
        ({"userIds": [], "message": {}}, "$.userIds"),
        ({"userIds": [1], "message": {}}, "$.userIds[0]"),
        ({"userIds": [""], "message": {}}, "$.userIds[0]"),
        ({"userIds": ["ann"], "message": []}, "$.message"),
        ({"userIds": ["ann"], "message": {"ttl": "1"}}, "$.message.ttl"),
        ({"userIds": ["ann"], "message": {"ttl": None}}, "$.message.ttl"),
        ({"userIds": ["ann"], "message": {"title": {"en": 1}}}, "$.message.title[...]"),
        ({"userIds": ["ann"], "message": {"androidActionButtons": [1]}}, "$.message.androidActionButtons[0]"),
        ({"userIds": ["ann"], "message": {}, "customFields": []}, "$.customFields"),
        (b"", "at `$`"),
        (b'{"userIds":["ann"],"message":{}', "at `$`"),
        (b'{"userIds":["\xff"],"message":{}}', "UTF-8 - at `$`"),
        (b'{"userIds":["ann"],"message":{"x":' + b"[" * 100_000, "nested too deeply - at `$`"),
        (b'{"userIds":["ann"],"message":{},"customFields":{"x":NaN}}', "at `$`"),
    ],
)
async def test_a_push_body_of_another_shape_is_refused_with_its_path(wire, emulator, body, place):
    answer = await wire.send(body)
    assert answer.status == 400
    assert answer.headers["content-type"] == "application/json"
    assert answer.json["error"].endswith((place, f"{place}`"))
    assert emulator.pushes == ()


async def test_a_campaign_body_of_another_shape_is_refused_with_its_path(wire, emulator):
    answer = await wire.send({"segment": {"query": 1}}, path="/v1/campaigns")
    assert answer.status == 400
    assert "$.segment.query" in answer.json["error"]
    assert emulator.campaigns == ()


async def test_a_refusal_never_quotes_the_body(wire):
    for body in (b'{"userIds":["ann-secret"],"message":{"ttl":"ann-secret"}}', b'{"userIds":["ann-secret\xff"]}'):
        assert "secret" not in (await wire.send(body)).text


@pytest.mark.parametrize(
    ("status", "head"),
    [
        (401, {"Api_Key": None}),
        (401, {"Api_Key": ""}),
        (403, {"Host": "evil.example"}),
        (403, {"Host": "localhost:1"}),
        (403, {"Host": ""}),
        (403, {"Origin": "https://evil.example"}),
        (403, {"Origin": "null"}),
        (403, {"Sec_Fetch_Site": "cross-site"}),
        (404, {"path": "/v1/other"}),
        (404, {"path": "/v1/push/"}),
        (405, {"method": "GET"}),
        (405, {"method": "OPTIONS"}),
        (415, {"Content_Type": None}),
        (415, {"Content_Type": "text/plain"}),
    ],
)
async def test_a_head_for_no_endpoint_is_refused(wire, emulator, status, head):
    answer = await wire.push("ann", **head)
    assert (answer.status, list(answer.json)) == (status, ["error"])
    assert not any(name.startswith("access-control") for name in answer.headers)
    assert (emulator.pushes, emulator.requests) == ((), 1)


async def test_a_wrong_method_gets_the_right_one(wire):
    assert (await wire.push("ann", method="PUT")).headers["allow"] == "POST"


@pytest.mark.parametrize("name", ["localhost", "LOCALHOST", "127.0.0.1", "[::1]"])
async def test_every_name_of_loopback_is_a_host(wire, name):
    assert (await wire.push("ann", Host=f"{name}:{wire.port}")).status == 204


def test_on_port_80_the_host_needs_no_port():
    headers = {"Host": "localhost", "Api-Key": "key", "Content-Type": "application/json"}
    Guard(port=80, max_body=1).check_request("POST", "/external/api/v1/push", headers)
    with pytest.raises(Refused, match="Host must be"):
        Guard(port=81, max_body=1).check_request("POST", "/external/api/v1/push", headers)


async def test_a_request_from_the_same_origin_is_accepted(wire):
    answer = await wire.push("ann", Origin=f"http://{wire.host}", Sec_Fetch_Site="same-origin")
    assert answer.status == 204


async def test_a_charset_in_the_content_type_is_accepted(wire):
    assert (await wire.push("ann", Content_Type="Application/JSON; charset=utf-8")).status == 204


async def test_a_client_that_expects_100_continue_gets_it(wire, emulator):
    body = json.dumps({"userIds": ["ann"], "message": MESSAGE}).encode()
    async with wire.connected() as connection:
        connection.write(wire.head(len(body), Expect="100-continue"))
        assert await connection.read.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        connection.write(body)
        assert (await connection.read.readline()).startswith(b"HTTP/1.1 204")
    assert emulator.accepted("ann") == 1


async def test_aiohttps_client_can_send_many_over_one_connection(emulator):
    headers = {"Api-Key": emulator.api_key}
    async with aiohttp.ClientSession(headers=headers, connector=aiohttp.TCPConnector(limit=1)) as session:
        for _ in range(3):
            body = {"userIds": ["ann"], "message": MESSAGE}
            async with session.post(f"{emulator.base_url}/v1/push", json=body) as response:
                assert response.status == 204
    assert emulator.accepted("ann") == 3
