"""Settings are checked in the constructor: a ConfigurationError that never quotes the key or the URL."""

import ssl
import traceback

import aiohttp
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.wire_judge import HELLO
from support.wire_server import WireServer
from yarl import URL

from pushsdk import AsyncPushClient, ConfigurationError, Limits, Outcome, PushClient, RetryPolicy

HERE = "https://push.example/api"
NAN = float("nan")
NO_TIME = (0, NAN, -1, True, "1")


def refused(make, match=None):
    with pytest.raises(ConfigurationError, match=match) as excinfo:
        make()
    assert excinfo.value.outcome is Outcome.NOT_SENT
    return excinfo.value


def shown(error):
    """Return what this package shows of an error, including the locals of its frames."""
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__) if "/pushsdk/" in frame.f_code.co_filename]
    values = [value for frame in frames for name, value in frame.f_locals.items() if name != "self"]
    return f"{error} {error!r} {error.args} {error.__dict__} {values!r}"


# --- destination ---

SECRET = "s3cr3t"
BAD_URLS = [
    # no absolute http URL
    *("", "push.example", "//push.example/api", "ftp://push.example", "file:///etc/passwd", f"ftp://{SECRET}"),
    *(f"sk_live_{SECRET}", f"{SECRET}:1234", f"eyJ.{SECRET}.x:1", f"{SECRET}.a1b2/x", f"ann:{SECRET}@push.example/"),
    *("https:", "https://", "https:///api", "https:/push.example", "https://:8443"),
    # a port or a host that can't be
    *("https://push.example:0", "https://push.example:65536", "https://push.example:port", "https://push.example:+80"),
    *("https://[::1", "https://[::1]x", "https://[::1]]/a", "https://[[::1]", "https://a[::1]", "https://]"),
    *("https://[1.2.3.4]", "https://[v1.x]", "https://[::g]", "https://[]", "https://[::1%]", "https://[::1]:99999"),
    *("https://push..example", "https://.push.example", "https://xn--", "https://push.xn--a-", "https://a!b"),
    # another host than it seems
    *("http://%6cocalhost", "https://push%2eexample", "https://push.example%00", "https://%5b::1%5d"),
    *(f"https://user:{SECRET}@push.example", f"https://{SECRET}@push.example", "https://@push.example"),
    *("http://localhost@evil.example", "https://push.example\\@evil.example", "https:\\\\push.example"),
    *("https://p\u00fcsh.example", "https://pu\u00adsh.example", "https://ⓟush.example"),
    *("https://0x7f.1", "https://127.1", "https://2130706433", "https://0177.0.0.1", "https://127.0.0.1."),
    *("https://256.0.0.1", "https://push.0X7f", "http://0x7f.1"),
    # more than a host and a path
    *("https://push.example?a=b", "https://push.example/api?", "https://push.example/api#", "https://push.example#f"),
    *(f"https://push.example/?{SECRET}", "https://push.example/a b", "https://push.example/\r\nX-A: 1"),
    *("https://push.example/\x00", "https://push.example\n", " https://push.example", "https://push.example\t"),
    *(None, 7, b"https://push.example"),
]
PLAIN_URLS = [
    *("http://push.example", "HTTP://push.example", f"http://{SECRET}", "http://[::2]", "http://[::]"),
    *("http://10.0.0.1", "http://0.0.0.0", "http://128.0.0.1", "http://126.255.255.255", "http://[::ffff:10.0.0.1]"),
    *("http://localhost.evil.example", "http://localhost.", "http://localhost.localdomain"),
    *("http://127.0.0.1.evil.example", "http://127.0.0.1.nip.io"),
]


@pytest.mark.parametrize("allow_insecure", [False, True])
def test_a_base_url_that_is_not_safe_and_absolute_is_refused(allow_insecure, monkeypatch):
    monkeypatch.delenv("PUSHSDK_BASE_URL", raising=False)
    for url in BAD_URLS:
        error = refused(lambda url=url: AsyncPushClient(url, "key", allow_insecure=allow_insecure), "base_url")
        assert SECRET not in f"{error} {error!r} {error.args}"


URL_PARTS = [
    "[",
    "]",
    "::1",
    "fe80::1",
    ":",
    "%",
    "%25",
    "%zz",
    "@",
    ".",
    "-",
    "_",
    "0",
    "99999",
    "xn--",
    "a",
    "a.b",
    "/",
]


