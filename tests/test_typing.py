"""The types are part of the product: what users write type-checks, and what they must not write does not."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
WRONG = """
from pushsdk import MobilePushDict, PushClient
def push(client: PushClient) -> None:
    client.send("u", {"titel": {"en": "Hi"}})
    client.create_campaign({"nam": "spring"})
    client.send_each([{"user_ids": ["u"]}])
    message: MobilePushDict = {"titel": {"en": "Hi"}, "ttl": 60}
"""


def test_the_api_is_used_as_its_types_say_and_a_wrong_dict_is_refused_with_the_name_of_its_type(tmp_path):
    pytest.importorskip("mypy", reason="mypy is not installed")
    (tmp_path / "wrong.py").write_text(WRONG)
    options = ["--strict", "--enable-error-code=truthy-bool", "--follow-imports=silent", "--config-file="]
    words = [sys.executable, "-m", "mypy", *options, "tests/typing/api.py", str(tmp_path / "wrong.py")]
    ran = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    shown = [line for line in ran.stdout.splitlines() if "error: " in line]
    assert (len(shown), ran.stderr) == (4, ""), ran.stdout
    for error, name in zip(shown, ("MobilePushDict", "CampaignDict", "PushRequestDict"), strict=False):
        assert f'"AnnotateTheDictAs[{name}]"' in error, error
    assert 'wrong.py:7: error: Extra key "titel" for TypedDict "MobilePushDict"' in shown[3]
