"""Races, made deterministic."""

import asyncio
import threading
from collections.abc import Callable, Iterator

import pytest
from support.service_thread import HANGS, ThreadService

from pushsdk import (
    ClientClosedError,
    DrainReport,
    MobilePush,
    Outcome,
    PartialError,
    PushClient,
    RetryPolicy,
    SendAbandoned,
)
from pushsdk._io.threads import DaemonThreads
from pushsdk.emulator import Fault
from pushsdk.sync import loop_thread
from pushsdk.sync.caller_thread import in_blocks
from pushsdk.sync.client import report_abandoned
from pushsdk.sync.loop_thread import LoopThread, ThreadCall

HELLO = MobilePush(body={"en": "hi"})


class InterruptionError(Exception):
    """The exception that a signal handler raises."""


def test_a_call_cancelled_by_the_close_before_it_starts_raises_client_closed(service: ThreadService) -> None:
    client = PushClient()
    client.send("u", HELLO)
    thread, call, start = client._portal._thread, ThreadCall(), threading.Event()

    def begin() -> None:
        thread._begin(call)
        assert call.task is not None
        call.task.cancel()
        start.set()

    thread.loop.call_soon_threadsafe(begin)
    assert start.wait(HANGS)
    client.close()
    assert isinstance(call.error, ClientClosedError)


def test_a_call_submitted_while_the_loop_closes_is_not_started(service: ThreadService) -> None:
    client = PushClient()
    client.send("u", HELLO)
    thread, call, outcome = client._portal._thread, ThreadCall(), threading.Event()

    def begin() -> None:
        thread.closing = True
        thread._begin(call)
        thread.closing = False
        outcome.set()

    thread.loop.call_soon_threadsafe(begin)
    assert outcome.wait(HANGS)
    assert isinstance(call.error, ClientClosedError)
    assert call.task is None
    client.close()


@pytest.mark.parametrize("submitted", [False, True])
def test_an_interrupted_close_can_be_repeated(
    service: ThreadService, monkeypatch: pytest.MonkeyPatch, submitted: bool
) -> None:
    submit = LoopThread.submit

    def interrupted(thread: LoopThread, call: ThreadCall) -> None:
        if submitted:
            submit(thread, call)
        raise InterruptionError

    client = PushClient()
    client.send("u", HELLO)
    thread = client._portal._thread
    with monkeypatch.context() as patch:
        patch.setattr(LoopThread, "submit", interrupted)
        with pytest.raises(InterruptionError):
            client.close()
    assert client.close() == DrainReport()
    assert not thread.thread.is_alive()


def test_a_first_call_interrupted_before_it_reached_the_loop_is_not_reported(service: ThreadService) -> None:
    client = PushClient()
    report_abandoned(client._portal.client, "u", ThreadCall())
    assert client.stats().abandoned == 0


def test_users_with_different_outcomes_are_reported_by_outcome(
    service: ThreadService, monkeypatch: pytest.MonkeyPatch
) -> None:
    events: list[object] = []
    waiting = LoopThread.callbacks_of

    def interrupted(thread: LoopThread, call: ThreadCall) -> Iterator[object]:
        yield from waiting(thread, call)
        if isinstance(call.error, PartialError):
            raise InterruptionError

    # Long ones: fewer of them make a smaller request.
    good, bad = "good" * 100, "bad" * 100
    service.set_faults([Fault.status(413, more_than_users=1), Fault.status(400, user=bad)])
    with PushClient(on_event=events.append) as client:
        monkeypatch.setattr(LoopThread, "callbacks_of", interrupted)
        with pytest.raises(InterruptionError):
            client.send([good, bad], HELLO, retry=RetryPolicy.none())
        client.flush()
    reports = [(event.outcome, event.user_ids) for event in events if isinstance(event, SendAbandoned)]
    assert sorted(reports) == [(Outcome.ACCEPTED, (good,)), (Outcome.REJECTED, (bad,))]


def test_a_mistake_in_an_interrupted_call_is_not_reported(service: ThreadService) -> None:
    events: list[object] = []
    with PushClient(on_event=events.append) as client:
        client.send("first", HELLO)
        call = ThreadCall()
        call.error = TypeError()
        report_abandoned(client._portal.client, "u", call)
        call.abort()
        report_abandoned(client._portal.client, "u", call)
    assert [event.outcome for event in events if isinstance(event, SendAbandoned)] == [Outcome.NOT_SENT]


def test_a_block_requested_by_a_cancelled_reader_is_not_read() -> None:
    blocks: list[Callable[[], object]] = []
    items = iter([["u"]])

    async def main() -> None:
        reading = asyncio.create_task(anext(in_blocks(items, blocks.append)))
        await asyncio.sleep(0)
        reading.cancel()
        with pytest.raises(ClientClosedError):
            await reading

    asyncio.run(main())
    blocks[0]()
    assert next(items) == ["u"]


def test_a_thread_that_is_closing_at_a_fork_has_nothing_to_detach(service: ThreadService) -> None:
    with PushClient() as client:
        client.send("u", HELLO)
        thread = client._portal._thread
    assert thread is not None
    thread._detach()
    assert thread.is_inherited


def test_a_client_that_is_just_starting_in_another_thread_is_not_forgotten(service: ThreadService) -> None:
    starting = LoopThread(PushClient()._portal.client.aclose)
    loop_thread._open.add(starting)
    try:
        with PushClient() as client:
            client.send("u", HELLO)
            assert starting in loop_thread._open
    finally:
        loop_thread._open.discard(starting)
        starting.loop.close()


def test_blocking_work_waits_for_a_thread_if_no_other_can_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
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
