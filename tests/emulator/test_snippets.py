"""Snippets, executed: the emulator receives the original request."""

import asyncio
import json
import os
import shutil
import subprocess

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pushsdk.emulator.snippets import curl, python

AWKWARD = "it's \"so\" $HOME `id` $(id) \\ %s %n !! {{ a | 'x' }} é 😀 \u202e \x7f\n\r\t\u2028 EOF"
MESSAGE = {
    "type": "MOBILE_PUSH",
    "iosEnabled": True,
    "title": {"en": AWKWARD, "de": "x" * 200},
    "ttl": 0,
    "keyVals": {AWKWARD: AWKWARD},
    "actionCategory": {"name": "shop", "actionComponents": [{"actionId": "a", "useWebview": False}]},
    "later": [None, {"x": AWKWARD}],
}
CAMPAIGN = {
    "name": AWKWARD,
    "segment": {"query": "SELECT 'x'", "primaryKey": "id"},
    "schedule": {"type": "START_NOW", "startTs": 1},
    "message": MESSAGE,
    "later": 1,
}
FIELDS = {"a": [1, 2.5, None, True, {"b": AWKWARD}], "": {}, "c": []}
PUSHES = [
    {"userIds": ["ann"], "message": {}},
    {"userIds": [AWKWARD, "bob"], "message": MESSAGE, "customFields": FIELDS},
    {"userIds": [f"user-{number}" for number in range(1001)], "message": MESSAGE},
]


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
async def test_the_program_sends_the_push_as_it_was(at_emulator):
    for request in PUSHES:
        await run(python("push", encoded(request)))
    assert [json.loads(push.body) for push in at_emulator.pushes] == PUSHES


async def test_the_program_creates_an_equal_campaign_and_prints_its_uuid(at_emulator, capsys):
    await run(python("campaigns", encoded(CAMPAIGN)))
    (campaign,) = at_emulator.campaigns
    assert json.loads(campaign.body) == CAMPAIGN
    assert capsys.readouterr().out == f"{campaign.uuid}\n"


DEEP = b'{"userIds": ["a"], "message": {}, "customFields": {"a": ' + b"[" * 39 + b"]" * 39 + b"}}"


@pytest.mark.parametrize(
    ("endpoint", "body", "text"),
    [
        ("push", b"\xff", "invalid for the endpoint"),
        ("campaigns", b"[]", "invalid for the endpoint"),
        ("push", encoded({"userIds": ["a"], "message": {}, "later": 1}), "fields beside userIds, message and customF"),
        ("push", encoded({"userIds": ["a", "a"], "message": {}}), "repeats a user id"),
        ("push", DEEP, "nested too deeply"),
    ],
    ids=["no text", "no object", "unknown field", "repeated", "deep"],
)
async def test_a_request_the_client_cannot_send_is_only_a_comment(endpoint, body, text):
    program = python(endpoint, body)
    assert text in program
    assert all(line.startswith("# ") for line in program.splitlines())


FAKE = """
curl() {
    for argument in "$@"; do printf '%s\\n' "$argument" >&2; done
    cat
}
"""


def shell(command, *, setup=FAKE, **environment):
    environment["PATH"] = os.environ["PATH"]
    return subprocess.run(["sh"], input=(setup + command).encode(), capture_output=True, env=environment, timeout=30)


def arrived(body):
    """Return the stdin and the arguments that curl gets."""
    command = shell(curl("push", body), PUSHSDK_BASE_URL="http://x/y z", PUSHSDK_API_KEY="it's $KEY")
    assert command.returncode == 0
    return command.stdout, command.stderr.decode().splitlines()


def test_the_command_has_address_and_headers():
    _, arguments = arrived(b"{}")
    assert arguments == [
        *("-sS", "-i", "http://x/y z/v1/push"),
        *("-H", "Api-Key: it's $KEY", "-H", "Content-Type: application/json", "--data-binary", "@-"),
    ]
    assert '"$PUSHSDK_BASE_URL/v1/campaigns"' in curl("campaigns", b"{}")


texts = st.text(st.characters(codec="utf-8"), max_size=40)


@settings(max_examples=30)  # each runs a shell
@given(st.binary() | texts.map(lambda text: encoded({"a": text})))
@example(b"-x")
@example(b"{\nEOF\n echo gone")
@example(b"%s %d %% it's 'quoted \\n \\101")
@example(bytes(range(256)) + b"7\x007")
@example(b'{"a": "\xed\xa0\x80"}')
@example(b"x" * 300_000)
@example(encoded(CAMPAIGN))
@example(json.dumps(PUSHES[1], indent=1, ensure_ascii=False).replace("\n", "\r\n\t").encode())
def test_no_body_breaks_out_of_the_shell_or_changes(body):
    sent, arguments = arrived(body)
    assert len(arguments) == 9
    assert all(char.isprintable() or char == "\n" for char in curl("push", body) + python("push", body))
    try:
        meant = json.loads(body)
    except ValueError:
        assert sent == body
    else:
        assert json.loads(sent) == meant


@pytest.mark.skipif(shutil.which("curl") is None, reason="there is no curl")
@pytest.mark.parametrize(
    ("endpoint", "body", "status"),
    [("push", encoded(PUSHES[-1]), b"204"), ("campaigns", encoded(CAMPAIGN), b"200"), ("push", b"\0%s'", b"400")],
    ids=["push", "campaign", "no JSON"],
)
async def test_curl_runs_the_command(emulator, endpoint, body, status):
    address = {"PUSHSDK_BASE_URL": emulator.base_url, "PUSHSDK_API_KEY": emulator.api_key}
    answer = await asyncio.to_thread(shell, curl(endpoint, body), setup="", **address)
    assert answer.stdout.splitlines()[0].split()[1] == status
    bodies = [json.loads(request.body) for request in (*emulator.pushes, *emulator.campaigns)]
    assert bodies == ([] if status == b"400" else [json.loads(body)])
