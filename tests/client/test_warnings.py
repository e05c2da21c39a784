"""A call that is probably a mistake is sent with a warning, which names the line of the caller."""

import asyncio
import warnings
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

import pytest
from support.service_thread import served

from pushsdk import (
    AsyncPushClient,
    Audience,
    Batching,
    ConfigurationError,
    MessageWarning,
    MobilePush,
    PushClient,
    RetryPolicy,
)
from pushsdk.claims import MemoryClaims
from pushsdk.testing import FakeService

URL = "https://push.example"
MISSPELLED = {"titel": {"en": "Hi"}, "iosEnabled": True}
NEAR = "$.message.titel: unknown field, did you mean title? It is sent as it is"
NAMED = {"iosEnabled": True, "title": {"en": "Hi {{ first_name | 'you' }}"}}
GOOD = MobilePush(title={"en": "Hi"}, ios_enabled=True)


class Caught:
    """The warnings of a test, each with the text of the line that it names."""

    def __init__(self, record):
        self.record = record

    def __eq__(self, other):
        return self.seen() == other

    def __repr__(self):
        return repr(self.seen())

    def seen(self):
        lines = Path(__file__).read_text().splitlines()
        assert {warning.category for warning in self.record} <= {MessageWarning}
        return [
            (str(warning.message), lines[warning.lineno - 1].strip() if warning.filename == __file__ else "elsewhere")
            for warning in self.record
        ]

    def one(self):
        """Return the text of the only warning."""
        ((text, _),) = self.seen()
        return text


@pytest.fixture
def caught():
    """As Python shows warnings by default: each text once for each line."""
    with warnings.catch_warnings(record=True) as record:
        warnings.simplefilter("default")
        yield Caught(record)


@pytest.fixture
def tables(tmp_path):
    """A folder with two tables, each named by its column."""
    for name in ("first_name", "firstname"):
        (tmp_path / f"{name}.csv").write_text(f"user_id,{name}\nu,Ann\n")
    return tmp_path


# -- the line ----------------------------------------------------------------------------------------------------


async def test_a_call_names_the_line_that_awaits_it(caught):
    async with FakeService().client() as client:
        await client.send("u", MISSPELLED)
        await client.broadcast(["u"], MISSPELLED)
        await client.create_campaign({"segment": {"query": "q"}, "message": MISSPELLED})
        await client.send_each([{"userIds": ["u"], "message": MISSPELLED}])
    assert caught == [
        (NEAR, 'await client.send("u", MISSPELLED)'),
        (NEAR, 'await client.broadcast(["u"], MISSPELLED)'),
        (NEAR, 'await client.create_campaign({"segment": {"query": "q"}, "message": MISSPELLED})'),
        (NEAR, 'await client.send_each([{"userIds": ["u"], "message": MISSPELLED}])'),
    ]


@pytest.mark.parametrize("thread", [False, True])
def test_a_call_without_asyncio_names_the_line_of_the_thread_that_called(monkeypatch, caught, thread):
    def calls():
        with PushClient() as client:
            client.send("u", MISSPELLED)
            client.broadcast(["u"], MISSPELLED)

    with served(monkeypatch), ThreadPoolExecutor() as threads:
        if thread:
            threads.submit(calls).result()
        else:
            calls()
    assert caught == [(NEAR, 'client.send("u", MISSPELLED)'), (NEAR, 'client.broadcast(["u"], MISSPELLED)')]


def test_a_client_without_asyncio_in_an_event_loop_is_warned_of(monkeypatch, caught):
    async def main():
        client.send("u", GOOD)  # here

    with served(monkeypatch), PushClient() as client:
        asyncio.run(main())
    text = "PushClient blocks the event loop of this thread until its call ends: use AsyncPushClient"
    assert caught == [(text, 'client.send("u", GOOD)  # here')]


