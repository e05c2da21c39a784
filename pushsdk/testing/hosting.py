"""An emulator in a thread with an event loop of its own: for tests that have another loop, or none."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from types import TracebackType
from typing import Any, Self, TypeVar

from pushsdk.emulator import Emulator

__all__ = ["Host"]

T = TypeVar("T")


class Host:
    """Runs the emulator for the time of a ``with``. Opening raises what opening the emulator raises."""

    def __init__(self, emulator: Emulator) -> None:
        self.emulator = emulator
        self._thread = threading.Thread(target=self._run, name="pushsdk-emulator", daemon=True)
        self._ready: Future[asyncio.AbstractEventLoop] = Future()  # the thread's loop; set by it
        self._end = asyncio.Event()  # belongs to that loop

    def __enter__(self) -> Self:
        self._thread.start()
        try:
            self._ready.result()
        except BaseException:
            self._thread.join()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ready.result().call_soon_threadsafe(self._end.set)
        self._thread.join()

    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Have something awaited in the emulator's loop."""
        return asyncio.run_coroutine_threadsafe(work, self._ready.result())

    def _run(self) -> None:
        # A loop of a known kind, whatever kind the tests have chosen for theirs.
        with asyncio.Runner(loop_factory=asyncio.SelectorEventLoop) as runner:
            runner.run(self._serve())

    async def _serve(self) -> None:
        try:
            await self.emulator.__aenter__()
        except BaseException as error:  # noqa: BLE001 - raised again, in the thread that asked
            self._ready.set_exception(error)
            return
        try:
            self._ready.set_result(asyncio.get_running_loop())
            await self._end.wait()
        finally:
            await self.emulator.__aexit__(None, None, None)
