"""OpenTelemetry for one test; a span that is left open fails the test."""

import pytest
from opentelemetry import context
from support.telemetry import Telemetry


@pytest.fixture
def telemetry():
    telemetry = Telemetry()
    yield telemetry
    assert telemetry.open == []
    assert context.get_current() == {}
    telemetry.close()
