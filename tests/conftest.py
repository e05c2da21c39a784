"""What holds for every test: a busy machine is no failure."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Mapping

from hypothesis import HealthCheck, settings
from support.patient_loop import PatientLoop

# Neither an example that takes long, nor values that are slow to come.
settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")

# A shell's background job ignores Ctrl-C, and so would every command that is started here.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_asyncio_loop_factories() -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Where client and server share a loop, its clock does not run while the machine stands still."""
    return {"patient": PatientLoop}
