"""A push service that counts the pushes of each user: the reference of the kill tests.

Shares no code with the client. A seeded draw decides the fate of each complete request, even if its sender has died.
"""

import asyncio
import itertools
import os
import random
from array import array
from collections import Counter
from typing import NamedTuple

from support.wire_server import WireServer


class Fate(NamedTuple):
    """The fate of a request."""

    accepted: bool
    #: None is a reset without an answer.
    status: int | None
    header: bytes = b""
    #: Fates after which the client can't know if the request was accepted.
    unknown: bool = False


FATES = {
    "accepted": Fate(True, 204),
    "reset_before": Fate(False, None, unknown=True),
    "reset_after": Fate(True, None, unknown=True),
    "429": Fate(False, 429),
    "429, at once": Fate(False, 429, b"Retry-After: 0\r\n"),
    "429, in a minute": Fate(False, 429, b"Retry-After: 60\r\n"),
    "503": Fate(False, 503, unknown=True),
    "503, at once": Fate(False, 503, b"Retry-After: 0\r\n"),
    "504 after": Fate(True, 504, unknown=True),
    "400": Fate(False, 400),
}
CALM = {"accepted": 1.0}
ROUGH = {
    "accepted": 0.80,
    "reset_before": 0.03,
    "reset_after": 0.04,
    "429": 0.02,
    "429, at once": 0.02,
    "503": 0.02,
    "503, at once": 0.02,
    "504 after": 0.03,
    "400": 0.02,
}
#: Frequent faults, but every retried request is accepted in the end.
STEADY = {**ROUGH, "accepted": 0.94, "reset_after": 0.01, "504 after": 0.01, "400": 0.01}
# Different ones in processes that run at the same time.
_numbers = itertools.count(1_000_000 * os.getpid())


def name_of(number):
    """The id of user ``number``."""
    return f"person-{number:07}"


def number_of(name):
    """The other way, with any word before the number."""
    return int(name.rpartition("-")[2])


class KillService(WireServer):
    """``async with KillService(users, ...) as service``: listens on loopback, and keeps the books."""

    def __init__(self, users, *, faults, culprits=frozenset(), latency=0.006):
        super().__init__(lambda moment, _: self._meet if moment == "request" else None)
        #: How often each user was pushed to.
        self.pushes = array("H", bytes(2 * users))
        #: Complete requests by fate, and the users of requests with a fate that the client can't know.
        self.fates = Counter()
        self.unknown = 0
        #: Complete requests, and the most of them at a time without a response.
        self.seen = 0
        self.most_in_hand = 0
        #: The number in each user's message, if messages are numbered.
        self.messages = set()
        #: Called with the number of each request that has arrived.
        self.when_seen = lambda count: None
        self._culprits = culprits
        self._latency = latency
        self.behave(faults)
        self._draw = random.Random(users)
        self._in_hand = 0
        # Unique to this service: clients of an earlier test may still send to a reused port.
        self._place = f"/{next(_numbers)}"

    @property
    def base_url(self):
        return super().base_url + self._place

    def behave(self, faults):
        """Draw the fates of requests from these names, with these weights."""
        self._names = list(faults)
        self._weights = list(faults.values())

    async def _meet(self, wire):
        """Draw the fate of a whole request now, and show it somewhat later, even if its sender is killed."""
        request = await wire.read_request()
        assert request.head.startswith(b"POST ")
        assert request.path.endswith(f"{self._place}/v1/push")
        assert request.headers["content-type"] == "application/json"
        users = [number_of(name) for name in request.users]
        assert len(set(users)) == len(users), "a user twice in one request"
        if "number" in (custom := request.document.get("customFields", {})):
            self.messages.update((user, custom["number"]) for user in users)
        name = self._draw.choices(self._names, self._weights)[0]
        if not self._culprits.isdisjoint(users):
            name = "400"
        fate = FATES[name]
        self.fates[name] += 1
        self.seen += 1
        self._in_hand += 1
        self.most_in_hand = max(self._in_hand, self.most_in_hand)
        self.when_seen(self.seen)
        await asyncio.sleep(self._latency * (0.5 + self._draw.random()))
        self._in_hand -= 1
        for user in users if fate.accepted else ():
            self.pushes[user] += 1
        self.unknown += len(users) if fate.unknown else 0
        if fate.status is None:
            await wire.rst()
        else:
            length = b"" if fate.status == 204 else b"Content-Length: 0\r\n"
            await wire.send(b"HTTP/1.1 %d Told\r\n%s%s\r\n" % (fate.status, fate.header, length))
