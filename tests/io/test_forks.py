"""A fork and the threads that are inside SQLite: who waits for whom, and how long."""

from __future__ import annotations

import _sqlite3
import ctypes
import functools
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest
from support.programs import run_program
from support.service_thread import HANGS, served

from pushsdk import MobilePush, PushClient, read_report
from pushsdk._io import forks
from pushsdk._io.forks import PATIENCE, no_fork, unforked
from pushsdk.claims import SqliteClaims


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


# -- all that use SQLite ----------------------------------------------------------------------------------------------

# What was done outside; filled by the next two.
outside: list[str] = []


def watched(kind: type[Any], *names: str) -> type[Any]:
    """The same, noting the calls of these methods that are made outside."""

    def watch(name: str) -> Callable[..., Any]:
        real = getattr(kind, name)

        def call(self: Any, *words: Any, **options: Any) -> Any:
            if threading.get_ident() not in forks._inside:
                outside.append(name)
            return real(self, *words, **options)

        return call

    return type(f"Watched{kind.__name__}", (kind,), {name: watch(name) for name in names})


Cursor = watched(sqlite3.Cursor, "execute", "executemany", "fetchone", "fetchall", "__next__")
Connection = watched(sqlite3.Connection, "__init__", "execute", "executemany", "executescript", "rollback", "close")


def test_all_that_use_sqlite_are_inside_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Connection.cursor = lambda self: sqlite3.Connection.cursor(self, Cursor)
    monkeypatch.setattr(sqlite3, "connect", functools.partial(sqlite3.connect, factory=Connection))
    run, hello, users = tmp_path / "spring.run", MobilePush(body={"en": "hi"}), [f"u{n}" for n in range(2000)]
    claims = SqliteClaims(tmp_path / "claims")
    with served(monkeypatch) as service:
        with PushClient(claims=claims) as client:
            client.broadcast(users, hello, run=run)
            client.resume(run)
            client.send("u0", hello, dedupe_key="job")
        assert len(list(read_report(run).rows())) == 2000
        assert service.duplicates() == {"u0": 2}
        service.reset()
    service.users()
    assert outside == []


# -- real forks -------------------------------------------------------------------------------------------------------

HEAD = """
    import os, signal, sqlite3, sys, threading, warnings
    warnings.filterwarnings("ignore", "This process .* is multi-threaded", DeprecationWarning)
    from pathlib import Path

    # The hook that is registered first is called last, and the other way round.
    order, go_on, inside = [], threading.Event(), threading.Event()
    os.register_at_fork(before=lambda: order.append("forked"))
    from pushsdk._io import forks
    os.register_at_fork(before=go_on.set)

    def fork(work):
        pid = os.fork()
        if not pid:
            signal.alarm(20)
            os.write(1, f"{work()}\\n".encode())
            os._exit(0)
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
"""
# One of SQLite's own locks, that of its allocator, is held as SQLite would hold it.
HOLDING = """
    import asyncio, contextlib, ctypes, _sqlite3
    lib = ctypes.CDLL(getattr(_sqlite3, "__file__", None))
    lib.sqlite3_mutex_alloc.restype = ctypes.c_void_p
    mutex = ctypes.c_void_p(lib.sqlite3_mutex_alloc(3))

    def hold(*_):
        lib.sqlite3_mutex_enter(mutex)
        inside.set()
        go_on.wait()
        order.append("done")
        lib.sqlite3_mutex_leave(mutex)

    path = Path(sys.argv[1])

    @contextlib.contextmanager
    def run_file():
        from pushsdk._broadcast.place import Place
        from pushsdk._broadcast.runfile import RunFile
        place = Place(path, write=True)
        assert place.make()
        with contextlib.closing(RunFile.create(place, durable=False)) as file:
            yield file

    def commit():
        from pushsdk import Outcome
        with run_file() as file:
            file.commit(hold, outcome=Outcome.NOT_SENT)

    def read():
        with run_file() as file:
            file._db.create_function("hold", 0, hold)
            file.read("SELECT hold()")

    def claim():
        from pushsdk.claims import SqliteClaims
        async def claim():
            async with SqliteClaims(path) as store:
                await store._have_done(hold)
        asyncio.run(claim())

    def writing():
        from pushsdk.emulator.database import Database
        with Database(path).writing() as db:
            hold()

    def reading():
        from pushsdk.emulator.database import Database
        with Database(path).reading() as db:
            hold()

    threading.Thread(target=globals()[sys.argv[2]]).start()
    inside.wait()

    def child():
        with sqlite3.connect(":memory:") as db:
            return db.execute("SELECT 'alive'").fetchone(), forks._inside, forks._forking

    print(fork(child), order, forks._forking)
"""


@pytest.mark.skipif(
    not hasattr(ctypes.CDLL(getattr(_sqlite3, "__file__", None)), "sqlite3_mutex_enter"),
    reason="this Python hides its SQLite",
)
@pytest.mark.parametrize("user", ["commit", "read", "claim", "writing", "reading"])
def test_a_child_uses_sqlite_though_a_thread_was_inside_when_it_was_forked(tmp_path: Path, user: str) -> None:
    ended = run_program(HEAD + HOLDING, str(tmp_path / "file"), user, measured=False)
    assert ended == (0, "(('alive',), {}, {})\n0 ['done', 'forked'] {}\n", "")


def test_a_child_of_a_callback_of_sqlite_is_inside_as_its_parent_was() -> None:
    ended = run_program(
        HEAD
        + """
    def callback():
        return fork(lambda: (list(forks._inside) == [threading.get_ident()], forks._forking))

    with forks.no_fork():
        db = sqlite3.connect(":memory:")
        db.create_function("fork", 0, callback)
        print(*db.execute("SELECT fork()").fetchone())
    print(forks._inside)
"""
    )
    assert ended == (0, "(True, {})\n0\n{}\n", "")


def test_a_signal_handler_forks_whatever_it_interrupts() -> None:
    ended = run_program("""
        import os, random, signal, sqlite3, time
        from pushsdk._io import forks

        codes = []

        def handler(*_):
            pid = os.fork()
            if not pid:
                os._exit(len(forks._inside) > 1)
            codes.append(os.waitpid(pid, 0)[1])

        signal.signal(signal.SIGALRM, handler)
        started, dice = time.monotonic(), random.Random(1)
        for number in range(200):
            signal.setitimer(signal.ITIMER_REAL, dice.uniform(1e-6, 3e-4))
            while len(codes) == number:
                with forks.no_fork():
                    forks.unforked(sqlite3.connect)(":memory:").close()
        print(set(codes), forks._inside, forks._forking, time.monotonic() - started < 10 * forks.PATIENCE)
    """)
    assert ended == (0, "{0} {} {} True\n", "")


def test_another_program_is_started_without_waiting() -> None:
    with elsewhere(no_fork()):
        assert subprocess.run([sys.executable, "-c", ""], timeout=HANGS).returncode == 0


def test_without_forks_there_is_nothing_to_wait_for() -> None:
    ended = run_program("import os; del os.register_at_fork; from pushsdk._io import forks; print(forks._inside)")
    assert ended == (0, "{}\n", "")
