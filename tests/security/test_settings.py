"""Settings are checked in the constructor: a ConfigurationError that never quotes the key or the URL."""

from __future__ import annotations

import ssl
import traceback
from collections.abc import AsyncIterator, Callable
from typing import Any

import aiohttp
import pytest
from support.wire_server import WireServer

from pushsdk import (
    AsyncPushClient,
    Batching,
    ConfigurationError,
    Limits,
    MobilePush,
    Outcome,
    Rate,
    RetryPolicy,
    Timeout,
)

HELLO = MobilePush(body={"en": "hi"})
HERE = "https://push.example/api"
NAN, INF = float("nan"), float("inf")
NO_NUMBER: tuple[Any, ...] = (NAN, INF, -INF, -1, True, False, "1", b"1", [1], object())
NO_TIME = (0, 0.0, *NO_NUMBER)


def refused(make: Callable[[], object], match: str | None = None) -> ConfigurationError:
    with pytest.raises(ConfigurationError, match=match) as excinfo:
        make()
    assert excinfo.value.outcome is Outcome.NOT_SENT
    return excinfo.value


def shown(error: BaseException) -> str:
    """Return what this package shows of an error, including the locals of its frames."""
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__) if "/pushsdk/" in frame.f_code.co_filename]
    values = [value for frame in frames for name, value in frame.f_locals.items() if name != "self"]
    return f"{error} {error!r} {error.args} {error.__dict__} {values!r}"


# --- destination ---

SECRET = "s3cr3t"
BAD_URLS = [
    "",
    "push.example",
    "/api",
    "//push.example/api",
    "ftp://push.example",
    "file:///etc/passwd",
    "https://",
    "https:///api",
    "https://push.example:0",
    "https://push.example:65536",
    "https://push.example:port",
    "https://[::1",
    "https://push.example?a=b",
    "https://push.example/api?",
    "https://push.example/api#",
    "https://push.example#f",
    f"https://user:{SECRET}@push.example",
    f"https://{SECRET}@push.example",
    "https://@push.example",
    "https://push.example\\@evil.example",
    "https://push.example/a b",
    "https://push.example/\r\nX-A: 1",
    "https://push.example/\x00",
    "https://push.example\n",
    " https://push.example",
    "https://p\u00fcsh.example",
    "https://0x7f.1",
    "https://0x7f000001",
    "https://127.1",
    "https://2130706433",
    "https://0177.0.0.1",
    "http://push.example",
    "http://10.0.0.1",
    "http://0.0.0.0",
    "http://localhost.evil.example",
    "http://127.0.0.1.evil.example",
    "http://[::ffff:10.0.0.1]",
    None,
    7,
    b"https://push.example",
]


