"""A message that is probably a mistake is sent with a warning, which names the line of the caller."""

from __future__ import annotations

import asyncio
import gc
import inspect
import warnings
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from support.service_thread import served

from pushsdk import (
    AsyncPushClient,
    Audience,
    Batching,
    MessageWarning,
    MobilePush,
    PushClient,
    RetryPolicy,
    Timeout,
    ValidationError,
)
from pushsdk._core import wire
from pushsdk.claims import MemoryClaims
from pushsdk.testing import FakeService

MISSPELLED: Any = {"titel": {"en": "Hi"}, "iosEnabled": True}
NEAR = "$.message.titel: unknown field, did you mean title? It is sent as it is"
NO_PLATFORM = (
    "$.message: neither iosEnabled nor androidEnabled is true, so it may reach no phone: set one. It is sent as it is"
)
NAMED: Any = {"iosEnabled": True, "title": {"en": "Hi {{ first_name | 'you' }}"}}

GOOD = MobilePush(title={"en": "Hi"}, ios_enabled=True)


class Caught:
    """The warnings of a test, each with the text of the line that it names."""

    def __init__(self, record: list[warnings.WarningMessage]) -> None:
        self.record = record

    def __eq__(self, other: object) -> bool:
        return self.seen() == other

    def __repr__(self) -> str:
        return repr(self.seen())

    def seen(self) -> list[tuple[str, str]]:
        lines = Path(__file__).read_text().splitlines()
        assert {warning.category for warning in self.record} <= {MessageWarning}
        return [
            (str(warning.message), lines[warning.lineno - 1].strip() if warning.filename == __file__ else "elsewhere")
            for warning in self.record
        ]


@pytest.fixture
def caught() -> Iterator[Caught]:
    """As Python shows warnings by default: each text once for each line."""
    with warnings.catch_warnings(record=True) as record:
        warnings.simplefilter("default")
        yield Caught(record)


def unique() -> MobilePush:
    """Return a message without a platform that no other test has: a message that was sent before is not checked."""
    return MobilePush(title={"en": inspect.stack()[1].function})


async def test_a_dict_in_a_message_has_the_names_of_the_interface(caught: Caught) -> None:
    buttons: Any = [{"label": "Open", "click_action": "DEEP_LINKING"}]
    message = MobilePush(title={"en": "Hi"}, android_enabled=True, android_action_buttons=buttons)
    async with FakeService().client() as client:
        await client.send("u", message)
    place = "$.message.android_action_buttons[0].click_action"
    assert [text for text, _ in caught.seen()] == [
        f"{place}: unknown field, did you mean clickAction? It is sent as it is"
    ]


@pytest.mark.parametrize("users", ["None", ["ann", "nan"], ["undefined"]])
async def test_the_text_of_a_missing_value_is_a_doubtful_id(caught: Caught, users: str | list[str]) -> None:
    async with FakeService().client() as client:
        await client.send(users, GOOD)
    ((text, _),) = caught.seen()
    assert text.endswith("the text of a missing value: leave such users out. It is sent as it is")


async def test_a_timeout_in_milliseconds_is_told(caught: Caught) -> None:
    async with FakeService().client() as client:
        await client.send("u", GOOD, timeout=30_000)
        await client.send("u", GOOD, timeout=timedelta(hours=9))
    assert [text for text, _ in caught.seen()] == [
        "Timeout.total=30000 is in seconds, and looks like milliseconds; pass a timedelta if it is meant"
    ]


async def test_a_placeholder_that_no_column_fills_is_told_if_we_fill_it(caught: Caught, tmp_path: Path) -> None:
    (tmp_path / "users.csv").write_text("user_id,city\na,Rome\n")
    audience = Audience.read(tmp_path / "users.csv")
    audience.personalize(NAMED)  # which the service may fill
    audience.personalize(NAMED, into="text")
    fallback = "It is sent with the fallback"
    assert [text for text, _ in caught.seen()] == [
        f"the audience has no 'first_name' for the placeholder, only city. {fallback}"
    ]


async def test_a_send_names_the_line_that_awaits_it(caught: Caught) -> None:
    async with FakeService().client() as client:
        await client.send("u", MISSPELLED)  # here
        assert caught == [(NEAR, 'await client.send("u", MISSPELLED)  # here')]


