"""Trouble with a run file: in use by another process, a bad path, a full disk, damaged bytes.

Each case raises a clear error, and no request is sent that is not in the file.
"""

import asyncio
import os
import sqlite3
from collections import Counter
from pathlib import Path

import pytest
from support.fake_service import FakeService, answer, client_of, reset_after, start
from support.kill_child import KEY, MESSAGE, names
from support.kill_judge import Plan, judge
from support.kill_service import CALM, ROUGH, KillService, name_of, number_of
from support.run_files import make_run
from support.virtual_time import virtual

from pushsdk import AsyncPushClient, Batching, Limits, Outcome, RunFileError, StopPolicy, read_report
from pushsdk._runs.run_file.journal import Journal

TEN = Batching(max_users=10)
NO_BRAKE = StopPolicy.off()
needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="the other processes are forked")


# -- another process --------------------------------------------------------------------------------------------------


@needs_fork
async def test_a_second_process_is_refused_and_may_read_while_the_first_sends(nursery, tmp_path):
    path, sending, accepted, users = tmp_path / "run", asyncio.Event(), [0], 10_000
    async with KillService(users, seed=1, faults=CALM, latency=0.02) as service:

        def seen(requests):
            if requests == 20:
                sending.set()
            if requests % 10 == 0:
                report = read_report(path)
                accepted.append(report.accepted)
                assert report.accepted + report.not_sent + report.unknown == report.planned == users

        service.when_seen = seen
        job = {"run": str(path), "users": users, "chunk": 50, "in_flight": 8, "base_url": service.base_url}
        first = await nursery.start({**job, "do": "broadcast"})
        await sending.wait()
        async with AsyncPushClient(service.base_url, "another-key", batching=Batching(max_users=50)) as client:
            for call in (
                lambda: client.resume(path, on_unknown="resend"),
                lambda: client.broadcast(names(users), MESSAGE, run=path),
            ):
                with pytest.raises(RunFileError, match="it is in use by another call or process: wait for it"):
                    await call()
        assert await first.end() == (0, {"accepted": users, "planned": users, "stopped": None})
        await service.quiet()
        judge(path, Plan(path), read_report(path), service.pushes, hold=True, every=True)
    assert len(accepted) > 15
    assert accepted == sorted(accepted)
    assert (service.keys, os.listdir(tmp_path)) == ({KEY}, ["run"])


# -- the path ---------------------------------------------------------------------------------------------------------


def link(path):
    path.with_name("elsewhere").write_bytes(b"precious")
    path.symlink_to("elsewhere")


def foreign(path, mode):
    with sqlite3.connect(path) as db:
        db.execute(f"PRAGMA journal_mode = {mode}")
        db.execute("CREATE TABLE theirs (id INTEGER)")
    db.close()


def truncated(path):
    make_run(path).close()
    path.write_bytes(path.read_bytes()[:-5000])


def tree(folder):
    """Return the content of a folder."""
    return {str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None for path in folder.rglob("*")}


LINK = "it is a symbolic link: pass the path of the file itself"
NO_FILE = "it is not a file: pass the path of a run file"
NO_RUN = "it is not a run file"
FOUND = {
    "a folder": (Path.mkdir, NO_FILE),
    "a pipe": (os.mkfifo, NO_FILE),
    "a link": (link, LINK),
    "a dangling link": (lambda path: path.symlink_to("nowhere"), LINK),
    "text": (lambda path: path.write_text("precious " * 1000), NO_RUN),
    "a few bytes": (lambda path: path.write_bytes(b"x"), NO_RUN),
    "zeros": (lambda path: path.write_bytes(bytes(10_000)), NO_RUN),
    "an SQLite file": (lambda path: foreign(path, "DELETE"), NO_RUN),
    "an SQLite file with a WAL": (lambda path: foreign(path, "WAL"), NO_RUN),
    "half a run": (truncated, "it is damaged, so its outcomes are lost"),
}


@pytest.mark.parametrize(("make", "words"), FOUND.values(), ids=FOUND)
@virtual
async def test_a_foreign_file_is_refused_and_unchanged(make, words, tmp_path):
    path, service = tmp_path / "run", FakeService()
    make(path)
    before = tree(tmp_path)
    async with client_of(service) as client:
        with pytest.raises(RunFileError, match=f"run: {words}") as excinfo:
            await client.broadcast(names(10), MESSAGE, run=path)
        with pytest.raises(RunFileError, match=f"run: {words}"):
            await client.resume(path)
        with pytest.raises(RunFileError, match=f"run: {words}"):
            read_report(path)
    assert (excinfo.value.path, excinfo.value.outcome) == (str(path), Outcome.NOT_SENT)
    assert (service.sent, tree(tmp_path)) == ([], before)


@pytest.mark.parametrize("name", ["missing/run", "file/run", ".", "nul\0", "x" * 300])
@virtual
async def test_a_path_that_can_not_be_a_file_is_refused(name, tmp_path):
    (tmp_path / "file").touch()
    service, path = FakeService(), f"{tmp_path}/{name}"
    words = "its folder can't be used: No such file or directory" if name == "missing/run" else None
    async with client_of(service) as client:
        with pytest.raises(RunFileError, match=words):
            await client.resume(path)
        with pytest.raises(RunFileError, match=words):
            await client.broadcast(names(10), MESSAGE, run=path)
    with pytest.raises(RunFileError):
        read_report(path)
    assert (service.sent, os.listdir(tmp_path)) == ([], ["file"])


