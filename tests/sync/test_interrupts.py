"""An exception in the waiting thread (Ctrl-C, a signal handler, a time limit) cancels the call."""

import contextlib
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path

import pytest
from support.service_thread import HANGS, ThreadService, wait_until

import pushsdk
from pushsdk import Batching, MobilePush, Outcome, PushClient, RetryPolicy, SendAbandoned, Timeout
from pushsdk.emulator import Fault
from pushsdk.sync import loop_thread
from pushsdk.sync.loop_thread import LoopThread, ThreadCall

HELLO = MobilePush(body={"en": "hi"})


class SoftTimeLimitExceededError(Exception):
    """As Celery's, which a signal handler raises in the main thread."""


@contextlib.contextmanager
def limited(when: Callable[[], object]) -> Iterator[None]:
    """Raise in the main thread once ``when`` has returned in another."""

    def handler(*_: object) -> None:
        raise SoftTimeLimitExceededError

    def alarm() -> None:
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


def abandoned(events: list[object]) -> list[tuple[Outcome, tuple[str, ...]]]:
    return [(event.outcome, event.user_ids) for event in events if isinstance(event, SendAbandoned)]


def test_an_interrupted_send_in_flight_is_unknown_and_reported(service: ThreadService) -> None:
    service.set_faults([Fault.hang()])
    events: list[object] = []
    with PushClient(on_event=events.append) as client:
        started = time.monotonic()
        with limited(lambda: service.wait_for(1)):
            client.send("u", HELLO)
        assert time.monotonic() - started < 4
        assert abandoned(events) == [(Outcome.UNKNOWN, ("u",))]
        assert client.stats().abandoned == 1
        service.set_faults([])
        assert client.send("v", HELLO).users == 1


def test_an_interrupted_lingering_send_is_not_sent_and_reported(service: ThreadService) -> None:
    events: list[object] = []
    with PushClient(on_event=events.append, batching=Batching(linger=9.0)) as client:

        def lingers() -> None:
            wait_until(lambda: client.stats().queued_users)

        with limited(lingers):
            client.send("u", HELLO)
        assert abandoned(events) == [(Outcome.NOT_SENT, ("u",))]
    assert service.requests == 0


def test_an_interrupted_broadcast_leaves_a_run_that_can_be_resumed(
    service: ThreadService, client: PushClient, tmp_path: Path
) -> None:
    service.set_faults([Fault.hang(user="u1500")])
    run = tmp_path / "run"
    with limited(lambda: service.wait_for(2)):
        client.broadcast((f"u{number}" for number in range(3000)), HELLO, run=run)
    service.set_faults([])
    report = client.resume(run)
    assert report.planned == report.accepted + report.unknown == 3000
    assert service.duplicates() == {}


def test_an_interrupted_close_ends_the_calls_in_flight(service: ThreadService) -> None:
    service.set_faults([Fault.hang()])
    client, outcome = PushClient(), Future[Outcome]()

    def send() -> None:
        with pytest.raises(pushsdk.PushError) as excinfo:
            client.send("u", HELLO)
        outcome.set_result(excinfo.value.outcome)

    thread = threading.Thread(target=send)
    thread.start()
    service.wait_for(1)

    def closing() -> None:
        wait_until(lambda: client._portal._thread.closing)

    with limited(closing):
        client.close()
    client.close()
    assert outcome.result(HANGS) is Outcome.UNKNOWN
    thread.join()


# -- the moments between ---------------------------------------------------------------------------------------------