async def test_other_calls_name_the_line_that_awaits_them(caught: Caught) -> None:
    async with FakeService().client() as client:
        await client.broadcast(["u"], MISSPELLED)
        await client.create_campaign({"segment": {"query": "q"}, "message": MISSPELLED})
        await client.send_each([{"userIds": ["u"], "message": MISSPELLED}])
    assert caught == [
        (NEAR, 'await client.broadcast(["u"], MISSPELLED)'),
        (NEAR, 'await client.create_campaign({"segment": {"query": "q"}, "message": MISSPELLED})'),
        (NEAR, 'await client.send_each([{"userIds": ["u"], "message": MISSPELLED}])'),
    ]


def test_a_send_in_its_own_task_names_the_line_that_runs_the_event_loop(caught: Caught) -> None:
    async def main() -> None:
        async with FakeService().client() as client:
            await asyncio.create_task(client.send("u", MISSPELLED))

    asyncio.run(main())  # here
    assert caught == [(NEAR, "asyncio.run(main())  # here")]


@pytest.mark.parametrize("thread", [False, True], ids=["in this thread", "in another thread"])
def test_a_call_without_asyncio_names_the_line_of_the_thread_that_called(
    monkeypatch: pytest.MonkeyPatch, caught: Caught, thread: bool
) -> None:
    def calls() -> None:
        with PushClient() as client:
            client.send("u", MISSPELLED)
            client.broadcast(["u"], MISSPELLED)
            client.send_each({"userIds": [user], "message": MISSPELLED} for user in ("u", "v"))

    with served(monkeypatch), ThreadPoolExecutor() as threads:
        if thread:
            threads.submit(calls).result()
        else:
            calls()
    assert caught == [
        (NEAR, 'client.send("u", MISSPELLED)'),
        (NEAR, 'client.broadcast(["u"], MISSPELLED)'),
        (NEAR, 'client.send_each({"userIds": [user], "message": MISSPELLED} for user in ("u", "v"))'),
    ]


def test_a_call_without_asyncio_keeps_nothing_of_its_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    class Large:
        pass

    def calls(client: PushClient) -> weakref.ref[Large]:
        large = Large()
        client.send("u", MISSPELLED)
        client.broadcast(["u"], MISSPELLED)
        with pytest.raises(ValidationError):
            client.send("u", {"title": 7})  # type: ignore[dict-item]
        return weakref.ref(large)

    with served(monkeypatch), PushClient() as client, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        gc.collect()
        gc.disable()
        try:
            assert calls(client)() is None
        finally:
            gc.enable()


async def test_personal_messages_are_warned_of_once_where_they_are_made(caught: Caught, tmp_path: Path) -> None:
    (tmp_path / "users.csv").write_text("user_id\na\nb\n")
    requests = Audience.read(tmp_path / "users.csv").personalize(MISSPELLED, into="both")
    async with FakeService().client() as client:
        await client.send_each(requests)
    assert caught == [(NEAR, 'requests = Audience.read(tmp_path / "users.csv").personalize(MISSPELLED, into="both")')]


async def test_a_message_without_a_platform_is_warned_of_once(caught: Caught) -> None:
    message = unique()
    async with FakeService().client() as client:
        for _ in range(3):
            await client.send("u", message)  # here
        await client.send("v", message)
    assert [line for _, line in caught.seen()] == ['await client.send("u", message)  # here']


@pytest.mark.parametrize(
    "send",
    [
        lambda client: client.send("u", {"title": {"en": "Hi"}}),
        lambda client: client.send("u", {"title": {"en": "Hi"}, "iosEnabled": False}),
        lambda client: client.create_campaign({"segment": {"query": "q"}, "message": {"title": {"en": "Hi"}}}),
        lambda client: client.broadcast(["u"], MobilePush(title={"en": "a broadcast"}, android_enabled=False)),
    ],
)
async def test_no_platform_is_warned_of_however_the_message_is_sent(
    caught: Caught, send: Callable[[AsyncPushClient], Any]
) -> None:
    async with FakeService().client() as client:
        await send(client)
    assert [text.replace("ios_e", "iosE").replace("android_e", "androidE") for text, _ in caught.seen()] == [
        NO_PLATFORM
    ]