@given(st.text(max_size=30) | st.lists(st.sampled_from(URL_PARTS), max_size=6).map("".join))
def test_no_text_makes_the_check_of_a_url_raise_another_error(text):
    for url in (text, f"https://{text}", f"https://push.example/{text}", f"https://push.example:{text}"):
        try:
            result = repr(AsyncPushClient(url, "key"))
        except ConfigurationError:
            continue
        assert result.replace('"', "'").startswith(("AsyncPushClient('https://", "AsyncPushClient('http://"))
        assert result.isascii()
        assert result.isprintable()
        # What aiohttp does with it at the first send.
        assert URL(url).joinpath("v1", "push").host is not None


def test_loopback_needs_no_tls_and_https_may_go_anywhere():
    for url in (
        *("http://localhost:8080", "http://LOCALHOST", "http://127.0.0.1:80/api", "http://127.255.255.254"),
        *("http://[::1]:8080", "http://[0:0:0:0:0:0:0:1]/", "https://10.0.0.1/a/", "https://push.example/a/b%20c"),
        *("https://push.example/@home", "https://[2001:db8::7]:84", "https://push_service", "https://push.example."),
        *("https://push.example:", "https://xn--fa-hia.example", "https://[fe80::1%25eth0]/a", "https://a-.example"),
        *(f"https://push.example/{path}" for path in ("v10", "v1/api", "apiv1", "v1/pushes", "push", "V1")),
    ):
        assert f"AsyncPushClient({url.rstrip('/')!r}" in repr(AsyncPushClient(url, "key"))


def test_plain_http_elsewhere_needs_to_be_asked_for():
    for url in PLAIN_URLS:
        assert SECRET not in shown(refused(lambda url=url: AsyncPushClient(url, "key"), "plain http"))
        assert url.replace("HTTP:", "http:") in repr(AsyncPushClient(url, "key", allow_insecure=True))


# --- the key ---

BAD_KEYS = [
    *("", " ", "a b", "key\n", "key\r\nX-Evil: 1", "\ttab", "nul\x00", "del\x7f", "k\u00e9y", "\u2028", "k" * 4097)
]


async def test_a_key_that_no_header_can_carry_is_refused_unseen():
    for key in BAD_KEYS:
        hidden = f"{SECRET}{key}" if key else key
        assert SECRET not in shown(refused(lambda hidden=hidden: AsyncPushClient(HERE, hidden), "visible ASCII"))
        options = {"api_key": lambda hidden=hidden: hidden, "retry": RetryPolicy.none()}
        async with WireServer() as server, AsyncPushClient(server.base_url, **options) as client:
            with pytest.raises(Exception, match="api_key callable") as excinfo:
                await client.send("u", HELLO)
        assert SECRET not in shown(excinfo.value)
        assert server.begun == 0


def test_a_client_whose_constructor_failed_has_a_repr():
    # A traceback with locals asks for it, and before Python 3.12 fails with it.
    error = refused(lambda: PushClient(HERE, ""))
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    halves = [frame.f_locals["self"] for frame in frames if "self" in frame.f_locals]
    assert [*map(repr, halves)] == ["PushClient(not constructed)", "AsyncPushClient(not constructed)"]


@pytest.mark.parametrize(
    ("key", "hint"),
    [
        *((key, ": strip the quotation marks or white space") for key in ("abc\n", " ", "'key'")),
        ("https://push.example", r": it is a URL: did you swap base_url and api_key\?"),
        ("", ": it is empty"),
        *((key, ": it is a placeholder, put the key in its place") for key in ("<API_KEY>", "{{ key }}")),
        *((key, "$") for key in ("k\u00e9y", "k" * 4097, "Bearer abc")),
    ],
)
def test_a_refused_key_has_a_hint_at_the_commonest_causes(key, hint):
    refused(lambda: AsyncPushClient(HERE, key), f"^api_key must be .*, no spaces or line ends{hint}")


@pytest.mark.parametrize("value", [b"key", {"key": 1}, 7])
def test_a_key_or_url_of_another_type_is_refused_with_its_type(value):
    refused(lambda: AsyncPushClient(HERE, value), f"api_key must be a str, .*; got {type(value).__name__}$")
    refused(lambda: AsyncPushClient(value, "key"), f"base_url must be .*; got {type(value).__name__}$")


# --- headers, certificates, the proxy ---

