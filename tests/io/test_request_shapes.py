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


@pytest.fixture(params=[False, True], ids=["own session", "injected session"])
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
    assert (method, url, receipt.status) == ("POST", PUSH, 204)
    assert body == {
        "userIds": ["u", "v"],
        "message": {"type": "MOBILE_PUSH", "title": {"en": "Hi"}, "subtitle": {}, "badgeCount": 0},
        "customFields": {"n": None},
    }
    assert (headers["Api-Key"], headers["Content-Type"]) == ("key", "application/json")
    assert of_mapping == {"userIds": ["u"], "message": later}


async def test_what_a_safe_request_needs_is_asked_of_aiohttp(client, service):
    service.post(PUSH, status=204)
    await client.send("u", HELLO)
    [[call]] = service.requests.values()
    assert (call.kwargs["allow_redirects"], call.kwargs["raise_for_status"]) == (False, False)
    assert call.kwargs["headers"]["Accept-Encoding"] == "identity"
    timeout = call.kwargs["timeout"]
    assert (timeout.total, timeout.sock_read, timeout.connect) == (None, None, 5.0)
    assert timeout.ceil_threshold > 1e6


# --- reports without proof ---


async def test_a_mocked_error_of_the_connector_is_not_sent_and_any_other_is_unknown(client, service):
    errors = {
        aiohttp.ClientConnectorError(Key, OSError(111, "refused")): NotSentError,
        aiohttp.ClientConnectorDNSError(Key, OSError(-2, "unknown")): NotSentError,
        aiohttp.ClientConnectorSSLError(Key, OSError(1, "wrong version")): NotSentError,
        aiohttp.ClientConnectorCertificateError(Key, ValueError("expired")): NotSentError,
        aiohttp.ClientProxyConnectionError(Key, OSError(111, "refused")): NotSentError,
        aiohttp.ConnectionTimeoutError(): NotSentError,
        aiohttp.ServerTimeoutError(): OutcomeUnknownError,
        aiohttp.ServerDisconnectedError(): OutcomeUnknownError,
        aiohttp.ClientOSError(104, "reset"): OutcomeUnknownError,
        aiohttp.ClientConnectionError("any"): OutcomeUnknownError,
        aiohttp.ClientPayloadError(): OutcomeUnknownError,
        aiohttp.ClientResponseError(None, (), status=400): OutcomeUnknownError,
        TimeoutError(): OutcomeUnknownError,
        OSError(5, "io"): OutcomeUnknownError,
        ValueError("any"): OutcomeUnknownError,
    }
    for error, expected in errors.items():
        service.post(PUSH, exception=error)
        with pytest.raises(expected) as excinfo:
            await client.send("u", HELLO)
        assert excinfo.value.status is None


class Key:
    """The connection key that aiohttp's connector errors name."""

    host, port, ssl, is_ssl = "push.example", 443, True, True