@pytest.mark.parametrize(
    "send",
    [
        lambda client: client.send("u", {"androidEnabled": True, "body": {"en": "Hi"}}),
        lambda client: client.send("u", MobilePush(ios_enabled=True, title={"en": "Hi"}, subtitle={"en": ""})),
        lambda client: client.send("u", MobilePush(ios_enabled=True, content_available=True)),
        lambda client: client.send("u", MobilePush(ios_enabled=True, body={"en": "Hi {{ first_name | 'there' }}"})),
        lambda client: client.create_campaign(
            {"segment": {"query": "q"}, "message": {"title": {"en": "Hi"}, "iosEnabled": True}}
        ),
        lambda client: client.send("u", {"iosEnabled": True, "body": {"en": "Use {a, b} or {1}"}}),
        lambda client: client.send("u", NAMED, custom_fields={"first_name": "Ann"}),
        lambda client: client.send("u", NAMED, custom_fields={"city": "Bonn"}),
    ],
)
async def test_a_message_to_a_platform_has_no_warning(caught: Caught, send: Callable[[AsyncPushClient], Any]) -> None:
    async with FakeService().client() as client:
        await send(client)
    assert caught == []


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ({}, "$.message: title and body are both empty."),
        ({"title": {"en": ""}, "body": {"en": " "}}, "$.message: title and body are both empty."),
        (
            {"title": {"en": "Hello {{name}}"}},
            "$.message.title.en: a placeholder is not of the form {{ field_name | 'fallback' }}.",
        ),
        (
            {"title": {"en": "Hello { name | 'you' }"}},
            (
                "$.message.title.en: a placeholder has two braces, {{ field_name | 'fallback' }}: in an f-string write "
                "{placeholder('field_name', 'fallback')}."
            ),
        ),
    ],
)
@pytest.mark.parametrize("is_struct", [True, False])
async def test_a_text_that_is_missing_or_malformed_is_warned_of(
    caught: Caught, content: Any, text: str, is_struct: bool
) -> None:
    wire._known.clear()
    async with FakeService().client() as client:
        await client.send(
            "u", MobilePush(ios_enabled=True, **content) if is_struct else {"iosEnabled": True, **content}
        )
    assert [told for told, _ in caught.seen()] == [f"{text} It is sent as it is"]


async def test_a_misspelled_name_in_a_part_of_a_message_is_warned_of(caught: Caught) -> None:
    buttons: Any = [{"lable": "Open"}]
    async with FakeService().client() as client:
        await client.send("u", MobilePush(title={"en": "Hi"}, ios_enabled=True, android_action_buttons=buttons))
    text = "$.message.android_action_buttons[0].lable: unknown field, did you mean label? It is sent as it is"
    assert [told for told, _ in caught.seen()] == [text]


@pytest.mark.parametrize(
    ("send", "text"),
    [
        (
            lambda client, _: client.send("u", NAMED, custom_fields={"firstname": "Ann"}),
            (
                "custom_fields has no 'first_name' for the placeholder, did you mean 'firstname'? It is sent with the "
                "fallback"
            ),
        ),
        (
            lambda client, _: client.send_each(
                [{"userIds": ["u"], "message": NAMED, "customFields": {"firstName": "Ann"}}]
            ),
            (
                "custom_fields has no 'first_name' for the placeholder, did you mean 'firstName'? It is sent with the "
                "fallback"
            ),
        ),
        (
            lambda client, users: client.send_each(Audience.read(users / "firstname.csv").personalize(NAMED)),
            (
                "the audience has no 'first_name' for the placeholder, did you mean 'firstname'? It is sent with the "
                "fallback"
            ),
        ),
        (
            lambda client, users: client.send_each(
                Audience.read(users / "first_name.csv").personalize(GOOD, into="text")
            ),
            "the message has no placeholder for the columns: all users get the same text",
        ),
        (
            lambda client, users: client.broadcast(Audience.read(users / "first_name.csv"), NAMED),
            (
                "the message has placeholders, and a broadcast sends no columns of the audience: "
                "use client.send_each(audience.personalize(message))"
            ),
        ),
    ],
)
async def test_a_placeholder_that_a_value_was_probably_meant_for_is_warned_of(
    caught: Caught, tmp_path: Path, send: Callable[[AsyncPushClient, Path], Any], text: str
) -> None:
    for name in ("first_name", "firstname"):
        (tmp_path / f"{name}.csv").write_text(f"user_id,{name}\nu,Ann\n")
    async with FakeService().client() as client:
        await send(client, tmp_path)
    assert [told for told, _ in caught.seen()] == [text]


async def test_a_broadcast_whose_own_fields_fill_the_placeholders_has_no_warning(
    caught: Caught, tmp_path: Path
) -> None:
    (tmp_path / "users.csv").write_text("user_id,first_name\nu,Ann\n")
    async with FakeService().client() as client:
        await client.broadcast(Audience.read(tmp_path / "users.csv"), NAMED, custom_fields={"first_name": "friend"})
    assert caught == []


