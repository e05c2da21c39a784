"""Group commit: a transaction a turn, everybody hears what became of his entry, one that fails takes no other along."""

from __future__ import annotations

import asyncio

import pytest
from support.store_entries import push, refused

from pushsdk.emulator.service import RecordWriter
from pushsdk.emulator.store.queries import Store, StoreError


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
    return store.inbox("key")


@pytest.fixture
def told():
    return []


@pytest.fixture
def commits(store, told):
    return RecordWriter(store, lambda entries: told.append([entry.id for entry in entries]))


async def test_what_comes_in_one_turn_is_one_transaction(store, box, commits, told):
    done = [commits.add(push(box, user)) for user in "abc"]
    assert store.groups == []
    await asyncio.gather(*done)
    await commits.add(refused(box))
    assert (store.groups, told) == ([3, 1], [[1, 2, 3], [4]])
    assert store.users(box) == {"a": 1, "b": 1, "c": 1}


async def test_one_that_can_not_be_stored_takes_no_other_along(store, box, commits, told):
    store.fails = {"bad"}
    done = [commits.add(push(box, user)) for user in ("ann", "bad", "bob")]
    assert [str(result) for result in await asyncio.gather(*done)] == ["None", "the disk is full", "None"]
    assert (store.groups, told) == ([3, 1, 1, 1], [[1], [2]])
    assert store.users(box) == {"ann": 1, "bob": 1}


async def test_one_alone_is_tried_once(store, box, commits):
    store.fails = {"bad"}
    assert isinstance(await commits.add(push(box, "bad")), StoreError)
    assert store.groups == [1]


async def test_whatever_goes_wrong_nobody_waits_for_ever(store, box, commits):
    done = [commits.add(push(box, "ann", fault="\ud800")), commits.add(push(box, "bob"))]
    results = await asyncio.gather(*done, return_exceptions=True)
    assert [type(result) for result in results] == [UnicodeEncodeError, type(None)]
    assert store.users(box) == {"bob": 1}


async def test_who_was_cancelled_meanwhile_is_stored_all_the_same(store, box, commits):
    gone, stays = commits.add(push(box, "ann")), commits.add(push(box, "bob"))
    gone.cancel()
    await stays
    assert store.users(box) == {"ann": 1, "bob": 1}
