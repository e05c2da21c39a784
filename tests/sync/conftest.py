"""The embedded service in a thread, a client for it, and a check that no client thread is left."""

import threading
from collections.abc import Iterator

import pytest
from support.service_thread import ThreadService, served

from pushsdk import PushClient


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Iterator[ThreadService]:
    with served(monkeypatch) as service:
        yield service


@pytest.fixture
def client(service: ThreadService) -> Iterator[PushClient]:
    with PushClient() as client:
        yield client


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Iterator[None]:
    before = set(threading.enumerate())
    yield
    threads = [thread for thread in threading.enumerate() if thread.name == "pushsdk" and thread not in before]
    assert threads == []
