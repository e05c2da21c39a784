"""Random runs with random processes and a random service, on virtual time; each process is judged.

A life is the work of one process on a run: it completes, is stopped, cancelled, closed, or killed at any step, and the
next life resumes the file.
"""

import asyncio
import os
import shutil
import tempfile
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import example, given
from support.fake_service import MESSAGE, client_of, idle
from support.kill_judge import CLAIMED, RESENT, Plan, judge
from support.kill_service import name_of, number_of
from support.model_settings import LONG, SHORT
from support.run_lives import BRAKES, CALM, WORLDS, CountingService, RunWorld
from support.virtual_time import run, turns

from pushsdk import (
    Batching,
    ClientClosedError,
    Limits,
    Outcome,
    PushRequest,
    RetryPolicy,
    RunFileError,
    read_report,
)

pytestmark = pytest.mark.usefixtures("quiet")

# A folder in memory, if available: most of the time goes into the files.
MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


class Books:
    """The pushes of all lives, and the expected state of the run."""

    def __init__(self, world):
        self.pushes = [0] * world.users
        self.plan = None
        #: Users in a request that may have been sent, over all lives.
        self.written = set()
        #: Maximum number of ranges that kills left claimed.
        self.unsettled = 0
        self.resent = False

    def enter(self, service, *, late=None):
        """Enter the pushes of one life; ``late`` after a kill."""
        for request in service.requests:
            if not request.users[0].startswith("person"):
                continue
            users = [number_of(name) for name in request.users]
            if request.evidence.started_writing:
                self.written.update(users)
            if request.accepted or (late and request.ended is None and request.evidence.written):
                for user in users:
                    self.pushes[user] += 1


def is_planned(path):
    """Return True if there is a run with a complete plan."""
    try:
        read_report(path)
    except RunFileError:
        return False
    return True


async def begin(client, world, life, path, **keywords):
    """Start a broadcast or a resume."""
    options = {
        "run": path,
        "on_unknown": life.on_unknown,
        "stop_policy": BRAKES[life.stop_policy],
        "limit": life.limit,
        "durable": life.durable,
        **keywords,
    }
    names = list(map(name_of, range(world.users)))
    if life.resumes and is_planned(path):
        return await client.resume(**options)
    if world.each:
        size = min(3, world.batching.max_users)
        requests = [
            PushRequest(user_ids=names[start : start + size], message={"title": {"en": f"Number {start}"}})
            for start in range(0, len(names), size)
        ]
        return await client.send_each(requests, **options)
    return await client.broadcast(names, MESSAGE, **options)


async def live(world, life, path, books):
    """Run one life and judge it. Return the path of the run afterwards."""
    service = CountingService(world, life.faults)
    stop = asyncio.Event()
    readings = []
    client = client_of(
        service,
        batching=world.batching,
        limits=Limits(in_flight=life.in_flight),
        rate=life.rate,
        retry=RetryPolicy.safe(throttle_delay=0.3),
    )
    running = asyncio.ensure_future(begin(client, world, life, path, on_progress=readings.append, stop=stop))
    sends = [asyncio.ensure_future(client.send(f"other-{number}", MESSAGE)) for number in range(life.sends)]
    moment = asyncio.ensure_future(come(service, life))
    await asyncio.wait([running, moment], return_when="FIRST_COMPLETED")
    killed = False
    if not running.done():
        if life.end == "kill":
            killed, path = True, kill(path)
            books.enter(service, late=life.late)
        elif life.end == "stop":
            stop.set()
        elif life.end == "cancel":
            running.cancel()
        else:
            await client.aclose(drain=0.0 if life.end == "close at once" else 5.0)
    if killed:
        running.cancel()
    await asyncio.wait([running, *sends])
    moment.cancel()
    await asyncio.wait([moment])
    await client.aclose()
    for send in sends:
        send.exception()
    assert idle(client)
    assert service.in_flight == 0
    assert service.most_in_flight <= life.in_flight
    if killed:
        running.cancelled() or running.exception()
    else:
        books.enter(service)
    books.resent = books.resent or life.on_unknown == "resend"
    books.unsettled += killed * life.in_flight
    judge_life(path, life, books, readings, None if killed else running)
    return path