SEVERAL, VARIABLE = "looks like several", "has the name of a variable for its value"


@pytest.mark.parametrize(
    ("user", "text"),
    [
        ('"ann"', "has quotation marks around it"),
        *[(user, SEVERAL) for user in ("ann,bob", "ann;bob", "ann\tbob", "ann\nbob")],
        ("17.0", "is a number with .0 at its end"),
        *[(user, VARIABLE) for user in ("{user.id}", "${USER_ID}", "$USER_ID", "user-{i}")],
    ],
)
@pytest.mark.parametrize(
    "send",
    [
        lambda client, user: client.send(user, GOOD),
        lambda client, user: client.send(["ann", user], GOOD),
        lambda client, user: client.broadcast(iter([*map(str, range(1500)), user]), GOOD),
    ],
)
async def test_an_id_that_is_probably_none_is_warned_of(
    caught: Caught, send: Callable[[AsyncPushClient, str], Any], user: str, text: str
) -> None:
    async with FakeService().client() as client:
        await send(client, user)
    ((told, _),) = caught.seen()
    assert told.startswith(f"a user id {text}")


@pytest.mark.parametrize("user", ["users.csv", "users.parquet"])
async def test_one_id_that_is_the_name_of_a_file_is_warned_of(caught: Caught, user: str) -> None:
    async with FakeService().client() as client:
        await client.send(user, GOOD)
    assert [told.partition(":")[0] for told, _ in caught.seen()] == ["a user id is the name of a file"]


@pytest.mark.parametrize(
    "user", ["ann@example.com", "user-1", "v1.0", "{3F2504E0-4F89-11D3-9A0C-0305E82C3301}", "a b", "ünï", "n"]
)
async def test_an_id_of_another_form_has_no_warning(caught: Caught, user: str) -> None:
    async with FakeService().client() as client:
        await client.send(user, GOOD)
        await client.send([user, "nancy", "None-1"], GOOD)
    assert caught == []


@pytest.mark.parametrize("key", ["shipped:{order}", "None"])
async def test_an_idempotency_key_without_its_value_is_warned_of(caught: Caught, key: str) -> None:
    async with FakeService().client(claims=MemoryClaims()) as client:
        await client.send("ann", GOOD, idempotency_key="shipped:42")
        await client.send("ann", GOOD, idempotency_key=key)
    ((told, _),) = caught.seen()
    assert told == "idempotency_key lacks its value, so jobs share it: is a variable unset, or an f missing?"


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (lambda: Timeout(total=30_000), "Timeout.total=30000"),
        (lambda: RetryPolicy.safe(max_delay=5_000), "RetryPolicy.max_delay=5000"),
        (lambda: Batching(linger=50), "Batching.linger=50"),
    ],
)
def test_a_setting_in_milliseconds_is_warned_of(caught: Caught, make: Callable[[], object], name: str) -> None:
    make()
    ((told, _),) = caught.seen()
    assert told.startswith(f"{name} is in seconds")


async def test_a_drain_in_milliseconds_is_warned_of(caught: Caught) -> None:
    await FakeService().client().aclose(drain=30_000)
    assert [told.partition(",")[0] for told, _ in caught.seen()] == ["drain=30000 is in seconds"]


@pytest.mark.parametrize("content", ["user_id\nann\n", "ann,Bonn\nbob,Ulm\n", "ann\tBonn\n", "ann;Bonn\n"])
def test_a_text_file_that_is_a_table_is_warned_of(caught: Caught, tmp_path: Path, content: str) -> None:
    (tmp_path / "users.txt").write_text(content)
    Audience.read(tmp_path / "users.txt")  # here
    advice = "each line is read as one id; the file of a table ends in .csv"
    text = f"{tmp_path / 'users.txt'} begins with a header or a row of a table: {advice}"
    assert caught == [(text, 'Audience.read(tmp_path / "users.txt")  # here')]


def test_a_client_without_asyncio_in_an_event_loop_is_warned_of(
    monkeypatch: pytest.MonkeyPatch, caught: Caught
) -> None:
    async def main() -> None:
        client.send("u", GOOD)  # here

    with served(monkeypatch), PushClient() as client:
        asyncio.run(main())
    text = "PushClient blocks the event loop of this thread until its call ends: use AsyncPushClient"
    assert caught == [(text, 'client.send("u", GOOD)  # here')]


