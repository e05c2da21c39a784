"""Settings of all tests: a busy machine causes no failures, and processes start fast."""

import ctypes
import gc
import logging
import os
import random
import re
import signal
import sys
from contextlib import suppress
from enum import Enum
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from support.object_server import KEYS, object_server
from support.patient_loop import PatientLoop
from support.servers import postgres_server, redis_server

# Without bytecode each of the hundreds of processes that the tests start compiles the package: twice the time of a run.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
# Processes import the package that is tested.
os.environ["PYTHONPATH"] = str(Path(__file__).parents[1])

PR_SET_PDEATHSIG = 1  # of Linux's prctl

# A busy machine may be slow to run an example or to generate values. Each run has the same examples.
settings.register_profile("patient", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")

# A shell's background job ignores Ctrl-C, one of nohup SIGHUP, and so would every command that is started here.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config):
    """Use all cores for whole folders, unless ``-n`` says otherwise. A file or a test stays in this process."""
    if hasattr(config, "workerinput"):  # a worker of xdist has no ``-n``
        return
    if config.getoption("numprocesses", 0) is None and all(Path(each).is_dir() for each in config.args):
        config.option.numprocesses = "auto"
        config.option.dist = "worksteal"


def pytest_configure(config):
    """Have nothing survive SIGTERM. A worker of xdist gets it from the kernel when the process that started it ends."""
    if hasattr(config, "workerinput") or not config.getoption("numprocesses", 0):
        signal.signal(signal.SIGTERM, end_with_descendants)
    if hasattr(config, "workerinput") and sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


def end_with_descendants(signum, _):
    processes = [os.getpid()]
    for pid in processes:
        for task in Path(f"/proc/{pid}/task").glob("*/children"):
            with suppress(OSError):  # the process has just ended
                processes += map(int, task.read_text().split())
    for pid in reversed(processes[1:]):
        with suppress(OSError):
            os.kill(pid, signal.SIGKILL)
    os._exit(128 + signum)


def pytest_report_header():
    """Say how long it takes."""
    return "all tests: about 3 minutes on two cores"


def pytest_make_parametrize_id(val, argname):
    """Name values that pytest would number, without addresses and hashes, by which the workers of xdist differ."""
    if isinstance(val, str | Enum):
        return ascii(f"{val}")[1:-1][:60]
    if isinstance(val, int | float | None):
        return f"{argname}={val}"
    # The order in a set depends on the process.
    text = re.sub("[{]([^{}:]+)[}]", lambda found: " ".join(sorted(found[1].split(", "))), ascii(val))
    name = getattr(val, "__name__", getattr(val, "name", None)) or text
    if name == "<lambda>":
        name = " ".join(val.__code__.co_names)
    return " ".join(re.sub(r"<(?:[a-z]+ )?(\S+)(?: object)? at 0x[^>]+>", r"\1", name).split())[:60]


def pytest_asyncio_loop_factories():
    """Run async tests on a loop with a clock that stops while the machine stalls, because both sides share the loop."""
    return {"patient": PatientLoop}


@pytest.fixture(autouse=True)
def no_bugs(request):
    """Fail the test if the package logs a bug in itself, unless the test plays one."""
    bugs = []
    handler = logging.Handler()
    handler.emit = lambda record: bugs.append(record) if "inside the client" in str(record.msg) else None
    logging.getLogger("pushsdk").addHandler(handler)
    yield
    logging.getLogger("pushsdk").removeHandler(handler)
    if bugs and not request.node.get_closest_marker("plays_bug"):
        pytest.fail(logging.Formatter().format(bugs[0]), pytrace=False)


def pytest_runtest_setup(item):
    """Let the test draw the same each time, whatever ran before it."""
    random.seed(item.name)


def pytest_collection_finish():
    """Exclude what all tests share from the collections below, each of which would take 0.2 s."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item):
    """Fail the test that leaves something open: a client, a socket, a loop. Later tests never collect its garbage."""
    left = []
    try:
        return (yield)
    finally:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(sys, "unraisablehook", lambda unraisable: left.append(repr(unraisable.exc_value)))
            item.funcargs.clear()
            gc.collect()
        gc.freeze()
        if left:
            pytest.fail(f"the test left behind: {', '.join(left)}", pytrace=False)


def pytest_unconfigure():
    """Include what tests shared in the last collection, which is pytest's own."""
    gc.unfreeze()


@pytest.fixture(scope="module")
def quiet():
    """The package logs nothing."""
    logger = logging.getLogger("pushsdk")
    logger.disabled = True
    yield
    logger.disabled = False


@pytest.fixture(scope="session")
def redis_url():
    with redis_server(durable=True) as server:
        yield server.url


@pytest.fixture
def objects():
    with object_server() as server:
        yield server


@pytest.fixture
def objects_url(objects, monkeypatch):
    """Return the location of a claim store in it. The environment has its endpoint and credentials."""
    for name, value in {"ENDPOINT_URL": objects.url, "ALLOW_HTTP": "true", **KEYS}.items():
        monkeypatch.setenv(f"AWS_{name.upper()}", value)
    return "s3://claims/jobs/push"


@pytest.fixture(scope="session")
def postgres_url():
    with postgres_server() as server:
        yield server.url


@pytest.fixture
def service(monkeypatch):
    """The embedded service in a thread; the environment variables have its address and its key."""
    from support.service_thread import served  # which loads the emulator

    with served(monkeypatch) as service:
        yield service
