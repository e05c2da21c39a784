"""Random deliveries of one job by two processes, checked against the count of the service.

Store operations fail, hang, are slow or retried, callers are cancelled, responses are random. Then all faults end, and
the job is delivered once more.
"""

import asyncio
import hashlib
import random
from collections import defaultdict
from contextlib import suppress
from datetime import UTC, datetime
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from obstore.exceptions import AlreadyExistsError, GenericError, PreconditionError
from support.shaky_claims import ShakyClaims, deliver, long
from support.virtual_time import run

from pushsdk import Outcome, PartialError, RetryPolicy
from pushsdk.claims import ObjectClaims, _blocking
from pushsdk.claims._blocking import StoreThreads
from pushsdk.emulator import Fault
from pushsdk.testing import FakeService

FAULTS = ["down", "lost", "hangs", "hangs, done", "slow", "twice"]
ANSWERS = [
    None,
    Fault.delay(0.5),
    Fault.status(429),
    Fault.refused(),
    Fault.reset_before(),
    Fault.reset_after(),
    Fault.status(500, accepted=True),
    Fault.status(400),
    Fault.hang(accepted=True),
]


class WildClaims(ShakyClaims):
    """A store whose operations fail with this probability."""

    def __init__(self, dice):
        super().__init__()
        self._dice = dice
        self.rate = dice.choice([0.0, 0.1, 0.3, 0.6])

    def next_fault(self, op):
        return self._dice.choice(FAULTS) if self._dice.random() < self.rate else ""


class WildObjects:
    """obstore's methods over a dictionary. With this probability a request fails, or its response is lost.

    A failed request may be done late.
    """

    def __init__(self, dice):
        self._dice = dice
        self.rate = dice.choice([0.0, 0.1, 0.3, 0.6])
        self._objects = {}

    def put(self, path, data, *, mode):
        return self._meet(lambda: self._put(path, data, mode))

    def get(self, path):
        meta, data = self._meet(lambda: self._get(path))
        return SimpleNamespace(meta=meta, bytes=lambda: data)

    def head(self, path):
        return self.get(path).meta

    def delete(self, path):
        self._meet(lambda: self._objects.pop(path, None))

    def threads(self, count):
        """Return threads that work in the event loop, and may be slow."""

        def run(work):
            task = asyncio.get_running_loop().create_task(self._slowly(work))
            task.add_done_callback(lambda task: task.exception())
            return asyncio.shield(task)

        threads = StoreThreads(count)
        threads.run = run
        return threads

    async def _slowly(self, work):
        for _ in range(2):
            await asyncio.sleep(self._dice.choice([0.5, 5.0, 9.0]) if self._dice.random() < self.rate / 2 else 0.0)
        return work()

    def _put(self, path, data, mode):
        meta, _ = self._objects.get(path, ({}, b""))
        if mode == "create" and meta:
            raise AlreadyExistsError
        if mode != "create" and meta.get("e_tag") != mode["e_tag"]:
            raise PreconditionError
        now = datetime.fromtimestamp(asyncio.get_running_loop().time(), UTC)
        meta = {"e_tag": hashlib.sha256(data).hexdigest(), "last_modified": now}
        self._objects[path] = meta, data
        return meta

    def _get(self, path):
        try:
            return self._objects[path]
        except KeyError:
            raise FileNotFoundError from None

    def _meet(self, work):
        fault = self._dice.choice(["down", "lost", "late"]) if self._dice.random() < self.rate else ""
        if fault == "late":
            asyncio.get_running_loop().call_later(self._dice.random() * 20, _tried, work)
        if fault in ("late", "down"):
            raise GenericError
        answer = work()
        if fault == "lost":
            raise GenericError
        return answer


def _tried(work):
    with suppress(AlreadyExistsError, PreconditionError, FileNotFoundError):
        work()


class JobWorld:
    """One job, and the outcomes that its callers got for each user."""

    def __init__(self, dice, store):
        self.dice = dice
        self.users = long("user-0", "user-1", "user-2", "user-3")[: dice.choice([1, 2, 4])]
        self.outcomes = defaultdict(list)
        self.store = store(dice)
        self.is_calm = False
        self.service = FakeService(then=self._fate)

    def _fate(self, request):
        if self.is_calm:
            return None
        return Fault.status(413) if len(request.user_ids) > 1 else self.dice.choice(ANSWERS)

    def client(self):
        retry = self.dice.choice([RetryPolicy.none(), RetryPolicy.safe()])
        claims = self.store
        if isinstance(claims, WildObjects):
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(_blocking, "StoreThreads", claims.threads)
                claims = ObjectClaims(claims)
        return self.service.client(claims=claims, retry=retry)

    async def deliver(self, client, cancel_after=None):
        users = self.dice.sample(self.users, len(self.users))
        task = asyncio.create_task(deliver(client, users, timeout=self.dice.choice([1.0, 8.0, 30.0])))
        if cancel_after is not None:
            await asyncio.sleep(cancel_after)
            task.cancel()
        (end,) = await asyncio.gather(task, return_exceptions=True)
        if not isinstance(end, asyncio.CancelledError):
            for user in users:
                self.outcomes[user].append(_outcome(end, user))

    async def live(self):
        """Run a process with its deliveries."""
        dice = self.dice
        async with self.client() as client:
            for _ in range(dice.choice([1, 2, 3])):
                ends = [dice.choice([None, None, dice.random() * 0.05, dice.random() * 3]) for _ in range(3)]
                await asyncio.gather(*(self.deliver(client, end) for end in ends[: dice.choice([1, 1, 2, 3])]))
                await asyncio.sleep(dice.choice([0.0, 20.0]) * dice.random())

    async def end(self):
        await asyncio.gather(*(self.live() for _ in range(self.dice.choice([1, 2]))))
        await self.live()
        self.is_calm = True
        self.store.rate = 0.0
        async with self.client() as client:
            await self.deliver(client)
        await asyncio.sleep(20.0)  # a delayed request is accepted even if its client gave up


def _outcome(end, user):
    return end.outcomes[user] if isinstance(end, PartialError) else end.outcome


@settings(max_examples=200)
@given(st.integers(0, 2**32), st.sampled_from([WildClaims, WildObjects]))
def test_no_user_is_pushed_twice_and_every_outcome_is_true(seed, store):
    world = JobWorld(random.Random(seed), store)
    run(world.end(), collect=False)
    pushed = world.service.users()
    for user in world.users:
        outcomes = world.outcomes[user]
        assert pushed.get(user, 0) <= 1
        assert user in pushed or Outcome.ACCEPTED not in outcomes
        assert outcomes[-1] is not Outcome.NOT_SENT, "without faults, all pending users are sent to"
        assert outcomes[-1] is not Outcome.REJECTED or user not in pushed
