"""Group commit: one transaction per turn of the loop, a result per record, failures stay single."""

from __future__ import annotations

import asyncio

import pytest
from support.store_entries import push, refused

from pushsdk.emulator.service import RecordWriter
from pushsdk.emulator.store.database import StoreError
from pushsdk.emulator.store.queries import Store


class Counting(Store):
    """A store that counts transactions."""

    def __init__(self) -> None:
        super().__init__()
        self.groups: list[int] = []
        self.fails: set[str] = set()  # users whose records can't be stored

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
    return store.inbox("key")


@pytest.fixture
def told():
    return []


@pytest.fixture
def commits(store, told):
    return RecordWriter(store, lambda entries: told.append([entry.id for entry in entries]))


async def test_records_of_one_turn_are_one_transaction(store, box, commits, told):
    done = [commits.add(push(box, user)) for user in "abc"]
    assert store.groups == []
    await asyncio.gather(*done)
    await commits.add(refused(box))
    assert (store.groups, told) == ([3, 1], [[1, 2, 3], [4]])
    assert store.users(box) == {"a": 1, "b": 1, "c": 1}


async def test_a_record_that_cannot_be_stored_fails_alone(store, box, commits, told):
    store.fails = {"bad"}
    done = [commits.add(push(box, user)) for user in ("ann", "bad", "bob")]
    assert [str(result) for result in await asyncio.gather(*done)] == ["None", "the disk is full", "None"]
    assert (store.groups, told) == ([3, 1, 1, 1], [[1], [2]])
    assert store.users(box) == {"ann": 1, "bob": 1}


async def test_a_single_record_is_tried_once(store, box, commits):
    store.fails = {"bad"}
    assert isinstance(await commits.add(push(box, "bad")), StoreError)
    assert store.groups == [1]


async def test_an_unexpected_error_reaches_every_waiter(store, box, commits):
    done = [commits.add(push(box, "ann", fault="\ud800")), commits.add(push(box, "bob"))]
    results = await asyncio.gather(*done, return_exceptions=True)
    assert [type(result) for result in results] == [UnicodeEncodeError, type(None)]
    assert store.users(box) == {"bob": 1}


async def test_a_cancelled_waiters_record_is_stored(store, box, commits):
    gone, stays = commits.add(push(box, "ann")), commits.add(push(box, "bob"))
    gone.cancel()
    await stays
    assert store.users(box) == {"ann": 1, "bob": 1}
