"""Snippets, executed: the emulator receives the original request."""

import ast
import asyncio
import json
import os
import shutil
import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pushsdk.emulator.snippets import curl, python

AWKWARD = "it's \"so\" $HOME `id` $(id) \\ %s %n !! {{ a | 'x' }} é 😀 \u202e \x7f\n\r\t\u2028 EOF"
BUTTON = {"label": AWKWARD, "clickAction": "DEEP_LINKING"}
MESSAGE = {
    "type": "MOBILE_PUSH",
    "iosEnabled": True,
    "androidEnabled": False,
    "title": {"en": AWKWARD, "de": "x" * 200},
    "subtitle": {},
    "ttl": 0,
    "keyVals": {AWKWARD: AWKWARD},
    "androidActionButtons": [BUTTON, BUTTON],
    "actionCategory": {"name": "shop", "actionComponents": [{"actionId": "a", "useWebview": False}]},
}
CAMPAIGN = {
    "name": AWKWARD,
    "segment": {"query": "SELECT 'x'", "primaryKey": "id"},
    "schedule": {"type": "START_NOW", "startTs": 1},
    "message": MESSAGE,
}
FIELDS = {"a": [1, 2.5, None, True, {"b": AWKWARD}], "": {}, "c": []}
PUSHES = [
    {"userIds": ["ann"], "message": MESSAGE},
    {"userIds": [AWKWARD, "bob"], "message": {"type": "MOBILE_PUSH"}},
    {"userIds": ["ann"], "message": MESSAGE, "customFields": FIELDS},
    {"userIds": ["ann"], "message": MESSAGE, "customFields": {}},
    {"userIds": ["ann"], "message": {}},
    {"userIds": ["ann"], "message": {**MESSAGE, "later": [None, {"x": AWKWARD}]}},
    {"userIds": ["ann"], "message": {"type": "MOBILE_PUSH", "androidActionButtons": [{"colour": "red"}]}},
    {"userIds": [f"user-{number}" for number in range(1001)], "message": MESSAGE},
]
CAMPAIGNS = [CAMPAIGN, {}, {"message": {}}, {**CAMPAIGN, "later": 1}]
INDENTED = json.dumps(PUSHES[2], indent=1, ensure_ascii=False).replace("\n", "\r\n\t").encode()


def encoded(request):
    return json.dumps(request, ensure_ascii=False).encode()


@pytest.fixture
def at_emulator(emulator, monkeypatch):
    monkeypatch.setenv("PUSHSDK_BASE_URL", emulator.base_url)
    monkeypatch.setenv("PUSHSDK_API_KEY", emulator.api_key)
    return emulator


async def run(program):
    await asyncio.to_thread(exec, compile(program, "snippet", "exec"), {"__name__": "__main__"})


@pytest.mark.filterwarnings("ignore:a user id looks like several")
@pytest.mark.parametrize("request_", PUSHES)
async def test_the_program_sends_the_push_as_it_was(at_emulator, request_):
    await run(python("push", encoded(request_)))
    assert [json.loads(push.body) for push in at_emulator.pushes] == [request_]


@pytest.mark.parametrize("request_", CAMPAIGNS)
async def test_the_program_creates_an_equal_campaign_and_prints_its_uuid(at_emulator, request_, capsys):
    await run(python("campaigns", encoded(request_)))
    (campaign,) = at_emulator.campaigns
    assert json.loads(campaign.body) == request_
    assert capsys.readouterr().out == f"{campaign.uuid}\n"


def test_a_program_names_the_content_and_sends_it():
    request = {"userIds": ["ann"], "message": {"type": "MOBILE_PUSH", "ttl": 1}, "customFields": {}}
    assert python("push", encoded(request)) == (
        "import asyncio\n"
        "\n"
        "from pushsdk import AsyncPushClient\n"
        "\n"
        "USER_IDS = ['ann']\n"
        "MESSAGE = {'type': 'MOBILE_PUSH', 'ttl': 1}\n"
        "CUSTOM_FIELDS = {}\n"
        "\n"
        "\n"
        "async def main() -> None:\n"
        "    async with AsyncPushClient() as client:  # PUSHSDK_BASE_URL, PUSHSDK_API_KEY\n"
        "        await client.send(USER_IDS, MESSAGE, custom_fields=CUSTOM_FIELDS)\n"
        "\n"
        "\n"
        "asyncio.run(main())\n"
    )


def test_more_users_than_a_client_merges_are_still_one_request():
    at_most, over = (encoded({"userIds": [str(number) for number in range(n)], "message": {}}) for n in (1000, 1001))
    assert "Batching" not in python("push", at_most)
    assert "AsyncPushClient(batching=Batching(max_users=1001))" in python("push", over)


def nested(depth):
    value = 1
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("endpoint", "body", "text"),
    [
        ("push", b"", "invalid for the endpoint"),
        ("push", b"\xff", "invalid for the endpoint"),
        ("push", encoded({"userIds": [], "message": {}}), "invalid for the endpoint"),
        ("campaigns", b"[]", "invalid for the endpoint"),
        ("push", encoded({"userIds": ["a"], "message": {}, "later": 1}), "fields beside userIds, message and customF"),
        ("push", encoded({"userIds": ["a", "a"], "message": {}}), "repeats a user id"),
        ("push", encoded({"userIds": ["a"], "message": {}, "customFields": {"a": nested(39)}}), "nested too deeply"),
        ("push", encoded({"userIds": ["a"], "message": {}, "customFields": {"a": nested(900)}}), "nested too deeply"),
    ],
)
async def test_a_request_the_client_cannot_send_is_only_a_comment(at_emulator, endpoint, body, text):
    program = python(endpoint, body)
    assert text in program
    assert all(line.startswith("# ") for line in program.splitlines())
    await run(program)
    assert at_emulator.requests == 0


