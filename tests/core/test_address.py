"""Checks of URLs, keys, headers and proxies."""

from __future__ import annotations

import copy
import pickle
import traceback

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pushsdk._core.address import (
    HeaderSecret,
    check_base_url,
    check_headers,
    check_key,
    check_proxy,
    is_loopback,
    redacted,
)
from pushsdk._core.errors import ConfigurationError

KEY = "sk-live.4711"


# -- base_url ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given_url", "expected"),
    [
        ("https://push.example", "https://push.example"),
        ("https://push.example/", "https://push.example"),
        ("https://push.example/api/", "https://push.example/api"),
        ("https://push.example/a/b%20c", "https://push.example/a/b%20c"),
        ("https://push.example:8443/x", "https://push.example:8443/x"),
        ("https://192.0.2.7", "https://192.0.2.7"),
        ("https://[2001:db8::7]:8443", "https://[2001:db8::7]:8443"),
        ("http://localhost:8080", "http://localhost:8080"),
        ("http://LOCALHOST", "http://LOCALHOST"),
        ("http://127.0.0.1:1", "http://127.0.0.1:1"),
        ("http://127.255.3.4", "http://127.255.3.4"),
        ("http://[::1]:8080/api", "http://[::1]:8080/api"),
        ("https://push.example/@home", "https://push.example/@home"),
    ],
)
def test_a_base_url_is_taken_without_its_trailing_slash(given_url, expected):
    assert check_base_url(given_url, allow_insecure=False) == expected


@pytest.mark.parametrize(
    "url",
    [
        None,
        "",
        7,
        b"https://push.example",
        "push.example",
        "//push.example",
        "/api",
        "https:",
        "https:///api",
        "https:/push.example",
        "https://:8443",
        "ftp://push.example",
        "file:///etc/passwd",
        "ws://push.example",
        "https://user@push.example",
        "https://user:word@push.example",
        "https://@push.example",
        "http://localhost@evil.example",
        "http://localhost:80@evil.example",
        "https://push.example?x=1",
        "https://push.example/?",
        "https://push.example/#",
        "https://push.example#part",
        "https://push.example:0",
        "https://push.example:99999",
        "https://push.example:x",
        "https://[::1",
        "https://[nonsense]",
        "https://push.example\\@evil.example",
        "https:\\\\push.example",
        "https://push.example/a b",
        " https://push.example",
        "https://push.example\n",
        "https://push.example/\r\nX-Evil: 1",
        "https://push.example\t",
        "https://push.example\x00",
        "https://pu\u00adsh.example",
        "https://ⓟush.example",
        "http://0x7f.1",
        "https://0x7f.1",
        "https://127.1",
        "https://2130706433",
        "https://0x7f000001",
        "https://017700000001",
        "https://0177.0.0.1",
        "https://127.0.0.1.",
        "https://256.0.0.1",
        "https://push.0X7f",
    ],
)
def test_a_base_url_that_is_not_absolute_is_rejected_even_with_allow_insecure(url):
    for allow_insecure in (False, True):
        with pytest.raises(ConfigurationError, match="base_url"):
            check_base_url(url, allow_insecure=allow_insecure)


@pytest.mark.parametrize(
    "url",
    [
        "http://push.example",
        "http://192.168.0.1",
        "http://128.0.0.1",
        "http://126.255.255.255",
        "http://0.0.0.0",
        "http://[::2]",
        "http://[::]",
        "http://localhost.example",
        "http://localhost.",
        "http://localhost.localdomain",
        "http://127.0.0.1.example",
        "http://127.0.0.1.nip.io",
        "http://%6cocalhost",
        "HTTP://push.example",
    ],
)
def test_plain_http_is_for_literal_loopback_only_unless_allowed(url):
    with pytest.raises(ConfigurationError, match="plain http"):
        check_base_url(url, allow_insecure=False)
    assert check_base_url(url, allow_insecure=True) == url.replace("HTTP:", "http:")


def test_no_base_url_names_the_environment_variable():
    with pytest.raises(ConfigurationError, match="PUSHSDK_BASE_URL"):
        check_base_url(None, allow_insecure=False)


