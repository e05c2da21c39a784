"""A caller's iterable is read in the caller's thread, without blocking the loop."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from support.service_thread import HANGS
from support.wire_judge import HELLO

from pushsdk import ClientClosedError, PushClient


class Slow:
    """Two ids; the second comes when the test says so."""

    def __init__(self):
        self.reached = threading.Event()
        self.go_on = threading.Event()

    def __iter__(self):
        yield "first"
        self.reached.set()
        assert self.go_on.wait(HANGS)
        yield "last"


def test_closing_over_a_plan_that_is_being_read_ends_it_and_nothing_is_sent(service):
    client = PushClient()
    users = Slow()
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(client.broadcast, users, HELLO)
        assert users.reached.wait(HANGS)
        client.close()
        users.go_on.set()
        with pytest.raises(ClientClosedError, match="before the plan was finished"):
            running.result(HANGS)
    assert service.requests == 0


def test_a_stop_from_another_thread_ends_a_run_that_is_being_sent(client, service, tmp_path):
    stop = threading.Event()
    one = {"userIds": ["u"], "message": {}}

    def progress(values):
        if values.stage == "sending" and values.accepted:
            threading.Thread(target=stop.set).start()

    report = client.send_each([one] * 20_000, run=tmp_path / "run", stop=stop, on_progress=progress)
    assert report.stopped_by == "asked"
    assert 0 < report.not_sent < 20_000