class Moment:
    """Raises in the calling thread at a moment that no signal of a test would meet."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, kind: type, name: str, *, after: bool) -> None:
        self.reached = 0
        real = getattr(kind, name)

        def method(this: object, *args: object) -> object:
            if self.reached:
                return real(this, *args)
            self.reached += 1
            result = real(this, *args) if after else None
            raise SoftTimeLimitExceededError(result)

        monkeypatch.setattr(kind, name, method)


def test_a_result_that_the_caller_did_not_take_is_reported(
    service: ThreadService, monkeypatch: pytest.MonkeyPatch
) -> None:
    events: list[object] = []
    waiting = LoopThread.callbacks_of

    def interrupted(thread: LoopThread, call: ThreadCall) -> Iterator[object]:
        yield from waiting(thread, call)
        monkeypatch.setattr(LoopThread, "callbacks_of", waiting)
        raise SoftTimeLimitExceededError

    with PushClient(on_event=events.append) as client:
        for answer in (204, 400, 500):
            service.set_faults([Fault.status(answer)])
            monkeypatch.setattr(LoopThread, "callbacks_of", interrupted)
            with pytest.raises(SoftTimeLimitExceededError):
                client.send(["u", "v", "u"], HELLO, retry=RetryPolicy.none())
        client.flush()
        stats = client.stats()
        report = client.close()
    users = ("u", "v")
    outcomes = [Outcome.ACCEPTED, Outcome.REJECTED, Outcome.UNKNOWN]
    assert abandoned(events) == [(outcome, users) for outcome in outcomes]
    assert stats.abandoned == 3
    assert [event.outcome for event in report.abandoned] == outcomes


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_an_interruption_around_the_submission_blocks_no_call(
    service: ThreadService, monkeypatch: pytest.MonkeyPatch, after: bool
) -> None:
    events: list[object] = []
    with PushClient(on_event=events.append) as client:
        client.send("first", HELLO)
        Moment(monkeypatch, LoopThread, "submit", after=after)
        with pytest.raises(SoftTimeLimitExceededError):
            client.send("u", HELLO)
        assert client.send("v", HELLO).users == 1
        client.flush()
    abandonments = abandoned(events)
    assert len(abandonments) == 1
    assert (abandonments[0][0] is Outcome.NOT_SENT) == ("u" not in service.users())


def test_a_thread_does_not_wait_for_a_call_that_will_not_end(
    service: ThreadService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop_thread, "CANCEL_TIMEOUT", 0.05)
    blocked, go_on = threading.Event(), threading.Event()

    async def key() -> str:
        blocked.set()
        assert go_on.wait(HANGS)  # blocks the loop
        return service.api_key

    with PushClient(api_key=key) as client:
        with limited(blocked.wait):
            client.send("u", HELLO)
        go_on.set()


def test_a_thread_that_is_gone_is_not_asked_for_the_key_of_a_retry_and_the_others_go_on(service: ThreadService) -> None:
    service.set_faults([Fault.status(429, first=1)])
    events: list[object] = []
    asked: Counter[str] = Counter()

    def key() -> str:
        asked[threading.current_thread().name] += 1
        return service.api_key

    retry = RetryPolicy.from_tenacity(wait=lambda state: 0.3, stop=lambda state: state.attempt_number >= 2)
    patient = Timeout(total=None, attempt=None)
    batching = Batching(linger=0.3)
    with PushClient(api_key=key, retry=retry, batching=batching, timeout=patient, on_event=events.append) as client:
        other = threading.Thread(target=client.send, args=("other", HELLO), name="other")
        other.start()
        with limited(lambda: service.wait_for(1)):
            client.send("gone", HELLO)
        other.join(HANGS)
    assert asked == {"other": 2, threading.current_thread().name: 1}
    assert abandoned(events) == [(Outcome.REJECTED, ("gone",))]
    assert service.users() == {"other": 1}


COMMAND = """
    import sys
    from pushsdk import MobilePush, PushClient, SendAbandoned

    def on_event(event):
        if isinstance(event, SendAbandoned):
            print("abandoned", event.outcome, flush=True)

    client = PushClient(on_event=on_event)
    if sys.argv[1] == "with":
        with client:
            client.send("u", MobilePush())
    client.send("u", MobilePush())
"""


@pytest.mark.parametrize("mode", ["with", "bare"])
def test_ctrl_c_ends_a_program_at_once_and_its_send_is_reported(service: ThreadService, mode: str) -> None:
    service.set_faults([Fault.hang()])
    root = str(Path(pushsdk.__file__).parents[1])
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(COMMAND), mode],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": root},
    )
    service.wait_for(1)
    started = time.monotonic()
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=HANGS)
    assert time.monotonic() - started < 4
    assert out == "abandoned UNKNOWN\n"
    assert err.splitlines()[-1] == "KeyboardInterrupt"
    assert process.returncode == -signal.SIGINT
    assert "Traceback" not in err.partition("Traceback")[2]
