"""Wrong settings and arguments: each error names the rule and the value, and nothing is sent."""

import asyncio
import gc
import io
import math
import warnings
from datetime import date, timedelta
from uuid import uuid4

import aiohttp
import pytest
from tenacity import stop_after_attempt

from pushsdk import (
    AsyncPushClient,
    Audience,
    Batching,
    ConfigurationError,
    MobilePush,
    PushClient,
    PushError,
    RetryPolicy,
    Timeout,
    ValidationError,
    read_report,
)
from pushsdk.claims import SqliteClaims
from pushsdk.emulator import Fault
from pushsdk.testing import FakeService

MESSAGE = MobilePush(title={"en": "hi"}, ios_enabled=True)
URL = "https://push.example/api"


async def async_callback(_): ...


class Table:
    """Iterates over the names of its columns, as those of pandas and polars do."""

    def __dataframe__(self): ...

    def __iter__(self):
        return iter(["user_id", "name"])


# -- settings ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: AsyncPushClient(f"{URL}/v1", "key"), "^base_url must end before /v1"),
        (lambda: AsyncPushClient(URL, lambda _: "key"), "api_key must be a str, or a callable without arguments"),
        (lambda: AsyncPushClient(URL, "k", on_event=async_callback), "not async; got the function async_callback$"),
        (lambda: AsyncPushClient(URL, "k", claims="redis:host:6379/1"), "or its location: .* redis://HOST"),
        (lambda: RetryPolicy.from_tenacity(wait=stop_after_attempt(3)), "wait must be .*; got stop_after_attempt$"),
        (lambda: Batching(split_on={200}), "must be an HTTP status from 400 to 599, .*; got 200$"),
        (lambda: SqliteClaims("sqlite:claims.db"), "path must be that of a file: claims= takes 'sqlite:PATH'"),
        (lambda: Audience.read(["ann@example.com"]), "must be a path, for example 'users.csv'; got list$"),
        (lambda: Audience.read("ids.txt", primary_key=None), "primary_key must be a str; got None$"),
        (lambda: read_report(None), "must be a path, for example .*; got None"),
        (lambda: AsyncPushClient(URL, "k").submit("u", MESSAGE), "must be used in an event loop, .* or use PushClient"),
    ],
)
def test_a_wrong_setting_is_refused_with_its_rule_and_its_value(make, text):
    with pytest.raises(PushError, match=text):
        make()


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: AsyncPushClient(URL, "key", timout=3), r"^AsyncPushClient\(\) .*'timout': did you mean 'timeout'"),
        (lambda: PushClient(URL, apikey="key"), r"^PushClient\(\) .*'apikey': did you mean 'api_key'"),
        (lambda: PushClient(URL, zzz=1), r"unexpected keyword argument 'zzz'$"),
        (lambda: RetryPolicy.safe(max_attempt=3), "Unexpected keyword argument 'max_attempt'"),
    ],
)
def test_an_unknown_keyword_is_pythons_error_with_the_nearest_name(make, text):
    with pytest.raises(TypeError, match=text):
        make()


def test_a_key_in_the_place_of_the_url_is_told(monkeypatch):
    monkeypatch.delenv("PUSHSDK_API_KEY", raising=False)
    for client in AsyncPushClient, PushClient:
        with pytest.raises(ConfigurationError, match="if it is the key, pass it as api_key="):
            client("sk_live_secret")


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("PUSHSDK_BASE_URL", "push.example/api", "PUSHSDK_BASE_URL must be an absolute URL"),
        ("PUSHSDK_BASE_URL", "https://push.example/v1", "PUSHSDK_BASE_URL must end before /v1"),
        ("PUSHSDK_API_KEY", "k k", "PUSHSDK_API_KEY must be 1 to 4096 visible ASCII characters"),
        ("PUSHSDK_SHOW_ANSWERS", "maybe", "PUSHSDK_SHOW_ANSWERS must be '1', '0' or ''; got 'maybe'$"),
    ],
)
def test_a_wrong_variable_is_named(monkeypatch, name, value, text):
    for variable in {"PUSHSDK_BASE_URL": URL, "PUSHSDK_API_KEY": "k", name: value}.items():
        monkeypatch.setenv(*variable)
    for make in AsyncPushClient, PushClient:
        with pytest.raises(ConfigurationError, match=f"^{text}"):
            make()


async def test_a_timedelta_is_taken_for_seconds():
    half = timedelta(milliseconds=500)
    minute = timedelta(minutes=1)
    assert Timeout(total=minute, connect=half) == Timeout(total=60.0, connect=0.5)
    client = FakeService(Fault.hang()).client(keepalive=half, timeout=minute)
    with pytest.raises(PushError, match=r"total timeout 0\.05 s"):
        await client.send("u", MESSAGE, timeout=timedelta(milliseconds=50))
    await client.aclose(timedelta(0))


