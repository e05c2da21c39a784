"""Trouble with a run file: in use by another process, a bad path, a full disk, damaged bytes.

Each case raises a clear error, and no request is sent that is not in the file.
"""

import asyncio
import os
import sqlite3
from collections import Counter
from pathlib import Path

import pytest
from support.fake_service import FakeService, answer, client_of, reset_after
from support.kill_child import MESSAGE, names
from support.kill_judge import Plan, judge
from support.kill_service import name_of, number_of
from support.run_files import make_run
from support.virtual_time import virtual

from pushsdk import Batching, Limits, Outcome, RunFileError, StopPolicy, read_report
from pushsdk._runs.run_file.journal import Journal

TEN = Batching(max_users=10)
NO_BRAKE = StopPolicy.off()


# -- the path ---------------------------------------------------------------------------------------------------------


def link(path):
    path.with_name("elsewhere").write_bytes(b"precious")
    path.symlink_to("elsewhere")


def foreign(path):
    with sqlite3.connect(path) as db:
        db.execute("PRAGMA journal_mode = WAL")
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
FOUND = [
    (Path.mkdir, NO_FILE),
    (os.mkfifo, NO_FILE),
    (link, LINK),
    (lambda path: path.write_text("precious " * 1000), NO_RUN),
    (foreign, NO_RUN),
    (truncated, "it is damaged, so its outcomes are lost"),
]


@pytest.mark.parametrize(("make", "words"), FOUND)
@virtual
async def test_a_foreign_file_is_refused_and_unchanged(make, words, tmp_path):
    path = tmp_path / "run"
    service = FakeService()
    make(path)
    before = tree(tmp_path)
    async with client_of(service) as client:
        with pytest.raises(RunFileError, match=f"run: {words}") as excinfo:
            await client.broadcast(names(10), MESSAGE, run=path)
        with pytest.raises(RunFileError, match=f"run: {words}"):
            await client.resume(path)
        with pytest.raises(RunFileError, match=f"run: {words}"):
            read_report(path)
    assert excinfo.value.path == str(path)
    assert excinfo.value.outcome == Outcome.NOT_SENT
    assert service.sent == []
    assert tree(tmp_path) == before


@pytest.mark.parametrize("name", ["missing/run", "file/run", ".", "nul\0", "x" * 300])
@virtual
async def test_a_path_that_can_not_be_a_file_is_refused(name, tmp_path):
    (tmp_path / "file").touch()
    service = FakeService()
    path = f"{tmp_path}/{name}"
    words = "its folder can't be used: No such file or directory" if name == "missing/run" else None
    async with client_of(service) as client:
        with pytest.raises(RunFileError, match=words):
            await client.resume(path)
        with pytest.raises(RunFileError, match=words):
            await client.broadcast(names(10), MESSAGE, run=path)
    with pytest.raises(RunFileError):
        read_report(path)
    assert service.sent == []
    assert os.listdir(tmp_path) == ["file"]


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
    assert len(service.users()) == 10 * was_planned
    assert os.listdir(tmp_path) == ["run"] * was_planned


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
    path = tmp_path / "run"
    users = 200
    service = FakeService(reset_after(), answer(429), answer(400))
    commit = Journal.commit
    calls = 0
    had = []

    def failing(journal, *parts, at_once=False):
        nonlocal calls
        calls += journal.sealed
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
        plan = Plan(path)
        report = read_report(path)
        pushes = [service.accepted(name_of(user)) for user in range(users)]
        history = judge(path, plan, report, pushes, hold=True, every=True)
        counts = Counter(number_of(name) for request in service.written for name in request.users)
        assert all(counts[user] <= claims for user, claims in zip(plan.users, history.claims, strict=True))
        assert report.unknown <= 3 * 10 + 10, "what was on its way, and the lost answer"
        report = await client.resume(path, stop_policy=NO_BRAKE)
    pushes = [service.accepted(name_of(user)) for user in range(users)]
    judge(path, plan, report, pushes, hold=True, every=True)
    assert report.not_sent == 0
    assert report.rejected == 0


@virtual
async def test_a_run_cancelled_while_claiming_leaves_no_unknown_users(tmp_path, monkeypatch):
    service = FakeService()
    running = []
    commit = Journal.commit

    def cancelling(journal, *parts, at_once=False):
        running[0].cancel()
        return commit(journal, *parts, at_once=at_once)

    monkeypatch.setattr(Journal, "commit", cancelling)
    async with client_of(service, batching=TEN) as client:
        running.append(asyncio.ensure_future(client.broadcast(names(30), MESSAGE, run=tmp_path / "run")))
        await asyncio.wait(running)
    report = read_report(tmp_path / "run")
    assert (service.written, report.unknown, report.not_sent) == ([], 0, 30)
