"""Edge cases of runs: cancellation during work in threads, concurrent sends, slow sources, extreme waits."""

import asyncio
import threading
from contextlib import closing

import pytest
from support.fake_service import MESSAGE, FakeService, client_of, outcome_of, start
from support.run_files import BROADCAST, CLAIMED, chunk, event, make_run, record
from support.virtual_time import turns, virtual

from pushsdk import Batching, Limits, Outcome, RunFileError, read_report
from pushsdk._io import files
from pushsdk._runs import api as runs
from pushsdk._runs import planner as planning
from pushsdk._runs.run_file import file as runfile
from pushsdk._runs.run_file.file import ask_to_stop
from pushsdk._runs.run_file.journal import Journal

SMALL = Batching(max_users=4)
ONE = Limits(in_flight=1)


def users(count):
    return [f"a-user-with-a-long-name-{number}" for number in range(count)]


class ThreadedService(FakeService):
    """A service whose client does its blocking work in threads."""

    def serve(self, client):
        client._lifetime.serve(self)
        return client


# -- cancelled --------------------------------------------------------------------------------------------------------


def test_a_closed_loop_ends_a_run_and_keeps_its_outcomes(tmp_path, monkeypatch):
    commit = Journal.commit
    go = threading.Event()
    path = tmp_path / "run"

    async def main():
        loop = asyncio.get_running_loop()
        opening = asyncio.Event()

        def slowly(journal, *parts, at_once=False):
            if journal.sealed and not at_once:
                loop.call_soon_threadsafe(opening.set)
                assert go.wait(10)
            return commit(journal, *parts, at_once=at_once)

        monkeypatch.setattr(Journal, "commit", slowly)
        client = client_of(ThreadedService(), batching=SMALL)
        start(client.broadcast(users(8), MESSAGE, run=path, durable=True))
        await opening.wait()
        # During the commit of its claims: asyncio.run cancels all tasks and waits for them.
        loop.call_later(0.02, go.set)

    with pytest.warns(ResourceWarning, match="unclosed AsyncPushClient"):
        asyncio.run(main())
    report = read_report(path)
    assert report.planned == 8
    assert report.not_sent == 8
    assert not report.in_use
    assert {row.reason for row in report.rows()} == {"the call was cancelled"}


async def test_a_run_cancelled_while_opening_its_file_closes_it(tmp_path, monkeypatch):
    loop, opening, make = asyncio.get_running_loop(), asyncio.Event(), Journal.open_or_create
    go = threading.Event()

    def slowly(*header, **options):
        loop.call_soon_threadsafe(opening.set)
        assert go.wait(10)
        return make(*header, **options)

    monkeypatch.setattr(Journal, "open_or_create", slowly)
    async with client_of(ThreadedService()) as client:
        running = start(client.broadcast(users(2), MESSAGE, run=tmp_path / "run"))
        await opening.wait()
        for _ in range(2):
            running.cancel()
            await turns(3)
            assert not running.done(), "it waits for the thread"
        go.set()
        await asyncio.wait([running])
        assert running.cancelled()
        assert (await client.broadcast(users(2), MESSAGE, run=tmp_path / "run")).accepted == 2


# -- sources ----------------------------------------------------------------------------------------------------------


@virtual
async def test_a_source_that_never_waits_leaves_the_loop_its_turns():
    async def ids():
        for user in users(2 * planning.BLOCK):
            given.append(user)
            yield user

    given = []
    async with client_of(FakeService()) as client:
        running = start(client.broadcast(ids(), MESSAGE))
        while not given:
            await turns(1)
        assert len(given) <= planning.BLOCK
        await running


@virtual
async def test_closing_the_client_ends_the_planning_and_stays_the_reason(monkeypatch):
    async def ids():
        for user in users(9):
            await asyncio.sleep(10.0)
            yield user

    monkeypatch.setattr(planning, "BLOCK_SECONDS", 0.0)
    stop = asyncio.Event()
    slow = ids()
    client = client_of(FakeService())
    running = start(client.broadcast(slow, MESSAGE, stop=stop))
    await asyncio.sleep(25.0)
    await client.aclose()
    stop.set()
    report = await outcome_of(running)
    assert report.stopped_by == "closed"
    assert slow.ag_frame is None  # closed
    assert report.stopped == "the client was closed before all its users were read: nothing was sent"


@virtual
async def test_a_stop_mark_ends_the_run_that_is_sent_and_no_later_one(tmp_path, monkeypatch):
    def refused(why):
        with pytest.raises(RunFileError, match=why):
            ask_to_stop(path, "bob")

    path = tmp_path / "run"
    service = FakeService()
    make_run(path).close()
    with monkeypatch.context() as patch:
        patch.setattr(runfile, "lock", lambda _: pytest.fail("a run that begins now would be refused"))
        refused("no process is sending it")
        patch.setattr("os.access", lambda *_: False)
        (tmp_path / "run-lock").touch()
        refused("its lock can't be read")
    path.unlink()
    async with client_of(service, batching=Batching(max_users=1), limits=ONE) as client:
        running = start(client.broadcast(users(64), MESSAGE, run=path))
        while not service.requests:
            await turns(1)
        ask_to_stop(path, "bob")
        report = await running
        assert report.stopped == "bob stopped it"
        assert report.stopped_by == "asked"
        assert report.accepted == len(service.sent)
        assert report.unknown == 0
        assert len(service.sent) < 64
        assert (await client.resume(path)).accepted == len(service.sent) == 64


