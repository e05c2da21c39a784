"""Workers of other people's frameworks, run as their users run them, killed in the middle, judged by the service."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from pushsdk.emulator import Emulator, Fault
from pushsdk.testing.hosting import Host
from support.worker_frameworks import Framework, required

if TYPE_CHECKING:
    from redis import Redis

__all__ = ["APPS", "MODULES", "Crash", "Told", "lived"]

ROOT = Path(__file__).parents[2]
APPS = ROOT / "tests" / "workers" / "apps"
#: The modules that the README shows, by file name.
MODULES = dict(re.findall(r"^```python\n# (\w+\.py)\n(.*?)^```", (ROOT / "README.md").read_text(), re.M | re.S))
JOBS = "jobs-told"
# Seconds without a word from any job after which all is taken to hang: longer than a redelivery takes to come.
HANGS = 60
# Seconds of that after which a broker that has no job left is taken at its word.
LOST = 5


class Crash(NamedTuple):
    """Once so many jobs have told, the signal goes to the worker: to its whole group, or to its main process."""

    told: int
    number: signal.Signals


class Told(NamedTuple):
    """What the jobs said of themselves, and what the service says of their users."""

    outcomes: Mapping[str, set[str]]
    accepted: Mapping[str, int]

    @property
    def doubled(self) -> int:
        return sum(count > 1 for count in self.accepted.values())


def lived(
    name: str,
    folder: Path,
    redis_url: str,
    *,
    jobs: int,
    crashes: Sequence[Crash],
    faults: Sequence[Fault],
    dedupe: bool,
) -> Told:
    """Run the jobs, under faults, through the crashes, until each has told its outcome or the broker has lost it."""
    framework = required(name)
    from redis import Redis

    for file, text in MODULES.items():
        (folder / file).write_text(text)
    with Host(Emulator(faults=faults, keep=3 * jobs)) as host, Redis.from_url(redis_url) as redis:
        emulator = host.emulator
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(folder), str(APPS), str(ROOT)]),
            "REDIS_URL": redis_url,
            "PUSHSDK_BASE_URL": emulator.base_url,
            "PUSHSDK_API_KEY": emulator.api_key,
            **({} if dedupe else {"WITHOUT_DEDUPE": "1"}),
        }
        asyncio.run(framework.enqueue(redis_url, jobs))
        life = _Life(framework, environment, folder / "worker.log", redis)
        life.run(jobs, list(crashes))
        return Told(life.outcomes, emulator.users())


class _Life:
    """A worker, and the next after each crash."""

    def __init__(self, framework: Framework, environment: Mapping[str, str], log: Path, redis: Redis) -> None:
        self.outcomes: dict[str, set[str]] = defaultdict(set)
        self._framework = framework
        self._environment = environment
        self._log = log
        self._redis = redis

    def run(self, jobs: int, crashes: list[Crash]) -> None:
        with self._log.open("ab") as log:
            worker = _start(self._framework.command, self._environment, log.fileno())
            try:
                while len(self.outcomes) < jobs and self._heard(worker):
                    if crashes and len(self.outcomes) >= crashes[0].told:
                        _end(worker, crashes.pop(0).number)
                        worker = _start(self._framework.command, self._environment, log.fileno())
            finally:
                _end(worker, signal.SIGTERM)
        for told in self._redis.lrange(JOBS, 0, -1):
            self._note(told)
        assert not crashes

    def _heard(self, worker: subprocess.Popen[bytes]) -> bool:
        """The next job tells; False where there is none left that could."""
        quiet = 0
        while quiet < HANGS:
            if told := self._redis.blpop([JOBS], timeout=1):
                self._note(told[1])
                return True
            if worker.poll() is not None:
                break
            quiet += 1
            if self._framework.left and quiet > LOST and not self._framework.left(self._redis):
                return False
        raise AssertionError(
            f"{len(self.outcomes)} jobs have told, no other does; the worker's exit code is {worker.poll()}:\n"
            f"{self._log.read_text()[-3000:]}"
        )

    def _note(self, told: bytes) -> None:
        order, outcome = told.decode().split()
        self.outcomes[order].add(outcome)


def _start(command: Sequence[str], environment: Mapping[str, str], log: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", *command],
        env=dict(environment),
        stdout=log,
        stderr=log,
        cwd=APPS,
        start_new_session=True,
    )


def _end(worker: subprocess.Popen[bytes], number: signal.Signals) -> None:
    """SIGKILL to all of them at once, as the machine's end would; else a word to the main process."""
    with suppress(ProcessLookupError):
        (os.killpg if number == signal.SIGKILL else os.kill)(worker.pid, number)
    try:
        worker.wait(HANGS)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(worker.pid, signal.SIGKILL)
