"""All that use SQLite, and children that are forked meanwhile: real forks, and SQLite's own locks."""

from __future__ import annotations

import _sqlite3
import ctypes
import functools
import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.programs import run_program
from support.service_thread import served

from pushsdk import MobilePush, PushClient, read_report
from pushsdk._io import forks
from pushsdk.claims import SqliteClaims

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
    outside.clear()
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
        from pushsdk._runs.run_file.file import Place
        from pushsdk._runs.run_file.file import RunFile
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
                await store._blocking.do(lambda file: setattr(file, "_find", hold) or file.get(["key"]))
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
