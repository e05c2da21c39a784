"""The curl command of a request, executed: the emulator receives the original request."""

import asyncio
import json
import os
import shutil
import subprocess

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from support.whole import whole

from pushsdk._core.models import CampaignRequest, MobilePush
from pushsdk.emulator.snippets import curl

AWKWARD = "it's \"so\" $HOME `id` $(id) \\ %s %n !! {{ a | 'x' }} é 😀 \u202e \x7f\n\r\t\u2028 EOF"
MESSAGE = {**whole(MobilePush, AWKWARD), "later": [None, {"x": AWKWARD}]}
CAMPAIGN = {**whole(CampaignRequest, AWKWARD), "message": MESSAGE, "later": 1}
FIELDS = {"a": [1, 2.5, None, True, {"b": AWKWARD}], "": {}, "c": []}
PUSHES = [
    {"userIds": [AWKWARD, "bob"], "message": MESSAGE, "customFields": FIELDS},
    {"userIds": [f"user-{number}" for number in range(1001)], "message": MESSAGE},
]


def encoded(request):
    return json.dumps(request, ensure_ascii=False).encode()


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
    command = shell(curl("push", body.decode()), PUSHSDK_BASE_URL="http://x/y z", PUSHSDK_API_KEY="it's $KEY")
    assert command.returncode == 0
    return command.stdout, command.stderr.decode().splitlines()


texts = st.text(st.characters(codec="utf-8"), max_size=40)


@settings(max_examples=30)  # each runs a shell
@given(texts.map(lambda text: encoded({"a": text})))
@example(b'{\n"EOF":\n1}')
@example(encoded(CAMPAIGN))
@example(json.dumps(PUSHES[0], indent=1, ensure_ascii=False).replace("\n", "\r\n\t").encode())
def test_no_body_breaks_out_of_the_shell_or_changes(body):
    sent, arguments = arrived(body)
    assert len(arguments) == 9
    assert all(char.isprintable() or char == "\n" for char in curl("push", body.decode()))
    assert json.loads(sent) == json.loads(body)


@pytest.mark.skipif(shutil.which("curl") is None, reason="there is no curl")
@pytest.mark.parametrize(
    ("endpoint", "body", "status"),
    [("push", encoded(PUSHES[-1]), b"204"), ("campaigns", encoded(CAMPAIGN), b"200")],
)
async def test_curl_runs_the_command(emulator, endpoint, body, status):
    address = {"PUSHSDK_BASE_URL": emulator.base_url, "PUSHSDK_API_KEY": emulator.api_key}
    answer = await asyncio.to_thread(shell, curl(endpoint, body.decode()), setup="", **address)
    assert answer.stdout.splitlines()[0].split()[1] == status
    bodies = [json.loads(request.body) for request in (*emulator.pushes, *emulator.campaigns)]
    assert bodies == [json.loads(body)]