def test_a_loop_of_pushsdk_in_a_green_thread_is_not_blocked(monkeypatch, caught):
    loops = []
    with served(monkeypatch), PushClient(on_event=lambda _: loops.append(asyncio.get_running_loop())) as client:
        client.send("u", GOOD)
        asyncio._set_running_loop(loops[0])  # as gevent and eventlet do
        try:
            client.send("u", GOOD)
            other = PushClient()
            with pytest.raises(ConfigurationError, match="keep one PushClient open at a time"):
                other.send("u", GOOD)
        finally:
            asyncio._set_running_loop(None)
        other.close()
    assert caught == []


async def test_personal_messages_are_warned_of_once_where_they_are_made(caught, tables):
    requests = Audience.read(tables / "firstname.csv").personalize(MISSPELLED, into="both")
    async with FakeService().client() as client:
        await client.send_each(requests)
    assert caught.seen()[0] == (
        NEAR,
        'requests = Audience.read(tables / "firstname.csv").personalize(MISSPELLED, into="both")',
    )


async def test_a_broadcast_to_a_complete_run_warns_at_the_callers_line(caught, tmp_path):
    async with FakeService().client() as client:
        await client.broadcast(["u"], GOOD, run=tmp_path / "spring.run")
        assert caught == []
        await client.broadcast(["u"], GOOD, run=tmp_path / "spring.run")
        await client.resume(tmp_path / "spring.run")
    text = "nothing was sent: an earlier call completed this run; to push again, pass a new run"
    assert caught == [(text, 'await client.broadcast(["u"], GOOD, run=tmp_path / "spring.run")')]


# -- what is warned of -------------------------------------------------------------------------------------------

FIRST_NAME = "no 'first_name' for the placeholder, did you mean"


@pytest.mark.parametrize(
    ("send", "text"),
    [
        (
            lambda client, _: client.send("u", {"title": {"en": "a dict"}}),
            "$.message: neither iosEnabled nor androidEnabled",
        ),
        (lambda client, _: client.create_campaign({"segment": {"query": "q"}}), "$: no message"),
        (lambda client, _: client.broadcast([], GOOD), "nothing was sent: the source has no users"),
        (
            lambda client, _: client.send("u", NAMED, custom_fields={"firstname": "Ann"}),
            f"custom_fields has {FIRST_NAME} 'firstname'? It is sent with the fallback",
        ),
        (
            lambda client, folder: client.send_each(Audience.read(folder / "firstname.csv").personalize(NAMED)),
            f"the audience has {FIRST_NAME} 'firstname'?",
        ),
        (
            lambda client, folder: client.send_each(
                Audience.read(folder / "first_name.csv").personalize(GOOD, into="text")
            ),
            "the message has no placeholder for the columns",
        ),
        (
            lambda client, folder: client.broadcast(Audience.read(folder / "first_name.csv"), NAMED),
            "the message has placeholders, and a broadcast sends no columns",
        ),
        (
            lambda client, folder: client.broadcast(Audience.read(folder / "firstname.csv"), NAMED),
            "the message has placeholders, and a broadcast sends no columns",
        ),
        (
            lambda client, _: client.send("u", GOOD, idempotency_key="shipped:{order}"),
            "idempotency_key lacks its value",
        ),
        (lambda client, _: client.aclose(drain=30_000), "drain=30000 is in seconds"),
        (
            lambda client, _: client.send(["ann", "17.0", "nan", "18.0"], GOOD),
            (
                "a user id is a number with .0 at its end, as pandas and spreadsheets write an int: read the column as "
                "text (2 such ids); another is 'nan', the text of a missing value: leave such users out. Such ids are"
            ),
        ),
        (lambda client, _: client.send("users.csv", GOOD), "a user id is the name of a file"),
        (
            lambda client, _: client.broadcast(iter([*map(str, range(1500)), "user-1\n"]), GOOD),
            "a user id begins or ends with a space",
        ),
    ],
)
async def test_a_call_that_is_probably_a_mistake_is_warned_of_once(caught, tables, send, text):
    async with FakeService().client(claims=MemoryClaims()) as client:
        await send(client, tables)
    assert caught.one().startswith(text)