@given(st.text(max_size=30))
def test_no_text_makes_the_check_raise_anything_but_its_own_error(text):
    for url in (text, f"https://{text}", f"https://push.example/{text}", f"https://push.example:{text}"):
        try:
            result = check_base_url(url, allow_insecure=False)
        except ConfigurationError:
            continue
        assert result.lower().startswith(("https://", "http://"))
        assert result.isascii()
        assert result.isprintable()


@pytest.mark.parametrize("word", ["hunter2", "tenant-77"])
def test_a_refused_url_is_not_quoted(word):
    for url in (
        f"https://user:{word}@push.example",
        f"https://push.example/?{word}",
        f"ftp://{word}",
        f"http://{word}",
    ):
        with pytest.raises(ConfigurationError) as excinfo:
            check_base_url(url, allow_insecure=False)
        assert word not in f"{excinfo.value!r} {excinfo.value}"


@pytest.mark.parametrize(
    ("host", "loopback"),
    [
        ("localhost", True),
        ("127.0.0.1", True),
        ("127.255.255.254", True),
        ("::1", True),
        ("0:0:0:0:0:0:0:1", True),
        ("", False),
        ("localhost.example", False),
        ("128.0.0.1", False),
        ("::2", False),
        ("0x7f.1", False),
        ("127.1", False),
        ("2130706433", False),
    ],
)
def test_loopback_is_read_literally(host, loopback):
    assert is_loopback(host) is loopback


# -- the key ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", [KEY, "x", "!~", "k" * 4096, "a,b;c=d"])
def test_a_key_of_visible_ascii_is_taken_as_it_is(key):
    assert check_key(key) == key


@pytest.mark.parametrize(
    "key",
    [
        None,
        "",
        7,
        b"key",
        " ",
        "a key",
        "key\n",
        "\nkey",
        "key\r\nX-Evil: 1",
        "key\x00",
        "key\t",
        "key\x7f",
        "schlüssel",
        "key\u2028",
        "k" * 4097,
    ],
)
def test_any_other_key_is_refused_and_never_quoted(key):
    with pytest.raises(ConfigurationError, match="api_key must be 1 to 4096 visible ASCII characters") as excinfo:
        check_key(key)
    assert "X-Evil" not in f"{excinfo.value!r} {excinfo.value}"


@pytest.mark.parametrize(
    ("key", "hint"),
    [
        (b"key", "got bytes"),
        (None, "got NoneType"),
        ("", "it is empty"),
        ("Bearer abc", "leave out Bearer"),
        ("abc\n", "strip the newline of a key that is read from a file"),
    ],
)
def test_a_refused_key_has_a_hint_at_what_is_wrong(key: object, hint: str) -> None:
    with pytest.raises(ConfigurationError, match=f"without spaces or line ends: {hint}$"):
        check_key(key)


def test_a_key_is_sent_unchanged_and_never_shown():
    key = check_key(KEY)
    assert str.encode(key) == KEY.encode()
    assert len(key) == len(KEY)
    assert key == KEY
    texts = [repr(key), repr({"Api-Key": key}), f"{key!r}", f"{[key]}"]
    assert not any(KEY in text for text in texts)


def test_a_traceback_with_locals_shows_no_sealed_key():
    api_key = redacted(KEY)
    try:
        raise RuntimeError
    except RuntimeError as error:
        text = "".join(traceback.TracebackException.from_exception(error, capture_locals=True).format())
    assert f"api_key = {api_key!r}" in text
    assert KEY not in text


def test_a_callable_and_none_are_not_redacted_and_other_types_become_a_str_that_every_check_rejects():
    assert redacted(object) is object
    assert redacted(None) is None
    assert redacted(KEY) == KEY
    assert isinstance(redacted(KEY), HeaderSecret)
    for value in (b"sk-live.4711", 4711, ["sk-live.4711"]):
        assert "4711" not in str.__str__(redacted(value))
        with pytest.raises(ConfigurationError):
            check_key(redacted(value))


@pytest.mark.parametrize("copied", [pickle.dumps, copy.copy, copy.deepcopy])
def test_a_key_is_neither_pickled_nor_copied(copied):
    with pytest.raises(TypeError, match="an Api-Key is not pickled") as excinfo:
        copied(check_key(KEY))
    assert KEY not in str(excinfo.value)


