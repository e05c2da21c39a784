"""An exception in the waiting thread (Ctrl-C, a signal handler, a time limit) cancels the call."""

import contextlib
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from concurrent.futures import Future
from pathlib import Path

import pytest
from support.service_thread import HANGS
from support.wire_judge import HELLO

import pushsdk
from pushsdk import Outcome, PushClient, RetryPolicy, SendAbandoned
from pushsdk.emulator import Fault
from pushsdk.sync import loop_thread
from pushsdk.sync.loop_thread import LoopThread


class SoftTimeLimitExceededError(Exception):
    """As Celery's, which a signal handler raises in the main thread."""


@contextlib.contextmanager
def limited(when):
    """Raise in the main thread once ``when`` has returned in another."""

    def handler(*_):
        raise SoftTimeLimitExceededError

    def alarm():
        when()
        os.kill(os.getpid(), signal.SIGALRM)

    before = signal.signal(signal.SIGALRM, handler)
    thread = threading.Thread(target=alarm)
    thread.start()
    try:
        with pytest.raises(SoftTimeLimitExceededError):
            yield
    finally:
        thread.join()
        signal.signal(signal.SIGALRM, before)


def abandoned(events):
    return [(event.outcome, event.user_ids) for event in events if isinstance(event, SendAbandoned)]


def test_an_interrupted_send_in_flight_is_unknown_and_reported(service):
    service.set_faults([Fault.hang()])
    events = []
    with PushClient(on_event=events.append) as client:
        with limited(lambda: service.wait_for(1)):
            client.send("u", HELLO)
        assert abandoned(events) == [(Outcome.UNKNOWN, ("u",))]
        assert client.stats().abandoned == 1
        service.set_faults([])
        client.send("v", HELLO)


def test_an_interrupted_broadcast_leaves_a_run_that_can_be_resumed(service, client, tmp_path):
    service.set_faults([Fault.hang(user="u1500")])
    run = tmp_path / "run"
    with limited(lambda: service.wait_for(2)):
        client.broadcast((f"u{number}" for number in range(3000)), HELLO, run=run)
    service.set_faults([])
    report = client.resume(run)
    assert report.planned == report.accepted + report.unknown == 3000
    assert service.duplicates() == {}


def test_an_interrupted_close_ends_the_calls_in_flight(service, monkeypatch):
    service.set_faults([Fault.hang()])
    client = PushClient()
    outcome = Future()

    def send():
        with pytest.raises(pushsdk.PushError) as excinfo:
            client.send("u", HELLO)
        outcome.set_result(excinfo.value.outcome)

    thread = threading.Thread(target=send)
    thread.start()
    service.wait_for(1)

    submit = LoopThread.submit
    submitted = threading.Event()

    def noted(thread, call):
        submit(thread, call)
        submitted.set()

    monkeypatch.setattr(LoopThread, "submit", noted)
    with limited(submitted.wait):
        client.close()
    client.close(drain=0.0)
    assert outcome.result(HANGS) is Outcome.UNKNOWN
    thread.join()


# -- the moments between ---------------------------------------------------------------------------------------------


def test_a_result_that_the_caller_did_not_take_is_reported_by_outcome(service, monkeypatch):
    events = []
    waiting = LoopThread.callbacks_of

    def interrupted(thread, call):
        yield from waiting(thread, call)
        monkeypatch.setattr(LoopThread, "callbacks_of", waiting)
        raise SoftTimeLimitExceededError

    # Long ones: fewer of them make a smaller request.
    users = good, bad = "good" * 100, "bad" * 100
    partly = [Fault.status(413, more_than_users=1), Fault.status(400, user=bad)]
    with PushClient(on_event=events.append) as client:
        for faults in ([], [Fault.status(400)], [Fault.status(500)], partly):
            service.set_faults(faults)
            monkeypatch.setattr(LoopThread, "callbacks_of", interrupted)
            with pytest.raises(SoftTimeLimitExceededError):
                client.send([good, bad, good], HELLO, retry=RetryPolicy.none())
        client.flush()
        stats = client.stats()
    wholes = [(outcome, users) for outcome in (Outcome.ACCEPTED, Outcome.REJECTED, Outcome.UNKNOWN)]
    parts = [(Outcome.ACCEPTED, (good,)), (Outcome.REJECTED, (bad,))]
    assert abandoned(events) == [*wholes, *parts]
    assert stats.abandoned == 5


@pytest.mark.parametrize(("used", "after"), [(True, False), (True, True), (False, False)])
def test_an_interruption_around_the_submission_blocks_no_call(service, monkeypatch, used, after):
    events = []
    submit = LoopThread.submit

    def interrupted(thread, call):
        monkeypatch.setattr(LoopThread, "submit", submit)
        if after:
            submit(thread, call)
        raise SoftTimeLimitExceededError

    with PushClient(on_event=events.append) as client:
        if used:
            client.send("first", HELLO)
        monkeypatch.setattr(LoopThread, "submit", interrupted)
        with pytest.raises(SoftTimeLimitExceededError):
            client.send("u", HELLO)
        client.send("v", HELLO)
        client.flush()
    # A client that was never used has nobody to tell: the call had not reached its loop.
    abandonments = abandoned(events)
    assert len(abandonments) == used
    assert ("u" not in service.users()) == (abandonments in ([], [(Outcome.NOT_SENT, ("u",))]))


def test_a_thread_does_not_wait_for_a_call_that_will_not_end(service, monkeypatch):
    monkeypatch.setattr(loop_thread, "CANCEL_TIMEOUT", 0.05)
    blocked = threading.Event()
    go_on = threading.Event()

    async def key():
        blocked.set()
        assert go_on.wait(HANGS)  # blocks the loop
        return service.api_key

    with PushClient(api_key=key) as client:
        with limited(blocked.wait):
            client.send("u", HELLO)
        go_on.set()


COMMAND = """
    from pushsdk import MobilePush, PushClient, SendAbandoned

    def on_event(event):
        if isinstance(event, SendAbandoned):
            print("abandoned", event.outcome, flush=True)

    with PushClient(on_event=on_event) as client:
        client.send("u", MobilePush())
"""


def test_ctrl_c_ends_a_program_at_once_and_its_send_is_reported(service):
    service.set_faults([Fault.hang()])
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(COMMAND)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(Path(pushsdk.__file__).parents[1])},
    )
    service.wait_for(1)
    started = time.monotonic()
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=HANGS)
    assert time.monotonic() - started < 4
    assert out == "abandoned UNKNOWN\n"
    assert process.returncode == -signal.SIGINT
    assert err.splitlines()[-1] == "KeyboardInterrupt"
    assert err.count("Traceback") == 1
