"""What several commands print: advice on stderr, and JSON."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any, TextIO

import msgspec

from pushsdk._core.lint import lint
from pushsdk.cli._terminal import escaped, warn

__all__ = ["advise", "print_json"]


def advise(resource: Mapping[str, Any]) -> None:
    """Say on stderr what lint finds: nothing of it stops the command."""
    for problem in lint(resource):
        warn(f"advice: {problem.path}: {problem.message} ({problem.code})")


def print_json(told: Mapping[str, Any] | msgspec.Struct, file: TextIO | None = None) -> None:
    """Print one line of JSON, to stdout if no file is given."""
    (file or sys.stdout).write(escaped(msgspec.json.encode(told).decode()) + "\n")
