"""Handles of processes that deliver jobs and are killed. The processes run ``claim_jobs``."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

__all__ = ["PATIENCE", "Worker"]

ROOT = Path(__file__).parents[2]
PATIENCE = 60.0


class Worker:
    """A process that delivers jobs."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    @classmethod
    async def start(cls, job: dict[str, Any]) -> Worker:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "support.claim_jobs",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'tests'}"},
        )
        assert process.stdin is not None
        process.stdin.write(json.dumps(job).encode() + b"\n")
        process.stdin.close()
        return cls(process)

    async def says(self, word: str) -> None:
        """Wait until the process says this."""
        assert self._process.stdout is not None
        async with asyncio.timeout(PATIENCE):
            while json.loads(await self._process.stdout.readline())[0] != word:
                pass

    def kill(self) -> None:
        self._process.kill()

    async def end(self) -> tuple[int, list[tuple[str, str]]]:
        """Wait for the end; return the exit status and the outcome of each delivery."""
        async with asyncio.timeout(PATIENCE):
            out, _ = await self._process.communicate()
        assert self._process.returncode is not None
        return self._process.returncode, [tuple(json.loads(line)) for line in out.splitlines()]
