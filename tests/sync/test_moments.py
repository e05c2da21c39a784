"""Races of a loop's thread, made deterministic."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from support.service_thread import HANGS, wait_until

from pushsdk import ClientClosedError, DrainReport
from pushsdk._io.threads import DaemonThreads
from pushsdk.sync.caller_thread import asked
from pushsdk.sync.loop_thread import LoopThread, ThreadCall, current


async def nothing():
    """The work of a call."""


@pytest.fixture
def go_on():
    """Lets the close of the thread go on."""
    return threading.Event()


@pytest.fixture
def thread(go_on):
    async def close(drain):
        assert await asyncio.to_thread(go_on.wait, HANGS)
        return DrainReport()

    thread = LoopThread(close)
    thread.start()
    yield thread
    go_on.set()
    thread.close(0.0)


def ended(thread, call):
    """Wait for the end of a call that was submitted."""
    assert list(thread.callbacks_of(call)) == []
    return call.error


def test_a_call_cancelled_before_it_starts_raises_client_closed(thread):
    call = ThreadCall(nothing)
    both_are_queued = threading.Event()
    thread.loop.call_soon_threadsafe(both_are_queued.wait)
    thread.submit(call)
    thread.loop.call_soon_threadsafe(lambda: call.task.cancel())
    both_are_queued.set()
    assert isinstance(ended(thread, call), ClientClosedError)


def test_a_call_submitted_while_the_loop_closes_is_not_started(thread, go_on):
    closing = threading.Thread(target=thread.close, args=(0.0,))
    closing.start()
    wait_until(lambda: thread.closing)
    call = ThreadCall(nothing)
    thread.submit(call)
    assert isinstance(ended(thread, call), ClientClosedError)
    assert not call.started
    go_on.set()
    closing.join()


def test_a_call_after_the_last_turn_of_the_loop_or_after_its_close_raises_client_closed(thread, go_on):
    late = ThreadCall(nothing)
    close = thread.loop.close

    def close_later():
        thread.submit(late)
        close()

    thread.loop.close = close_later
    go_on.set()
    thread.close(0.0)
    assert isinstance(late.error, ClientClosedError)
    with pytest.raises(ClientClosedError):
        thread.perform(ThreadCall(nothing))


def test_threads_that_close_in_one_loop_turn_all_wait_for_its_end(thread, go_on, monkeypatch):
    submit = LoopThread.submit
    submitted = threading.Semaphore(0)
    all_are_queued = threading.Event()

    def noted(thread, call):
        submit(thread, call)
        submitted.release()

    go_on.set()
    monkeypatch.setattr(LoopThread, "submit", noted)
    thread.loop.call_soon_threadsafe(all_are_queued.wait, HANGS)
    with ThreadPoolExecutor(4) as pool:
        closings = [pool.submit(thread.close, 0.0) for _ in range(4)]
        assert all(submitted.acquire(timeout=HANGS) for _ in closings)
        all_are_queued.set()
        assert [closing.result(HANGS) for closing in closings] == [DrainReport()] * 4
    assert not thread.thread.is_alive()


def test_blocking_work_waits_for_a_thread_if_no_other_can_be_started(monkeypatch):
    def start(thread):
        raise RuntimeError("can't create new thread at interpreter shutdown")

    threads = DaemonThreads()
    go_on = threading.Event()
    first = threads.submit(go_on.wait, HANGS)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", start)
        second = threads.submit(threading.current_thread)
    go_on.set()
    assert first.result(HANGS)
    thread = second.result(HANGS)
    threads.shutdown()
    thread.join(HANGS)


async def test_a_function_that_a_cancelled_call_asked_for_is_not_called():
    call = ThreadCall(nothing)
    current.set(call)
    asked(pytest.fail).cancel()
    await asyncio.sleep(0)
    call.callbacks.get()()