@pytest.mark.parametrize("end", ["/v1", "/v1/", "/v1/push", "/v1/push/", "/v1/campaigns", "/v1//"])
@pytest.mark.parametrize("prefix", ["", "/external/api"])
def test_a_base_url_that_goes_on_behind_the_prefix_is_refused(prefix, end):
    with pytest.raises(ConfigurationError, match=r"^base_url must end before /v1: the client adds /v1/push") as excinfo:
        check_base_url(f"https://push.example{prefix}{end}", allow_insecure=False)
    assert "example" not in str(excinfo.value)


@pytest.mark.parametrize("path", ["/v10", "/v1/api", "/apiv1", "/v1/pushes", "/push", "/V1"])
def test_a_prefix_that_only_looks_like_the_version_is_kept(path):
    assert check_base_url(f"https://push.example{path}", allow_insecure=False) == f"https://push.example{path}"


# -- headers ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("headers", [None, {}, {"X-Team": "growth"}, {"x-empty": "", "User-Agent": "a b\tc"}])
def test_headers_are_copied(headers):
    result = check_headers(headers)
    assert result == (headers or {})
    assert result is not headers


@pytest.mark.parametrize(
    "name", ["Api-Key", "api-key", "API-KEY", "Content-Type", "content-length", "Transfer-Encoding", "Content-Encoding"]
)
def test_our_own_headers_may_not_be_set(name):
    with pytest.raises(ConfigurationError, match=f"headers must not set {name}"):
        check_headers({name: "x"})


@pytest.mark.parametrize("headers", [["X-Team"], "X-Team", 7, [("X-Team", "growth")]])
def test_headers_are_a_mapping(headers):
    with pytest.raises(ConfigurationError, match="headers must be a mapping"):
        check_headers(headers)


@pytest.mark.parametrize("name", ["", "X Team", "X-Team:", "X\r\nEvil", "X-Täam", 7, None, "X-\x00", "X-Team\n"])
def test_a_header_name_is_a_token(name):
    with pytest.raises(ConfigurationError, match="a name must be an HTTP token"):
        check_headers({name: "x"})


@pytest.mark.parametrize("value", ["a\r\nX-Evil: 1", "a\n", "\r", "a\x00", "ä", None, 7, b"a", "a\x7f"])
def test_a_header_value_is_printable_ascii_and_never_quoted(value):
    with pytest.raises(ConfigurationError, match="the value of X-Team must be printable ASCII text") as excinfo:
        check_headers({"X-Team": value})
    assert "X-Evil" not in str(excinfo.value)


# -- the proxy --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("proxy", ["http://proxy.example:3128", "https://proxy.example", "http://user:word@10.0.0.1:1"])
def test_a_proxy_is_an_absolute_url_and_may_have_a_user(proxy):
    assert check_proxy(proxy, base_url="https://push.example", allow_insecure=False) == proxy


@pytest.mark.parametrize(
    "proxy", [None, 7, "", "proxy.example:3128", "socks5://proxy.example", "http://", "http://a b"]
)
def test_any_other_proxy_is_refused(proxy):
    with pytest.raises(ConfigurationError, match="proxy"):
        check_proxy(proxy, base_url="https://push.example", allow_insecure=False)


def test_a_proxy_would_read_the_key_of_plain_http_so_that_must_be_allowed():
    with pytest.raises(ConfigurationError, match="a proxy would read the Api-Key"):
        check_proxy("http://proxy.example", base_url="http://localhost:1", allow_insecure=False)
    assert check_proxy("http://proxy.example", base_url="http://localhost:1", allow_insecure=True)


def test_the_scheme_of_plain_http_is_read_in_any_case():
    base_url = check_base_url("HTTP://localhost:1", allow_insecure=False)
    with pytest.raises(ConfigurationError):
        check_proxy("http://proxy.example", base_url=base_url, allow_insecure=False)


def test_a_refused_proxy_is_not_quoted():
    with pytest.raises(ConfigurationError) as excinfo:
        check_proxy("socks5://user:hunter2@proxy.example", base_url="https://push.example", allow_insecure=False)
    assert "hunter2" not in f"{excinfo.value!r} {excinfo.value}"


def test_nothing_but_a_port_stands_behind_the_bracket_of_an_address():
    with pytest.raises(ConfigurationError, match="host or port"):
        check_base_url("https://[::1]x", allow_insecure=False)
    assert check_base_url("https://[::1]:8443/api", allow_insecure=False) == "https://[::1]:8443/api"
