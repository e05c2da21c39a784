"""An Api-Key that a service echoes is masked, or the answer withheld, however it is escaped or cut."""

import gzip
import html
import itertools
import json
import random
import string
import time
import zlib
from base64 import b64encode, urlsafe_b64encode
from binascii import hexlify
from urllib.parse import quote, unquote

import pytest

from pushsdk._core.judging import judge
from pushsdk._core.outcome import Evidence
from pushsdk._core.secret import SHORTEST_MASKED, Secret, masker

NAMED = {"+": "&plus;", "/": "&sol;", "=": "&equals;", '"': "&quot;", "&": "&amp;", "<": "&lt;", ">": "&gt;"}
WAYS = {
    "plain": lambda char: char,
    "json": lambda char: json.dumps(char)[1:-1],
    "php": lambda char: char if char.isalnum() else f"\\{char}",
    "\\u": lambda char: f"\\u{ord(char):04x}",
    "\\U": lambda char: f"\\u{ord(char):04X}",
    "\\x": lambda char: f"\\x{ord(char):02x}",
    "url": lambda char: f"%{ord(char):02X}",
    "lower url": lambda char: f"%{ord(char):02x}",
    "decimal": lambda char: f"&#{ord(char)};",
    "hex": lambda char: f"&#x{ord(char):02X};",
    "long hex": lambda char: f"&#X00{ord(char):02x};",
    "named": lambda char: NAMED.get(char, char),
    "UTF-16": lambda char: f"{char}\0",
    "other case": str.swapcase,
}
AROUND = {
    "once": str,
    "in a JSON string": lambda text: json.dumps(text)[1:-1],
    "in Go's JSON": lambda text: json.dumps(text)[1:-1].replace("&", "\\u0026").replace("<", "\\u003c"),
    "in a URL": lambda text: quote(text, safe=""),
    "in HTML": html.escape,
    "in a URL in JSON in HTML": lambda text: html.escape(json.dumps(quote(text, safe=""))[1:-1]),
}
SIGNS = [chr(number) for number in range(0x21, 0x7F)]
ALPHABETS = [SIGNS, string.ascii_letters + string.digits + "+/=", string.hexdigits, "%25\\/&;#x4"]


def new_key():
    """A key that reads the same in a URL and in HTML: in nested escapes, one like ``a%41&#65;`` may be left."""
    signs = random.choices(random.choice(ALPHABETS), k=random.randint(SHORTEST_MASKED, 60) - 1)
    key = "".join(signs) + "A" + random.choice(SIGNS)
    return key if unquote(html.unescape(key)) == key else new_key()


def echoed(key, around, way):
    """Return the key as a service may echo it: in one way, or with each character in a way of its own."""
    ways = list(WAYS.values()) if way == "mixed" else [WAYS[way]]
    return AROUND[around]("".join(random.choice(ways)(char) for char in key))


def answered(body, key, **headers):
    evidence = Evidence(touched=True, started_writing=True, written=True, status=400, body=body, headers=headers)
    return judge(evidence, statuses={}, retry_on=frozenset(), started=0.0, seconds=0.0, key=Secret.of(key))


@pytest.mark.parametrize("around", AROUND)
@pytest.mark.parametrize("way", [*WAYS, "mixed"])
def test_an_echoed_key_is_masked_in_each_form(way, around):
    for _ in range(20):
        key = new_key().replace("\\", "/") if way == "mixed" else new_key()
        echo = echoed(key, around, way)
        masked = masker(Secret.of(key))(f"bad key: <{echo}>, sorry")
        left = masked.removeprefix("bad key: <").removesuffix(">, sorry")
        assert "***" in left, (key, echo)
        # The last sign, which may begin an escape with what follows, may be left.
        assert len(left) <= 25, (key, echo)


CODES = {"base64": b64encode, "url-safe base64": urlsafe_b64encode, "hex": hexlify}


@pytest.mark.parametrize("around", AROUND)
@pytest.mark.parametrize("code", CODES)
def test_a_key_in_a_code_is_masked_whatever_is_around_it(code, around):
    for before, after, key in itertools.product(["", "b", "be"], ["", "a"], [new_key(), new_key()]):
        echo = CODES[code](f"{before}{key}{after}".encode()).decode()
        masked = masker(Secret.of(key))(AROUND[around](f'{{"key": "{echo}"}}'))
        assert "***" in masked, (key, echo)
        assert len(masked) <= len(AROUND[around]('{"key": "beforeaf"}')) + 9, (key, echo)


@pytest.mark.parametrize("around", AROUND)
@pytest.mark.parametrize("way", [*WAYS, "mixed"])
def test_no_cut_through_an_echoed_key_shows_more_than_a_character(way, around):
    key = "".join(random.choices([sign for sign in SIGNS if sign not in "%&\\~*"], k=20))
    parts = [echoed(char, around, way) for char in key]
    echo = "".join(parts)
    for end in random.choices(range(len(echo)), k=20):
        body = answered(f"{'~' * (4096 - end)}{echo}".encode("latin-1"), key).body.decode("latin-1")
        # A bare % begins an escape, and tells nothing.
        assert len(body.strip("~*%")) <= len(parts[0]), (key, echo[:end], body)


def test_texts_without_the_key_are_kept_exactly():
    text = r'{"error":"bad \"id\" \u00e9 %41 &amp; C:\\x","also":"SECRE"}' + "SECRET/X"
    assert masker(Secret.of("SECRET/MARKER"))(text) == text
    assert masker(Secret.of("SECRET/MARKER"))(text, is_cut=True) == text
    assert masker(Secret.of("SECRET/MARKER"))(f"{text}/se", is_cut=True) == f"{text}/***"


@pytest.mark.parametrize("text", ["\\" * 16_384, "%2" * 8_192, "&#4" * 5_000, "\\S" * 8_192, "SECRET" * 2_500])
def test_a_hostile_text_costs_little_time(text):
    started = time.process_time()
    masker(Secret.of("SECRET/MARKER+ab3d=="))(text, is_cut=True)
    assert time.process_time() - started < 1.0


# --- compressed bodies ---

ECHO = b'{"error":"bad key SECRET/MARKER+ab3d=="}'


@pytest.mark.parametrize(
    ("coding", "packed"),
    [
        ("gzip", gzip.compress(ECHO, mtime=0)),
        ("X-Gzip", gzip.compress(ECHO, mtime=0)),
        ("deflate", zlib.compress(ECHO)),
    ],
)
def test_a_compressed_body_is_readable_and_without_the_key(coding, packed):
    attempt = answered(packed, "SECRET/MARKER+ab3d==", **{"Content-Encoding": coding})
    assert attempt.body == b'{"error":"bad key ***"}'


def test_a_key_in_place_of_a_compression_is_masked():
    attempt = answered(b"x", "SECRET/MARKER+ab3d==", **{"Content-Encoding": f"{'z' * 40}SECRET/MARKER+ab3d=="})
    assert attempt.body == f"(not readable here, Content-Encoding: {'z' * 40}***)".encode()


def test_a_key_that_reads_as_nothing_is_masked_as_it_is():
    assert masker(Secret.of("%00%00%00"))("the key %00%00%00") == "the key ***"


def test_any_number_of_backslashes_within_a_key_is_masked():
    assert masker(Secret.of("SECRET/MARKER"))("SECRET/" + "\\" * 20 + "MARKER") == "***"
