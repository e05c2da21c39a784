"""A client made before a fork: the child has its own, and the parent is unaffected."""

import textwrap

import pytest
from support.programs import run_program

from pushsdk.emulator import Fault

# `fork` runs the child's function there and prints what it returns; `wait` is the parent's end of it.
HEAD = """
    import os, sys, threading, time, warnings
    warnings.filterwarnings("ignore", "This process .* is multi-threaded", DeprecationWarning)
    from pushsdk import MobilePush, PushClient, PushError
    HELLO = MobilePush(ios_enabled=True, body={"en": "hi"})

    def tell(line):
        os.write(1, f"{line}\\n".encode())

    def fork(work):
        pid = os.fork()
        if not pid:
            tell(f"child {work()}")
            sys.exit(0)
        return pid

    def wait(pid):
        tell(f"exit {os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])}")

    def until(condition):
        end = time.monotonic() + 30
        while not condition():
            assert time.monotonic() < end
            time.sleep(0.001)
"""


def forked(body, *arguments, measured=True):
    return run_program(textwrap.dedent(HEAD) + textwrap.dedent(body), *arguments, measured=measured)


@pytest.mark.parametrize("used", ["used", "unused"])
def test_a_client_made_before_the_fork_works_on_both_sides(service, used):
    result = forked(
        """
        client = PushClient()
        view = client.with_options(timeout=5.0, api_key="tenant")
        if sys.argv[1] == "used":
            client.send("before", HELLO)
            view.send("before-view", HELLO)

        def child():
            client.send("child", HELLO)
            view.send("child-view", HELLO)
            return client.stats().accepted

        pid = fork(child)
        client.send("parent", HELLO)
        view.send("parent-view", HELLO)
        wait(pid)
        client.send("after", HELLO)
        """,
        used,
    )
    assert result == (0, "child 2\nexit 0\n", "")
    before = ["before"] if used == "used" else []
    assert service.users() == dict.fromkeys([*before, "child", "parent", "after"], 1)
    views = [f"{name}-view" for name in [*before, "child", "parent"]]
    assert service.inbox("tenant").users() == dict.fromkeys(views, 1)


def test_the_parents_calls_in_flight_are_not_the_childs(service):
    service.set_faults([Fault.delay(0.5)])
    result = forked(
        """
        events = []
        client = PushClient(on_event=events.append)

        def work(n):
            outcomes.append(client.send(f"u{n}", MobilePush(ios_enabled=True, body={"en": str(n)})).outcome)

        outcomes = []
        threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
        for thread in threads:
            thread.start()
        until(lambda: client.stats().in_flight == 8)

        def child():
            stats = client.stats()
            report = client.close()
            return stats.requests, stats.in_flight, report

        pid = fork(child)
        wait(pid)
        for thread in threads:
            thread.join()
        print(len(outcomes), set(map(str, outcomes)), len(events))
        """
    )
    assert result.err == ""
    assert result.out.splitlines()[0].startswith("child (0, 0, DrainReport(accepted=0")
    assert result.out.splitlines()[1:] == ["exit 0", "8 {'ACCEPTED'} 8"]
    assert len(service.users()) == 8
    assert service.duplicates() == {}


@pytest.mark.parametrize("file", ["spring.run", ""])
def test_a_child_that_ends_by_itself_does_not_disturb_the_parents_broadcast(service, tmp_path, file):
    service.set_faults([Fault.delay(0.3)])
    result = forked(
        """
        client = PushClient()
        reports = []
        run = sys.argv[1] or None

        def work():
            reports.append(client.broadcast([f"u{n}" for n in range(20_000)], HELLO, run=run))

        thread = threading.Thread(target=work)
        thread.start()
        until(lambda: client.stats().in_flight)
        pids = [fork(lambda: "ended") for _ in range(3)]
        for pid in pids:
            wait(pid)
        thread.join()
        print(reports[0].accepted, os.path.exists(reports[0].file))
        """,
        str(tmp_path / file) if file else "",
        measured=False,
    )
    assert result.err == ""
    assert sorted(result.out.splitlines()) == ["20000 True"] + ["child ended"] * 3 + ["exit 0"] * 3
    assert service.duplicates() == {}


