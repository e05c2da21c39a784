"""kill -9 of the processes that send a folder of run files, and of their parent."""

import asyncio
import os
import random
from pathlib import Path
from signal import SIGKILL

import pytest
from support.kill_drivers import IN_FLIGHT, Processes
from support.kill_service import ROUGH, KillService

pytestmark = pytest.mark.skipif(
    not Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").exists(), reason="it has to find the processes"
)


class Killer:
    """Kills a child or the parent again and again, each time after some more requests."""

    def __init__(self, dice, service, children, parents, step):
        self._dice = dice
        self._service = service
        self._step = step
        #: The kills that are left.
        self.left = {"child": children, "parent": parents}
        self._next = 0

    def watch(self, life):
        """Kill the processes of this life."""
        self._life = life
        self._next = self._service.seen + self._dice.randint(2, self._step)
        self._service.when_seen = self._look

    def _look(self, requests):
        if requests >= self._next:
            self._next = requests + self._dice.randint(2, self._step)
            asyncio.get_running_loop().call_later(self._dice.random() * 0.006, self._kill)

    def _kill(self):
        victims = [name for name, number in self.left.items() for _ in range(number)]
        children = self._life.children()
        if children and victims:
            victim = self._dice.choice(victims)
            self.left[victim] -= 1
            if victim == "parent":
                self._life.kill()
            else:
                os.kill(self._dice.choice(children), SIGKILL)


EACH = ("--personalize", "both")
LONG = [
    pytest.param(users, *kills, words, marks=pytest.mark.long)
    for users, kills, words in (
        (5000, (17, 7), EACH),
        (400_000, (6, 3), ()),
    )
]


@pytest.mark.parametrize(("users", "children", "parents", "words"), [(400, 3, 1, EACH), *LONG])
async def test_a_broadcast_by_processes_survives_their_kills(users, children, parents, words, nursery, tmp_path):
    driver = Processes(tmp_path, users, *words)
    async with KillService(users, faults=ROUGH) as service:
        step = users // driver.chunk // (children + parents) // 2
        killer = Killer(random.Random(users), service, children, parents, step)
        for number, (job,) in enumerate(driver.lives(0)):
            assert number < 200, "it does not come to an end"
            life = await nursery.start(job, service)
            killer.watch(life)
            await life.end()
            await service.quiet()
            kills = children + parents - sum(killer.left.values())
            driver.check([life], service, doubt=kills * IN_FLIGHT * driver.chunk + service.unknown)
        assert service.most_in_hand <= IN_FLIGHT
    assert not any(killer.left.values())
