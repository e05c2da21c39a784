"""A forked child leaves its parent's files, connections and locks alone."""

import os
import socket
import threading

import pytest
from support.programs import run_program
from support.wire_answers import response

from pushsdk import ConfigurationError
from pushsdk._io.forks import ProcessGuard


def test_what_another_process_made_is_not_used(monkeypatch):
    guard = ProcessGuard()
    guard.check("the thing was made")
    monkeypatch.setattr(os, "getpid", lambda: -1)
    with pytest.raises(ConfigurationError, match="the thing was made before a fork: make one in each process"):
        guard.check("the thing was made")


ACTIONS = """
    import os
    from pushsdk._io import forks

    class Owner:
        done = 0
        def act(self):
            self.done += 1

    owner, gone = Owner(), Owner()
    forks.in_child(owner, Owner.act)
    forks.in_child(gone, lambda owner: 1 // 0)
    del gone
    if not (pid := os.fork()):
        os._exit(owner.done)
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), owner.done)
"""


def test_actions_are_called_in_the_child_while_their_owner_exists():
    assert run_program(ACTIONS) == (0, "1 0\n", "")


def test_without_forks_there_is_nothing_to_register():
    result = run_program("import os; del os.register_at_fork; from pushsdk._io import forks; print(forks.in_child)")
    assert result.code == 0
    assert result.err == ""


# A thread has changed more pages than it may keep in memory, and has not committed yet.
WRITING = """
    import contextlib, os, sys, threading, warnings
    from pathlib import Path
    warnings.filterwarnings("ignore", "This process .* is multi-threaded", DeprecationWarning)
    path, written, go_on = Path(sys.argv[1]), threading.Event(), threading.Event()

    def write(db):
        db.execute("PRAGMA cache_size = 1")
        db.execute("CREATE TABLE many(a)")
        db.executemany("INSERT INTO many VALUES (?)", [("x" * 1000,) for _ in range(5000)])
        written.set()
        go_on.wait()

    def run_file():
        from pushsdk import Outcome
        from pushsdk._runs.run_file.file import RunFile, RunFilePath
        place = RunFilePath(path, write=True)
        assert place.make()
        file = RunFile.create(place, lambda db: None, durable=False)
        file.commit(lambda db: db.execute("CREATE TABLE first(a)"), outcome=Outcome.NOT_SENT)
        return file, lambda: file.commit(write, outcome=Outcome.NOT_SENT)

    def claims():
        from pushsdk.claims import SqliteClaims
        db = SqliteClaims(path)._opened()
        def commit():
            db.execute("BEGIN IMMEDIATE")
            write(db)
            db.execute("COMMIT")
        return db, commit

    def emulator():
        from pushsdk.emulator.store.database import Database
        database = Database(path)
        def commit():
            with database.writing() as db:
                write(db)
        return database, commit

    owner, commit = globals()[sys.argv[2]]()
    thread = threading.Thread(target=commit)
    thread.start()
    written.wait()
    pid = os.fork()
    if not pid:
        del owner, commit
        sys.exit(0)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    go_on.set()
    thread.join()
    owner.close()
    import sqlite3
    with contextlib.closing(sqlite3.connect(path)) as db:
        (count,) = db.execute("SELECT count(*) FROM many").fetchone()
        print(code, *db.execute("PRAGMA integrity_check").fetchone(), count)
"""


@pytest.mark.parametrize("kind", ["run_file", "claims", "emulator"])
def test_a_child_that_ends_leaves_what_a_thread_of_its_parent_is_writing(tmp_path, kind):
    assert run_program(WRITING, str(tmp_path / "file"), kind, measured=False) == (0, "0 ok 5000\n", "")


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
            sent = client.send("user-1", {"title": {"en": "Hello"}, "iosEnabled": True}, **options)
            return type(sent if kind == "PushClient" else await sent).__name__
        except pushsdk.PushError as error:
            return type(error).__name__

    async def main():
        print(await send(idempotency_key="job"), await send(), sorted(set(sys.modules) - known))
        if kind == "AsyncPushClient":
            await client.aclose()

    asyncio.run(main())
"""


@pytest.mark.parametrize(("scheme", "outcome"), [("http", "Receipt"), ("https", "NotSentError")])
@pytest.mark.parametrize("kind", ["AsyncPushClient", "PushClient"])
def test_the_first_send_imports_nothing_as_a_fork_may_come_in_the_middle_of_it(kind, scheme, outcome):
    result = run_program(FIRST_SENDS, kind, scheme, options=("-W", "ignore"))
    assert result == (0, f"{outcome} {outcome} []\n", "")


# The child ends as ``sys.exit`` in the middle of the loop does: asyncio closes its generators on the way.
LEAVING = """
    import asyncio, os, sys
    from pushsdk import AsyncPushClient

    async def main():
        client = AsyncPushClient(sys.argv[1], "key", keepalive=60.0)
        await client.send("ann", {"body": {"en": "Hello"}, "iosEnabled": True})
        if not (pid := os.fork()):
            sys.exit(0)
        os.waitpid(pid, 0)
        await client.send("bob", {"body": {"en": "Hello"}, "iosEnabled": True})
        print(client.stats().accepted, client.stats().stale_connections)
        await client.aclose()

    asyncio.run(main())
"""


def test_a_child_that_ends_in_its_loop_leaves_the_connections_to_its_parent():
    def serve():
        with listener.accept()[0] as wire:
            while wire.recv(65536):
                wire.sendall(response(204))

    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = threading.Thread(target=serve)
        server.start()
        result = run_program(LEAVING, f"http://127.0.0.1:{listener.getsockname()[1]}")
        server.join(60.0)
    assert result.code == 0
    assert result.out == "2 0\n"