@pytest.mark.parametrize("url", BAD_URLS, ids=repr)
def test_a_base_url_that_is_not_safe_and_absolute_is_refused(url: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PUSHSDK_BASE_URL", raising=False)
    error = refused(lambda: AsyncPushClient(url, "key"), "base_url")
    assert SECRET not in f"{error} {error!r} {error.args}"


@pytest.mark.parametrize("option", ["base_url", "proxy"])
def test_the_password_of_a_refused_url_is_not_in_the_tracebacks_locals(option: str) -> None:
    urls = {"base_url": HERE, option: f"ftp://user:{SECRET}@push.example"}
    assert SECRET not in shown(refused(lambda: AsyncPushClient(api_key="key", **urls), option))


@pytest.mark.parametrize(
    "url",
    ["http://localhost", "http://127.0.0.1:80/api", "http://127.9.9.9", "http://[::1]:8080", "https://10.0.0.1/a/"],
)
def test_loopback_needs_no_tls_and_https_may_go_anywhere(url: str) -> None:
    assert url.rstrip("/") in repr(AsyncPushClient(url, "key"))


def test_plain_http_elsewhere_needs_to_be_asked_for() -> None:
    assert "push.example" in repr(AsyncPushClient("http://push.example", "key", allow_insecure=True))


def test_the_environment_is_read_only_without_an_argument(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PUSHSDK_BASE_URL", HERE)
    monkeypatch.setenv("PUSHSDK_API_KEY", "key")
    assert HERE in repr(AsyncPushClient())
    refused(lambda: AsyncPushClient(""), "base_url")
    refused(lambda: AsyncPushClient(api_key=""), "api_key")


# --- the key ---

BAD_KEYS = [
    "",
    " ",
    "a b",
    "key\n",
    "key\r\nX-Evil: 1",
    "\ttab",
    "nul\x00",
    "del\x7f",
    "k\u00e9y",
    "\u2028",
    "k" * 4097,
]


@pytest.mark.parametrize("key", BAD_KEYS, ids=lambda key: repr(key[:20]))
async def test_a_key_that_no_header_can_carry_is_refused_unseen(key: str) -> None:
    hidden = f"{SECRET}{key}" if key else key
    assert SECRET not in shown(refused(lambda: AsyncPushClient(HERE, hidden), "visible ASCII"))

    def ask() -> str:
        return hidden

    async with WireServer() as server, AsyncPushClient(server.base_url, ask, retry=RetryPolicy.none()) as client:
        with pytest.raises(Exception, match="api_key callable") as excinfo:
            await client.send("u", HELLO)
        assert SECRET not in shown(excinfo.value)
    assert server.begun == 0


def test_a_client_whose_constructor_failed_has_a_repr() -> None:
    # A traceback with locals asks for it, and before Python 3.12 fails with it.
    error = refused(lambda: AsyncPushClient(HERE, ""))
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    halves = {
        id(value): value for frame in frames for value in frame.f_locals.values() if isinstance(value, AsyncPushClient)
    }
    assert [repr(value).startswith("AsyncPushClient(") for value in halves.values()] == [True]


@pytest.mark.parametrize("key", [7, ["key"], {"key": 1}, b"", True], ids=repr)
def test_a_key_is_a_text_or_a_callable(key: Any) -> None:
    refused(lambda: AsyncPushClient(HERE, key), "api_key")


def test_a_key_given_as_bytes_is_not_in_the_tracebacks_locals() -> None:
    assert SECRET not in shown(refused(lambda: AsyncPushClient(HERE, SECRET.encode())))  # type: ignore[arg-type]


def test_no_key_at_all_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PUSHSDK_API_KEY", raising=False)
    refused(lambda: AsyncPushClient(HERE), "PUSHSDK_API_KEY")


# --- headers, certificates, the proxy ---

BAD_HEADERS: list[Any] = [
    {"Api-Key": "x"},
    {"API-KEY": "x"},
    {"content-type": "text/plain"},
    {"Content-Length": "0"},
    {"Transfer-Encoding": "chunked"},
    {"Content-Encoding": "gzip"},
    {"Expect": "100-continue"},
    {"": "x"},
    {"X A": "x"},
    {"X-A:": "x"},
    {"X-A\r\nApi-Key": "x"},
    {"X-\u00c4": "x"},
    {b"X-A": "x"},
    {"X-A": "a\r\nX-B: b"},
    {"X-A": "a\x00"},
    {"X-A": "\u00e4"},
    {"X-A": b"x"},
    {"X-A": 7},
    {"X-A": None},
]


@pytest.mark.parametrize("headers", BAD_HEADERS, ids=repr)
def test_a_header_that_is_ours_or_none_is_refused(headers: Any) -> None:
    refused(lambda: AsyncPushClient(HERE, "key", headers=headers), "headers")


@pytest.mark.parametrize("headers", ["X-A: x", [("X-A", "x")], 7], ids=repr)
def test_headers_are_a_mapping(headers: Any) -> None:
    refused(lambda: AsyncPushClient(HERE, "key", headers=headers), "headers")


def unverified(mode: ssl.VerifyMode) -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = mode
    return context


@pytest.mark.parametrize("context", [False, True, 0, "no", unverified(ssl.CERT_NONE), unverified(ssl.CERT_OPTIONAL)])
def test_verification_can_not_be_switched_off(context: Any) -> None:
    refused(lambda: AsyncPushClient(HERE, "key", ssl=context), "ssl")


def test_a_context_that_does_not_check_the_hosts_name_is_refused() -> None:
    refused(lambda: AsyncPushClient(HERE, "key", ssl=unverified(ssl.CERT_REQUIRED)), "ssl")


def test_a_context_that_takes_an_old_tls_is_refused() -> None:
    context = ssl.create_default_context()
    with pytest.warns(DeprecationWarning, match="TLSv1"):
        context.minimum_version = ssl.TLSVersion.TLSv1
    refused(lambda: AsyncPushClient(HERE, "key", ssl=context), "ssl")


@pytest.mark.parametrize(
    "proxy", ["", "proxy:3128", "socks5://proxy:1", "http://pro xy", 7, True, b"http://p"], ids=repr
)
def test_a_proxy_is_an_http_url(proxy: Any) -> None:
    refused(lambda: AsyncPushClient(HERE, "key", proxy=proxy), "proxy")


def test_plain_http_through_a_proxy_is_refused() -> None:
    proxy = f"http://user:{SECRET}@proxy.example:3128"
    error = refused(lambda: AsyncPushClient("http://127.0.0.1", "key", proxy=proxy), "proxy")
    assert SECRET not in f"{error} {error!r} {error.args}"


# --- numbers ---


WRONG_KINDS = {
    "retry": (3, "safe", RetryPolicy, Timeout()),
    "timeout": (*NO_TIME, RetryPolicy()),
    "batching": (True, 100, {"linger": 0}, Limits()),
    "limits": (64, {"in_flight": 1}, Rate()),
    "rate": (10, 10.0, Limits()),
    "session": (object(), "session", aiohttp.ClientSession),
    "keepalive": tuple(value for value in NO_TIME if not isinstance(value, bool)),
    "on_event": (7, "print", []),
}


@pytest.mark.parametrize("name", WRONG_KINDS)
def test_each_setting_of_a_client_has_its_kind(name: str) -> None:
    for value in WRONG_KINDS[name]:
        refused(lambda value=value: AsyncPushClient(HERE, "key", **{name: value}), name.capitalize()[1:])


def test_keepalive_is_no_bool() -> None:
    refused(lambda: AsyncPushClient(HERE, "key", keepalive=True), "keepalive")


async def test_drain_is_no_bool() -> None:
    with pytest.raises(ConfigurationError, match="drain"):
        await AsyncPushClient(HERE, "key").aclose(drain=True)


def test_allow_insecure_is_a_bool() -> None:
    refused(lambda: AsyncPushClient("http://push.example", "key", allow_insecure="false"), "allow_insecure")  # type: ignore[arg-type]


@pytest.fixture
async def client() -> AsyncIterator[AsyncPushClient]:
    """A client that must send no request."""
    async with WireServer() as server:
        async with AsyncPushClient(server.base_url, "key") as client:
            yield client
        assert server.connections == 0


async def test_a_bad_option_of_a_call_sends_nothing(client: AsyncPushClient) -> None:
    for timeout in NO_TIME:
        with pytest.raises(ConfigurationError, match=r"[Tt]imeout"):
            await client.send("u", HELLO, timeout=timeout)
        with pytest.raises(ConfigurationError, match=r"[Tt]imeout"):
            await client.create_campaign({}, timeout=timeout)
        refused(lambda timeout=timeout: client.with_options(timeout=timeout), "[Tt]imeout")
    for retry in (3, True, "safe", RetryPolicy):
        with pytest.raises(ConfigurationError, match="retry"):
            await client.send("u", HELLO, retry=retry)


async def test_a_bad_drain_closes_nothing(client: AsyncPushClient) -> None:
    for drain in (-1, NAN, INF, "1", None):
        with pytest.raises(ConfigurationError, match="drain"):
            await client.aclose(drain=drain)
    assert "closed=False" in repr(client)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Timeout(total=10**400),
        lambda: RetryPolicy(max_delay=10**400),
        lambda: Batching(linger=10**400),
        lambda: Rate(requests_per_second=10**400),
        lambda: AsyncPushClient(HERE, "key", keepalive=10**400),
    ],
    ids=["timeout", "cap", "linger", "rate", "keepalive"],
)
def test_a_number_that_no_clock_can_add_is_refused(make: Callable[[], object]) -> None:
    refused(make)
