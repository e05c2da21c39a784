"""Wrong settings: each error names the rule, the value and the fix."""

import asyncio
import gc
import io
import re
import warnings
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from tenacity import stop_after_attempt, stop_never, wait_random

from pushsdk import (
    AsyncPushClient,
    Audience,
    Batching,
    CampaignRequest,
    ConfigurationError,
    MessageWarning,
    MobilePush,
    PushClient,
    PushError,
    RetryPolicy,
    StopPolicy,
    Timeout,
    ValidationError,
    read_report,
)
from pushsdk.claims import SqliteClaims
from pushsdk.emulator import Fault
from pushsdk.spark import DirectoryClaims
from pushsdk.testing import FakeService

MESSAGE = MobilePush(title={"en": "hi"}, ios_enabled=True)
URL = "https://push.example/api"


@pytest.mark.parametrize("client", [AsyncPushClient, PushClient])
def test_both_missing_settings_are_named_at_once(client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PUSHSDK_BASE_URL", raising=False)
    monkeypatch.delenv("PUSHSDK_API_KEY", raising=False)
    with pytest.raises(ConfigurationError, match="no base_url and no api_key: pass them, or set PUSHSDK_BASE_URL and"):
        client()
    with pytest.raises(ConfigurationError, match="no api_key: pass it, or set PUSHSDK_API_KEY"):
        client(URL)


@pytest.mark.parametrize("client", [AsyncPushClient, PushClient])
def test_a_key_in_the_place_of_the_url_is_told_and_not_shown(client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PUSHSDK_API_KEY", raising=False)
    with pytest.raises(ConfigurationError, match="if it is the key, pass it as api_key=") as caught:
        client("sk_live_secret")
    assert "secret" not in str(caught.value)


class Table:
    """Iterates over the names of its columns, as those of pandas and polars do."""

    def __dataframe__(self) -> None: ...

    def __iter__(self) -> Iterator[str]:
        return iter(["user_id", "name"])


@pytest.mark.parametrize("method", ["send", "broadcast", "send_each"])
async def test_a_table_and_a_file_are_no_ids(method: str) -> None:
    async with FakeService().client() as client:
        arguments = () if method == "send_each" else (MESSAGE,)
        with pytest.raises(ValidationError, match="got Table, which iterates over its columns: pass one"):
            await getattr(client, method)(Table(), *arguments)
        with pytest.raises(ValidationError, match=r"got StringIO, an open file: use broadcast\(Audience.read"):
            await getattr(client, method)(io.StringIO("user_id\nann\n"), *arguments)


def test_ids_in_the_place_of_a_path_are_not_shown() -> None:
    with pytest.raises(ConfigurationError, match=r"must be a path, for example 'users.csv'; got list$") as caught:
        Audience.read(["ann@example.com"])  # type: ignore[arg-type]
    assert "ann" not in str(caught.value)


@pytest.mark.parametrize("method", ["send", "broadcast", "send_each"])
def test_a_table_and_a_file_are_no_ids_of_the_sync_client(method: str) -> None:
    with PushClient(URL, "k") as client:
        arguments = () if method == "send_each" else (MESSAGE,)
        for items in (Table(), io.StringIO("user_id\nann\n")):
            with pytest.raises(ValidationError, match=r"got (Table|StringIO), "):
                getattr(client, method)(items, *arguments)


@pytest.mark.parametrize(
    ("users", "message", "text"),
    [
        ({"id": "ann"}, MESSAGE, "must be a str or an iterable of str; got dict$"),
        ({"title": {"en": "x"}}, ["ann"], "got dict: the users come first, then the message$"),
        ("ann", ["bob"], r"message must be a MobilePush or a mapping, for example MobilePush\(.*\); got list$"),
        ("ann", CampaignRequest(message=MESSAGE), "; got CampaignRequest$"),
    ],
)
async def test_an_argument_in_the_wrong_place_has_the_fix(users: Any, message: Any, text: str) -> None:
    async with FakeService().client() as client:
        with pytest.raises(ValidationError, match=text):
            await client.send(users, message)


async def test_a_message_alone_is_no_campaign() -> None:
    async with FakeService().client() as client:
        with pytest.raises(ValidationError, match=r"request must be a CampaignRequest or a mapping; got MobilePush$"):
            await client.create_campaign(MESSAGE)  # type: ignore[arg-type]


@pytest.mark.parametrize("end", ["/v1", "/v1/", "/v1/push", "/v1/push/", "/v1/campaigns", "/v1//"])
@pytest.mark.parametrize("prefix", ["", "/external/api"])
def test_a_base_url_that_ends_in_v1_is_refused_with_the_fix(prefix: str, end: str) -> None:
    with pytest.raises(ConfigurationError, match=r"^base_url must end before /v1: the client adds /v1/push") as caught:
        AsyncPushClient(f"https://push.example{prefix}{end}", "secret-key")
    assert "example" not in str(caught.value)


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: AsyncPushClient(URL, "key", timout=3), r"^AsyncPushClient\(\) .*'timout': did you mean 'timeout'"),
        (lambda: PushClient(URL, "key", rates=1), r"^PushClient\(\) .*'rates': did you mean 'rate'"),
        (lambda: AsyncPushClient(baseurl=URL), "'baseurl': did you mean 'base_url'"),
        (lambda: PushClient(URL, apikey="key"), "'apikey': did you mean 'api_key'"),
        (lambda: PushClient(URL, "key", option=1), "unexpected keyword argument 'option'$"),
        (lambda: AsyncPushClient(URL, "key", maxRetries=3), "'maxRetries': did you mean 'retry'?"),
        (lambda: AsyncPushClient(URL, "key", verify=False), "'verify': did you mean 'ssl'?"),
        (lambda: PushClient(URL, "key", retries=5), "'retries': did you mean 'retry'?"),
        (lambda: AsyncPushClient(URL, key="key"), "'key': did you mean 'api_key'"),
        (lambda: AsyncPushClient(url=URL), "'url': did you mean 'base_url'"),
    ],
)
def test_an_unknown_keyword_suggests_the_nearest(make, text: str) -> None:
    with pytest.raises(TypeError, match=text):
        make()


