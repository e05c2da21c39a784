"""Bad input to a call: an error that names the path, and nothing sent to a real server."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import msgspec
import pytest
from support.wire_server import WireServer

from pushsdk import (
    UNSET,
    ActionButton,
    ActionCategory,
    ActionComponent,
    AsyncPushClient,
    Batching,
    CampaignRequest,
    MobilePush,
    Outcome,
    Schedule,
    Segment,
    ValidationError,
)

HELLO = MobilePush(body={"en": "hi"})
SURROGATE = "lone \ud800 surrogate"


@pytest.fixture
async def client() -> AsyncIterator[AsyncPushClient]:
    """A client that must send no request."""
    async with WireServer() as server:
        async with AsyncPushClient(server.base_url, "key", batching=Batching(max_users=10)) as client:
            yield client
            stats = client.stats()
        assert (server.connections, stats.requests, stats.queued_users) == (0, 0, 0)


def nested(depth: int) -> dict[str, Any]:
    value: dict[str, Any] = {}
    for _ in range(depth):
        value = {"a": value}
    return value


def cycle() -> dict[str, Any]:
    value: dict[str, Any] = {}
    value["again"] = [value]
    return value


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
    with pytest.raises(ValidationError, match=r"user_ids|\$\.userIds") as excinfo:
        await client.send(user_ids, HELLO)
    assert excinfo.value.outcome is Outcome.NOT_SENT


async def test_the_place_of_a_bad_user_id_is_named(client: AsyncPushClient) -> None:
    with pytest.raises(ValidationError, match=r"^\$\.userIds\[2\]: .*int"):
        await client.send(["u", "v", 7], HELLO)  # type: ignore[list-item]


async def test_a_user_id_with_a_lone_surrogate_is_refused(client: AsyncPushClient) -> None:
    for user_ids in (SURROGATE, ["u", SURROGATE]):
        with pytest.raises(ValidationError, match=r"^\$\.userIds\[\d\]: .*surrogate"):
            await client.send(user_ids, HELLO)


async def test_an_async_iterable_of_ids_is_refused_with_advice(client: AsyncPushClient) -> None:
    with pytest.raises(ValidationError, match="collect it first"):
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


class TextSubclass(str):
    """No bad value: a text is a text."""


NOT_JSON: dict[str, tuple[Callable[[], Any], str]] = {
    "NaN": (lambda: float("nan"), ""),
    "infinity": (lambda: float("inf"), ""),
    "minus infinity": (lambda: float("-inf"), ""),
    "bytes": (lambda: b"x", ""),
    "bytearray": (lambda: bytearray(b"x"), ""),
    "memoryview": (lambda: memoryview(b"x"), ""),
    "a set": (lambda: {1}, ""),
    "a frozenset": (lambda: frozenset({1}), ""),
    "Decimal": (lambda: Decimal(1), ""),
    "datetime": (lambda: datetime.now(UTC), ""),
    "a UUID": (lambda: uuid.UUID(int=1), ""),
    "UNSET": (lambda: UNSET, ""),
    "an object": (object, ""),
    "a generator": (lambda: iter("x"), ""),
    "65 bits": (lambda: 2**64, ""),
    "a surrogate": (lambda: SURROGATE, ""),
    "an int key": (lambda: {1: "a"}, ""),
    "a bytes key": (lambda: {b"k": "a"}, ""),
    "a None key": (lambda: {None: "a"}, ""),
    "a surrogate key": (lambda: {SURROGATE: "a"}, ""),
    "a cycle": (cycle, r"(\.again(\[0\])?)*"),
    "depth": (lambda: nested(100), r"(\.a)*"),
    "great depth": (lambda: nested(100_000), r"(\.a)*"),
    "in a list": (lambda: [0, {"b": float("nan")}], r"\[1\]\.b"),
}
BAD_VALUES = pytest.mark.parametrize(("make", "below"), NOT_JSON.values(), ids=NOT_JSON.keys())


@BAD_VALUES
async def test_custom_fields_are_strict_json(client: AsyncPushClient, make: Callable[[], Any], below: str) -> None:
    with pytest.raises(ValidationError, match=rf"^\$\.customFields\.at{below}: "):
        await client.send("u", HELLO, custom_fields={"at": make()})


@BAD_VALUES
async def test_a_mapping_message_is_strict_json(client: AsyncPushClient, make: Callable[[], Any], below: str) -> None:
    with pytest.raises(ValidationError, match=rf"^\$\.message\.at{below}: "):
        await client.send("u", {"at": make()})


@BAD_VALUES
async def test_a_mapping_campaign_is_strict_json(client: AsyncPushClient, make: Callable[[], Any], below: str) -> None:
    with pytest.raises(ValidationError, match=rf"^\$\.at{below}: "):
        await client.create_campaign({"at": make()})


@BAD_VALUES
async def test_a_text_of_a_struct_is_not_made_from_something_else(
    client: AsyncPushClient, make: Callable[[], Any], below: str
) -> None:
    with pytest.raises(ValidationError, match=r"^\$\.message\.keyVals"):
        await client.send("u", MobilePush(key_vals={"k": make()}))


@pytest.mark.parametrize("fields", [[("a", 1)], "text", 7, {1}, b"{}"], ids=repr)
async def test_custom_fields_are_a_mapping(client: AsyncPushClient, fields: Any) -> None:
    with pytest.raises(ValidationError, match=r"^\$\.customFields: expected a mapping"):
        await client.send("u", HELLO, custom_fields=fields)


@pytest.mark.parametrize("message", [None, "text", 7, [HELLO], b"{}", MobilePush, Segment(query="q")], ids=repr)
async def test_a_message_is_a_struct_or_a_mapping(client: AsyncPushClient, message: Any) -> None:
    with pytest.raises(ValidationError, match=r"^\$\.message: expected MobilePush or a mapping"):
        await client.send("u", message)


@pytest.mark.parametrize("request_", [None, "text", [], HELLO, Schedule(type="X")], ids=repr)
async def test_a_campaign_is_a_struct_or_a_mapping(client: AsyncPushClient, request_: Any) -> None:
    with pytest.raises(ValidationError, match=r"^\$: expected CampaignRequest or a mapping"):
        await client.create_campaign(request_)


async def test_a_surrogate_in_the_key_of_a_struct_is_refused(client: AsyncPushClient) -> None:
    for message in (
        MobilePush(title={SURROGATE: "t"}),
        MobilePush(title={"en": SURROGATE}),
        MobilePush(type=SURROGATE),
    ):
        with pytest.raises(ValidationError, match=r"^\$\.message\.t(itle|ype).*surrogate"):
            await client.send("u", message)


# --- every field of every struct ---

Wrap = Callable[[Any], MobilePush | CampaignRequest]
PLACES: dict[type[msgspec.Struct], tuple[str, Wrap]] = {
    MobilePush: ("$.message", lambda x: x),
    ActionButton: ("$.message.androidActionButtons[0]", lambda x: MobilePush(android_action_buttons=[x])),
    ActionCategory: ("$.message.actionCategory", lambda x: MobilePush(action_category=x)),
    ActionComponent: (
        "$.message.actionCategory.actionComponents[0]",
        lambda x: MobilePush(action_category=ActionCategory(action_components=[x])),
    ),
    CampaignRequest: ("$", lambda x: x),
    Segment: ("$.segment", lambda x: CampaignRequest(segment=x)),
    Schedule: ("$.schedule", lambda x: CampaignRequest(schedule=x)),
}
FIELDS = [
    pytest.param(kind, name, wire_name, id=f"{kind.__name__}.{name}")
    for kind in PLACES
    for name, wire_name in zip(kind.__struct_fields__, kind.__struct_encode_fields__, strict=True)
]
# Of no field's type: the fields are texts, whole numbers, booleans, objects and arrays.
WRONG = (None, 1.5, b"x", object(), float("nan"))


async def refused(client: AsyncPushClient, message: MobilePush | CampaignRequest) -> str:
    with pytest.raises(ValidationError) as excinfo:
        await (client.send("u", message) if isinstance(message, MobilePush) else client.create_campaign(message))
    return str(excinfo.value)


@pytest.mark.parametrize(("kind", "name", "wire_name"), FIELDS)
async def test_a_wrong_type_is_refused_by_its_path(
    client: AsyncPushClient, kind: type[msgspec.Struct], name: str, wire_name: str
) -> None:
    place, wrap = PLACES[kind]
    for value in WRONG:
        text = await refused(client, wrap(kind(**{name: value})))
        assert text.startswith(f"{place}.{wire_name}: ")


@pytest.mark.parametrize("value", [True, "60", 2**63, -(2**63) - 1])
async def test_a_whole_number_is_no_bool_no_text_and_has_64_bits(client: AsyncPushClient, value: Any) -> None:
    assert (await refused(client, MobilePush(ttl=value))).startswith("$.message.ttl: ")
    assert (await refused(client, CampaignRequest(message=MobilePush(ttl=value)))).startswith("$.message.ttl: ")


@pytest.mark.parametrize("value", [1, 0, "true"])
async def test_a_bool_is_no_number_and_no_text(client: AsyncPushClient, value: Any) -> None:
    assert (await refused(client, MobilePush(ios_enabled=value))).startswith("$.message.iosEnabled: ")


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
