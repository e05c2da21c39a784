"""The types are part of the product: what users write type-checks, and what they must not write does not."""

from __future__ import annotations

from pathlib import Path

import pytest

API = Path(__file__).parent / "typing" / "api.py"


def test_the_api_is_used_as_its_types_say() -> None:
    api = pytest.importorskip("mypy.api", reason="mypy is not installed")
    options = ["--strict", "--enable-error-code=truthy-bool", "--follow-imports=silent", "--config-file="]
    results, failed, code = api.run([*options, str(API)])
    assert (results.strip().splitlines()[-1:], failed, code) == (
        ["Success: no issues found in 1 source file"],
        "",
        0,
    ), results