@pytest.mark.parametrize(
    ("options", "start"),
    [
        *(
            ({"base_url": url}, "https:// (http:// for localhost)")
            for url in ("127.0.0.1:9100", "localhost/api", "push.example/api", "push.example:8443")
        ),
        ({"base_url": URL, "proxy": "proxy.example:3128"}, "http:// or https://"),
    ],
)
def test_the_start_of_a_url_without_its_scheme_is_named(options: dict, start: str) -> None:
    with pytest.raises(ConfigurationError, match=re.escape(f"; it must begin with {start}")):
        AsyncPushClient(api_key="k", **options)


@pytest.mark.parametrize(
    "url", ["abcdef.secret", "sk-secret", "ann:secret@push.example/", "secret:1234", "eyJ.secret.x:1", "secret.a1b2/x"]
)
def test_a_url_that_may_be_a_secret_is_not_shown(url: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        AsyncPushClient(url, "k")
    assert "secret" not in str(caught.value)


async def async_callback(_: object) -> None: ...


class AsyncCallback:
    async def __call__(self, _: object) -> None: ...


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: RetryPolicy.from_tenacity(stop=3), r"for example tenacity.stop_after_attempt\(3\); got 3$"),
        (lambda: RetryPolicy.from_tenacity(wait="x"), r"RetryPolicy.wait must be a strategy of tenacity, .*; got 'x'$"),
        (lambda: RetryPolicy.from_tenacity(stop=stop_never.__class__), "got the class _stop_never$"),
        (lambda: RetryPolicy.from_tenacity(retry=ValueError), "got the class ValueError$"),
        (lambda: RetryPolicy(unknown="retri"), "must be 'raise', 'retry_if_collapsible' or 'retry'; got 'retri'$"),
        (
            lambda: RetryPolicy(statuses={"500": "REJECTED"}),
            "a key of RetryPolicy.statuses must be .*; got '500'$",
        ),
        (
            lambda: RetryPolicy(statuses={50: "REJECTED"}),
            "must be an HTTP status from 100 to 599, .*; got 50$",
        ),
        (
            lambda: Batching(split_on={200}),
            "must be an HTTP status from 400 to 599, .*; got 200$",
        ),
        (lambda: Timeout(total="5"), "Timeout.total must be a number of seconds greater than 0; got '5'$"),
        (lambda: Timeout(total="abcdefghijklmnopqrstuvwxyz-0123456789"), "greater than 0; got str$"),
        (lambda: AsyncPushClient(URL, "key", retry=3), r"for example RetryPolicy.safe\(max_attempts=3\); got 3$"),
        (
            lambda: AsyncPushClient(URL, "key", timeout=(5, 30)),
            r"Timeout\(total=30, connect=5\); got tuple$",
        ),
        (lambda: AsyncPushClient(URL, "key", headers="x"), "headers must be a mapping .*; got str$"),
        (lambda: AsyncPushClient(URL, "key", retry=RetryPolicy), "got the class RetryPolicy$"),
        (lambda: AsyncPushClient(URL, "key", retry=RetryPolicy.none), "got the method RetryPolicy.none$"),
        (lambda: AsyncPushClient(URL, lambda _: "key"), "api_key must be a str, or a callable without arguments .*"),
        (
            lambda: AsyncPushClient(URL, "key", on_event=async_callback),
            "on_event must be a function of 1 argument, not async; got the function async_callback$",
        ),
        (
            lambda: PushClient(URL, "key", on_event=AsyncCallback()),
            "on_event must be a function of 1 argument, not async; got AsyncCall",
        ),
        (
            lambda: AsyncPushClient(URL, "key", on_event=lambda: None),
            "on_event must be a function of 1 argument, not async; got the function .*<lambda>$",
        ),
        (lambda: RetryPolicy.from_tenacity(stop=wait_random(0, 2)), "stop must be .*; got wait_random$"),
        (lambda: RetryPolicy.from_tenacity(wait=stop_after_attempt(3)), "wait must be .*; got stop_after_attempt$"),
        (lambda: SqliteClaims("x", durable="x"), "durable must be True or False; got 'x'$"),
        (lambda: DirectoryClaims(5), "path must be a path, for example 'claims'; got 5$"),
    ],
)
def test_a_wrong_value_is_refused_and_shown_if_it_is_short(make, text: str) -> None:
    with pytest.raises(ConfigurationError, match=text):
        make()


