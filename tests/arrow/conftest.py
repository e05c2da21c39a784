"""A directory of claims for a test, and no thread of a client left behind."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.service_thread import HANGS

from pushsdk.claims import ClaimStore, DirectoryClaims

# By name: where the package is not installed, pytest does not know the plugin.
from pushsdk.testing.plugin import _push_host, push, push_emulator, push_emulator_options, push_env  # noqa: F401


@pytest.fixture
def claims(tmp_path: Path) -> Callable[[], ClaimStore]:
    """Makes the store anew, as each process would."""
    return lambda: DirectoryClaims(tmp_path / "claims", durable=False)


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Iterator[None]:
    before = set(threading.enumerate())
    yield
    left = [each for each in threading.enumerate() if each.name.startswith("pushsdk") and each not in before]
    for each in left:
        if each.name == "pushsdk-claims":
            # Told to end, and the store does not wait for that.
            each.join(HANGS)
    assert [each.name for each in left if each.is_alive() and each.name != "pushsdk-work"] == []
