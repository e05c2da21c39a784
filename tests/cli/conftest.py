"""Commands run with nothing of the user's own settings; and a service to run them against."""

from __future__ import annotations

import asyncio
import functools
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.command_line import Ended, run_here

from pushsdk import cli
from pushsdk.emulator import Emulator


@pytest.fixture(autouse=True)
def _nobodys_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in [name for name in os.environ if name.startswith("PUSHSDK_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "configuration"))
    monkeypatch.setenv("PYTHONPATH", str(Path(cli.__file__).parents[2]))
    monkeypatch.setenv("COLUMNS", "100")


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str]) -> Callable[..., Ended]:
    """Run a command line here; what it printed is in the result."""
    return functools.partial(run_here, capsys)


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Iterator[Emulator]:
    """The embedded service in a thread of its own, where the variables point to."""
    ready, done = threading.Event(), threading.Event()
    emulator = Emulator()

    async def serve() -> None:
        async with emulator:
            ready.set()
            await asyncio.to_thread(done.wait)

    thread = threading.Thread(target=asyncio.run, args=(serve(),))
    thread.start()
    try:
        assert ready.wait(10)
        monkeypatch.setenv("PUSHSDK_BASE_URL", emulator.base_url)
        monkeypatch.setenv("PUSHSDK_API_KEY", emulator.api_key)
        yield emulator
    finally:
        done.set()
        thread.join(10)