def test_a_wrong_switch_for_answers_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PUSHSDK_SHOW_ANSWERS", "maybe")
    with pytest.raises(ConfigurationError, match=r"^PUSHSDK_SHOW_ANSWERS must be '1', '0' or ''; got 'maybe'$"):
        AsyncPushClient(URL, "key")


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (
            lambda c: c.broadcast(["u"], MESSAGE, durable="x"),
            ConfigurationError,
            "durable must be True or False; got 'x'",
        ),
        (
            lambda c: c.broadcast(["u"], MESSAGE, dedupe="x"),
            ConfigurationError,
            "dedupe must be True or False; got 'x'",
        ),
        (
            lambda c: c.broadcast(["u"], MESSAGE, run=5),
            ConfigurationError,
            "run must be a path, for example 'spring.run'; got 5",
        ),
        (
            lambda c: c.send("u", {"message": {"title": {"en": "hi"}}}),
            ValidationError,
            '$.message: expected a message, got a request around one: pass only the value of "message"',
        ),
        (
            lambda c: c.send_each([{"user_ids": ["u"]}]),
            ValidationError,
            "request number 1: $.user_ids: unknown field, did you mean userIds?",
        ),
        (
            lambda c: c.send(["u", ("u", "Ann")], MESSAGE),
            ValidationError,
            "user_ids[1]: expected a str, got tuple",
        ),
        (
            lambda c: c.send_each([{"x": ["u"]}]),
            ValidationError,
            "request number 1: $.x: unknown field: a push request has userIds, message, customFields",
        ),
    ],
)
async def test_a_wrong_argument_of_a_call_is_refused(call, error: type[PushError], text: str) -> None:
    async with FakeService().client() as client:
        with pytest.raises(error, match=f"^{re.escape(text)}$"):
            await call(client)


async def test_ids_that_are_not_awaited_are_refused() -> None:
    async def ids() -> list[str]:
        return ["u"]

    async with FakeService().client() as client:
        for call in (client.send, client.broadcast):
            with pytest.raises(ValidationError, match=r"got coroutine$"):
                await call(given := ids(), MESSAGE)  # type: ignore[arg-type]
            given.close()


