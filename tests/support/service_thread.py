"""The embedded service in a thread, for commands and examples that run their own event loop."""

import time
from contextlib import contextmanager

from pushsdk.emulator import Emulator
from pushsdk.testing.inbox import in_thread
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

    def wait_for(self, requests):
        """Wait for the heads of this number of requests, which are sent with the first bytes of the bodies."""
        wait_until(lambda: self.requests >= requests)

    async def __aexit__(self, *_):
        await turns(10)  # to accept pending connections: asyncio loses a connection that it accepts in its last turn
        await super().__aexit__()


@contextmanager
def served(monkeypatch):
    """Run the service, and set the environment variables to its address and key."""
    with in_thread(ThreadService()) as emulator:
        monkeypatch.setenv("PUSHSDK_BASE_URL", emulator.base_url)
        monkeypatch.setenv("PUSHSDK_API_KEY", emulator.api_key)
        yield emulator
