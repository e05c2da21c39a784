"""Many threads and one loop: merged requests, and the thread of each callback."""

import asyncio
import gc
import sys
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest
from support.wire_judge import HELLO

from pushsdk import (
    Batching,
    ConfigurationError,
    MobilePush,
    NotSentError,
    Outcome,
    PushClient,
    PushError,
    PushRequest,
    RetryPolicy,
)
from pushsdk.emulator.faults import preset

THREADS = 32


def spread(work, threads=THREADS):
    """Return the results of the work in so many threads that begin together."""
    together = threading.Barrier(threads)

    def begin(number):
        together.wait()
        return work(number)

    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(begin, range(threads)))


def test_32_threads_know_the_outcome_of_each_send_under_faults_without_duplicates(service, client):
    service.set_faults(preset("flaky").faults, seed=7)

    def work(thread):
        outcomes = {}
        for number in range(40):
            user = f"{thread}-{number}"
            try:
                outcomes[user] = client.send(user, MobilePush(body={"en": user})).outcome
            except PushError as error:
                outcomes[user] = error.outcome
        return outcomes

    outcomes = {user: outcome for result in spread(work) for user, outcome in result.items()}
    accepted = service.users()
    counts = Counter(outcomes.values())
    assert len(outcomes) == 40 * THREADS
    assert counts[Outcome.UNKNOWN] > 0
    assert service.duplicates() == {}
    assert {user for user, outcome in outcomes.items() if outcome is Outcome.ACCEPTED} <= accepted.keys()
    assert (
        not {u for u, outcome in outcomes.items() if outcome in {Outcome.REJECTED, Outcome.NOT_SENT}} & accepted.keys()
    )
    stats = client.stats()
    assert stats.accepted == counts[Outcome.ACCEPTED]
    assert stats.unknown == counts[Outcome.UNKNOWN]
    assert stats.in_flight == 0


def test_ids_users_and_progress_are_the_calling_threads(service, client):
    values = {"ids": set(), "users": set(), "requests": set(), "progress": set()}

    def note(kind):
        values[kind].add(threading.get_ident())

    def from_thread(kind, items):
        note(kind)
        yield from items

    def progress(_):
        note("progress")

    client.send(from_thread("ids", ["a"]), HELLO)
    client.broadcast(from_thread("users", ["b"]), HELLO, on_progress=progress)
    client.send_each(from_thread("requests", [PushRequest(user_ids=["c"], message=HELLO)]), on_progress=progress)
    assert values == {kind: {threading.get_ident()} for kind in values}


def test_a_call_in_the_clients_own_thread_is_refused_not_hung(service):
    uses = [
        lambda: client.send("v", HELLO),
        lambda: client.broadcast(["v"], HELLO),
        lambda: client.flush(),
        lambda: client.close(),
    ]
    refused = []

    def on_event(_):
        assert client.stats().requests >= 0
        for use in uses:
            with pytest.raises(ConfigurationError) as excinfo:
                use()
            refused.append(str(excinfo.value))

    with PushClient(on_event=on_event) as client:
        client.send("u", HELLO)
        client.send("w", HELLO)
    assert ["must not call the client" in text for text in refused] == [True] * 8
    assert service.users() == {"u": 1, "w": 1}


def test_a_key_callable_that_calls_the_client_is_not_sent_for(service):
    def key():
        client.send("v", HELLO)
        return "never"

    with PushClient(api_key=key, retry=RetryPolicy.none()) as client, pytest.raises(NotSentError):
        client.send("u", HELLO)
    assert service.requests == 0


def test_a_key_callable_without_another_key_fails_at_once(service):
    with PushClient(api_key=lambda: next(iter(()))) as client, pytest.raises(NotSentError, match="not-sent-key-bug"):
        client.send("u", HELLO)


def test_an_on_event_that_exits_changes_no_call(service):
    with PushClient(on_event=lambda _: sys.exit(), batching=Batching(max_users=2)) as client:
        spread(lambda number: [client.send(f"{number}-{turn}", HELLO) for turn in range(3)], 4)
    assert set(service.users().values()) == {1}


def test_a_key_callable_that_exits_ends_only_its_call(service):
    async def key():
        raise KeyboardInterrupt

    with PushClient() as client:
        with pytest.raises(NotSentError):
            client.with_options(api_key=key).send("ann", HELLO)
        client.send("bob", HELLO)
    # asyncio logs exceptions that were never retrieved: now, not at the end of all tests.
    gc.collect()


def test_a_call_in_the_running_loop_of_a_notebook_works_without_a_warning(service, client, monkeypatch):
    monkeypatch.setitem(sys.modules, "ipykernel", sys)

    async def cell():
        return client.send("u", HELLO).users

    assert asyncio.run(cell()) == 1
