"""The service's answer: on every error of a request, and in its text only if asked for or on loopback."""

import pytest

from pushsdk import (
    AsyncPushClient,
    CampaignRequest,
    ConfigurationError,
    MobilePush,
    OutcomeUnknownError,
    PartialError,
    PushError,
    RejectedError,
    RetryPolicy,
)
from pushsdk.emulator import Fault
from pushsdk.testing import FakeService

MESSAGE = MobilePush(title={"en": "hi"}, ios_enabled=True)
HEADERS = {"Content-Type": "application/json", "X-Request-Id": "r-1"}
BODY = b'{"error": "unknown field"}'
LOOPBACK = "http://localhost:8080/api"


def answering(status: int) -> FakeService:
    return FakeService(Fault.status(status, headers=HEADERS, body=BODY.decode()))


async def error_of(service: FakeService, **options) -> PushError:
    async with service.client(retry=RetryPolicy.none(), **options) as client:
        with pytest.raises(PushError) as caught:
            await client.send("u", MESSAGE)
    return caught.value


@pytest.mark.parametrize(("status", "kind"), [(400, RejectedError), (502, OutcomeUnknownError)])
async def test_an_error_has_the_answer_of_the_service(status: int, kind: type[PushError]) -> None:
    error = await error_of(answering(status))
    assert type(error) is kind
    assert (error.status, error.headers["x-request-id"], error.request_id) == (status, "r-1", "r-1")
    assert (error.body, error.answer) == (BODY, BODY.decode())


async def test_a_partial_error_has_the_answer_about_its_rejected_users() -> None:
    users = ["a" * 200, "b" * 200]
    too_large = Fault.status(413, body=BODY.decode())
    service = FakeService(then=lambda request: too_large if users[1] in request.user_ids else None)
    async with service.client() as client:
        with pytest.raises(PartialError) as caught:
            await client.send(users, MESSAGE)
    assert (caught.value.status, caught.value.answer) == (413, BODY.decode())


async def test_a_created_campaign_without_a_uuid_has_its_answer() -> None:
    async with answering(200).client() as client:
        with pytest.raises(PushError) as caught:
            await client.create_campaign(CampaignRequest(name="c"))
    assert (caught.value.status, caught.value.answer, caught.value.request_id) == (200, BODY.decode(), "r-1")


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
async def test_a_text_quotes_the_answer_on_loopback_and_if_asked_to(
    options: dict, variable: str, is_shown: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PUSHSDK_SHOW_ANSWERS", variable)
    error = await error_of(answering(400), **options)
    assert ("unknown field" in str(error)) is is_shown


async def test_a_text_names_the_request_and_where_the_answer_is() -> None:
    assert str(await error_of(answering(400))) == (
        "rejected: HTTP 400 Bad Request (POST https://push.example/external/api/v1/push, 1 user, request id r-1). "
        "The answer is in .body; with PUSHSDK_SHOW_ANSWERS=1 it is shown here"
    )
    text = str(await error_of(answering(400), base_url=LOOPBACK))
    assert text == f"rejected: HTTP 400 Bad Request (POST {LOOPBACK}/v1/push, 1 user, request id r-1): {BODY.decode()}"


def test_show_answers_must_be_a_bool() -> None:
    with pytest.raises(ConfigurationError, match="show_answers must be True or False; got 'yes'"):
        AsyncPushClient("https://push.example", "key", show_answers="yes")  # type: ignore[typeddict-item]