async def test_the_rows_of_a_misspelled_outcome_are_refused() -> None:
    async with FakeService().client() as client:
        report = await client.broadcast(["u"], MESSAGE)
        with pytest.raises(ValueError, match=r"'NOT_SENT' or 'UNKNOWN'; got 'rejectd'$"):
            list(report.rows("rejectd"))  # type: ignore[arg-type]


@pytest.mark.parametrize("read", [Audience.read, read_report])
@pytest.mark.parametrize("path", [5, None, ""])
def test_what_is_no_path_is_refused(read, path: object) -> None:
    with pytest.raises(ConfigurationError, match=f"must be a path, for example .*; got {path!r}"):
        read(path)


def test_a_client_without_an_event_loop_is_refused() -> None:
    with pytest.raises(
        ConfigurationError, match=r"AsyncPushClient must be used in an event loop, .* or use PushClient"
    ):
        AsyncPushClient(URL, "key").submit("u", MESSAGE)


def test_an_async_on_progress_is_refused_by_both_clients() -> None:
    client = PushClient(URL, "key")
    with pytest.raises(ConfigurationError, match="on_progress must be a function of 1 argument, not async"):
        client.broadcast(["u"], MESSAGE, on_progress=async_callback)
    client.close()


def test_a_timedelta_is_taken_for_seconds() -> None:
    half, minute = timedelta(milliseconds=500), timedelta(minutes=1)
    assert Timeout(total=minute, connect=half) == Timeout(total=60.0, connect=0.5)
    assert RetryPolicy(initial_delay=half, max_retry_after=minute) == RetryPolicy(initial_delay=0.5, max_retry_after=60)
    assert Batching(linger=half) == Batching(linger=0.5)
    assert StopPolicy(max_outage=minute) == StopPolicy(max_outage=60.0)
    with pytest.raises(ConfigurationError, match=r"Timeout\.total must be a number of seconds greater than 0; got -1"):
        Timeout(total=timedelta(seconds=-1))
    client = AsyncPushClient(URL, "secret-key", keepalive=half, timeout=minute)
    assert (client._lifetime.settings.keepalive, client._options.timeout.total) == (0.5, 60.0)


async def test_a_call_and_a_close_take_a_timedelta() -> None:
    client = FakeService(Fault.hang()).client()
    with pytest.raises(PushError, match=r"total timeout 0\.05 s"):
        await client.send("u", MESSAGE, timeout=timedelta(milliseconds=50))
    await client.aclose(timedelta(0))


@pytest.mark.parametrize("timeout", [{"attempt": 40, "total": 30}, {"attempt": timedelta(seconds=40)}])
def test_an_attempt_timeout_that_never_applies_warns(timeout: dict) -> None:
    with pytest.warns(
        UserWarning, match=r"Timeout\(attempt=40, total=30\): .* raise total, or leave attempt"
    ) as caught:
        Timeout(**timeout)
    assert caught[0].filename == __file__


async def test_a_shorter_total_of_a_call_does_not_warn() -> None:
    assert Timeout(total=5).attempt == 10.0
    async with FakeService().client(timeout=Timeout(attempt=40, total=60)) as client:
        await client.send("u", MESSAGE, timeout=30)


async def send_without_close() -> int:
    client = FakeService().client()
    line = asyncio.get_running_loop() and send_without_close.__code__.co_firstlineno + 1
    await client.send("u", MESSAGE)
    return line


async def test_an_unclosed_client_warns_by_its_name_with_where_it_was_made(caplog: pytest.LogCaptureFixture) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        line = await send_without_close()
        gc.collect()
    (text,) = [str(warning.message) for warning in caught if __file__ in str(warning.message)]
    assert text.startswith(f"unclosed AsyncPushClient('https://push.example/external/api'), made at {__file__}:{line}")
    assert text in caplog.text, "Python hides the warning by default"