@pytest.mark.parametrize(
    "send",
    [
        lambda client: client.send("user-1\n", GOOD),
        lambda client: client.send(["user-1", "user-2\r\n"], GOOD),
        lambda client: client.send([" user-1", 'quo"te', '" "'], GOOD),
        lambda client: client.broadcast(iter(["user-1\n", "user-2\n"]), GOOD),
        lambda client: client.broadcast(Audience.query("SELECT 'user-1 ' AS user_id"), GOOD),
    ],
)
async def test_an_id_with_space_around_it_is_warned_of(caught: Caught, send: Callable[[AsyncPushClient], Any]) -> None:
    text = "a user id begins or ends with a space or a line end: strip it. It is sent as it is"
    async with FakeService().client() as client:
        await client.send(['quo"te', "in side", "\\n"], GOOD)
        assert caught == []
        await send(client)
    assert [told for told, _ in caught.seen()] == [text]


async def test_a_warning_that_is_an_error_stops_the_call_each_time() -> None:
    service, message = FakeService(), unique()
    async with service.client() as client:
        with warnings.catch_warnings():
            warnings.simplefilter("error", MessageWarning)
            for _ in range(2):
                with pytest.raises(MessageWarning, match=r"ios_enabled"):
                    await client.send("u", message)
    assert service.requests == []


async def test_a_broadcast_to_a_complete_run_warns_at_the_callers_line(caught: Caught, tmp_path: Path) -> None:
    message = MobilePush(title={"en": "Hi"}, ios_enabled=True)
    async with FakeService().client() as client:
        await client.broadcast(["u"], message, run=tmp_path / "spring.run")
        assert caught == []
        await client.broadcast(["u"], message, run=tmp_path / "spring.run")
        await client.resume(tmp_path / "spring.run")
    text = "nothing was sent: an earlier call completed this run; to push again, pass a new run"
    assert caught == [(text, 'await client.broadcast(["u"], message, run=tmp_path / "spring.run")')]


async def test_a_campaign_without_segment_or_message_warns(caught: Caught) -> None:
    async with FakeService().client() as client:
        await client.create_campaign({"name": "spring"})
    line = 'await client.create_campaign({"name": "spring"})'
    assert caught == [
        ("$: no segment: the campaign has no audience. It is sent as it is", line),
        ("$: no message: the campaign has nothing to send. It is sent as it is", line),
    ]


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"big_image_url": "cdn.example/a.png"}, "$.message.big_image_url: the URL is relative"),
        ({"ttl": -1}, "$.message.ttl: the number is negative"),
        ({"badge_count": -1}, "$.message.badge_count: the number is negative"),
    ],
)
@pytest.mark.parametrize("is_struct", [True, False])
async def test_a_value_that_no_device_takes_is_warned_of(
    caught: Caught, changes: dict[str, Any], text: str, is_struct: bool
) -> None:
    message = GOOD.replace(collapse_id=f"a new message: {is_struct}", **changes)
    async with FakeService().client() as client:
        await client.send("ann", message if is_struct else message.to_dict())
    ((told, _),) = caught.seen()
    assert told.replace("bigImageUrl", "big_image_url").replace("badgeCount", "badge_count").startswith(text)


async def test_the_name_of_a_file_as_the_only_id_of_a_broadcast_is_warned_of(caught: Caught) -> None:
    async with FakeService().client() as client:
        await client.broadcast(["users.csv"], GOOD)
    assert [told.partition(":")[0] for told, _ in caught.seen()] == ["a user id is the name of a file"]


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (
            lambda: Timeout(connect=20, attempt=15),
            "Timeout(connect=20): the connect timeout never applies, because the att",
        ),
        (
            lambda: Timeout(connect=20, total=5),
            "Timeout(connect=20): the connect timeout never applies, because the call",
        ),
        (lambda: RetryPolicy(initial_delay=10, max_delay=1), "RetryPolicy.initial_delay=10 is above max_delay=1"),
        (lambda: AsyncPushClient("https://push.example", "key", keepalive=4000), "keepalive=4000 is in seconds"),
        (lambda: AsyncPushClient("https://push.example", "key", timeout=1000), "Timeout.total=1000 is in seconds"),
    ],
)
def test_a_setting_without_effect_or_in_milliseconds_is_warned_of(caught: Caught, make: Any, text: str) -> None:
    make()
    ((told, _),) = caught.seen()
    assert told.startswith(text)


async def test_a_shorter_timeout_of_a_call_is_no_mistake(caught: Caught) -> None:
    async with FakeService().client(timeout=Timeout(total=60, attempt=20, connect=9)) as client:
        await client.send("ann", GOOD, timeout=3)
    assert caught == []
