"""Simulated services and clients, whose requests in flight ``AdaptiveLimit`` limits. Virtual time, fixed seed."""

import heapq
import itertools
import random
from collections import deque
from typing import NamedTuple

from pushsdk._core.concurrency import AdaptiveLimit


class Simulation:
    """A queue of events."""

    def __init__(self):
        self.now = 0.0
        self.random = random.Random(1)
        self._events = []
        self._numbers = itertools.count()

    def at(self, when, call, *arguments):
        heapq.heappush(self._events, (when, next(self._numbers), call, arguments))

    def run(self, until):
        while self._events and self._events[0][0] <= until:
            self.now, _, call, arguments = heapq.heappop(self._events)
            call(*arguments)
        self.now = until


class Reply(NamedTuple):
    status: int = 204
    retry_after: float | None = None


def about(seconds, per_user=0.0):
    """A latency that varies by a tenth."""
    return lambda draw, users: (seconds + per_user * users) * draw.uniform(0.9, 1.1)


class Pool:
    """A service with workers and a queue. ``stray``: it refuses this share."""

    def __init__(self, workers, seconds, *, stray=0.0):
        self.workers = workers
        self.seconds = seconds
        self._stray = stray
        self._busy = 0
        self._queue = deque()

    def take(self, simulation, users, answer):
        if simulation.random.random() < self._stray:
            simulation.at(simulation.now + 0.001, answer, Reply(429, 0.0))
            return
        self._queue.append((users, answer))
        self._work(simulation)

    def _work(self, simulation):
        while self._queue and self._busy < self.workers:
            users, answer = self._queue.popleft()
            self._busy += 1
            seconds = self.seconds(simulation.random, users)
            simulation.at(simulation.now + seconds, self._finish, simulation, answer)

    def _finish(self, simulation, answer):
        self._busy -= 1
        self._work(simulation)
        answer(Reply())


class Throttled:
    """A service that decides half way if it throttles. ``latency``: seconds, or a function that draws them."""

    def __init__(self, service, latency):
        self._service = service
        self._latency = latency if callable(latency) else lambda *_: latency

    def take(self, simulation, users, answer):
        half = self._latency(simulation.random, users) / 2

        def decide():
            accepted, retry_after = self._service.take(simulation.now)
            simulation.at(simulation.now + half, answer, Reply() if accepted else Reply(429, retry_after))

        simulation.at(simulation.now + half, decide)


class BusyClient:
    """A client whose requests never run out. Each costs ``cpu`` seconds of its single core.

    Its clock counts whole ``tick`` seconds.
    """

    def __init__(
        self, simulation, service, *, cpu = 0.0, cap = 4096, begin = 0.0,
        users = lambda simulation: 1, tick = 0.0,
    ):  # fmt: skip
        self._simulation = simulation
        self._service = service
        self._cpu = cpu
        self._users = users
        self._tick = tick
        self.limit = AdaptiveLimit(0.0, cap=cap)
        self.free_at = 0.0
        self._next_start = self._paused_until = self._wakes_at = -1.0
        #: The responses in order: time, and True if accepted. And requests in flight, in requests x seconds.
        self.answers = []
        self.load = []
        simulation.at(begin, self.pump)

    def pump(self):
        now = self._simulation.now
        limit = self.limit
        while limit.in_flight < limit.limit:
            earliest = max(self._next_start, self._paused_until)
            if earliest > now:
                if not now < self._wakes_at <= earliest:
                    self._wakes_at = earliest
                    self._simulation.at(earliest, self.pump)
                return
            limit.started(now)
            self.load.append((now, limit.in_flight))
            if limit.gap:
                self._next_start = max(self._next_start, now - 0.01 - limit.gap * (limit.limit - 1)) + limit.gap
            self._simulation.at(self._work(), self._send, self._users(self._simulation), now)

    def block(self, every, seconds):
        """Block the client's core, as an application does that computes in its event loop."""
        self.free_at = max(self._simulation.now, self.free_at) + seconds
        self._simulation.at(self._simulation.now + every, self.block, every, seconds)

    def _read(self, now):
        return now // self._tick * self._tick if self._tick else now

    def _work(self):
        self.free_at = max(self._simulation.now, self.free_at) + self._cpu / 2
        return self.free_at

    def _send(self, users, began):
        def receive(reply):
            self._simulation.at(self._work(), self._end, began, reply)

        self._service.take(self._simulation, users, receive)

    def _end(self, began, reply):
        now = self._simulation.now
        accepted = reply.status == 204
        self.answers.append((now, accepted))
        seconds = self._read(now) - self._read(began) if accepted else None
        if not accepted:
            self.limit.refused(now, pause=reply.retry_after or 0.0)
        self.limit.ended(now, seconds, ok=accepted, starved=self._paused_until <= now)
        self.load.append((now, self.limit.in_flight))
        if reply.retry_after:
            self._paused_until = max(self._paused_until, now + reply.retry_after)
            self._next_start = max(self._next_start, self._paused_until)
        self.pump()

    # -- measured -------------------------------------------------------------------------------------------------

    def rate(self, begin, end):
        """Accepted per second."""
        return sum(accepted for when, accepted in self.answers if begin <= when < end) / (end - begin)

    def refused(self, begin, end):
        """The share of answers that were refusals."""
        answers = [accepted for when, accepted in self.answers if begin <= when < end]
        return 1 - sum(answers) / len(answers)

    def in_flight(self, begin, end):
        """Mean number of requests in flight."""
        load = [(max(when, begin), count) for when, count in self.load if when < end]
        area = sum(
            count * max(0.0, after - when) for (when, count), (after, _) in itertools.pairwise([*load, (end, 0)])
        )
        return area / (end - begin)
