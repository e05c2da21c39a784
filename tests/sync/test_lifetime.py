"""The end of a client's thread: closed, dropped, or at the exit of the interpreter. Nothing is left behind."""

import gc
import os
import resource
import threading
import time
from queue import SimpleQueue
from unittest.mock import patch

import pytest
from support.programs import run_program
from support.service_thread import HANGS

from pushsdk import ClientClosedError, MobilePush, NotSentError, PushClient, RetryPolicy
from pushsdk._io.threads import DaemonThreads
from pushsdk.claims import MemoryClaims
from pushsdk.emulator import Fault

HELLO = MobilePush(ios_enabled=True, body={"en": "hi"})


def threads_of_clients():
    return [thread for thread in threading.enumerate() if thread.name == "pushsdk"]


def test_an_error_of_the_claim_store_at_the_end_is_raised_and_the_thread_has_ended(service):
    class UnclosableClaims(MemoryClaims):
        async def aclose(self):
            raise OSError("the store is gone")

    client = PushClient(claims=UnclosableClaims())
    client.send("u", HELLO)
    with pytest.raises(OSError, match="the store is gone"):
        client.close()
    client.close()
    assert threads_of_clients() == []


def test_a_dropped_client_warns_and_leaves_no_thread(service):
    client = PushClient()
    client.send("u", HELLO)
    view = client.with_options(timeout=5.0)
    thread = threads_of_clients()[0]
    del client
    gc.collect()
    # The view is as good as the client.
    view.send("v", HELLO)
    with pytest.warns(ResourceWarning, match=r"unclosed PushClient\('http://127.0.0.1"):
        view = None
    thread.join(HANGS)
    assert not thread.is_alive()


def test_queues_are_those_that_gevent_may_put_in_place_after_the_import(service):
    with patch("queue.SimpleQueue", wraps=SimpleQueue) as queue, PushClient() as client:
        client.send("u", HELLO)
    assert queue.call_count == 4  # for the send, the close, the threads, and Python's executor


def not_now(_):
    raise RuntimeError("can't create new thread at interpreter shutdown")


def not_at_all(_):
    raise RuntimeError("can't start new thread")


def started_and_interrupted(thread):
    START(thread)
    raise KeyboardInterrupt


START = threading.Thread.start


@pytest.mark.parametrize(
    ("start", "error", "text"),
    [
        (not_at_all, NotSentError, r"\(can't start new thread\): .* \(ulimit -n, ulimit -u\)"),
        (started_and_interrupted, KeyboardInterrupt, "^$"),
        (not_now, ClientClosedError, "make the first call earlier"),
        # An error that is not the system's.
        (threading.Thread.join, RuntimeError, "^cannot join thread before it is started$"),
    ],
)
def test_a_thread_whose_start_fails_leaves_nothing(service, monkeypatch, start, error, text):
    client = PushClient()
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", start)
        with pytest.raises(error, match=text):
            client.send("u", HELLO)
    assert service.requests == 0
    client.send("u", HELLO)
    client.close()


def test_at_the_limit_of_open_files_an_error_says_what_to_do(service):
    limit, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with PushClient(retry=RetryPolicy.none()) as client:
        client.flush()
        os.close(free := os.dup(0))
        resource.setrlimit(resource.RLIMIT_NOFILE, (free, most))
        try:
            with pytest.raises(NotSentError, match=r"\(ulimit -n, ulimit -u\)"):
                PushClient().flush()
            with pytest.raises(NotSentError, match=r"Too many open files .*\. Close files, or raise ulimit -n \["):
                client.send("u", HELLO)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (limit, most))


def test_a_run_whose_work_gets_no_thread_sends_nothing(service, monkeypatch):
    with PushClient() as client, monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", not_at_all)
        with pytest.raises(NotSentError, match="ulimit -u"):
            client.broadcast(["u"], HELLO)
    assert service.requests == 0


