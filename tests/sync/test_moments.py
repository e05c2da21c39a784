"""Moments that a race would have to meet, made to happen."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from support.service_thread import HANGS, Service

from pushsdk import (
    ClientClosedError,
    DrainReport,
    MobilePush,
    Outcome,
    OutcomeUnknownError,
    PartialError,
    PushClient,
    RetryPolicy,
    SendAbandoned,
)
from pushsdk._io.threads import DaemonThreads
from pushsdk._sync import portal, process, reading
from pushsdk._sync.call import Call
from pushsdk._sync.worker import Worker
from pushsdk.emulator import Fault
from pushsdk.sync import tell_late

HELLO = MobilePush(body={"en": "hi"})


class InterruptionError(Exception):
    """What a signal handler raises."""


def test_a_call_that_the_end_took_along_is_unknown(service: Service) -> None:
    client = PushClient()
    begun = threading.Event()

    async def endless() -> None:
        begun.set()
        await asyncio.sleep(1e6)

    call = Call()
    call.work = endless
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(lambda: client._portal.call(client._portal.enter(), call))
        assert begun.wait(HANGS)
        client.close(drain=0.0)
        with pytest.raises(OutcomeUnknownError, match="was closed before this call had ended"):
            waiting.result(HANGS)


def test_a_close_that_is_interrupted_before_the_loop_has_begun_it_is_an_end_all_the_same(service: Service) -> None:
    client = PushClient()
    client.send("u", HELLO)
    worker, held = client._portal._places[0].worker, threading.Event()
    worker.loop.call_soon_threadsafe(held.wait, HANGS)
    call = worker.end(30.0)
    assert call is not None
    worker.loop.call_soon_threadsafe(worker._cancel, call, None)
    held.set()
    worker.thread.join(HANGS)
    assert not worker.thread.is_alive()
    assert client.close() == DrainReport()


def test_a_thread_that_looks_up_finds_a_call_that_has_ended_or_ends_it(service: Service) -> None:
    client = PushClient()
    client.send("u", HELLO)
    worker = client._portal._places[0].worker
    client.close()
    call = Call()
    portal._check(worker, call)
    assert isinstance(call.error, ClientClosedError)
    call.error = None
    portal._check(worker, call)
    assert call.error is None


def test_a_thread_that_looks_up_while_the_loop_is_closing_waits_on(service: Service) -> None:
    client = PushClient()
    client.send("u", HELLO)
    worker = client._portal._places[0].worker
    client.close()

    class Closing(Worker):
        def __init__(self) -> None:
            self.forks, self.loop, self.thread = worker.forks, worker.loop, threading.current_thread()

    call = Call()
    portal._check(Closing(), call)
    assert not call.ended


def test_an_end_that_is_interrupted_before_it_began_can_be_asked_for_again(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    def submit(worker: Worker, call: Call) -> None:
        raise InterruptionError

    client = PushClient()
    client.send("u", HELLO)
    with monkeypatch.context() as patch:
        patch.setattr(Worker, "submit", submit)
        with pytest.raises(InterruptionError):
            client.close()
    assert client.close() == DrainReport()


def test_an_end_that_is_interrupted_when_it_was_asked_for_goes_on(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    submit = Worker.submit

    def submit_and_raise(worker: Worker, call: Call) -> None:
        submit(worker, call)
        raise InterruptionError

    client = PushClient()
    client.send("u", HELLO)
    worker = client._portal._places[0].worker
    with monkeypatch.context() as patch:
        patch.setattr(Worker, "submit", submit_and_raise)
        with pytest.raises(InterruptionError):
            client.close()
    worker.thread.join(HANGS)
    assert not worker.thread.is_alive()
    assert client.close() == DrainReport()


def test_a_first_call_that_is_interrupted_before_anything_was_done_tells_nobody(service: Service) -> None:
    client = PushClient()
    tell_late(client._portal.client, "u", Call())
    assert client.stats().abandoned == 0


def test_users_that_ended_differently_are_told_by_outcome(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    events: list[object] = []
    waiting = portal._wait

    def interrupted(worker: Worker, call: Call, look: object = None) -> None:
        waiting(worker, call)
        if isinstance(call.error, PartialError):
            raise InterruptionError

    # Long ones: fewer of them make a smaller request.
    good, bad = "good" * 100, "bad" * 100
    service.faults = [Fault.status(413, more_than_users=1), Fault.status(400, user=bad)]
    with PushClient(on_event=events.append) as client:
        monkeypatch.setattr(portal, "_wait", interrupted)
        with pytest.raises(InterruptionError):
            client.send([good, bad], HELLO, retry=RetryPolicy.none())
        client.flush()
    told = [(each.outcome, each.user_ids) for each in events if isinstance(each, SendAbandoned)]
    assert sorted(told) == [(Outcome.ACCEPTED, (good,)), (Outcome.REJECTED, (bad,))]


def test_a_mistake_in_a_call_is_told_to_nobody_else(service: Service) -> None:
    events: list[object] = []
    with PushClient(on_event=events.append) as client:
        client.send("first", HELLO)
        call = Call()
        call.error = TypeError()
        tell_late(client._portal.client, "u", call)
        call.error = asyncio.CancelledError()
        tell_late(client._portal.client, "u", call)
    assert [each.outcome for each in events if isinstance(each, SendAbandoned)] == [Outcome.NOT_SENT]


def test_a_block_that_comes_too_late_is_dropped() -> None:
    async def main() -> None:
        waiter: asyncio.Future[list[object]] = asyncio.get_running_loop().create_future()
        waiter.cancel()
        reading._settle(waiter, ["u"], None)

    asyncio.run(main())


def test_a_worker_that_is_closing_at_a_fork_has_nothing_to_let_go_of(service: Service) -> None:
    with PushClient() as client:
        client.send("u", HELLO)
        worker = client._portal._places[0].worker
    process._disconnect(worker)
    assert worker.loop.is_closed()


def test_nothing_is_opened_when_the_interpreter_is_ending(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    client = PushClient()
    with monkeypatch.context() as patch:
        patch.setattr(process, "_ending", True)
        with pytest.raises(ClientClosedError, match="the interpreter is ending"):
            client.send("u", HELLO)
    assert service.requests == 0


def test_a_client_that_is_just_starting_in_another_thread_is_not_forgotten(service: Service) -> None:
    starting = Worker(PushClient()._portal.client.aclose)
    process._open.add(starting)
    try:
        with PushClient() as client:
            client.send("u", HELLO)
            assert starting in process._open
    finally:
        process._open.discard(starting)
        starting.loop.close()


def test_blocking_work_waits_for_a_thread_where_no_other_can_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    def start(thread: threading.Thread) -> None:
        raise RuntimeError("can't create new thread at interpreter shutdown")

    threads, go_on = DaemonThreads(), threading.Event()
    first = threads.submit(go_on.wait, HANGS)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", start)
        second = threads.submit(threading.current_thread)
    go_on.set()
    assert first.result(HANGS)
    thread = second.result(HANGS)
    threads.shutdown()
    thread.join(HANGS)