@pytest.mark.parametrize("was_planned", [False, True])
@virtual
async def test_a_plan_that_failed_on_a_full_disk_leaves_no_file(was_planned, tmp_path):
    def source():
        yield from names(3_000)
        raise RunFileError("the disk is full")

    async with client_of(service := FakeService()) as client:
        if was_planned:
            await client.broadcast(names(10), MESSAGE, run=tmp_path / "run")
        with pytest.raises(RunFileError, match="the disk is full"):
            await client.broadcast(source(), MESSAGE, run=tmp_path / "run")
    assert (len(service.users()), os.listdir(tmp_path)) == (10 * was_planned, ["run"] * was_planned)


# -- writes that fail -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("number", "durable", "error"),
    [
        *((number, False, RunFileError("the run: the disk is full")) for number in (1, 2, 3, 4, 6, 12)),
        (3, True, RunFileError("the run: the disk is full")),
        (4, False, MemoryError()),
        (4, True, MemoryError()),
    ],
)
@virtual
async def test_no_request_starts_after_a_failed_write(number, durable, error, tmp_path, monkeypatch):
    path, users, service = tmp_path / "run", 200, FakeService(reset_after(), answer(429), answer(400))
    commit, calls, had = Journal.commit, 0, []

    def failing(journal, *parts, at_once=False):
        nonlocal calls
        calls += 1
        if calls >= number:
            had.append(len(service.written))
            raise error
        return commit(journal, *parts, at_once=at_once)

    async with client_of(service, batching=TEN, limits=Limits(in_flight=3)) as client:
        with monkeypatch.context() as patches:
            patches.setattr(Journal, "commit", failing)
            words = r"the disk is full|a commit failed \(MemoryError\), so nothing more was recorded"
            with pytest.raises(RunFileError, match=words):
                await client.broadcast(names(users), MESSAGE, run=path, stop_policy=NO_BRAKE, durable=durable)
        assert had == [len(service.written)], "a request started after the file had failed"
        plan, report = Plan(path), read_report(path)
        pushes = [service.accepted(name_of(user)) for user in range(users)]
        history = judge(path, plan, report, pushes, hold=True, every=True)
        counts = Counter(number_of(name) for request in service.written for name in request.users)
        assert all(counts[user] <= claims for user, claims in zip(plan.users, history.claims, strict=True))
        assert report.unknown <= 3 * 10 + 10, "what was on its way, and the lost answer"
        report = await client.resume(path, stop_policy=NO_BRAKE)
    pushes = [service.accepted(name_of(user)) for user in range(users)]
    judge(path, plan, report, pushes, hold=True, every=True)
    assert (report.not_sent, report.rejected) == (0, 0)


@needs_fork
@pytest.mark.parametrize("durable", [False, True])
async def test_a_full_disk_ends_the_run_and_a_resume_continues_it(durable, nursery, tmp_path):
    path, users, full = tmp_path / "run", 2_000, 0
    async with KillService(users, seed=3, faults=ROUGH, latency=0.002) as service:
        job = {"run": str(path), "users": users, "chunk": 10, "in_flight": 8, "base_url": service.base_url}
        end = await (await nursery.start({**job, "do": "broadcast", "file_size": 40_000})).end()
        assert end.told is not None
        assert (end.told["error"], end.told["outcome"], service.seen) == ("RunFileError", "NOT_SENT", 0)
        await (await nursery.start({**job, "do": "broadcast", "limit": 10})).end()
        plan, report = Plan(path), read_report(path)
        while report.not_sent and full < 40:
            size = path.stat().st_size + 8192 * (1 + full)
            end = await (await nursery.start({**job, "do": "resume", "file_size": size, "durable": durable})).end()
            await service.quiet()
            report = read_report(path)
            judge(path, plan, report, service.pushes, hold=True, every=True)
            assert end.status == 0
            assert end.told is not None
            if "error" in end.told:
                assert (end.told["error"], end.told["outcome"]) == ("RunFileError", "UNKNOWN")
                assert "the disk" in end.told["told"]
                full += 1
    assert 1 <= full < 40
    assert report.unknown <= full * 8 * 10 + service.unknown


@virtual
async def test_a_run_cancelled_while_claiming_leaves_no_unknown_users(tmp_path, monkeypatch):
    service, running = FakeService(), []
    commit = Journal.commit

    def cancelling(journal, *parts, at_once=False):
        running[0].cancel()
        return commit(journal, *parts, at_once=at_once)

    monkeypatch.setattr(Journal, "commit", cancelling)
    async with client_of(service, batching=TEN) as client:
        running.append(start(client.broadcast(names(30), MESSAGE, run=tmp_path / "run")))
        await asyncio.wait(running)
    report = read_report(tmp_path / "run")
    assert (service.written, report.unknown, report.not_sent) == ([], 0, 30)