def test_blocking_work_is_done_by_few_daemon_threads_that_end(monkeypatch):
    threads = DaemonThreads()
    starts = threading.Semaphore(0)
    go_on = threading.Event()

    def work():
        starts.release()
        go_on.wait(HANGS)
        return threading.current_thread()

    names = [threads.submit(work) for _ in range(20)]
    assert all(starts.acquire(timeout=HANGS) for _ in range(16))
    cancelled = threads.submit(time.monotonic)
    assert cancelled.cancel()
    failing = threads.submit(lambda: 1 // 0)
    go_on.set()
    used = {future.result(HANGS) for future in names}
    assert len(used) == 16
    assert {thread.daemon for thread in used} == {True}
    assert isinstance(failing.exception(HANGS), ZeroDivisionError)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", not_now)
        assert threads.submit(threading.current_thread).result(HANGS) in used
        with pytest.raises(RuntimeError, match="interpreter shutdown"):
            DaemonThreads().submit(threading.current_thread)
    threads.shutdown()
    for thread in used:
        thread.join(HANGS)


# -- the end of the interpreter --------------------------------------------------------------------------------------

HEAD = """
    import atexit, os, sys, threading, time

    @atexit.register  # before the package is imported: called after all that it does at the exit
    def last():
        late()

    from pushsdk import ClientClosedError, MobilePush, PushClient
    PUSH = MobilePush(ios_enabled=True, title={"en": "x"})
    client = PushClient()
    late = int
"""
QUIET = {
    "never used": "",
    "by sys.exit": """
    client.send("u", PUSH)
    sys.exit(0)
    """,
    "not closed, in a cycle": """
    client.send("u", PUSH)
    client.me = client
    """,
    "a view is all that is left": """
    client = client.with_options(timeout=3.0)
    client.send("u", PUSH)
    """,
    "used first when the main thread has ended": """
    def work():
        threading.main_thread().join()
        try:
            assert client.broadcast((f"u{n}" for n in range(2000)), PUSH).accepted == 2000
        except ClientClosedError:
            assert sys.version_info[:2] == (3, 12)
    threading.Thread(target=work).start()
    """,
    "used at the end": """
    def late():
        try:
            client.send("u", PUSH)
        except ClientClosedError:
            return
        raise AssertionError
    client.send("u", PUSH)
    """,
}


@pytest.mark.parametrize("body", QUIET.values(), ids=QUIET)
def test_a_program_ends_in_silence(service, body):
    assert run_program(HEAD + body) == (0, "", "")


def test_threads_that_go_on_after_the_main_thread_send_all_they_have(service):
    body = """
    client.send("first", PUSH)
    def work(n):
        threading.main_thread().join()
        for i in range(20):
            client.send(f"u{n}-{i}", MobilePush(ios_enabled=True, body={"en": f"{n} {i}"}))
    for n in range(8):
        threading.Thread(target=work, args=(n,)).start()
    """
    assert run_program(HEAD + body) == (0, "", "")
    assert len(service.users()) == 161
    assert service.duplicates() == {}


def test_claims_are_settled_and_made_after_the_end_of_the_main_thread(service, tmp_path):
    service.set_faults([Fault.delay(0.3)])
    body = """
    client = PushClient(claims=f"sqlite:{sys.argv[1]}")
    def work():
        for job in "first", "second", "first":
            receipt = client.send("u", PUSH, idempotency_key=job)
            os.write(1, f"{receipt.already_accepted}\\n".encode())
    threading.Thread(target=work).start()
    # The store is in use: Python 3.12 starts no thread once the main thread has ended.
    while not os.path.exists(sys.argv[1]):
        time.sleep(0.001)
    """
    assert run_program(HEAD + body, str(tmp_path / "claims.db")) == (0, "0\n0\n1\n", "")
    assert service.users() == {"u": 2}


DAEMON = """
    from contextlib import suppress
    from pushsdk import PushError
    from pushsdk.sync import loop_thread
    loop_thread.EXIT_DRAIN = 2.0
    def work():
        with suppress(PushError):
            client.send("u", PUSH)
    threading.Thread(target=work, daemon=True).start()
    while not client.stats().in_flight:
        time.sleep(0.001)
    started = time.monotonic()
    late = lambda: print(time.monotonic() - started)
"""


@pytest.mark.parametrize(("fault", "least", "most"), [(Fault.delay(0.5), 0.1, 4.0), (Fault.hang(), 1.9, 6.0)])
def test_calls_of_daemon_threads_get_bounded_time_at_exit(service, fault, least, most):
    service.set_faults([fault])
    result = run_program(HEAD + DAEMON)
    assert result.code == 0
    assert result.err == ""
    assert least < float(result.out) < most


def test_a_callback_that_never_returns_holds_the_end_up_for_seconds_only(service):
    body = """
    from pushsdk.sync import loop_thread
    loop_thread.EXIT_DRAIN = loop_thread.EXIT_CLOSE = 0.2
    held = threading.Event()
    def on_event(event):
        held.set()
        time.sleep(1e6)
    client = PushClient(on_event=on_event)
    threading.Thread(target=client.send, args=("u", PUSH), daemon=True).start()
    held.wait()
    """
    assert run_program(HEAD + body) == (0, "", "")
