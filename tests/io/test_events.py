"""``on_event``: told of everything that happens, and unable to change it."""

import asyncio
import logging

import pytest
from support.fake_service import MESSAGE, FakeService, answer, client_of, idle, outcome_of, start
from support.virtual_time import virtual
from support.wire_rig import client_of as wired
from support.wire_server import WireServer

from pushsdk import AttemptEnded, CampaignRequest, ClientPaused, Outcome, Receipt, RetryScheduled


@virtual
async def test_attempts_retries_and_pauses_are_reported_in_order():
    events = []
    created = answer(200, body=b'{"uuid": "11111111-2222-3333-4444-555555555555"}')
    service = FakeService(answer(429, {"Retry-After": "2"}), answer(), created)
    async with client_of(service, on_event=events.append) as client:
        await client.send(["a", "b"], MESSAGE)
        await client.create_campaign(CampaignRequest(external_id="spring"))
    kinds = [ClientPaused, AttemptEnded, RetryScheduled, AttemptEnded, AttemptEnded]
    assert [type(event) for event in events] == kinds
    paused, first, retry, second, campaign = events
    assert paused.seconds == 2.0
    assert first.endpoint == "push"
    assert first.users == 2
    assert first.number == 1
    assert first.attempt.status == 429
    assert retry.number == 1
    assert retry.attempt == first.attempt
    assert 2.0 <= retry.wait <= 2.1
    assert second.number == 2
    assert second.attempt.outcome == Outcome.ACCEPTED
    assert campaign.endpoint == "campaigns"
    assert campaign.users == 0


@pytest.mark.parametrize("behavior", [answer(429, {"Retry-After": "1"}), answer(413), answer(400)])
@virtual
async def test_an_on_event_that_raises_changes_nothing_and_is_logged_without_its_text(behavior, caplog):
    def broken(event):
        raise RuntimeError("secret text")

    async with client_of(FakeService(behavior), on_event=broken) as client:
        with caplog.at_level(logging.ERROR):
            tasks = [start(client.send(f"a-user-with-a-name-{number}", MESSAGE)) for number in range(8)]
            assert all([isinstance(await outcome_of(task), Receipt) for task in tasks])
        assert idle(client)
    assert "on_event raised RuntimeError at test_events.py:" in caplog.text
    assert "secret text" not in caplog.text


async def test_an_on_event_that_raises_a_cancellation_cancels_nothing(caplog):
    def ask(_):
        gone = asyncio.get_running_loop().create_future()
        gone.cancel()
        gone.result()

    async with WireServer() as server, wired(server, on_event=ask) as client:
        for user in ("on-a-new-connection", "on-a-pooled-one"):
            await client.send(user, MESSAGE)
    assert "on_event raised CancelledError" in caplog.text
