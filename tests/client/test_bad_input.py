"""Bad input to a call: an error that names the path, and nothing sent to a real server."""

import itertools
import uuid
from collections.abc import AsyncIterator, Iterator
from datetime import date
from types import MappingProxyType
from typing import Any

import pytest
from support.bad_values import NOT_JSON, nested
from support.wire_server import WireServer

from pushsdk import (
    AsyncPushClient,
    Audience,
    Batching,
    CampaignRequest,
    MobilePush,
    Outcome,
    PushRequest,
    Schedule,
    Segment,
    ValidationError,
)

HELLO = MobilePush(body={"en": "hi"})
SURROGATE = "lone \ud800 surrogate"


class TextSubclass(str):
    """No bad value: a text is a text."""


@pytest.fixture
async def client() -> AsyncIterator[AsyncPushClient]:
    """A client that must send no request."""
    async with WireServer() as server:
        async with AsyncPushClient(server.base_url, "key", batching=Batching(max_users=10)) as client:
            yield client
            stats = client.stats()
        assert (server.connections, stats.requests, stats.queued_users) == (0, 0, 0)


async def some_ids() -> AsyncIterator[str]:
    yield "u"


# --- user ids ---


@pytest.mark.parametrize(
    "user_ids",
    [
        "",
        [],
        (),
        iter(()),
        None,
        7,
        b"u",
        bytearray(b"u"),
        {"u": 1},
        {},
        [""],
        ["u", ""],
        ["u", 7],
        [None],
        [b"u"],
        [["u"]],
    ],
    ids=lambda value: repr(value).partition(" object at")[0],
)
async def test_user_ids_are_a_text_or_several(client: AsyncPushClient, user_ids: Any) -> None:
    with pytest.raises(ValidationError, match=r"^user_ids") as excinfo:
        await client.send(user_ids, HELLO)
    assert excinfo.value.outcome is Outcome.NOT_SENT


@pytest.mark.parametrize(
    ("user_ids", "got"),
    [
        (7, "int"),
        (None, "None"),
        (HELLO, "MobilePush: the users come first, then the message"),
    ],
)
async def test_other_values_than_ids_are_refused_with_the_fix(client: AsyncPushClient, user_ids: Any, got: str) -> None:
    with pytest.raises(ValidationError) as excinfo:
        await client.send(user_ids, HELLO)
    assert str(excinfo.value) == f"user_ids must be a str or an iterable of str; got {got}"


async def test_a_message_or_a_request_is_no_source_of_a_run(client: AsyncPushClient) -> None:
    with pytest.raises(ValidationError, match=r"got MobilePush: the users come first, then the message$"):
        await client.broadcast(HELLO, HELLO)  # type: ignore[arg-type]
    with pytest.raises(ValidationError, match=r"^message must be .*; got list$"):
        await client.broadcast(iter(["u"]), ["u"])  # type: ignore[arg-type]
    with pytest.raises(ValidationError, match=r"^user id number 1: expected a str, got PushRequest"):
        await client.broadcast(Audience.query("SELECT 1 AS user_id").personalize(HELLO), HELLO)  # type: ignore[arg-type]
    with pytest.raises(ValidationError, match=r"^requests must be an iterable of requests; got PushRequest$"):
        await client.send_each(PushRequest(user_ids=["u"], message=HELLO))  # type: ignore[arg-type]
    with pytest.raises(ValidationError, match=r"^requests must be an iterable of requests; got dict$"):
        await client.send_each({"userIds": ["u"], "message": {}})  # type: ignore[arg-type]


@pytest.mark.parametrize("bad", [7, None, b"x", "", TextSubclass(""), SURROGATE, uuid.UUID(int=1), ["a"]])
async def test_the_place_of_a_bad_user_id_is_named(client: AsyncPushClient, bad: Any) -> None:
    with pytest.raises(ValidationError, match=r"^user_ids\[2\]: "):
        await client.send(["u", "v", bad, "w"], HELLO)
    with pytest.raises(ValidationError, match=r"^user_ids\[0\]: .*surrogate"):
        await client.send(SURROGATE, HELLO)


async def test_an_async_iterable_of_ids_is_refused(client: AsyncPushClient) -> None:
    with pytest.raises(ValidationError, match=r"must be a str or an iterable of str; got async_generator$"):
        await client.send(some_ids(), HELLO)  # type: ignore[arg-type]