async def test_a_value_nested_up_to_the_bound_is_a_program(at_emulator):
    request = {"userIds": ["ann"], "message": {}, "customFields": {"a": nested(37)}}
    await run(python("push", encoded(request)))
    assert json.loads(at_emulator.pushes[0].body) == request


FAKE = """
curl() {
    for argument in "$@"; do printf '%s\\n' "$argument" >&2; done
    cat
}
"""


def shell(command, *, setup=FAKE, **environment):
    return subprocess.run(["sh"], input=(setup + command).encode(), capture_output=True, env=environment, timeout=30)


def arrived(body):
    """Return the stdin and the arguments that curl gets."""
    command = shell(
        curl("push", body), PUSHSDK_BASE_URL="http://x/y z", PUSHSDK_API_KEY="it's $KEY", PATH=os.environ["PATH"]
    )
    assert command.returncode == 0
    return command.stdout, command.stderr.decode().splitlines()


def test_the_command_has_address_and_headers():
    _, arguments = arrived(b"{}")
    assert arguments == [
        *("-sS", "-i", "http://x/y z/v1/push"),
        *("-H", "Api-Key: it's $KEY", "-H", "Content-Type: application/json", "--data-binary", "@-"),
    ]
    assert '"$PUSHSDK_BASE_URL/v1/campaigns"' in curl("campaigns", b"{}")


@pytest.mark.parametrize("body", [*map(encoded, [*PUSHES, CAMPAIGN]), INDENTED, b"1", b'"\\u202e"'])
def test_json_goes_through_the_shell_as_equal_json(body):
    sent, _ = arrived(body)
    assert json.loads(sent) == json.loads(body)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"-x",
        b"{",
        b"EOF",
        b"{\nEOF\n echo gone",
        b"%s %d %%",
        b"it's 'quoted",
        b"\\n \\101",
        bytes(range(256)) + b"7\x007",
        b'{"a": "\xff"}',
        b'{"a": "\xed\xa0\x80"}',
        b"x" * 300_000,
    ],
)
def test_a_body_that_is_not_json_passes_the_shell_byte_for_byte(body):
    assert arrived(body)[0] == body


texts = st.text(st.characters(codec="utf-8"), max_size=40)


@settings(max_examples=30)  # each runs a shell
@given(st.binary() | texts.map(lambda text: encoded({"a": text})))
def test_no_body_breaks_out_of_the_shell_or_changes(body):
    sent, arguments = arrived(body)
    assert len(arguments) == 9
    try:
        meant = json.loads(body)
    except ValueError:
        assert sent == body
    else:
        assert json.loads(sent) == meant


@pytest.mark.parametrize("make", [curl, python])
@pytest.mark.parametrize("body", [*map(encoded, PUSHES), INDENTED, bytes(range(256))])
def test_every_character_of_a_snippet_is_printable(make, body):
    assert all(char.isprintable() or char == "\n" for char in make("push", body))


def test_a_printable_text_is_unchanged():
    assert '\n{"title": "Grüße, it\'s 😀"}\nEOF\n' in curl("push", '{"title": "Grüße, it\'s 😀"}'.encode())


numbers = st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False)
anything = st.recursive(
    st.none() | st.booleans() | numbers | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=10,
)


@given(st.dictionaries(texts, anything, max_size=3), st.dictionaries(texts.map("x{}".format), anything, max_size=3))
def test_any_custom_field_and_unknown_field_is_written_as_itself(fields, unknown):
    body = encoded({"userIds": ["ann"], "message": unknown, "customFields": fields})
    assigned = [node for node in ast.parse(python("push", body)).body if isinstance(node, ast.Assign)]
    assert [ast.literal_eval(node.value) for node in assigned] == [["ann"], unknown, fields]


@pytest.mark.skipif(shutil.which("curl") is None, reason="there is no curl")
@pytest.mark.parametrize(
    ("endpoint", "body", "status"),
    [
        ("push", encoded(PUSHES[2]), 204),
        ("push", INDENTED, 204),
        ("push", encoded(PUSHES[-1]), 204),
        ("campaigns", encoded(CAMPAIGN), 200),
        ("push", b"\0%s'", 400),
    ],
)
async def test_curl_runs_the_command(emulator, endpoint, body, status):
    answer = await asyncio.to_thread(
        shell,
        curl(endpoint, body),
        setup="",
        PUSHSDK_BASE_URL=emulator.base_url,
        PUSHSDK_API_KEY=emulator.api_key,
        PATH=os.environ["PATH"],
    )
    assert answer.stdout.splitlines()[0].split()[1] == str(status).encode()
    bodies = [json.loads(request.body) for request in (*emulator.pushes, *emulator.campaigns)]
    assert bodies == ([json.loads(body)] if status < 300 else [])
