"""Group commits: concurrent events share a commit, and no event is reported before its commit."""

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.virtual_time import turns, virtual

from pushsdk._core.user_states import UserState, UserStates, UserStatus
from pushsdk._io.threads import in_thread
from pushsdk._runs.log import RunFileLog
from pushsdk._runs.plan import ChunkRequest, UserRange


class Tape:
    """A journal that records its commits."""

    def __init__(self):
        #: The number of events per commit, and the users of the events that were reported as committed.
        self.groups = []
        self.committed = []
        self.broken = self.is_durable = False

    def commit(self, events, notes, *, at_once=False):
        if at_once and self.is_durable:
            raise BlockingIOError
        if self.broken:
            raise OSError("the disk is full")
        self.groups.append(len(events))

    def apply(self, events, notes):
        self.committed.extend(start for start, _, _ in events)


async def at_once(work):
    return work()


async def no_thread(work):
    raise RuntimeError("can't start new thread")


class Log(RunFileLog):
    """A ``RunFileLog`` on a ``Tape``; users are numbers. With an ``offload`` it is durable."""

    def __init__(self, tape, offload=None):
        tape.is_durable = offload is not None
        super().__init__(tape, loop=asyncio.get_running_loop(), offload=offload or in_thread)

    def write(self, user):
        self.settle(UserRange(0, user, user + 1), UserStatus(UserState.ACCEPTED, 204))

    async def add(self, user):
        users, _ = await self.claim(ChunkRequest(UserRange(0, user, user + 1), b"", b"", None), resent=False)
        return users == 1


STATUSES = [UserStatus(state) for state in (UserState.CLAIMED, UserState.ACCEPTED)]
CHANGES = st.lists(st.tuples(st.integers(0, 2), st.integers(1, 2), st.sampled_from(STATUSES)), min_size=6)


@settings(max_examples=150)  # one in twenty shows a wrong join
@given(CHANGES)
@virtual
async def test_events_that_are_joined_leave_each_user_as_the_events_alone(changes):
    log, alone, joined = Log(tape := Tape()), UserStates(4), UserStates(4)
    tape.apply = lambda events, notes: [joined.set(*event) for event in events]
    for start, users, status in changes:
        log.settle(UserRange(0, start, start + users), status)
        alone.set(start, start + users, status)
    await log.flush()
    assert [*joined.runs()] == [*alone.runs()]


@pytest.mark.parametrize("offload", [None, at_once, no_thread])
@virtual
async def test_after_a_failed_commit_nothing_more_is_committed(offload):
    log = Log(tape := Tape(), offload)
    tape.broken = True
    assert not await log.add(0)
    tape.broken = False
    log.write(1)
    assert not await log.add(2)
    await log.flush()
    assert isinstance(log.failed, RuntimeError if offload is no_thread else OSError)
    assert tape.groups == tape.committed == []


@pytest.mark.parametrize("has_started", [False, True])
@virtual
async def test_a_commit_whose_task_is_cancelled_is_made_once(has_started):
    tasks = set()

    async def stubborn(work):
        tasks.add(asyncio.current_task())
        await turns(1)
        if has_started:
            work()
        await asyncio.get_running_loop().create_future()

    log = Log(tape := Tape(), stubborn)
    for number in range(2):
        log.write(number)
        await turns(5)
    for _ in range(2):
        tasks.pop().cancel()
        await turns(5)
    await log.flush()
    assert log.failed is None
    assert tape.groups == [1, 1]
    assert tape.committed == [0, 1]