@pytest.mark.parametrize("planned", [False, True])
async def test_a_stop_mark_ends_the_planning_and_nothing_is_sent(tmp_path, planned):
    def ids():
        yield from users(2)
        ask_to_stop(path, "bob")
        yield from users(1000)
        pytest.fail("it was planned on")

    path = tmp_path / "run"
    service = FakeService()
    async with client_of(service) as client:
        if planned:
            await client.broadcast(users(2), MESSAGE, run=path)
        report = await client.broadcast(ids(), MESSAGE, run=path)
    assert report.stopped == "bob stopped it before all its users were read: nothing was sent"
    assert report.stopped_by == "asked"
    assert len(service.requests) == planned


def test_a_stop_mark_of_a_killed_process_or_another_user_stops_nothing(tmp_path):
    mark = tmp_path / "run-stop"
    mark.write_text("bob")
    with closing(make_run(tmp_path / "run")) as journal:
        assert journal.stop_asked() is None
        mark.write_bytes(b"")  # on a full disk
        assert journal.stop_asked().reason == "somebody stopped it"
        mark.chmod(0o622)
        assert journal.stop_asked() is None
        ask_to_stop(tmp_path / "run", "bob")
        assert journal.stop_asked().reason == "bob stopped it"
    assert not mark.exists()


# -- the file ---------------------------------------------------------------------------------------------------------


@virtual
async def test_without_a_temporary_folder_the_error_names_the_fix(monkeypatch):
    def none(prefix):
        raise FileNotFoundError(2, "No usable temporary directory")

    monkeypatch.setattr(runs.tempfile, "mkdtemp", none)
    async with client_of(FakeService()) as client:
        with pytest.raises(RunFileError, match="set TMPDIR, or pass run="):
            await client.broadcast(users(4), MESSAGE)


@virtual
async def test_the_path_of_a_run_does_not_follow_the_working_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    async with client_of(FakeService()) as client:
        running = start(client.broadcast(users(4), MESSAGE, run="spring.run"))
        await turns(1)
        monkeypatch.chdir("/")
        assert (await running).run == str(tmp_path / "spring.run")


@pytest.mark.parametrize("run", ["run", None])
@virtual
async def test_a_plan_that_becomes_unreadable_ends_the_run_without_unknown_users(run, tmp_path, monkeypatch):
    load = Journal.load

    def fail(journal, number, **options):
        if number == 4:
            raise RunFileError("the run: it is damaged")
        return load(journal, number, **options)

    monkeypatch.setattr(Journal, "load", fail)
    monkeypatch.setattr(runs.tempfile, "tempdir", str(tmp_path))
    async with client_of(FakeService(), batching=SMALL, limits=Limits(in_flight=4)) as client:
        with pytest.raises(RunFileError, match="damaged") as excinfo:
            await client.broadcast(users(64), MESSAGE, run=run and tmp_path / run)
    assert excinfo.value.outcome == Outcome.UNKNOWN
    (path,) = tmp_path.rglob("run")
    report = read_report(path)
    assert report.accepted == 16
    assert report.unknown == 0
    assert report.not_sent == 48


def test_a_reader_learns_what_another_process_does_with_the_run(tmp_path):
    path = tmp_path / "run"
    journal = Journal.open_or_create(path, BROADCAST)
    with pytest.raises(RunFileError, match="another process is still planning it: read it again"):
        read_report(path)
    journal.close()
    with pytest.raises(RunFileError, match="incomplete"):
        read_report(path)
    journal = Journal.open_or_create(path, BROADCAST)
    journal.add([chunk("a")])
    journal.seal(duplicates=0)
    record(journal, [event(CLAIMED, 0, 1)])
    assert read_report(path).in_use
    assert read_report(path).reasons == {"in flight": 1}
    journal.close()
    (tmp_path / "run-lock").write_bytes(b"")  # left by somebody who was killed
    report = read_report(path)
    assert not report.in_use
    assert report.reasons == {"in flight when its process ended: the push may have been enqueued": 1}


def test_without_flock_no_lock_is_seen_unless_it_is_wanted(tmp_path, monkeypatch):
    for module in (files, runfile):
        monkeypatch.setattr(module, "HAVE_FLOCK", False)
    journal = Journal.open_or_create(tmp_path / "run", BROADCAST)
    journal.seal(duplicates=0)
    assert not read_report(tmp_path / "run").in_use
    ask_to_stop(tmp_path / "run", "bob")
    assert journal.stop_asked().reason == "bob stopped it"
    journal.close()
