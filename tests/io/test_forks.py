"""A fork and the threads that are inside SQLite: who waits for whom, and how long."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import pytest
from support.programs import run_program
from support.service_thread import HANGS

from pushsdk._io import forks
from pushsdk._io.forks import PATIENCE, no_fork, unforked


class Clock:
    """The clock of the gate. A sleep takes no time but this, and is when things may happen elsewhere."""

    def __init__(self) -> None:
        self.now = 1000.0
        #: What happens at the next sleeps, one after the other.
        self.meanwhile: list[Callable[[], object]] = []
        self.sleeps = 0

    def sleep(self, seconds: float) -> None:
        self.sleeps += 1
        assert self.sleeps < 50_000, "it waits without an end"
        self.now += seconds
        if self.meanwhile:
            self.meanwhile.pop(0)()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[Clock]:
    clock = Clock()
    monkeypatch.setattr(forks, "sleep", clock.sleep)
    monkeypatch.setattr(forks, "monotonic", lambda: clock.now)
    yield clock
    assert (forks._inside, forks._forking) == ({}, {})


@contextmanager
def elsewhere(block: AbstractContextManager[object]) -> Iterator[Callable[[], None]]:
    """Another thread is within this block, until it is told to leave it."""
    there, go_on = threading.Event(), threading.Event()

    def stay() -> None:
        with block:
            there.set()
            go_on.wait(HANGS)

    thread = threading.Thread(target=stay)

    def leave() -> None:
        go_on.set()
        thread.join(HANGS)

    thread.start()
    assert there.wait(HANGS)
    try:
        yield leave
    finally:
        leave()


@contextmanager
def fork() -> Iterator[None]:
    """What Python calls around a fork, in the parent."""
    forks._before()
    try:
        yield
    finally:
        forks._in_parent()


# -- a fork waits -----------------------------------------------------------------------------------------------------


def test_a_fork_waits_until_everybody_is_out(clock: Clock) -> None:
    with elsewhere(no_fork()) as first, elsewhere(no_fork()) as second:
        clock.meanwhile = [lambda: None, first, lambda: None, second]
        with fork():
            assert (clock.sleeps, forks._inside) == (4, {})


def test_a_fork_that_nobody_is_in_the_way_of_does_not_wait(clock: Clock) -> None:
    with no_fork():
        pass
    with fork():
        assert clock.sleeps == 0


def test_a_fork_waits_so_long_and_no_longer(clock: Clock) -> None:
    started = clock.now
    with elsewhere(no_fork()), fork():
        assert clock.now - started == pytest.approx(PATIENCE, abs=0.01)


def test_others_that_come_and_go_hold_a_fork_up_no_longer_either(clock: Clock) -> None:
    started = clock.now

    def come_and_go() -> None:
        forks._inside[0] = clock.now
        clock.meanwhile.append(come_and_go)

    come_and_go()
    with fork():
        assert clock.now - started == pytest.approx(PATIENCE, abs=0.01)
    del forks._inside[0]


def test_nobody_waits_for_who_has_been_inside_for_longer_than_that(clock: Clock) -> None:
    with elsewhere(no_fork()):
        clock.now += PATIENCE - 1.0
        started = clock.now
        for waited in (1.0, 1.0):
            with fork():
                assert clock.now - started == pytest.approx(waited, abs=0.01)


def test_a_fork_does_not_wait_for_itself(clock: Clock) -> None:
    with no_fork(), fork():
        assert clock.sleeps == 0


def test_two_that_fork_from_inside_do_not_wait_for_each_other(clock: Clock) -> None:
    with no_fork():
        # As of another thread.
        forks._inside[0], forks._forking[0] = clock.now, clock.now + PATIENCE
        with fork():
            assert clock.sleeps == 0
        del forks._inside[0], forks._forking[0]


# -- others wait for a fork -------------------------------------------------------------------------------------------


def test_any_number_are_inside_at_the_same_time() -> None:
    together = threading.Barrier(8, timeout=HANGS)
    threads = [threading.Thread(target=unforked(together.wait)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(HANGS)
    assert not together.broken


def test_nobody_goes_in_during_a_fork(clock: Clock) -> None:
    with elsewhere(fork()) as done:
        seen: list[dict[int, float]] = []
        clock.meanwhile = [lambda: None, lambda: None, lambda: seen.append(dict(forks._inside)), done]
        with no_fork():
            assert (clock.sleeps, seen) == (4, [{}])
            assert forks._inside == {threading.get_ident(): clock.now}


def test_who_goes_in_as_a_fork_begins_waits_for_it(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    def monotonic() -> float:
        # Of another thread, which has seen nobody inside.
        forks._forking[0] = clock.now + PATIENCE
        monkeypatch.setattr(forks, "monotonic", lambda: clock.now)
        return clock.now

    monkeypatch.setattr(forks, "monotonic", monotonic)
    clock.meanwhile = [forks._forking.clear]
    with no_fork():
        assert clock.sleeps == 1


def test_nobody_calls_a_decorated_function_during_a_fork(clock: Clock) -> None:
    with elsewhere(fork()) as done:
        clock.meanwhile = [lambda: None, done]
        assert unforked(lambda: (clock.sleeps, dict(forks._inside)))() == (2, {threading.get_ident(): clock.now})


def test_who_waits_for_a_fork_waits_so_long_and_no_longer(clock: Clock) -> None:
    started = clock.now
    with elsewhere(fork()), no_fork():
        assert clock.now - started == pytest.approx(PATIENCE, abs=0.01)


def test_forks_one_after_the_other_keep_nobody_out_for_longer_than_that(clock: Clock) -> None:
    started = clock.now
    with elsewhere(fork()):

        def again() -> None:
            forks._forking.update(dict.fromkeys(forks._forking, clock.now + PATIENCE))
            clock.meanwhile.append(again)

        clock.meanwhile.append(again)
        with no_fork():
            assert clock.now - started == pytest.approx(PATIENCE, abs=0.01)


def test_a_fork_whose_end_nobody_told_keeps_nobody_out_for_long(clock: Clock) -> None:
    with elsewhere(fork()):
        clock.now += PATIENCE
        with no_fork():
            assert clock.sleeps == 0


def test_who_is_inside_goes_in_again_during_a_fork(clock: Clock) -> None:
    with no_fork():
        forks._forking[0] = clock.now + PATIENCE
        with no_fork():
            assert unforked(lambda word: f"{word}!")("again") == "again!"
        assert list(forks._inside) == [threading.get_ident()]
        forks._forking.clear()
    assert clock.sleeps == 0


def test_who_forks_goes_in(clock: Clock) -> None:
    with fork(), no_fork():
        assert clock.sleeps == 0


def test_who_fails_or_is_interrupted_is_out(clock: Clock) -> None:
    with pytest.raises(ZeroDivisionError), no_fork():
        raise ZeroDivisionError
    with pytest.raises(ZeroDivisionError):
        unforked(lambda: 1 // 0)()
    assert forks._inside == {}

    def interrupt() -> None:
        raise KeyboardInterrupt

    with elsewhere(fork()):
        for enter in (no_fork().__enter__, unforked(interrupt)):
            clock.meanwhile = [interrupt]
            with pytest.raises(KeyboardInterrupt):
                enter()
            assert forks._inside == {}


def test_a_signal_handler_that_forks_while_a_fork_waits_does_not_let_anybody_in(clock: Clock) -> None:
    me = threading.get_ident()
    with elsewhere(no_fork()) as leave:

        def handler() -> None:
            # It does not wait either, once the other is out.
            leave()
            with fork():
                assert list(forks._forking) == [me]
            assert forks._forking == {}

        clock.meanwhile = [handler]
        with fork():
            assert (list(forks._forking), clock.sleeps) == ([me], 1)


@pytest.mark.parametrize("inside", [True, False], ids=["inside", "outside"])
def test_of_those_who_were_inside_only_who_forked_is_left_in_a_child(clock: Clock, inside: bool) -> None:
    with no_fork() if inside else nullcontext():
        mine = dict(forks._inside)
        forks._inside[0], forks._forking[1] = clock.now, clock.now + PATIENCE
        forks._in_child()
        assert (forks._inside, forks._forking) == (mine, {})


def test_another_program_is_started_without_waiting() -> None:
    with elsewhere(no_fork()):
        assert subprocess.run([sys.executable, "-c", ""], timeout=HANGS).returncode == 0


def test_without_forks_there_is_nothing_to_wait_for() -> None:
    ended = run_program("import os; del os.register_at_fork; from pushsdk._io import forks; print(forks._inside)")
    assert ended == (0, "{}\n", "")


# -- imports ----------------------------------------------------------------------------------------------------------

FIRST_SENDS = """
    import asyncio, socket, sys, threading
    import pushsdk
    from pushsdk.claims import MemoryClaims

    def serve(server):
        while True:
            connection, _ = server.accept()
            connection.recv(65536)
            connection.sendall(b"HTTP/1.1 204 No Content\\r\\nConnection: close\\r\\n\\r\\n")
            connection.close()

    server = socket.create_server(("127.0.0.1", 0))
    threading.Thread(target=serve, args=[server], daemon=True).start()
    kind, scheme = sys.argv[1:]
    url, once = f"{scheme}://localhost:{server.getsockname()[1]}", pushsdk.RetryPolicy.none()
    client = getattr(pushsdk, kind)(url, "key", claims=MemoryClaims(), retry=once)
    known = set(sys.modules)

    async def send(**options):
        try:
            sent = client.send("user-1", {"title": {"en": "Hello"}}, **options)
            return type(sent if kind == "PushClient" else await sent).__name__
        except pushsdk.PushError as error:
            return type(error).__name__

    async def main():
        print(await send(dedupe_key="job"), await send(), sorted(set(sys.modules) - known))

    asyncio.run(main())
"""


@pytest.mark.parametrize(("scheme", "outcome"), [("http", "Receipt"), ("https", "NotSentError")])
@pytest.mark.parametrize("kind", ["AsyncPushClient", "PushClient"])
def test_the_first_send_imports_nothing_as_a_fork_may_come_in_the_middle_of_it(
    kind: str, scheme: str, outcome: str
) -> None:
    ended = run_program(FIRST_SENDS, kind, scheme, options=())
    assert ended == (0, f"{outcome} {outcome} []\n", "")
