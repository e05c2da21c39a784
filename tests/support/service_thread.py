"""The embedded service in a thread, for commands and examples that run their own event loop."""

import asyncio
import threading
import time
from contextlib import contextmanager

from pushsdk.emulator import Emulator
from pushsdk.emulator.guard import Guard
from support.virtual_time import turns

# Seconds after which a thread or a process that says nothing is taken to hang.
HANGS = 60.0


def wait_until(condition):
    """Wait for what another thread does. Raises AssertionError if it does not do it."""
    until = time.monotonic() + HANGS
    while not condition():
        assert time.monotonic() < until, "the condition was never met"
        time.sleep(0.001)


class ThreadService(Emulator):
    """An emulator that another thread can wait for."""

    def __init__(self):
        super().__init__()
        #: Notified at each request; by ``served``.
        self.heard = threading.Condition()

    def wait_for(self, requests):
        """Wait for the heads of this number of requests, which are sent with the first bytes of the bodies."""
        with self.heard:
            assert self.heard.wait_for(lambda: self.requests >= requests, HANGS), f"{self.requests} requests came"


def _tell(service, monkeypatch):
    """Have the service notify at the first look at each request, when it has counted it."""
    check = Guard.check_request

    def checking(guard, *head):
        with service.heard:
            service.heard.notify_all()
        return check(guard, *head)

    monkeypatch.setattr(Guard, "check_request", checking)


@contextmanager
def served(monkeypatch):
    """Run the service, and set the environment variables to its address and key."""
    ready, done = threading.Event(), threading.Event()
    service = ThreadService()
    _tell(service, monkeypatch)

    async def serve():
        async with service:
            ready.set()
            await asyncio.to_thread(done.wait)
            # Accept pending connections first: asyncio loses a connection that it accepts in its last turn.
            await turns(10)

    thread = threading.Thread(target=asyncio.run, args=(serve(),))
    thread.start()
    try:
        assert ready.wait(HANGS)
        monkeypatch.setenv("PUSHSDK_BASE_URL", service.base_url)
        monkeypatch.setenv("PUSHSDK_API_KEY", service.api_key)
        yield service
    finally:
        done.set()
        thread.join(HANGS)
    assert not thread.is_alive()
