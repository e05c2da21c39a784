"""Random scenarios of a run: processes, users, and the service of one process. Drawn by hypothesis."""

import asyncio
from collections.abc import Sequence
from typing import Literal, NamedTuple

from hypothesis import strategies as st

from pushsdk import Batching, Rate, StopPolicy
from pushsdk._core.outcome import Failure
from support.fake_service import FakeService, answer, fails
from support.kill_service import number_of
from support.model_settings import FAULTS as COMMON
from support.model_settings import mostly

FAULTS = {
    **COMMON,
    "429 with a far Retry-After": answer(429, {"Retry-After": "100"}),
    "408": answer(408),
    "404": answer(404),
}
# They end a run: rare.
ENDS = {"401": answer(401), "certificate": fails(Failure.CERTIFICATE)}
BRAKES = {
    "off": StopPolicy.off(),
    "default": StopPolicy(),
    "nervous": StopPolicy(rejected=0.2, unknown=0.2, after=1, max_outage=3.0),
}


class RunLife(NamedTuple):
    """The actions of one process on the run."""

    faults: Sequence[str] = ()
    on_unknown: Literal["skip", "resend"] = "skip"
    #: How the process ends, and when: after a number of requests, plus seconds and turns of the loop.
    end: str | None = None
    requests: int = 0
    seconds: float = 0.0
    steps: int = 0
    #: True if requests that were written before a kill are processed afterwards.
    late: bool = False
    resumes: bool = False
    stop_policy: str = "off"
    limit: int | None = None
    in_flight: int = 3
    rate: Rate = Rate()
    durable: bool = False
    #: Other requests of the same client, at the same time.
    sends: int = 0


CALM = RunLife()


class RunWorld(NamedTuple):
    """One example."""

    each: bool
    users: int
    batching: Batching
    takes: int
    culprits: frozenset[int]
    lives: list[RunLife]
    finally_resend: bool


LIVES = st.builds(
    RunLife,
    faults=st.lists(st.sampled_from([*list(FAULTS) * 3, *ENDS]), max_size=12),
    on_unknown=mostly("skip", "resend"),
    end=st.sampled_from([None, "kill", "kill", "cancel", "stop", "close", "close at once"]),
    requests=st.integers(0, 12),
    seconds=mostly(0.0, 0.005, 0.01, 0.015, 0.02, 0.1, 1.0, 11.0),
    steps=st.integers(0, 4),
    late=st.booleans(),
    resumes=st.booleans(),
    stop_policy=mostly("off", "default", "nervous"),
    limit=mostly(None, 1, 7),
    in_flight=st.sampled_from([1, 2, 3, 64]),
    rate=mostly(Rate(), Rate(requests_per_second=10.0), Rate(users_per_second=20.0)),
    durable=mostly(False, True),
    sends=mostly(0, 2),
)
WORLDS = st.builds(
    RunWorld,
    each=mostly(False, True),
    users=st.integers(1, 40),
    batching=st.builds(
        Batching,
        max_users=st.sampled_from([1, 2, 4, 8, 1000]),
        max_bytes=mostly(1_000_000, 150),
        split_on=mostly(frozenset({413, 400, 422}), frozenset()),
    ),
    takes=mostly(1000, 3, 1, 0),
    culprits=st.frozensets(st.integers(0, 39), max_size=2),
    lives=st.lists(LIVES, min_size=1, max_size=3),
    finally_resend=st.booleans(),
)


class CountingService(FakeService):
    """A service that reports when a number of requests has started; knows its users by number."""

    def __init__(self, world, faults):
        super().__init__(then=self._fate)
        self.begun = asyncio.Condition()
        self._world = world
        self._left = [{**FAULTS, **ENDS}[name] for name in faults]

    def _fate(self, request):
        if not request.users[0].startswith("person"):
            return answer()
        if len(request.users) > self._world.takes:
            return answer(413)
        if any(number_of(user) in self._world.culprits for user in request.users):
            return answer(400)
        return self._left.pop(0) if self._left else answer()

    async def post(self, sent):
        async with self.begun:
            self.begun.notify_all()
        await super().post(sent)

    async def wait_for(self, requests):
        async with self.begun:
            await self.begun.wait_for(lambda: len(self.requests) >= requests)