@pytest.mark.parametrize(
    "send",
    [
        lambda client, _: client.send("u", {"androidEnabled": True, "body": {"en": "Use {a, b} or {1}"}}),
        lambda client, _: client.send("u", NAMED, custom_fields={"first_name": "Ann"}),
        lambda client, folder: client.broadcast(
            Audience.read(folder / "first_name.csv"), NAMED, custom_fields={"first_name": "friend"}
        ),
        lambda client, _: client.send("u", GOOD, timeout=timedelta(hours=9)),
        lambda client, _: client.send("u", GOOD, idempotency_key="shipped:42"),
    ],
)
async def test_a_call_that_may_be_right_has_no_warning(caught, tables, send):
    async with FakeService().client(claims=MemoryClaims()) as client:
        await send(client, tables)
    assert caught == []


def test_a_placeholder_that_no_column_fills_is_told_if_we_fill_it(caught, tmp_path):
    (tmp_path / "users.csv").write_text("user_id,city\na,Rome\n")
    audience = Audience.read(tmp_path / "users.csv")
    audience.personalize(NAMED)  # which the service may fill
    audience.personalize(NAMED, into="text")
    assert caught.one().startswith("the audience has no 'first_name' for the placeholder, only city.")


@pytest.mark.parametrize(
    ("name", "content", "place", "damage"),
    [
        ("users.txt", "ann\n\nuser_id\n1.00\n", "line 3", "is the name of a column"),
        ("users.csv", 'user_id,n\na,"1\n2"\n1.23E+11,3\n1.23E+11,4\n', "line 4, user_id", "is a number that a"),
        ("users.jsonl", '{"user_id":"a"}\n{"user_id":"#N/A"}\n', "line 2, user_id", "is an error in a spreadsheet"),
    ],
)
@pytest.mark.parametrize("each", [False, True])
async def test_a_damaged_id_is_warned_of_with_its_place(caught, tmp_path, name, content, place, damage, each):
    (tmp_path / name).write_text(content)
    users = Audience.read(tmp_path / name)
    async with FakeService().client() as client:
        if each:
            await client.send_each(users.personalize(GOOD))
        else:
            await client.broadcast(users, GOOD)
    assert caught.one().startswith(f"a user id ({tmp_path / name}, {place}) {damage}")


async def test_a_damaged_id_in_a_query_is_warned_of_with_its_row(caught):
    async with FakeService().client() as client:
        await client.broadcast(Audience.query("SELECT unnest(['a', 'NULL']) AS user_id"), GOOD)
    assert caught.one().startswith("a user id (the query, row 2, user_id) is 'NULL'")


async def test_a_run_whose_ids_are_refused_can_be_planned_again(tmp_path):
    service = FakeService()
    async with service.client() as client:
        with warnings.catch_warnings():
            warnings.filterwarnings("error", "a user id", MessageWarning)
            with pytest.raises(MessageWarning, match=r"'null'"):
                await client.broadcast(["ann", "null"], GOOD, run=tmp_path / "a.run")
        assert service.requests == []
        report = await client.broadcast(["ann"], GOOD, run=tmp_path / "a.run")
    assert report.accepted == 1


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: RetryPolicy.safe(max_delay=5_000), "RetryPolicy.max_delay=5000 is in seconds"),
        (lambda: AsyncPushClient(URL, "key", timeout=1000), "Timeout.total=1000 is in seconds"),
        (lambda: Batching(linger=10), "Batching.linger=10 is in seconds"),
        (lambda: RetryPolicy(initial_delay=10, max_delay=1), "RetryPolicy.initial_delay=10 is above max_delay=1"),
    ],
)
def test_a_setting_without_effect_or_in_milliseconds_is_warned_of(caught, make, text):
    make()
    assert caught.one().startswith(text)
