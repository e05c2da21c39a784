"""What is kept in memory for each inbox: one room of each, its own rules and limits, anew after a reset."""

from __future__ import annotations

import threading

import pytest
from support.store_entries import campaign, push, put

from pushsdk.emulator import Fault, ServiceLimits
from pushsdk.emulator import rooms as module
from pushsdk.emulator.faults import Rules
from pushsdk.emulator.rooms import Rooms, TooMany
from pushsdk.emulator.store import Box, Store

OUTAGE = Fault.status(503, name="outage")


@pytest.fixture
def store():
    return Store()


@pytest.fixture
def rooms(store):
    return Rooms(store, rules=Rules([OUTAGE]), limits=ServiceLimits(quota=10))


def decide(room):
    return room.rules.decide("push", ("ann",), 10).fault


def kinds(room):
    return [event.kind for event in room.live.since(0)]


def test_a_key_and_a_name_have_the_same_room(rooms, store):
    room = rooms.of("key")
    assert rooms.of("key") is room
    assert rooms.named(room.box.name) is room
    other = store.box("other")
    assert rooms.named(other.name) is rooms.of("other")
    assert rooms.named("nobody") is None


def test_every_room_begins_with_the_same_rules_and_counts_on_its_own(rooms):
    first, second = rooms.of("a"), rooms.of("b")
    assert decide(first) == OUTAGE
    assert (first.rules.hits(), second.rules.hits(), rooms.hits()) == ({"outage": 1}, {"outage": 0}, {"outage": 1})
    assert first.limiter.limits == ServiceLimits(quota=10)


def test_new_rules_are_for_rooms_that_have_none_of_their_own(rooms):
    follows, own = rooms.of("a"), rooms.of("b")
    own.set_rules(Rules())
    decide(follows)
    rooms.rules = Rules([Fault.hang(name="stuck")])
    assert (rooms.rules.hits(), follows.rules.hits(), own.rules.hits()) == ({"stuck": 0}, {"stuck": 0}, {})
    assert (kinds(follows), kinds(own)) == (["faults"], ["faults"])
    assert rooms.of("c").rules.hits() == {"stuck": 0}


def test_limits_may_be_set_at_any_time(rooms):
    room = rooms.of("a")
    room.limiter.took(7)
    room.set_limits(ServiceLimits(quota=3))
    assert (room.limiter.limits.quota, room.limiter.used, kinds(room)) == (3, 0, ["limits"])


def test_a_reset_begins_counts_and_quota_anew_and_keeps_the_rules(rooms, store):
    room, swept = rooms.of("key"), []
    rooms.forgotten = lambda: swept.append(True)
    put(store, push(room.box, "ann"))
    room.set_rules(Rules([OUTAGE, Fault.hang(name="stuck")], seed=7))
    room.rules.enable("stuck", False)
    decide(room)
    room.limiter.took(7)
    former = room.box
    rooms.reset(room)
    assert rooms.of("key") is rooms.named(room.box.name) is room
    assert (room.box.id != former.id, room.box.name) == (True, former.name)
    assert (room.rules.hits(), room.rules.enabled()) == (
        {"outage": 0, "stuck": 0},
        {"outage": True, "stuck": False},
    )
    assert (room.rules.seed, room.own_rules, room.limiter.used) == (7, True, 0)
    assert (store.users(room.box), kinds(room)[-1], swept) == ({}, "reset", [True])


def test_who_watches_hears_of_what_is_in_his_inbox_only(rooms, store):
    room, other = rooms.of("a"), rooms.of("b")
    entries = [push(room.box, "ann"), push(other.box, "ann"), push(room.box, "ann"), push(Box(99, "gone"), "ann")]
    put(store, *entries)
    rooms.stored(entries)
    assert [(event.kind, event.first, event.last) for event in room.live.since(0)] == [("request", 1, 3)]
    assert [(event.kind, event.first, event.last) for event in other.live.since(0)] == [("request", 2, 2)]


def test_who_watches_hears_of_a_campaign(rooms, store):
    room = rooms.of("a")
    put(store, campaign(room.box, "c1"))
    rooms.campaign(room.box.id, "c1")
    rooms.campaign(99, "c2")
    rooms.reached(room.box.id, 4)
    rooms.reached(99, 5)
    assert [(event.kind, event.name) for event in room.live.since(0)] == [("campaign", "c1")]
    assert room.limiter.used == 4


def test_there_are_only_so_many(rooms, monkeypatch):
    monkeypatch.setattr(module, "_MOST", 2)
    known = [rooms.of("a"), rooms.of("b")]
    with pytest.raises(TooMany, match="there are 2 inboxes: start the emulator anew, or use fewer keys"):
        rooms.of("c")
    assert [rooms.of("a"), rooms.of("b")] == known


def together(*functions):
    barrier = threading.Barrier(len(functions))

    def run(function):
        barrier.wait()
        function()

    threads = [threading.Thread(target=run, args=(function,)) for function in functions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def test_threads_that_ask_at_once_get_one_room(rooms, store):
    for number in range(30):
        found, key = [], f"key {number}"
        name = store.box(key).name
        asks = [lambda found=found, key=key: found.append(rooms.of(key))] * 2
        asks += [lambda found=found, name=name: found.append(rooms.named(name))] * 2
        together(*asks)
        assert len({id(room) for room in found}) == 1


def test_threads_that_reset_at_once_leave_one_inbox(rooms, store):
    room = rooms.of("key")
    for _ in range(20):
        together(*[lambda: rooms.reset(room)] * 3)
        assert room.box == store.find("key") == store.box("key")
        assert list(rooms._by_id) == [room.box.id]
    while store.sweep():
        pass
    assert len(store.boxes()) == 1


def test_who_waited_at_the_door_while_another_made_it_is_let_in_though_it_is_full(rooms, monkeypatch):
    """The last place was taken for the same key."""
    monkeypatch.setattr(module, "_MOST", 1)
    store_box = rooms._store.box
    inside = []

    def slow(key):
        if not inside:
            inside.append(True)
            thread.start()
        return store_box(key)

    found = []
    thread = threading.Thread(target=lambda: found.append(rooms.of("key")))
    monkeypatch.setattr(rooms._store, "box", slow)
    assert rooms.of("key")
    thread.join()
    assert found == [rooms.of("key")]
