"""A directory of claims for a test, and a check that no thread of a client is left."""

import threading
from functools import partial

import pytest
from support.arrow_plans import MESSAGE
from support.service_thread import HANGS

from pushsdk import StopPolicy
from pushsdk.arrow import push_batches
from pushsdk.spark import DirectoryClaims

# Imported by name: pytest does not know the plugin if the package is not installed.
from pushsdk.testing.plugin import push, push_emulator, push_emulator_options, push_env  # noqa: F401


@pytest.fixture
def claims(tmp_path):
    """Makes the store anew, as each process would."""
    return lambda: DirectoryClaims(tmp_path / "claims", durable=False)


@pytest.fixture
def sent(claims):
    """Sends a plan of a run; returns its outcome batches."""
    return partial(push_batches, message=MESSAGE, run="spring", claims=claims, stop_policy=StopPolicy.off())


@pytest.fixture(autouse=True)
def no_thread_is_left():
    before = set(threading.enumerate())
    yield
    threads = [thread for thread in threading.enumerate() if thread.name.startswith("pushsdk") and thread not in before]
    for thread in threads:
        if thread.name == "pushsdk-claims":
            # The thread ends soon: the store does not wait for it.
            thread.join(HANGS)
    assert [thread.name for thread in threads if thread.is_alive() and thread.name != "pushsdk-work"] == []
