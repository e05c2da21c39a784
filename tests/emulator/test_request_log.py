"""The log: one line for each request, for the terminal of a developer."""

import re

import pytest

from pushsdk.emulator import Fault, ServiceLimits

MESSAGE = {"type": "MOBILE_PUSH", "iosEnabled": True, "title": {"en": "Hello", "de": "Hallo"}}


@pytest.fixture
async def log(running):
    """The lines, without their times, and the wire of an emulator that logs."""
    lines = []
    faults = [Fault.reset_after(user="x", name="cut"), Fault.status(503, user="y", name="busy")]
    async with running(log=lines.append, limits=ServiceLimits(strict=True), faults=faults) as wire:
        yield wire, lines


@pytest.mark.parametrize(
    ("body", "line"),
    [
        ({"userIds": ["a"], "message": MESSAGE}, 'POST /v1/push 204 1 user "Hello"'),
        ({"userIds": ["a", "b"], "message": {**MESSAGE, "title": {"en": "T" * 99}}}, f'204 2 users "{"T" * 60}"'),
        (
            {"userIds": ["a"], "message": {**MESSAGE, "titel": 1}},
            'POST /v1/push 400 unknown field "titel", did you mean "title"?',
        ),
        ({"userIds": ["y"], "message": MESSAGE}, 'POST /v1/push 503 1 user "Hello" (fault busy)'),
    ],
)
async def test_a_request_is_a_line(log, body, line):
    wire, lines = log
    await wire.send(body)
    assert re.match(r"\d\d:\d\d:\d\d POST /v1/push ", lines[0])
    assert line in lines[0]


async def test_a_request_without_a_response_says_that_it_was_accepted(log):
    wire, lines = log
    with pytest.raises(ConnectionError):
        await wire.send({"userIds": ["x"], "message": MESSAGE})
    assert lines[0].endswith('POST /v1/push no response 1 user "Hello" (fault cut, accepted)')


async def test_a_campaign_is_a_line(log):
    wire, lines = log
    wire.emulator.inbox().limits = ServiceLimits()
    await wire.send({"name": "Spring", "message": MESSAGE}, path="/v1/campaigns")
    assert lines[0].endswith('POST /v1/campaigns 200 "Hello"')


async def test_a_request_that_reaches_no_inbox_is_a_line(log):
    wire, lines = log
    await wire.send({}, Api_Key="")
    assert lines[0].endswith("POST /external/api/v1/push 401 the Api-Key header is missing or empty")