BAD_HEADERS = [
    *("X-A: x", [("X-A", "x")], ["X-A"], 7),
    *({name: "x"} for name in ("Api-Key", "API-KEY", "content-type", "Content-Length", "Transfer-Encoding")),
    *({name: "x"} for name in ("Content-Encoding", "Expect")),
    *({name: "x"} for name in ("", "X A", "X-A:", "X-A\r\nApi-Key", "X-\u00c4", "X-\x00", "X-A\n", b"X-A", 7, None)),
    *({"X-A": value} for value in (f"{SECRET}\r\nX-B: b", "a\n", "\r", "a\x00", "a\x7f", "\u00e4", b"x", 7, None)),
]


def test_a_header_that_is_ours_or_none_is_refused():
    words = "headers(: a name must be an HTTP token|: the value of X-A must be| must not set | must be a mapping)"
    for headers in BAD_HEADERS:
        error = refused(lambda headers=headers: AsyncPushClient(HERE, "key", headers=headers), words)
        assert SECRET not in f"{error} {error!r} {error.args}"


def unverified(mode):
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = mode
    return context


def test_verification_can_not_be_switched_off_and_an_old_tls_is_refused():
    old = ssl.create_default_context()
    with pytest.warns(DeprecationWarning, match="TLSv1"):
        old.minimum_version = ssl.TLSVersion.TLSv1
    oldest = ssl.create_default_context()
    oldest.minimum_version = ssl.TLSVersion.MINIMUM_SUPPORTED
    for context in (False, True, "no", old, oldest, *map(unverified, ssl.VerifyMode)):
        refused(lambda context=context: AsyncPushClient(HERE, "key", ssl=context), "ssl")


def test_a_context_whose_minimum_is_left_to_openssl_is_taken_where_python_does_so(monkeypatch):
    context = ssl.create_default_context()
    context.minimum_version = ssl.TLSVersion.MINIMUM_SUPPORTED
    monkeypatch.setattr(ssl, "SSLContext", lambda _: context)  # as Debian's Python makes it
    assert not AsyncPushClient("https://push.example", "key", ssl=context).closed


def test_a_proxy_is_an_http_url():
    bad = ("", "http://u:p@[::1]]:3128", "http://u:p@xn--:3128", "proxy:3128", "socks5://proxy:1")
    for proxy in (*bad, "http://", "http://pro xy", 7, b"http://p"):
        refused(lambda proxy=proxy: AsyncPushClient(HERE, "key", proxy=proxy), "proxy")


def test_plain_http_through_a_proxy_is_refused():
    proxy = f"http://user:{SECRET}@proxy.example:3128"
    error = refused(lambda: AsyncPushClient("HTTP://127.0.0.1", "key", proxy=proxy), "would read the Api-Key")
    assert SECRET not in f"{error} {error!r} {error.args}"


# --- numbers ---


WRONG_KINDS = {
    "retry": 3,
    "timeout": RetryPolicy(),
    "batching": Limits(),
    "limits": 64,
    "rate": 10.0,
    "session": aiohttp.ClientSession,
    "keepalive": 0,
    "on_event": "print",
    "allow_insecure": "false",
}


@pytest.mark.parametrize(("name", "value"), WRONG_KINDS.items())
def test_each_setting_of_a_client_has_its_kind(name, value):
    refused(lambda: AsyncPushClient(HERE, "key", **{name: value}), name.capitalize()[1:])


@pytest.fixture
async def client():
    """A client that must send no request."""
    async with WireServer() as server:
        async with AsyncPushClient(server.base_url, "key") as client:
            yield client
        assert server.connections == 0


async def test_a_bad_option_of_a_call_sends_nothing(client):
    for timeout in NO_TIME:
        with pytest.raises(ConfigurationError, match=r"[Tt]imeout"):
            await client.create_campaign({}, timeout=timeout)
        refused(lambda timeout=timeout: client.with_options(timeout=timeout), "[Tt]imeout")
    with pytest.raises(ConfigurationError, match="retry"):
        await client.send("u", HELLO, retry=3)
    refused(lambda: client.with_options(retry="safe"), "retry")


async def test_a_bad_drain_closes_nothing(client):
    for drain in (-1, NAN, None):
        with pytest.raises(ConfigurationError, match="drain"):
            await client.aclose(drain=drain)
    assert "closed=False" in repr(client)
