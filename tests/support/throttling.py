"""Services that throttle, and their clients with limited concurrency, in virtual time without real waits.

A service is called with a time, and returns if it accepts the request, or else its Retry-After.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Callable
from typing import NamedTuple, Protocol

from pushsdk._core.rate_limit import RateLimiter

__all__ = ["Bucket", "Day", "Outage", "Service", "Window", "busy"]


class Service(Protocol):
    def take(self, now: float) -> tuple[bool, float | None]: ...


class Bucket:
    """A token bucket with a rate per second and a burst."""

    def __init__(self, rate: float | Callable[[float], float], burst: float, retry_after: float | None = None) -> None:
        self.rate = rate if callable(rate) else lambda now: rate
        self.burst = self.tokens = burst
        self.retry_after = retry_after
        self.filled = 0.0

    def take(self, now: float) -> tuple[bool, float | None]:
        self.tokens = min(self.burst, self.tokens + (now - self.filled) * self.rate(now))
        self.filled = now
        if self.tokens < 1:
            return False, self.retry_after
        self.tokens -= 1
        return True, None


class Window:
    """A quota per window of some seconds; all clients share the windows."""

    def __init__(self, rate: float, seconds: float, *, tells: bool) -> None:
        self.quota, self.seconds, self.tells = rate * seconds, seconds, tells
        self.number, self.taken = -1.0, 0

    def take(self, now: float) -> tuple[bool, float | None]:
        number = now // self.seconds
        if number != self.number:
            self.number, self.taken = number, 0
        if self.taken < self.quota:
            self.taken += 1
            return True, None
        return False, math.ceil((number + 1) * self.seconds - now) if self.tells else None


class Outage:
    """Another service, but for some time everything is throttled."""

    def __init__(self, service: Service, begin: float, end: float, retry_after: float | None = None) -> None:
        self.service, self.begin, self.end, self.retry_after = service, begin, end, retry_after

    def take(self, now: float) -> tuple[bool, float | None]:
        return (False, self.retry_after) if self.begin <= now < self.end else self.service.take(now)


class Day(NamedTuple):
    """The responses in order: time, and True if accepted."""

    answers: list[tuple[float, bool]]

    def rate(self, begin: float, end: float) -> float:
        """Accepted per second."""
        return sum(accepted for when, accepted in self.answers if begin <= when < end) / (end - begin)

    def load(self, begin: float, end: float) -> float:
        """Answered per second."""
        return sum(begin <= when < end for when, _ in self.answers) / (end - begin)

    def throttled(self, begin: float, end: float) -> float:
        """The share of answers that were throttles."""
        return 1 - self.rate(begin, end) / self.load(begin, end)


def busy(gate: RateLimiter, service: Service, *, until: float, places: int = 64, latency: float = 0.05) -> Day:
    """Requests that never run out, each in one of the places, decided by the service half way."""
    arrivals: list[tuple[float, int, float]] = []
    answers: list[tuple[float, int, float, bool, float | None]] = []
    numbers, day, now = itertools.count(), Day([]), 0.0
    while now < until:
        if places and gate.delay(now) <= 0:
            places -= 1
            gate.charge(now, 1)
            heapq.heappush(arrivals, (now + latency / 2, next(numbers), now))
        elif arrivals and arrivals[0][0] <= now:
            _, number, started = heapq.heappop(arrivals)
            heapq.heappush(answers, (now + latency / 2, number, started, *service.take(now)))
        elif answers and answers[0][0] <= now:
            _, _, started, accepted, retry_after = heapq.heappop(answers)
            places += 1
            day.answers.append((now, accepted))
            if not accepted:
                gate.throttled(started, now)
            if retry_after:
                gate.pause(now + retry_after)
        else:
            nexts = [queue[0][0] for queue in (arrivals, answers) if queue]
            # No earlier than the next number: a delay may be too small to move a float.
            now = min([*nexts, max(gate.not_before, math.nextafter(now, math.inf))] if places else nexts)
    return day
