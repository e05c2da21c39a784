"""Bad input to a call: an error that names the path, and nothing sent to a real server."""

import uuid

import pytest
from support.bad_values import nested
from support.wire_judge import HELLO
from support.wire_server import WireServer

from pushsdk import AsyncPushClient, Batching, Outcome, ValidationError

SURROGATE = "lone \ud800 surrogate"


class TextSubclass(str):
    """No bad value: a text is a text."""


@pytest.fixture
async def client():
    """A client that must send no request."""
    async with WireServer() as server:
        async with AsyncPushClient(server.base_url, "key", batching=Batching(max_users=10)) as client:
            yield client
            stats = client.stats()
        assert server.connections == 0
        assert stats.requests == 0
        assert stats.queued_users == 0


async def some_ids():
    yield "u"


@pytest.mark.parametrize("user_ids", ["", [], iter(()), None, b"u", {}, [""], [None], [["u"]], some_ids()])
async def test_user_ids_are_a_text_or_several(client, user_ids):
    with pytest.raises(ValidationError, match=r"^user_ids") as excinfo:
        await client.send(user_ids, HELLO)
    assert excinfo.value.outcome is Outcome.NOT_SENT


@pytest.mark.parametrize("bad", [7, b"x", "", TextSubclass(""), SURROGATE, uuid.UUID(int=1)])
async def test_the_place_of_a_bad_user_id_is_named(client, bad):
    with pytest.raises(ValidationError, match=r"^user_ids\[2\]: "):
        await client.send(["u", "v", bad, "w"], HELLO)
    with pytest.raises(ValidationError, match=r"^user_ids\[0\]: .*surrogate"):
        await client.send(SURROGATE, HELLO)


async def test_what_a_generator_of_ids_raises_reaches_the_caller(client):
    def ids():
        yield "u"
        raise LookupError("the database went away")

    with pytest.raises(LookupError, match="went away"):
        await client.send(ids(), HELLO)


async def test_values_that_are_merely_unusual_are_no_bad_input():
    async with WireServer() as server, AsyncPushClient(server.base_url, "key") as client:
        await client.send(
            TextSubclass("u"), {"at": [TextSubclass("t"), True, None, 0, -0.5, 2**64 - 1, nested(90)]}, custom_fields={}
        )
    assert server.processed == {"u": 1}
    assert server.requests[0].document["customFields"] == {}
