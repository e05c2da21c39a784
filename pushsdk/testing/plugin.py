"""The pytest plugin: a push service for the session, and an inbox of it for each test.

Loaded by pytest wherever pushsdk is installed: what it needs is imported when the first test asks for it.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pushsdk.emulator import Emulator
    from pushsdk.testing.inbox import EmulatorThread, PushInbox

__all__: list[str] = []

_INBOX: pytest.StashKey[PushInbox] = pytest.StashKey()  # in the test that has one, however it asked for it


@pytest.fixture(scope="session")
def push_emulator_options() -> dict[str, Any]:
    """The arguments of the session's `Emulator`; override it to give it an ``audience``, ``limits`` or a ``store``."""
    return {}


@pytest.fixture(scope="session")
def _push_host(push_emulator_options: dict[str, Any]) -> Iterator[EmulatorThread]:
    from pushsdk.emulator import Emulator
    from pushsdk.testing.inbox import EmulatorThread

    with EmulatorThread(Emulator(**push_emulator_options)) as host:
        yield host


@pytest.fixture(scope="session")
def push_emulator(_push_host: EmulatorThread) -> Emulator:
    """The push service, in a thread of its own: one for the session, or for each worker of pytest-xdist."""
    return _push_host.emulator


@pytest.fixture
def push(_push_host: EmulatorThread, request: pytest.FixtureRequest) -> Iterator[PushInbox]:
    """The push service as this test alone sees it: an inbox with an Api-Key of its own, see `PushInbox`."""
    from pushsdk.testing.inbox import PushInbox

    inbox = PushInbox(_push_host, api_key=f"test-{secrets.token_hex(8)}", label=request.node.nodeid)
    request.node.stash[_INBOX] = inbox
    yield inbox
    inbox.close()


@pytest.fixture
def push_env(push: PushInbox, monkeypatch: pytest.MonkeyPatch) -> PushInbox:
    """The same as ``push``, and where PUSHSDK_BASE_URL and PUSHSDK_API_KEY point to."""
    for name in [name for name in os.environ if name.startswith("PUSHSDK_API_KEY_")]:
        monkeypatch.delenv(name)  # other ways to a key
    monkeypatch.setenv("PUSHSDK_BASE_URL", push.base_url)
    monkeypatch.setenv("PUSHSDK_API_KEY", push.api_key)
    return push


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Fail a test that passed without the faults it asked for."""
    result = yield
    inbox = item.stash.get(_INBOX, None)
    if inbox is not None and (problem := inbox.pending_failure()) is not None:
        pytest.fail(problem, pytrace=False)
    return result


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show what the service got where a test fails by something else than an expectation of `PushInbox`."""
    report = yield
    inbox = item.stash.get(_INBOX, None)
    # At the teardown it is empty, or soon will be.
    if inbox is not None and report.failed and report.when != "teardown" and not inbox.has_shown_summary:
        report.sections.append(("Push service", inbox.summary()))
    return report
