"""The embedded service in a thread of its own: for commands and examples that run an event loop themselves."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Self

import pytest

from pushsdk.emulator import Emulator
from support.virtual_time import turns

__all__ = ["Service", "served"]

# Seconds after which a thread or a process that says nothing is taken to hang.
HANGS = 60.0


class Service(Emulator):
    """An emulator that another thread can wait for."""

    def __init__(self) -> None:
        super().__init__()
        self._heard = threading.Condition()

    async def __aenter__(self) -> Self:
        await super().__aenter__()
        assert self._service is not None
        judge = self._service.guard.judge

        def judging(method: str, path: str, headers: Mapping[str, str]) -> Any:
            with self._heard:
                self._heard.notify_all()
            return judge(method, path, headers)

        self._service.guard.judge = judging  # type: ignore[method-assign]
        return self

    def wait_for(self, requests: int) -> None:
        """Until the head of so many requests has come, which leaves with the first bytes of the body."""
        with self._heard:
            assert self._heard.wait_for(lambda: self.requests >= requests, HANGS), f"{self.requests} requests came"


@contextmanager
def served(monkeypatch: pytest.MonkeyPatch) -> Iterator[Service]:
    """Run it where the variables of the environment point to."""
    ready, done = threading.Event(), threading.Event()
    service = Service()

    async def serve() -> None:
        async with service:
            ready.set()
            await asyncio.to_thread(done.wait)
            # Whoever has come is let in first: asyncio loses a connection that it accepts in the turn of the end.
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
