"""Rules for every test: a busy machine is no failure, and the start of a process is cheap."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from support.patient_loop import PatientLoop

# Without bytecode each of the hundreds of processes that the tests start compiles the package: twice the time of a run.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# Neither an example that takes long, nor values that are slow to come.
settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")

# A shell's background job ignores Ctrl-C, one of nohup SIGHUP, and so would every command that is started here.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> None:
    """Use all cores for whole folders, unless ``-n`` says otherwise. A file or a test stays in this process."""
    if hasattr(config, "workerinput"):  # this is a worker, without an ``-n`` of its own
        return
    if config.getoption("numprocesses", 0) is None and all(Path(each).is_dir() for each in config.args):
        config.option.numprocesses, config.option.dist = "auto", "worksteal"


def pytest_asyncio_loop_factories() -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Where client and server share a loop, its clock does not run while the machine stands still."""
    return {"patient": PatientLoop}
