"""The tests' end of ``kill_child``: starts a process, kills it at any moment, hears how it ended."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from typing import Any, NamedTuple, Self

from support.service_thread import HANGS

__all__ = ["End", "Nursery", "ProcessLife"]


class End(NamedTuple):
    """The end of a process: its exit status, negative for a signal, and its output."""

    status: int
    told: dict[str, Any] | None

    @property
    def killed(self) -> bool:
        return self.status == -signal.SIGKILL


class ProcessLife:
    """One process."""

    def __init__(self, nursery: Nursery, pid: int) -> None:
        self._nursery = nursery
        self.pid = pid
        self.ended = False

    def kill(self) -> None:
        """Send kill -9. Has no effect if the process has just ended, as it stays a zombie until the next one starts."""
        if not self.ended:
            os.kill(self.pid, signal.SIGKILL)

    async def end(self) -> End:
        """Wait for it."""
        report = None
        while "status" not in (line := await self._nursery.hear()):
            report = line
        self.ended = True
        return End(line["status"], report)


class Nursery:
    """``with Nursery() as nursery``: one process at a time, each a fork of one that has imported everything."""

    def __enter__(self) -> Self:
        # The process imports the same package as these tests.
        path = os.pathsep.join(filter(None, sys.path))
        self._process = subprocess.Popen(
            [sys.executable, "-m", "support.kill_child"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": path},
        )
        self._heard = b""
        self._life: ProcessLife | None = None
        return self

    def __exit__(self, *_: object) -> None:
        with self._process as process:
            assert process.stdin is not None
            process.stdin.close()
            process.kill()

    async def start(self, job: dict[str, Any]) -> ProcessLife:
        """A process for this job (see ``kill_child.work``); the one before is over, if need be by force."""
        if self._life is not None and not self._life.ended:
            self._life.kill()
            await self._life.end()
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(job).encode() + b"\n")
        self._process.stdin.flush()
        self._life = ProcessLife(self, (await self.hear())["pid"])
        return self._life

    async def hear(self) -> dict[str, Any]:
        """The next line."""
        loop = asyncio.get_running_loop()
        assert self._process.stdout is not None
        file = self._process.stdout.fileno()
        while b"\n" not in self._heard:
            ready = loop.create_future()
            loop.add_reader(file, lambda ready=ready: ready.done() or ready.set_result(None))
            try:
                async with asyncio.timeout(HANGS):
                    await ready
            finally:
                loop.remove_reader(file)
            data = os.read(file, 65536)
            assert data, "the nursery has ended"
            self._heard += data
        line, _, self._heard = self._heard.partition(b"\n")
        return json.loads(line)
