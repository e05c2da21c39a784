"""Processes to kill, each a fork of a server that has imported everything: a new interpreter takes half a second."""

import asyncio
import multiprocessing
import os
import sys
from contextlib import suppress
from multiprocessing.forkserver import ensure_running
from pathlib import Path
from signal import SIGKILL
from typing import Any, NamedTuple

import pytest

from support.kill_child import live


class End(NamedTuple):
    """The end of a process: its exit status, negative for a signal, and the last that it said."""

    status: int
    told: Any

    @property
    def killed(self):
        return self.status == -SIGKILL


class ProcessLife:
    """A process that does a job (see ``kill_child``) until it is done or killed."""

    def __init__(self, job):
        context = multiprocessing.get_context("forkserver")
        self._hears, says = context.Pipe(duplex=False)
        self._process = context.Process(target=live, args=(job, says))
        self._process.start()
        says.close()
        #: What was heard from it.
        self.said = []
        self.ended = False

    def children(self):
        """Return the processes that the process has started."""
        pid = self._process.pid
        with suppress(OSError):
            return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
        return []

    def kill(self):
        """Send kill -9. Has no effect if the process has just ended."""
        self._process.kill()

    async def end(self):
        """Wait for the end of the process."""
        await asyncio.to_thread(self._hear)
        await asyncio.to_thread(self._process.join)
        self.ended = True
        return End(self._process.exitcode, self.said[-1] if self.said else None)

    def _hear(self):
        with suppress(EOFError, OSError):
            while True:
                self.said.append(self._hears.recv())


class Nursery:
    """``with Nursery() as nursery``: at its end its processes are killed."""

    def __enter__(self):
        self._lives = []
        multiprocessing.set_forkserver_preload(["support.kill_child"])
        with pytest.MonkeyPatch.context() as patch:
            # The server imports the same package as these tests.
            patch.setenv("PYTHONPATH", os.pathsep.join(filter(None, sys.path)))
            ensure_running()
        return self

    def __exit__(self, *_):
        for life in self._lives:
            life.kill()

    async def start(self, job, service, **more):
        self._lives = [life for life in self._lives if not life.ended]
        self._lives.append(life := ProcessLife({**job, "base_url": service.base_url, **more}))
        return life
