"""The requests as aiohttp is asked for them, and what a client reports when aioresponses replaces the service.

A mock sits above the socket: it shows URL, method, headers and body, and it proves nothing about what was sent.
"""

import json

import aiohttp
import pytest
from support.mock_aiohttp import mocked

from pushsdk import AsyncPushClient, MobilePush, NotSentError, OutcomeUnknownError, RetryPolicy

BASE = "https://push.example/ext/api"
PUSH = f"{BASE}/v1/push"
HELLO = MobilePush(title={"en": "Hi"}, badge_count=0, subtitle={})
ONCE = RetryPolicy.none()


@pytest.fixture
def service():
    with mocked() as service:
        yield service


@pytest.fixture(params=[False, True])
async def client(service, request):
    session = aiohttp.ClientSession() if request.param else None
    async with AsyncPushClient(BASE, "key", session=session, retry=ONCE) as client:
        yield client
    if session is not None:
        await session.close()


def asked(service):
    """Method, URL, headers and JSON of each request, in order."""
    return [
        (method, str(url), dict(call.kwargs["headers"]), json.loads(call.kwargs["data"]._value))
        for (method, url), calls in service.requests.items()
        for call in calls
    ]


async def test_a_push_is_a_post_of_ids_message_and_custom_fields_and_a_mapping_goes_out_as_it_is(client, service):
    service.post(PUSH, status=204, repeat=True)
    receipt = await client.send(["u", "v", "u"], HELLO, custom_fields={"n": None})
    later = {"type": "MOBILE_PUSH", "addedLater": {"deep": [1, 2.5, True, None]}}
    await client.send("u", later)
    [(method, url, headers, body), (*_, of_mapping)] = asked(service)
    [[call, _]] = service.requests.values()
    assert call.kwargs["allow_redirects"] is False
    assert call.kwargs["raise_for_status"] is False
    timeout = call.kwargs["timeout"]
    assert timeout.total is None
    assert timeout.sock_read is None
    assert timeout.connect == 5.0
    assert timeout.ceil_threshold > 1e6
    assert headers["Accept-Encoding"] == "identity"
    assert method == "POST"
    assert url == PUSH
    assert receipt.status == 204
    assert body == {
        "userIds": ["u", "v"],
        "message": {"type": "MOBILE_PUSH", "title": {"en": "Hi"}, "subtitle": {}, "badgeCount": 0},
        "customFields": {"n": None},
    }
    assert headers["Api-Key"] == "key"
    assert headers["Content-Type"] == "application/json"
    assert of_mapping == {"userIds": ["u"], "message": later}


# --- reports without proof ---


async def test_a_mocked_error_of_the_connector_is_not_sent_and_any_other_is_unknown(client, service):
    unsent = [
        aiohttp.ClientConnectorError(Key, OSError(111, "refused")),
        aiohttp.ClientConnectorDNSError(Key, OSError(-2, "unknown")),
        aiohttp.ClientConnectorSSLError(Key, OSError(1, "wrong version")),
        aiohttp.ClientConnectorCertificateError(Key, ValueError("expired")),
        aiohttp.ClientProxyConnectionError(Key, OSError(111, "refused")),
        aiohttp.ConnectionTimeoutError(),
    ]
    others = [
        aiohttp.ServerTimeoutError(),
        aiohttp.ServerDisconnectedError(),
        aiohttp.ClientOSError(104, "reset"),
        aiohttp.ClientConnectionError("any"),
        aiohttp.ClientPayloadError(),
        aiohttp.ClientResponseError(None, (), status=400),
        TimeoutError(),
        OSError(5, "io"),
        ValueError("any"),
    ]
    for error in [*unsent, *others]:
        service.post(PUSH, exception=error)
        with pytest.raises(NotSentError if error in unsent else OutcomeUnknownError) as excinfo:
            await client.send("u", HELLO)
        assert excinfo.value.status is None


class Key:
    """The connection key that aiohttp's connector errors name."""

    host = "push.example"
    port = 443
    ssl = True
    is_ssl = True
