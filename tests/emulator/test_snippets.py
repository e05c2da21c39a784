"""The curl command of a request, run by a shell: curl would send the original request."""

import json
import os
import subprocess

from hypothesis import example, given, settings
from hypothesis import strategies as st
from support.whole import whole

from pushsdk._core.models import CampaignRequest, MobilePush
from pushsdk.emulator.snippets import curl

AWKWARD = "it's \"so\" $HOME `id` $(id) \\ %s %n !! {{ a | 'x' }} é 😀 \u202e \x7f\n\r\t\u2028 EOF"
MESSAGE = {**whole(MobilePush, AWKWARD), "later": [None, {"x": AWKWARD}]}
CAMPAIGN = {**whole(CampaignRequest, AWKWARD), "message": MESSAGE, "later": 1}
FIELDS = {"a": [1, 2.5, None, True, {"b": AWKWARD}], "": {}, "c": []}
PUSH = {"userIds": [AWKWARD, "bob"], "message": MESSAGE, "customFields": FIELDS}


def encoded(request):
    return json.dumps(request, ensure_ascii=False).encode()


FAKE = """
curl() {
    for argument in "$@"; do printf '%s\\n' "$argument" >&2; done
    cat
}
"""


def arrived(endpoint, body):
    """Return the stdin and the arguments that curl gets."""
    environ = {"PATH": os.environ["PATH"], "PUSHSDK_BASE_URL": "http://x/y z", "PUSHSDK_API_KEY": "it's $KEY"}
    command = FAKE + curl(endpoint, body.decode())
    ended = subprocess.run(["sh"], input=command.encode(), capture_output=True, env=environ, timeout=30, check=True)
    return ended.stdout, ended.stderr.decode().splitlines()


texts = st.text(st.characters(codec="utf-8"), max_size=40)


@settings(max_examples=30)  # each runs a shell
@given(texts.map(lambda text: encoded({"a": text})))
@example(b'{\n"EOF":\n1}')
@example(encoded(CAMPAIGN))
@example(json.dumps(PUSH, indent=1, ensure_ascii=False).replace("\n", "\r\n\t").encode())
def test_no_body_breaks_out_of_the_shell_or_changes(body):
    sent, arguments = arrived("push", body)
    headers = ["-H", "Api-Key: it's $KEY", "-H", "Content-Type: application/json"]
    assert arguments == ["-sS", "-i", "http://x/y z/v1/push", *headers, "--data-binary", "@-"]
    assert all(char.isprintable() or char == "\n" for char in curl("push", body.decode()))
    assert json.loads(sent) == json.loads(body)


def test_the_command_of_a_campaign_names_its_endpoint():
    assert arrived("campaigns", encoded(CAMPAIGN))[1][2] == "http://x/y z/v1/campaigns"
