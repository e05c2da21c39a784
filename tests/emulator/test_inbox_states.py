"""The state of each inbox in memory: one object per inbox, own rules and limits, restarted by a reset."""

import threading

import pytest

from pushsdk.emulator import Fault, ServiceLimits
from pushsdk.emulator import inboxes as module
from pushsdk.emulator.faults import Rules
from pushsdk.emulator.inboxes import Inboxes
from pushsdk.emulator.store.queries import Store

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


def test_new_rules_apply_to_inboxes_without_their_own(inboxes):
    follows, own = inboxes.of("a"), inboxes.of("b")
    own.set_rules(Rules())
    decide(follows)
    inboxes.set_rules(Rules([Fault.hang(name="stuck")]))
    assert (inboxes.rules.hits(), follows.rules.hits(), own.rules.hits()) == ({"stuck": 0}, {"stuck": 0}, {})
    assert (kinds(follows), kinds(own)) == (["faults"], ["faults"])
    assert inboxes.of("c").rules.hits() == {"stuck": 0}


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
