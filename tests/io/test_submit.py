"""Sends without a task: ``submit``, one user at a time."""

import asyncio
import logging
from unittest.mock import patch

import pytest
from support.fake_service import MESSAGE, OTHER, FakeService, answer, client_of, idle
from support.virtual_time import virtual

from pushsdk import ValidationError


@virtual
async def test_without_on_event_a_failure_that_nobody_awaits_is_logged_as_a_warning(caplog):
    async with client_of(FakeService(answer(404), answer())) as client:
        client.submit("a-user-with-a-name", MESSAGE)
        client.submit("b", OTHER)
        await client.flush()
    warnings = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert warnings == ["a submitted send to 1 user ended as REJECTED: HTTP 404 [rejected-404]"]


@virtual
async def test_a_submitted_send_ends_although_nest_asyncio_has_replaced_the_future():
    async with client_of(FakeService()) as client:
        with patch("asyncio.Future", asyncio.futures._PyFuture):
            assert (await client.submit("a", MESSAGE)).users == 1


@virtual
async def test_wrong_input_is_raised_by_submit_itself():
    service = FakeService()
    async with client_of(service) as client:
        with pytest.raises(ValidationError, match="user_id must be a str, as send takes several ids; got list"):
            client.submit(["a"], MESSAGE)
        with pytest.raises(ValidationError, match="empty"):
            client.submit("", MESSAGE)
        with pytest.raises(ValidationError, match="ttl"):
            client.submit("a", {"ttl": "60"})
        assert idle(client)
    assert service.sent == []
