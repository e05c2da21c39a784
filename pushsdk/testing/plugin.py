"""The pytest plugin: a push service for the session, and an inbox for each test.

pytest loads this module wherever pushsdk is installed, so everything else is imported on first use.
"""

import os
import secrets
from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pushsdk.emulator import Emulator
    from pushsdk.testing.inbox import PushInbox

__all__: list[str] = []

_SHOWN = "The service received "  # a failure text that has a summary
_INBOX: "pytest.StashKey[PushInbox]" = pytest.StashKey()  # set in tests that use the fixture, directly or not


@pytest.fixture(scope="session")
def push_emulator_options() -> dict[str, Any]:
    """The arguments for the session's `Emulator`. Override to pass ``faults``, ``limits`` or ``store``."""
    return {}


@pytest.fixture(scope="session")
def push_emulator(push_emulator_options: dict[str, Any]) -> "Iterator[Emulator]":
    """The push service in a thread: one per session, or per pytest-xdist worker."""
    from pushsdk.emulator import Emulator
    from pushsdk.testing.inbox import in_thread

    with in_thread(Emulator(**push_emulator_options)) as emulator:
        yield emulator


@pytest.fixture
def push(push_emulator: "Emulator", request: pytest.FixtureRequest) -> "Iterator[PushInbox]":
    """The test's inbox in the push service, with an Api-Key for this test only, see `PushInbox`."""
    from pushsdk.testing.inbox import PushInbox

    inbox = PushInbox(push_emulator, api_key=f"test-{secrets.token_hex(8)}", label=request.node.nodeid)
    request.node.stash[_INBOX] = inbox
    yield inbox
    inbox.close()


@pytest.fixture
def push_env(push: "PushInbox", monkeypatch: pytest.MonkeyPatch) -> "PushInbox":
    """The ``push`` inbox, with PUSHSDK_BASE_URL and PUSHSDK_API_KEY set to its URL and key."""
    for name in [name for name in os.environ if name.startswith("PUSHSDK_API_KEY_")]:
        monkeypatch.delenv(name)  # take precedence over PUSHSDK_API_KEY
    monkeypatch.setenv("PUSHSDK_BASE_URL", push.base_url)
    monkeypatch.setenv("PUSHSDK_API_KEY", push.api_key)
    return push


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Fail a test that passed although one of its faults never fired."""
    result = yield
    inbox = item.stash.get(_INBOX, None)
    if inbox is not None and (problem := inbox.pending_failure()) is not None:
        pytest.fail(problem, pytrace=False)
    return result


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add the received requests to a failure report that does not show them already."""
    report = yield
    inbox = item.stash.get(_INBOX, None)
    # The inbox is deleted at teardown.
    if inbox is not None and report.failed and report.when != "teardown" and _SHOWN not in report.longreprtext:
        report.sections.append(("Push service", inbox.summary()))
    return report