def test_calls_that_asyncio_run_cuts_off_are_told_with_the_unclosed_client(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        client = FakeService().client()
        for number in range(3):
            client.submit(f"u-{number}", MESSAGE)

    with pytest.warns(ResourceWarning, match=r", with 3 calls that had not ended: use `async with`, or call aclose"):
        asyncio.run(main())
    assert "with 3 calls that had not ended" in caplog.text


def test_a_client_that_is_used_again_in_another_loop_is_refused_and_told_once() -> None:
    client = FakeService().client()

    async def send() -> None:
        await client.send("u", MESSAGE)

    with pytest.warns(ResourceWarning, match="unclosed AsyncPushClient"):
        asyncio.run(send())
    with pytest.raises(ConfigurationError, match="in use by another event loop"):
        asyncio.run(send())
    gc.collect()  # no second warning, which would be an error


@pytest.mark.parametrize(
    ("url", "key", "text"),
    [
        ("push.example/api", "k", "PUSHSDK_BASE_URL must be an absolute URL"),
        ("https://push.example/v1", "k", "PUSHSDK_BASE_URL must end before /v1"),
        ("https://push.example", "k k", "PUSHSDK_API_KEY must be 1 to 4096 visible ASCII characters"),
    ],
)
def test_a_wrong_variable_is_named(monkeypatch: pytest.MonkeyPatch, url: str, key: str, text: str) -> None:
    monkeypatch.setenv("PUSHSDK_BASE_URL", url)
    monkeypatch.setenv("PUSHSDK_API_KEY", key)
    for make in AsyncPushClient, PushClient:
        with pytest.raises(ConfigurationError, match=f"^{text}"):
            make()


async def test_keepalive_and_a_session_of_ones_own_are_refused() -> None:
    async with aiohttp.ClientSession() as session:
        with pytest.raises(ConfigurationError, match="set the keepalive of its connector"):
            AsyncPushClient("https://push.example", "k", session=session, keepalive=10)


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: RetryPolicy.safe(unknown="retry"), "multiple values for keyword argument 'unknown'"),
        (lambda: RetryPolicy.none(max_attempts=3), "multiple values for keyword argument 'max_attempts'"),
        (lambda: RetryPolicy.safe(max_attempt=3), "Unexpected keyword argument 'max_attempt'"),
    ],
)
def test_a_preset_takes_neither_an_unknown_option_nor_what_it_sets(call: Callable[[], object], text: str) -> None:
    with pytest.raises(TypeError, match=text):
        call()


@pytest.mark.parametrize(
    "option", [{"timeout": 5}, {"retry": RetryPolicy.none()}, {"idempotency_key": "job-1"}, {"sending": None}]
)
async def test_a_run_refuses_the_options_of_a_send(option: dict[str, Any]) -> None:
    service = FakeService()
    async with service.client() as client:
        with pytest.raises(TypeError, match=rf"keyword argument '{next(iter(option))}'"):
            await client.broadcast(["u"], MESSAGE, **option)
    assert service.users() == {}


async def test_a_run_that_is_resumed_says_that_other_users_are_not_read(tmp_path: Path) -> None:
    service = FakeService()
    async with service.client(batching=Batching(max_users=1)) as client:
        await client.broadcast(["u-1", "u-2", "u-1"], MESSAGE, run=tmp_path / "p.run", limit=1)
        with pytest.warns(
            MessageWarning, match="resumed with the 2 users of its plan; the 4 users of this call are not"
        ):
            await client.broadcast(["x"] * 4, MESSAGE, run=tmp_path / "p.run", limit=1)
    assert service.users() == {"u-1": 1, "u-2": 1}


async def test_the_same_users_resume_a_run_without_a_warning(tmp_path: Path) -> None:
    async with FakeService().client(batching=Batching(max_users=1)) as client:
        for _ in range(2):
            await client.broadcast(["u-1", "u-2", "u-1"], MESSAGE, run=tmp_path / "p.run", limit=1)


