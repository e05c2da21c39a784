"""Group commit: a transaction a turn, everybody hears what became of his entry, one that fails takes no other along."""

from __future__ import annotations

import asyncio

import pytest
from support.store_entries import push, refused

from pushsdk.emulator import writer as module
from pushsdk.emulator.store import Store, StoreError
from pushsdk.emulator.writer import Writer


class Counting(Store):
    """Counts its transactions."""

    def __init__(self) -> None:
        super().__init__()
        self.groups: list[int] = []
        self.fails: set[str] = set()  # users whose entries can't be stored

    def write(self, entries):
        self.groups.append(len(entries))
        if any(self.fails.intersection(entry.user_ids) for entry in entries):
            raise StoreError("the disk is full")
        super().write(entries)


@pytest.fixture
def store():
    return Counting()


@pytest.fixture
def box(store):
    return store.box("key")


@pytest.fixture
def told():
    return []


@pytest.fixture
async def writer(store, told):
    made = Writer(store, lambda entries: told.append([entry.id for entry in entries]))
    yield made
    made.close()


async def test_what_comes_in_one_turn_is_one_transaction(store, box, writer, told):
    done = [writer.add(push(box, user)) for user in "abc"]
    assert store.groups == []
    await asyncio.gather(*done)
    await writer.add(refused(box))
    assert (store.groups, told) == ([3, 1], [[1, 2, 3], [4]])
    assert store.users(box) == {"a": 1, "b": 1, "c": 1}


async def test_so_many_users_that_the_loop_would_be_held_are_written_in_several_turns(store, box, writer, monkeypatch):
    monkeypatch.setattr(module, "_TOGETHER", 3)
    users = ["abcd", "a", "ab", "c", "d", "e"]
    await asyncio.gather(*(writer.add(push(box, *each)) for each in users))
    assert store.groups == [1, 2, 3]
    for each in users:
        writer.add(push(box, *each))
    writer.close()
    assert store.groups == [1, 2, 3, 1, 2, 3]


async def test_one_that_can_not_be_stored_takes_no_other_along(store, box, writer, told):
    store.fails = {"bad"}
    done = [writer.add(push(box, user)) for user in ("ann", "bad", "bob")]
    assert [str(result) for result in await asyncio.gather(*done)] == ["None", "the disk is full", "None"]
    assert (store.groups, told) == ([3, 1, 1, 1], [[1], [2]])
    assert store.users(box) == {"ann": 1, "bob": 1}


async def test_one_alone_is_tried_once(store, box, writer):
    store.fails = {"bad"}
    assert isinstance(await writer.add(push(box, "bad")), StoreError)
    assert store.groups == [1]


async def test_whatever_goes_wrong_nobody_waits_for_ever(store, box, writer):
    done = [writer.add(push(box, "ann", fault="\ud800")), writer.add(push(box, "bob"))]
    results = await asyncio.gather(*done, return_exceptions=True)
    assert [type(result) for result in results] == [UnicodeEncodeError, type(None)]
    assert store.users(box) == {"bob": 1}


async def test_who_was_cancelled_meanwhile_is_stored_all_the_same(store, box, writer):
    gone, stays = writer.add(push(box, "ann")), writer.add(push(box, "bob"))
    gone.cancel()
    await stays
    assert store.users(box) == {"ann": 1, "bob": 1}


async def test_the_end_writes_what_waits(store, box, told):
    writer = Writer(store, told.append)
    done = writer.add(push(box, "ann"))
    writer.close()
    assert (done.done(), store.users(box)) == (True, {"ann": 1})
    await asyncio.sleep(0)
    writer.close()
    assert store.groups == [1]


@pytest.fixture
def soon(monkeypatch):
    monkeypatch.setattr(module, "_SWEEP", 0.0)
    monkeypatch.setattr("pushsdk.emulator.store._STEP", 1)


@pytest.fixture
def until_swept(store, until):
    return lambda: until(lambda: not store.unswept)


async def test_what_was_forgotten_is_swept_step_by_step(store, box, writer, soon, until_swept):
    await asyncio.gather(*(writer.add(push(box, user)) for user in "abc"))
    writer.sweep()
    await asyncio.sleep(0)
    assert writer._sweeping is None  # nothing to do
    store.forget(box)
    writer.sweep()
    writer.sweep()
    await until_swept()
    assert writer._sweeping is None


async def test_whatever_is_written_goes_on_with_a_sweep(store, box, writer, soon, until_swept):
    new = store.forget(box)
    await writer.add(push(new, "ann"))
    await until_swept()


async def test_a_full_disk_ends_a_sweep_until_something_is_written(
    store, box, writer, soon, until, until_swept, monkeypatch
):
    new = store.forget(box)
    failed = []

    def fail():
        failed.append(True)
        raise StoreError("the disk is full")

    monkeypatch.setattr(store, "sweep", fail)
    writer.sweep()
    await until(lambda: failed)
    assert writer._sweeping is None
    monkeypatch.undo()
    monkeypatch.setattr(module, "_SWEEP", 0.0)
    await writer.add(push(new, "ann"))
    await until_swept()


async def test_nothing_is_swept_after_the_end(store, box, told):
    writer = Writer(store, told.append)
    store.forget(box)
    writer.sweep()
    await asyncio.sleep(0)
    assert writer._sweeping is not None
    writer.close()
    assert writer._sweeping.cancelled()
    writer._sweeping = None
    writer.sweep()
    await asyncio.sleep(0)
    assert (writer._sweeping, store.unswept) == (None, True)


def test_a_sweep_after_the_loop_is_no_error(store):
    async def make():
        return Writer(store, lambda entries: None)

    asyncio.run(make()).sweep()
