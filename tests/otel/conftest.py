"""OpenTelemetry for one test; a span that is left open fails the test."""

from collections.abc import Iterator

import pytest
from opentelemetry import context
from support.service_thread import ThreadService, served
from support.telemetry import Telemetry


@pytest.fixture
def telemetry() -> Iterator[Telemetry]:
    telemetry = Telemetry()
    yield telemetry
    assert telemetry.open == []
    assert context.get_current() == {}
    telemetry.close()


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Iterator[ThreadService]:
    with served(monkeypatch) as service:
        yield service