def test_a_connection_that_the_parent_closes_is_closed_though_a_child_lives(service):
    result = forked(
        """
        client = PushClient()
        client.send("before", HELLO)
        links = {int(fd): os.path.realpath(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd")}
        fds = [fd for fd, link in links.items() if fd > 2 and ("socket:" in link or "eventpoll" in link)]

        def child():
            return sum(os.readlink(f"/proc/self/fd/{fd}") != "/dev/null" for fd in fds), *map(os.get_inheritable, fds)

        wait(fork(child))
        # The connection, the selector, and the two ends by which threads wake the loop: the child keeps one of them.
        print(len(fds), client.send("after", HELLO).users)
        """
    )
    assert result == (0, "child (1, False, False, False, False)\nexit 0\n4 1\n", "")


def test_a_client_closed_before_the_fork_is_closed_in_the_child(service):
    result = forked(
        """
        client = PushClient()
        client.send("u", HELLO)
        client.close()

        def child():
            try:
                client.send("v", HELLO)
            except PushError as error:
                return type(error).__name__

        wait(fork(child))
        """
    )
    assert result == (0, "child ClientClosedError\nexit 0\n", "")


def test_a_fork_while_another_thread_starts_the_client_does_not_hang(service):
    result = forked(
        """
        client = PushClient()
        start = threading.Thread.start
        held, go_on = threading.Event(), threading.Event()

        def start_slowly(thread):
            if thread.name == "pushsdk":
                held.set()
                go_on.wait()
            start(thread)

        def child():
            threading.Thread.start = start
            return client.send("child", HELLO).users

        threading.Thread.start = start_slowly
        sending = threading.Thread(target=client.send, args=("parent", HELLO))
        sending.start()
        held.wait()
        wait(fork(child))
        go_on.set()
        sending.join()
        """
    )
    assert result == (0, "child 1\nexit 0\n", "")


def test_a_fork_in_the_middle_of_a_call_ends_it_in_the_child_and_not_in_the_parent(service):
    service.set_faults([Fault.delay(1.0)])
    result = forked(
        """
        import signal
        pids = []
        signal.signal(signal.SIGUSR1, lambda *_: pids.append(os.fork()))
        client = PushClient()

        def interrupt():
            until(lambda: client.stats().in_flight)
            signal.pthread_kill(threading.main_thread().ident, signal.SIGUSR1)

        threading.Thread(target=interrupt).start()
        try:
            tell(f"parent {client.send('u', HELLO).outcome}")
            wait(pids[0])
        except PushError as error:
            tell(f"child {error.outcome} {'in the parent' in str(error)}")
        """
    )
    assert result.err == ""
    assert sorted(result.out.splitlines()) == ["child UNKNOWN True", "exit 0", "parent ACCEPTED"]
    assert service.users() == {"u": 1}


def test_a_child_of_multiprocessing_sends_by_the_client_of_its_module(service):
    result = forked(
        """
        import multiprocessing

        client = PushClient()
        client.send("before", HELLO)

        def work(number):
            return client.send(f"u{number}", HELLO).users

        with multiprocessing.get_context("fork").Pool(3) as pool:
            print(sum(pool.map(work, range(30))))
        """
    )
    assert result == (0, "30\n", "")
    assert service.duplicates() == {}
    assert len(service.users()) == 31


def test_a_fork_in_the_clients_own_thread_gives_the_child_a_client_too(service):
    result = forked(
        """
        pids = []

        def on_event(event):
            if not pids:
                pids.append(os.fork())
                if not pids[0]:
                    tell(f"child {client.send('child', HELLO).users}")
                    os._exit(0)

        client = PushClient(on_event=on_event)
        client.send("u", HELLO)
        wait(pids[0])
        """
    )
    assert result == (0, "child 1\nexit 0\n", "")