async def come(service, life):
    """Wait for the moment at which the life ends; forever if it completes."""
    if life.end is None:
        await asyncio.Event().wait()
    await service.wait_for(life.requests)
    await asyncio.sleep(life.seconds)
    await turns(life.steps)


def kill(path):
    """Copy what a kill at this moment leaves behind: later work of the process is not seen."""
    copy = path.with_name(path.name + "'")
    if path.exists():
        shutil.copyfile(path, copy)
    return copy


def judge_life(path, life, books, readings, running):
    """Check that the run file is correct and complete."""
    if not is_planned(path):
        assert running is None or life.end in ("cancel", "stop", "close", "close at once"), "not planned"
        assert not books.written
        return
    report = read_report(path)
    books.plan = books.plan or Plan(path)
    history = judge(path, books.plan, report, books.pushes, hold=not books.resent, every=True)
    judge_doubt(history, books.plan, books)
    for reading in readings:
        counts = (reading.accepted, reading.rejected, reading.unknown, reading.not_sent, reading.in_flight)
        assert sum(counts) == reading.planned
        assert min(counts) >= 0, counts
    if running is None or running.cancelled():
        return
    if isinstance(running.exception(), ClientClosedError):
        assert life.end in ("close", "close at once"), "closed while it was planned"
    else:
        judge_report(running.result(), report, life)


def judge_doubt(history, plan, books):
    """Check that only kills leave claims, and that users of unsent requests are not unknown."""
    unsettled = [user for user, state in zip(plan.users, history.states, strict=True) if state in (CLAIMED, RESENT)]
    most = max((stop - start for start, stop in zip(plan.starts, plan.starts[1:], strict=False)), default=0)
    assert len(unsettled) <= books.unsettled * most
    if not books.unsettled:
        doubt = {user for user, state in zip(plan.users, history.states, strict=True) if state == 4}
        assert doubt <= books.written, "in doubt, and never sent"


def judge_report(returned, read, life):
    """Check that report and file agree, and that nothing is pending unless the run was stopped."""
    names = ["planned", "accepted", "rejected", "not_sent", "unknown", "resent", "duplicates", "stopped", "stopped_by"]
    if "before all its users were read" in (returned.stopped or ""):
        names = names[:-2]  # the file keeps why an earlier call ended: this one sent nothing
    for name in names:
        assert getattr(returned, name) == getattr(read, name), name
    if returned.stopped is None:
        # Too large for the service, and can't be split.
        assert all(row.status == 413 for row in returned.rows(Outcome.NOT_SENT))
    assert returned.stopped_by != "asked" or life.end == "stop"
    assert returned.stopped_by != "closed" or life.end in ("close", "close at once")


async def story(world, folder):
    books = Books(world)
    path = folder / "run"
    for life in world.lives:
        path = await live(world, life, path, books)
    await live(world, CALM._replace(on_unknown="resend" if world.finally_resend else "skip"), path, books)
    totals = Counter(row.outcome for row in read_report(path).rows())
    assert not totals[Outcome.NOT_SENT] or world.takes < world.users
    if world.finally_resend and world.takes >= world.users and not world.culprits:
        # A rejection after an unknown outcome stays unknown: the request is never split.
        assert not totals[Outcome.UNKNOWN]


LOST = CALM._replace(faults=["reset_before"])
REFUSED_AGAIN = CALM._replace(faults=["503 with Retry-After"], on_unknown="resend")


@SHORT
@given(world=WORLDS)
@example(world=RunWorld(False, 1, Batching(max_users=1), 1000, frozenset(), [LOST, REFUSED_AGAIN], False))
@example(world=RunWorld(False, 1, Batching(max_users=1), 1000, frozenset(), [CALM, CALM._replace(end="stop")], False))
@example(world=RunWorld(False, 3, Batching(max_users=3), 1000, frozenset(), [CALM._replace(limit=1)], False))
def test_runs_are_correct_for_every_user_in_all_processes(world):
    with tempfile.TemporaryDirectory(prefix="runs-", dir=MEMORY) as folder:
        run(story(world, Path(folder)), collect=False)


@pytest.mark.long
@LONG
@given(world=WORLDS)
def test_runs_are_correct_for_every_user_in_all_processes_at_length(world):
    with tempfile.TemporaryDirectory(prefix="runs-", dir=MEMORY) as folder:
        run(story(world, Path(folder)), collect=False)
