"""A process that sends a plan: ``python -m support.arrow_jobs`` reads the plan as JSON and prints the results.

The job says when the process kills itself: at the n-th claim or at the n-th settlement.
"""

import itertools
import json
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pushsdk import Limits, RetryPolicy, StopPolicy, Timeout
from pushsdk.arrow import push_batches
from pushsdk.claims import Claim, Put
from pushsdk.spark import DirectoryClaims
from support.arrow_plans import MESSAGE, plan, rebatched

__all__ = ["DyingClaims", "program"]

ROOT = Path(__file__).parents[2]


class DyingClaims(DirectoryClaims):
    """A store that kills its process after a number of claims, or before a number of settlements."""

    def __init__(self, path: str, *, adds: int = 0, swaps: int = 0) -> None:
        super().__init__(path, durable=False, timeout=60.0)  # a disk may be busy
        self._adds, self._swaps = itertools.count(1), itertools.count(1)
        self._last = (adds, swaps)

    async def put(self, puts: Sequence[Put], ttl: float) -> list[Claim | None]:
        is_settling = any(put.expected for put in puts)  # claims and settlements may come together
        if is_settling and next(self._swaps) == self._last[1]:
            os.kill(os.getpid(), signal.SIGKILL)
        answers = await super().put(puts, ttl)
        if not is_settling and next(self._adds) == self._last[0]:
            os.kill(os.getpid(), signal.SIGKILL)
        return answers


def program() -> tuple[list[str], dict[str, str]]:
    """The command, and its environment."""
    command = [sys.executable, "-m", "support.arrow_jobs"]
    return command, {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'tests'}"}


def send(job: dict[str, Any]) -> None:
    """Send the plan, and print a line for each user."""
    batches = plan(job["users"], size=job.get("size", 10), personal=bool(job.get("personal")))
    if job.get("rebatched"):
        batches = rebatched(batches, job["rebatched"])
    outcomes = push_batches(
        batches,
        MESSAGE,
        run="spring",
        claims=lambda: DyingClaims(job["claims"], **job.get("dies", {})),
        personal=job.get("personal"),
        base_url=job["base_url"],
        api_key=job["api_key"],
        stop_policy=StopPolicy.off(),
        limits=Limits(in_flight=8),
        retry=RetryPolicy.safe(initial_delay=0.005, max_delay=0.02, throttle_delay=0.005),
        timeout=Timeout(attempt=5.0),
    )
    for batch in outcomes:
        for row in batch.to_pylist():
            os.write(1, json.dumps([row["user_id"], row["outcome"]]).encode() + b"\n")


if __name__ == "__main__":
    send(json.load(sys.stdin))
