"""The state of each inbox in memory: one object per inbox, own rules and limits, restarted by a reset."""

from __future__ import annotations

import threading

import pytest
from support.store_entries import campaign, push, put, users

from pushsdk.emulator import Fault, ServiceLimits
from pushsdk.emulator import inboxes as module
from pushsdk.emulator.faults import Rules
from pushsdk.emulator.guard import Refused
from pushsdk.emulator.inboxes import Inboxes
from pushsdk.emulator.store.queries import InboxRef, Store

OUTAGE = Fault.status(503, name="outage")


@pytest.fixture
def store():
    return Store()


@pytest.fixture
def inboxes(store):
    return Inboxes(store, rules=Rules([OUTAGE]), limits=ServiceLimits(quota=10))


def decide(inbox):
    return inbox.rules.decide("push", ("ann",), 10).fault


def kinds(inbox):
    return [event.kind for event in inbox.events.since(0)]


def test_a_key_and_a_name_have_the_same_state(inboxes, store):
    inbox = inboxes.of("key")
    assert inboxes.of("key") is inbox
    assert inboxes.named(inbox.ref.name) is inbox
    other = store.inbox("other")
    assert inboxes.named(other.name) is inboxes.of("other")
    assert inboxes.named("nobody") is None


def test_every_inbox_starts_with_the_same_rules_and_its_own_counts(inboxes):
    first, second = inboxes.of("a"), inboxes.of("b")
    assert decide(first) == OUTAGE
    assert (first.rules.hits(), second.rules.hits(), inboxes.hits()) == ({"outage": 1}, {"outage": 0}, {"outage": 1})
    assert first.limiter.limits == ServiceLimits(quota=10)


def test_new_rules_apply_to_inboxes_without_their_own(inboxes):
    follows, own = inboxes.of("a"), inboxes.of("b")
    own.set_rules(Rules())
    decide(follows)
    inboxes.set_rules(Rules([Fault.hang(name="stuck")]))
    assert (inboxes.rules.hits(), follows.rules.hits(), own.rules.hits()) == ({"stuck": 0}, {"stuck": 0}, {})
    assert (kinds(follows), kinds(own)) == (["faults"], ["faults"])
    assert inboxes.of("c").rules.hits() == {"stuck": 0}


def test_limits_can_be_set_at_any_time(inboxes):
    inbox = inboxes.of("a")
    inbox.limiter.used += 7
    inbox.set_limits(ServiceLimits(quota=3))
    assert (inbox.limiter.limits.quota, inbox.limiter.used, kinds(inbox)) == (3, 0, ["limits"])


def test_a_reset_restarts_counts_and_quota_and_keeps_the_rules(inboxes, store):
    inbox = inboxes.of("key")
    put(store, push(inbox.ref, "ann"))
    inbox.set_rules(Rules([OUTAGE, Fault.hang(name="stuck")], seed=7))
    inbox.rules.enable("stuck", False)
    decide(inbox)
    inbox.limiter.used += 7
    former = inbox.ref
    inboxes.reset(inbox)
    assert inboxes.of("key") is inboxes.named(inbox.ref.name) is inbox
    assert (inbox.ref.id != former.id, inbox.ref.name) == (True, former.name)
    assert (inbox.rules.hits(), {name: rule.enabled for name, rule in inbox.rules.rules.items()}) == (
        {"outage": 0, "stuck": 0},
        {"outage": True, "stuck": False},
    )
    assert (inbox.rules.seed, inbox.own_rules, inbox.limiter.used) == (7, True, 0)
    assert (users(store, inbox.ref), kinds(inbox)[-1]) == ({}, "reset")


def test_a_watcher_gets_events_of_its_inbox_only(inboxes, store):
    inbox, other = inboxes.of("a"), inboxes.of("b")
    entries = [
        push(inbox.ref, "ann"),
        push(other.ref, "ann"),
        push(inbox.ref, "ann"),
        push(InboxRef(99, "gone"), "ann"),
    ]
    put(store, *entries)
    for entry in entries:
        inboxes.publish_request(entry)
    assert [(event.kind, event.id) for event in inbox.events.since(0)] == [("request", 1), ("request", 3)]
    assert [(event.kind, event.id) for event in other.events.since(0)] == [("request", 2)]


def test_a_watcher_gets_events_of_campaigns(inboxes, store):
    inbox = inboxes.of("a")
    put(store, campaign(inbox.ref, "c1"))
    inboxes.publish_campaign(inbox.ref.id, "c1", 4)
    inboxes.publish_campaign(99, "c2", 5)
    assert [(event.kind, event.uuid) for event in inbox.events.since(0)] == [("campaign", "c1")]
    assert inbox.limiter.used == 4


def test_the_number_of_inboxes_is_bounded(inboxes, monkeypatch):
    monkeypatch.setattr(module, "_MAX_INBOXES", 2)
    states = [inboxes.of("a"), inboxes.of("b")]
    with pytest.raises(Refused, match="there are 2 inboxes: restart the emulator, or use fewer keys"):
        inboxes.of("c")
    assert [inboxes.of("a"), inboxes.of("b")] == states


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


def test_concurrent_threads_get_one_state(inboxes, store):
    for number in range(30):
        states, key = [], f"key {number}"
        name = store.inbox(key).name
        asks = [lambda states=states, key=key: states.append(inboxes.of(key))] * 2
        asks += [lambda states=states, name=name: states.append(inboxes.named(name))] * 2
        together(*asks)
        assert len({id(inbox) for inbox in states}) == 1


def test_concurrent_resets_leave_one_inbox(inboxes, store):
    inbox = inboxes.of("key")
    for _ in range(20):
        together(*[lambda: inboxes.reset(inbox)] * 3)
        assert inbox.ref == store.find("key") == store.inbox("key")
        assert list(inboxes._by_id) == [inbox.ref.id]
    assert len(store.inboxes()) == 1


def test_a_thread_that_waited_for_the_last_inbox_gets_it(inboxes, monkeypatch):
    """The last inbox was created for the same key."""
    monkeypatch.setattr(module, "_MAX_INBOXES", 1)
    store_inbox = inboxes._store.inbox
    inside = []

    def slow(key):
        if not inside:
            inside.append(True)
            thread.start()
        return store_inbox(key)

    states = []
    thread = threading.Thread(target=lambda: states.append(inboxes.of("key")))
    monkeypatch.setattr(inboxes._store, "inbox", slow)
    assert inboxes.of("key")
    thread.join()
    assert states == [inboxes.of("key")]