# -- arguments ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda c: c.send(Table(), MESSAGE), "got Table, which iterates over its columns: pass one"),
        (lambda c: c.send(io.StringIO("user_id\n"), MESSAGE), r"got StringIO, an open file: use broadcast\(Audience"),
        (
            lambda c: c.send(Audience.query("SELECT 1 AS user_id"), MESSAGE),
            "^user_ids must be a str or .*; got Audience$",
        ),
        (lambda c: c.send({"title": {"en": "x"}}, ["ann"]), "got dict: the users come first, then the message$"),
        (
            lambda c: c.send(["u", ("u", "Ann")], MESSAGE),
            r"^user_ids\[1\]: expected a str, got tuple: pass row\[0\] or row\['user_id'\]$",
        ),
        (lambda c: c.send("u", {"message": {}}), 'a request around one: pass only the value of "message"$'),
        (lambda c: c.create_campaign({"title": {}}), 'expected a campaign, got a message: put it under "message"'),
        (
            lambda c: c.send_each(Audience.query("SELECT 1 AS user_id")),
            r"^requests must be .* requests, such as audience.personalize\(message\); got Audience$",
        ),
        (
            lambda c: c.broadcast(Audience.query("SELECT 1 AS user_id").personalize(MESSAGE), MESSAGE),
            r"user_ids\[0\]: expected a str, got PushRequest: use send_each$",
        ),
        # Each value that is not JSON, at any depth of each part, is tested in core/test_wire.
        (lambda c: c.send("u", {}, custom_fields={"at": [0, {"b": math.nan}]}), r"^custom_fields\.at\[1\]\.b: "),
        (lambda c: c.send("u", MobilePush(title={"en": math.nan})), r"^\$\.message\.title\.en: "),
        (lambda c: c.send("u", MESSAGE, custom_fields=[("a", 1)]), "^custom_fields: expected a mapping"),
        (lambda c: c.send("u", MobilePush), "^message must be a MobilePush or a mapping"),
        (lambda c: c.create_campaign([]), "^request must be a CampaignRequest or a mapping"),
        (lambda c: c.send([uuid4()], MESSAGE), r"^user_ids\[0\]: expected a str, got UUID: pass str\(id\)$"),
        (lambda c: c.broadcast([{"id": "u"}], MESSAGE), r"^user_ids\[0\]: .*, got dict: pass row\[0\] or row"),
        (lambda c: c.broadcast([{"userIds": ["u"], "message": MESSAGE}], MESSAGE), "got dict: use send_each$"),
        (lambda c: c.send([True], MESSAGE), "expected a str, got bool$"),
        (lambda c: c.broadcast([b"u"], MESSAGE), r"^user_ids\[0\]: expected a str, got bytes$"),
        (lambda c: c.send_each([{"user_ids": ["u"]}]), r"^request number 1: \$.user_ids: .*did you mean userIds\?$"),
        (
            lambda c: c.broadcast(["u"], MESSAGE, run=f"daily-{date}.run"),
            r"placeholder instead of its value; with today's date: run=f\"daily-{date.today\(\)}.run\"$",
        ),
    ],
)
async def test_a_wrong_argument_of_a_call_is_refused_before_anything_is_sent(call, text):
    service = FakeService()
    async with service.client(claims="memory:") as client:
        with pytest.raises(PushError, match=text):
            await call(client)
    assert service.requests == []


async def test_a_report_refuses_an_unknown_outcome_and_what_is_no_open_file():
    async with FakeService().client() as client:
        report = await client.broadcast(["u"], MESSAGE)
    with pytest.raises(ValueError, match=r"'NOT_SENT' or 'UNKNOWN'; got 'rejectd'$"):
        list(report.rows("rejectd"))
    for write in report.write_csv, report.write_jsonl:
        for file, got in (("report.csv", "'report.csv'"), (io.BytesIO(), "BytesIO")):
            with pytest.raises(ValidationError, match=f"file must be an open text file, for example .*; got {got}"):
                write(file)


# -- lifetime ----------------------------------------------------------------------------------------------------


async def send_without_close():
    client = FakeService().client()
    line = asyncio.get_running_loop() and send_without_close.__code__.co_firstlineno + 1
    await client.send("u", MESSAGE)
    return line


async def test_an_unclosed_client_warns_by_its_name_with_where_it_was_made(caplog):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        line = await send_without_close()
        gc.collect()
    (text,) = [str(warning.message) for warning in caught if __file__ in str(warning.message)]
    assert text.startswith(f"unclosed AsyncPushClient('https://push.example/external/api'), made at {__file__}:{line}")
    assert text in caplog.text, "Python hides the warning by default"


def test_calls_that_asyncio_run_cuts_off_are_told_with_the_unclosed_client(caplog):
    async def main():
        client = FakeService().client()
        for number in range(3):
            client.submit(f"u-{number}", MESSAGE)

    with pytest.warns(ResourceWarning, match=r", with 3 calls that had not ended: use `async with`, or call aclose"):
        asyncio.run(main())
    assert "with 3 calls that had not ended" in caplog.text


async def test_keepalive_and_a_session_of_ones_own_are_refused():
    async with aiohttp.ClientSession() as session:
        with pytest.raises(ConfigurationError, match="set the keepalive of its connector"):
            AsyncPushClient("https://push.example", "k", session=session, keepalive=10)


def test_a_session_of_another_event_loop_is_refused():
    async def make():
        return aiohttp.ClientSession()

    async def send(session):
        async with AsyncPushClient(URL, "key", session=session) as client:
            await client.send("u", MESSAGE)

    with asyncio.Runner() as first:
        session = first.run(make())
        with pytest.raises(ConfigurationError, match="session is of another event loop: make it in"):
            asyncio.run(send(session))
        first.run(session.close())


async def test_a_client_is_entered_once():
    async with FakeService().client() as client:
        with pytest.raises(ConfigurationError, match=r"^the client is open already: a second `with`"):
            async with client.with_options(timeout=5):
                pass
        await client.send("u", MESSAGE)


def test_a_sync_client_is_entered_once():
    with PushClient(URL, "key") as client, pytest.raises(ConfigurationError, match=r"^the client is open al"), client:
        pass
