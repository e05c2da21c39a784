"""A service with workers and a queue, in virtual time. It works on, and pushes, if the client has stopped waiting."""

import asyncio
import heapq
import math
import random
from collections import Counter
from typing import NamedTuple

from pushsdk import PushError
from support.fake_service import FakeService, titled


def lognormal(mean, sigma):
    """Return latencies of this distribution, whenever they begin."""
    return lambda now: random.lognormvariate(math.log(mean) - sigma * sigma / 2, sigma)


class PoolService(FakeService):
    """``latency`` returns the seconds of a worker for a request that arrives then; infinite if it never responds."""

    def __init__(self, workers, latency):
        super().__init__(then=self._work)
        self._free = [0.0] * workers
        self._latency = latency
        #: True pushes of each user, answered or not.
        self.pushed = Counter()
        #: Requests that arrived and were not responded to.
        self.unanswered = 0

    async def _work(self, request):
        loop = asyncio.get_running_loop()
        if not await request._claim_users(request.evidence):
            return
        request.write()
        request.evidence.reused = True
        now = loop.time()
        users = request.user_ids
        self.unanswered += 1
        try:
            seconds = self._latency(now)
            if seconds == math.inf:
                await loop.create_future()
            end = max(now, heapq.heappop(self._free)) + seconds
            heapq.heappush(self._free, end)
            loop.call_at(end, self.pushed.update, users)
            await asyncio.sleep(end - now)
        finally:
            self.unanswered -= 1
        request.evidence.latency = end - now
        request.respond(204)


class Ended(NamedTuple):
    """The end of one send: its start and duration in seconds."""

    user: str
    start: float
    outcome: str
    seconds: float


async def send_at_random(client, rate, seconds, *, on_time=lambda _: None, titled=titled):
    """Send messages at this mean rate, and return how each ended. ``on_time`` is called before each."""
    loop = asyncio.get_running_loop()
    ended = []
    sends = []
    began = loop.time()

    async def send(number, start):
        outcome = "ACCEPTED"
        try:
            await client.send(f"user-{number}", titled(number))
        except PushError as error:
            outcome = error.outcome.value
        ended.append(Ended(f"user-{number}", start, outcome, loop.time() - began - start))

    while (start := loop.time() - began) < seconds:
        on_time(start)
        sends.append(asyncio.create_task(send(len(sends), start)))
        await asyncio.sleep(random.expovariate(rate))
    await asyncio.gather(*sends)
    # The workers end what they have begun.
    await asyncio.sleep(60)
    return ended
