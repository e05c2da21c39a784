"""The embedded service in a thread, for commands and examples that run their own event loop."""

import time
from contextlib import contextmanager

from pushsdk.emulator import Emulator
from pushsdk.testing.inbox import EmulatorThread
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


@contextmanager
def served(monkeypatch):
    """Run the service, and set the environment variables to its address and key."""
    with EmulatorThread(ThreadService()) as host:
        monkeypatch.setenv("PUSHSDK_BASE_URL", host.emulator.base_url)
        monkeypatch.setenv("PUSHSDK_API_KEY", host.emulator.api_key)
        try:
            yield host.emulator
        finally:
            # Accept pending connections first: asyncio loses a connection that it accepts in its last turn.
            host.submit(turns(10)).result()
