"""Workers of other people's frameworks, run as their users run them, killed in the middle, judged by the service."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from pushsdk.emulator import Emulator, Fault
from pushsdk.testing.inbox import in_thread
from support.docs import MODULES
from support.programs import address_of
from support.servers import free_port
from support.worker_frameworks import required

ROOT = Path(__file__).parents[2]
APPS = ROOT / "tests" / "workers" / "apps"
JOBS = "jobs-ended"
AGAIN = "jobs-again"
# Seconds without a word from any job after which all is taken to hang: longer than a redelivery takes to come.
HANGS = 60
# Seconds within which an unfinished job is redelivered.
COMES_AGAIN = 6
# Seconds of silence after which a broker that has no job left is taken at its word.
LOST = 5


class Crash(NamedTuple):
    """A signal to the worker (its process group or its main process) after a number of jobs."""

    told: int
    number: signal.Signals


class LabSummary(NamedTuple):
    """The reported outcomes of all deliveries, and the service's count for each user."""

    outcomes: Mapping[str, Counter[str]]
    accepted: Mapping[str, int]
    log: str
    """Output of the worker."""

    @property
    def doubled(self):
        return sum(count > 1 for count in self.accepted.values())


def _impatient_and_alone(text):
    """Retry jobs within a second, and give each its own message, so that no two share a request."""
    alone = text.replace("user, SHIPPED,", 'user, {"title": {"en": f"Order {order}"}},')
    return alone.replace("retry_delay(", "retry_delay(0.5, ")


@contextmanager
def _life(name, folder, redis_url, emulator, *, jobs, changed=_impatient_and_alone, **environment):
    """Enqueue the jobs, and yield the life of their workers, which run the guide's modules as ``changed``."""
    framework = required(name)
    from redis import Redis

    for file, text in MODULES.items():
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / file).write_text(changed(text))
    environment |= {
        "PYTHONPATH": os.pathsep.join([str(folder), str(APPS), str(ROOT)]),
        "REDIS_URL": redis_url,
        **address_of(emulator),
    }
    with Redis.from_url(redis_url) as redis:
        asyncio.run(framework.enqueue(redis_url, jobs))
        yield _Life(framework, os.environ | environment, folder / "worker.log", redis)


def lived(*place, jobs, crashes, faults, idempotent):
    """Run the jobs with faults and crashes until each job has an outcome or is lost by the broker."""
    options = {"changed": str} if idempotent else {"changed": str, "WITHOUT_IDEMPOTENCY_KEY": "1"}
    with (
        in_thread(Emulator(faults=faults, keep=3 * jobs)) as emulator,
        _life(*place, emulator, jobs=jobs, **options) as life,
    ):
        for deliveries, end in (*crashes, Crash(jobs, signal.SIGTERM)):
            with life.worker(end) as worker:
                life.hear(worker, deliveries)
        return life.summary(emulator)


def terminated(*place, jobs):
    """Send SIGTERM to a worker while the push of every job is in flight, and wait for the worker's end."""
    with (
        in_thread(Emulator(faults=[Fault.delay(1.0)])) as emulator,
        _life(*place, emulator, jobs=jobs) as life,
    ):
        with life.worker(signal.SIGTERM) as worker:
            life.wait(worker, lambda: emulator.requests >= jobs)
        return life.summary(emulator)


def outlived(*place, faults, jobs, tries):
    """Run the jobs, one per request, without a service until a number of attempts has failed; then with the service."""
    port = free_port()
    with in_thread(Emulator(port=port)) as emulator:
        pass
    with _life(*place, emulator, jobs=jobs) as life:
        with life.worker(signal.SIGTERM) as worker:
            life.wait(worker, lambda: life.count(AGAIN) >= tries)
            with in_thread(Emulator(port=port, api_key=emulator.api_key, faults=faults)) as emulator:
                life.wait(worker, lambda: life.count(JOBS) >= jobs)
                # Any redelivery happens within these seconds.
                life.wait(worker, lambda: life.count(JOBS) > jobs, at_most=COMES_AGAIN)
        return life.summary(emulator)


class _Life:
    """A worker, and the next after each crash."""

    def __init__(self, framework, environment, log, redis):
        self.outcomes = defaultdict(Counter)
        self._framework = framework
        self._environment = environment
        self._log = log
        self._redis = redis

    def summary(self, emulator):
        for item in self._redis.lrange(JOBS, 0, -1):
            self._note(item)
        return LabSummary(self.outcomes, emulator.users(), self._log.read_text())

    def count(self, channel):
        return self._redis.llen(channel)

    def hear(self, worker, deliveries):
        """Wait until this number of jobs has an outcome, or no job is left."""
        while len(self.outcomes) < deliveries and self._heard(worker):
            pass

    @contextmanager
    def worker(self, end):
        """Run the worker, and end it with this signal."""
        with self._log.open("ab") as log:
            worker = subprocess.Popen(
                [sys.executable, "-m", *self._framework.command],
                env=self._environment,
                stdout=log,
                stderr=log,
                cwd=APPS,
                start_new_session=True,
            )
            try:
                yield worker
            finally:
                _end(worker, end)

    def wait(self, worker, done, at_most=None):
        """Wait until the job is done, or for a number of seconds if the job may be lost."""
        until = time.monotonic() + (at_most or HANGS)
        while not done() and time.monotonic() < until:
            assert worker.poll() is None, self._log.read_text()[-3000:]
            time.sleep(0.05)
        assert at_most or done(), self._log.read_text()[-3000:]

    def _heard(self, worker):
        """Wait for the next outcome; return False if no job is left."""
        quiet = 0
        while quiet < HANGS:
            if item := self._redis.blpop([JOBS], timeout=1):
                self._note(item[1])
                return True
            if worker.poll() is not None:
                break
            quiet += 1
            if self._framework.left and quiet > LOST and not self._framework.left(self._redis):
                return False
            if self._framework.nudge and quiet > LOST:
                self._framework.nudge(self._redis)
        raise AssertionError(
            f"{len(self.outcomes)} jobs have told, no other does; the worker's exit code is {worker.poll()}:\n"
            f"{self._log.read_text()[-3000:]}"
        )

    def _note(self, item):
        """The reported outcome of a job."""
        order, outcome = item.decode().split()
        self.outcomes[order][outcome] += 1


def _end(worker, number):
    """SIGKILL to all of them at once, as the machine's end would; else a word to the main process."""
    with suppress(ProcessLookupError):
        (os.killpg if number == signal.SIGKILL else os.kill)(worker.pid, number)
    try:
        worker.wait(HANGS)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(worker.pid, signal.SIGKILL)
