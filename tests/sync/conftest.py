"""A client for the embedded service, and a check that no client thread is left."""

import threading

import pytest

from pushsdk import PushClient


@pytest.fixture
def client(service):
    with PushClient() as client:
        yield client


@pytest.fixture(autouse=True)
def no_thread_is_left():
    before = set(threading.enumerate())
    yield
    threads = [thread for thread in threading.enumerate() if thread.name == "pushsdk" and thread not in before]
    assert threads == []