async def test_an_audience_is_neither_ids_of_a_send_nor_requests(tmp_path: Path) -> None:
    (tmp_path / "ids.txt").write_text("u-1\n")
    audience: Any = Audience.read(tmp_path / "ids.txt")
    async with FakeService().client() as client:
        with pytest.raises(ValidationError, match=r"^user_ids must be a str or an iterable of str; got Audience$"):
            await client.send(audience, MESSAGE)
        with pytest.raises(ValidationError, match=r"^requests must be an iterable of requests; got Audience$"):
            await client.send_each(audience)


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (
            lambda ids: Audience.read(ids, primary_key=None),
            "primary_key must be a str; got None",
        ),
        (
            lambda ids: Audience.query("SELECT 1", primary_key=5),
            "primary_key must be a str; got 5",
        ),
        (lambda ids: Audience.lines(open(ids)), "file must be a binary stream, for example .*; got TextIOWrapper"),  # noqa: SIM115
        (lambda ids: Audience.read("s3://bucket/ids.txt"), "there is no file .*: only local files are read"),
        (lambda ids: SqliteClaims("sqlite:claims.db"), "path must be that of a file: claims= takes 'sqlite:PATH'"),
        (lambda ids: SqliteClaims(":memory:"), "path must be that of a file: .* 'memory:'"),
        (lambda ids: AsyncPushClient(URL, "k", claims="sqlite::memory:"), "or its location: memory:, sqlite:PATH"),
        (lambda ids: AsyncPushClient(URL, "k", claims="redis:host:6379/1"), "or its location: .* redis://HOST"),
    ],
)
@pytest.mark.filterwarnings("ignore:unclosed file")
def test_a_wrong_source_or_location_is_refused_at_once(
    make: Callable[[Path], object], text: str, tmp_path: Path
) -> None:
    (tmp_path / "ids.txt").write_text("u-1\n")
    with pytest.raises(PushError, match=text):
        make(tmp_path / "ids.txt")


async def test_a_report_is_written_to_an_open_file() -> None:
    async with FakeService().client() as client:
        report: Any = await client.broadcast(["u"], MESSAGE)
    for write in report.write_csv, report.write_jsonl:
        with pytest.raises(ValidationError, match=r"file must be an open text file, for example .*; got 'report.csv'"):
            write("report.csv")
        with pytest.raises(ValidationError, match=r"file must be an open text file, for example .*; got BytesIO"):
            write(io.BytesIO())


async def test_a_message_is_no_campaign() -> None:
    async with FakeService().client() as client:
        with pytest.raises(ValidationError, match=r'\$: expected a campaign, got a message: put it under "message"'):
            await client.create_campaign({"title": {"en": "Hi"}, "iosEnabled": True})


async def test_an_empty_source_is_told() -> None:
    async with FakeService().client() as client:
        with pytest.warns(MessageWarning, match="^nothing was sent: the source has no users$"):
            await client.broadcast([], MESSAGE)


async def test_a_closed_client_and_an_unused_one_do_not_warn() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        AsyncPushClient(URL, "secret-key")
        async with FakeService().client() as client:
            await client.send("u", MESSAGE)
        del client
        gc.collect()


def test_a_session_of_another_event_loop_is_refused() -> None:
    async def make() -> aiohttp.ClientSession:
        return aiohttp.ClientSession()

    async def send(session: aiohttp.ClientSession) -> None:
        async with AsyncPushClient(URL, "key", session=session) as client:
            await client.send("u", MESSAGE)

    with asyncio.Runner() as first:
        session = first.run(make())
        with pytest.raises(ConfigurationError, match="session is of another event loop: make it in"):
            asyncio.run(send(session))
        first.run(session.close())


THEIR_TIMEOUT = type("Timeout", (), {"__module__": "httpx"})


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: AsyncPushClient(URL, "key", timeout=aiohttp.ClientTimeout()), "; got ClientTimeout"),
        (lambda: AsyncPushClient(URL, "key", timeout=THEIR_TIMEOUT()), "; got httpx.Timeout"),
        (lambda: AsyncPushClient(URL, "key", headers={"X-Id": 5}), "printable ASCII text; got int"),
    ],
)
def test_a_value_of_another_library_is_named_with_it(make: Any, text: str) -> None:
    with pytest.raises(ConfigurationError, match=re.escape(text)):
        make()


async def test_a_client_is_entered_once() -> None:
    async with FakeService().client() as client:
        with pytest.raises(ConfigurationError, match=r"^the client is open already: a second `with`"):
            async with client.with_options(timeout=5):
                pass
        await client.send("u", MESSAGE)


@pytest.mark.parametrize("password", ["pa$Sword", "YOUR_own", "a{b}"])
def test_the_password_of_a_proxy_is_no_placeholder(password: str) -> None:
    AsyncPushClient("https://push.example/$web", "key", proxy=f"http://user:{password}@proxy.example:3128")


def test_a_sync_client_is_entered_once() -> None:
    with (
        PushClient(URL, "key") as client,
        pytest.raises(ConfigurationError, match=r"^the client is open already: "),
        client,
    ):
        pass
