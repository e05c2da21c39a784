"""What holds for every test: a busy machine is no failure."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from hypothesis import HealthCheck, settings
from support.patient_loop import PatientLoop

# Neither an example that takes long, nor values that are slow to come.
settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")


def pytest_asyncio_loop_factories() -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Where client and server share a loop, its clock does not run while the machine stands still."""
    return {"patient": PatientLoop}
