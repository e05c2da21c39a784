"""The README's trace is the trace of its example."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from opentelemetry import trace
from support.service_thread import served
from support.telemetry import Telemetry

from pushsdk.emulator import Fault

README = (Path(__file__).parents[2] / "README.md").read_text()
SECTION = README.partition("\n## Tracing\n")[2].partition("\n## ")[0]


def block(language: str) -> str:
    (found,) = re.findall(rf"```{language}\n(.*?)```", SECTION, re.DOTALL)
    return str(found)


def test_the_trace_is_that_of_the_example(telemetry: Telemetry, monkeypatch: pytest.MonkeyPatch) -> None:
    # What trace.set_tracer_provider sets, once in a process.
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", telemetry.tracers)
    with served(monkeypatch) as service:
        service.faults = [Fault.status(429, first=1)]
        exec(compile(block("python"), "README.md", "exec"), {"__name__": "__main__"})
    assert telemetry.tree() + "\n" == block("text")