async def test_more_than_max_users_are_refused(client: AsyncPushClient) -> None:
    with pytest.raises(ValidationError, match="at most 10 ids"):
        await client.send([f"u{n}" for n in range(11)], HELLO)


async def test_an_infinite_generator_of_ids_is_refused_after_max_users(client: AsyncPushClient) -> None:
    numbers = itertools.count()
    with pytest.raises(ValidationError, match="at most 10 ids"):
        await client.send((f"u{n}" for n in numbers), HELLO)
    assert next(numbers) == 11


async def test_what_a_generator_of_ids_raises_reaches_the_caller(client: AsyncPushClient) -> None:
    def ids() -> Iterator[str]:
        yield "u"
        raise LookupError("the database went away")

    with pytest.raises(LookupError, match="went away"):
        await client.send(ids(), HELLO)


# --- values that msgspec would change silently, or fail on ---


@pytest.mark.parametrize("bad", NOT_JSON, ids=lambda bad: type(bad).__name__)
async def test_a_value_that_is_not_json_is_refused_at_any_depth(client: AsyncPushClient, bad: Any) -> None:
    for hidden in (bad, [bad], {"deep": [{"er": (bad,)}]}, MappingProxyType({"a": bad})):
        struct = MobilePush(title={"en": hidden})
        for path, call in (
            ("custom_fields.here", client.send("u", HELLO, custom_fields={"here": hidden})),
            (r"\$\.message.here", client.send("u", {"here": hidden})),
            (r"\$\.message.title", client.send("u", struct)),
            (r"\$\.here", client.create_campaign({"here": hidden})),
            (r"\$\.message.here", client.create_campaign({"message": {"here": hidden}})),
            (r"\$\.message.title", client.create_campaign(CampaignRequest(message=struct))),
        ):
            with pytest.raises(ValidationError, match=rf"^{path}"):
                await call


async def test_a_bad_value_is_named_by_its_path(client: AsyncPushClient) -> None:
    with pytest.raises(ValidationError, match=r"^custom_fields\.at\[1\]\.b: "):
        await client.send("u", HELLO, custom_fields={"at": [0, {"b": float("nan")}]})
    with pytest.raises(ValidationError, match=r"^custom_fields\.at: date is not JSON: pass a text or a number"):
        await client.send("u", HELLO, custom_fields={"at": date(2026, 1, 1)})


@pytest.mark.parametrize("fields", [[("a", 1)], "text", 7, {1}, b"{}"], ids=repr)
async def test_custom_fields_are_a_mapping(client: AsyncPushClient, fields: Any) -> None:
    with pytest.raises(ValidationError, match=r"^custom_fields: expected a mapping"):
        await client.send("u", HELLO, custom_fields=fields)


@pytest.mark.parametrize("message", [None, "text", 7, [HELLO], b"{}", MobilePush, Segment(query="q")], ids=repr)
async def test_a_message_is_a_struct_or_a_mapping(client: AsyncPushClient, message: Any) -> None:
    with pytest.raises(ValidationError, match=r"^message must be a MobilePush or a mapping"):
        await client.send("u", message)


@pytest.mark.parametrize("request_", [None, "text", [], HELLO, Schedule(type="X")], ids=repr)
async def test_a_campaign_is_a_struct_or_a_mapping(client: AsyncPushClient, request_: Any) -> None:
    with pytest.raises(ValidationError, match=r"^request must be a CampaignRequest or a mapping"):
        await client.create_campaign(request_)


# --- every field of every struct ---


async def test_a_misspelt_keyword_stays_pythons_type_error(client: AsyncPushClient) -> None:
    with pytest.raises(TypeError, match="titel"):
        MobilePush(titel={"en": "t"})  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="custom_field"):
        await client.send("u", HELLO, custom_field={})  # type: ignore[call-arg]


async def test_values_that_are_merely_unusual_are_no_bad_input() -> None:
    async with WireServer() as server, AsyncPushClient(server.base_url, "key") as client:
        await client.send(
            TextSubclass("u"), {"at": [TextSubclass("t"), True, None, 0, -0.5, 2**64 - 1, nested(90)]}, custom_fields={}
        )
    assert server.processed == {"u": 1}
    assert server.requests[0].document["customFields"] == {}
