"""The service's answer: on every error of a request, and in its text only if asked for or on loopback."""

import pytest

from pushsdk import CampaignRequest, MobilePush, PushError, RetryPolicy
from pushsdk.emulator import Fault
from pushsdk.testing import FakeService

MESSAGE = MobilePush(title={"en": "hi"}, ios_enabled=True)
HEADERS = {"Content-Type": "application/json", "X-Request-Id": "r-1"}
BODY = '{"error": "unknown field"}'
LOOPBACK = "http://localhost:8080/api"


async def error_of(status, **options):
    service = FakeService(Fault.status(status, headers=HEADERS, body=BODY))
    async with service.client(retry=RetryPolicy.none(), **options) as client:
        with pytest.raises(PushError) as caught:
            await (client.create_campaign(CampaignRequest(name="c")) if status == 200 else client.send("u", MESSAGE))
    return caught.value


@pytest.mark.parametrize(
    ("options", "variable", "is_shown"),
    [
        ({}, "", False),
        ({"base_url": LOOPBACK}, "", True),
        ({"show_answers": True}, "", True),
        ({"base_url": LOOPBACK, "show_answers": False}, "1", False),
        ({}, "1", True),
        ({}, "0", False),
    ],
)
async def test_a_text_quotes_the_answer_on_loopback_and_if_asked_to(options, variable, is_shown, monkeypatch):
    monkeypatch.setenv("PUSHSDK_SHOW_ANSWERS", variable)
    text = str(await error_of(400, **options))
    assert (f", request id r-1): {BODY}" in text) is is_shown
    assert ("with PUSHSDK_SHOW_ANSWERS=1 it is shown here" in text) is not is_shown
