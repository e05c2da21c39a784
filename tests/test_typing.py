"""The types are part of the product: what users write type-checks, and what they must not write does not."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
API = ROOT / "tests" / "typing" / "api.py"


def test_the_api_is_used_as_its_types_say() -> None:
    api = pytest.importorskip("mypy.api", reason="mypy is not installed")
    options = ["--strict", "--enable-error-code=truthy-bool", "--follow-imports=silent", "--config-file="]
    results, failed, code = api.run([*options, str(API)])
    assert (results.strip().splitlines()[-1:], failed, code) == (
        ["Success: no issues found in 1 source file"],
        "",
        0,
    ), results


def test_a_wrong_dict_is_refused_with_the_name_of_its_type(tmp_path: Path) -> None:
    api = pytest.importorskip("mypy.api", reason="mypy is not installed")
    lines = (
        "from pushsdk import MobilePushDict, PushClient",
        "def push(client: PushClient) -> None:",
        '    client.send("u", {"titel": {"en": "Hi"}})',
        '    client.create_campaign({"nam": "spring"})',
        '    client.send_each([{"user_ids": ["u"]}])',
        '    message: MobilePushDict = {"titel": {"en": "Hi"}, "ttl": 60}',
    )
    source = tmp_path / "app.py"
    source.write_text("\n".join(lines), encoding="utf-8")
    results, _, _ = api.run(["--strict", "--follow-imports=silent", "--config-file=", str(source)])
    shown = [line.split("error: ")[1] for line in results.splitlines() if "error: " in line]
    assert len(shown) == 4, results
    for error, name in zip(shown, ("MobilePushDict", "CampaignDict", "PushRequestDict"), strict=False):
        assert f'"AnnotateTheDictAs[{name}]"' in error, error
    assert shown[3].startswith('Extra key "titel" for TypedDict "MobilePushDict"')


def test_pyright_reads_the_types_as_mypy_does() -> None:
    if shutil.which("basedpyright") is None:
        pytest.skip("basedpyright is not installed")
    ran = subprocess.run(["basedpyright"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout
