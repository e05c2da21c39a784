"""The guide's trace is the trace of its example."""

import re

from opentelemetry import trace
from support.docs import page

from pushsdk.emulator import Fault


def block(language):
    (blocks,) = re.findall(rf"```{language}\n(.*?)```", page("logging-and-tracing").section("OpenTelemetry"), re.DOTALL)
    return blocks


def test_the_trace_is_that_of_the_example(telemetry, service, monkeypatch):
    # What trace.set_tracer_provider sets, once in a process.
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", telemetry.tracers)
    service.set_faults([Fault.status(429, first=1)])
    exec(compile(block("python"), "logging-and-tracing.md", "exec"), {"__name__": "__main__"})
    assert telemetry.tree() + "\n" == block("text")
