"""Services that throttle, in virtual time without real waits.

A service is called with a time, and returns if it accepts the request, or else its Retry-After.
"""

import math


class Bucket:
    """A token bucket with a rate per second and a burst."""

    def __init__(self, rate, burst, retry_after=None):
        self.rate = rate if callable(rate) else lambda now: rate
        self.burst = self.tokens = burst
        self.retry_after = retry_after
        self.filled = 0.0

    def take(self, now):
        self.tokens = min(self.burst, self.tokens + (now - self.filled) * self.rate(now))
        self.filled = now
        if self.tokens < 1:
            return False, self.retry_after
        self.tokens -= 1
        return True, None


class Window:
    """A quota per window of some seconds; all clients share the windows."""

    def __init__(self, quota, seconds, *, tells):
        self.quota = quota
        self.seconds = seconds
        self.tells = tells
        self.number = -1.0
        self.taken = 0

    def take(self, now):
        number = now // self.seconds
        if number != self.number:
            self.number = number
            self.taken = 0
        if self.taken < self.quota:
            self.taken += 1
            return True, None
        return False, math.ceil((number + 1) * self.seconds - now) if self.tells else None


class Outage:
    """Another service, but for some time everything is throttled."""

    def __init__(self, service, begin, end, retry_after):
        self.service = service
        self.begin = begin
        self.end = end
        self.retry_after = retry_after

    def take(self, now):
        return (False, self.retry_after) if self.begin <= now < self.end else self.service.take(now)
