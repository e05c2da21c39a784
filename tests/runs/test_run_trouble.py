"""Trouble with a run file: in use by another process, a bad path, a full disk, damaged bytes.

Each case raises a clear error, and no request is sent that is not in the file.
"""

import asyncio
import itertools
import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.fake_service import FakeService, answer, client_of, reset_after, start
from support.kill_child import KEY, MESSAGE, names
from support.kill_judge import Plan, judge
from support.kill_nursery import Nursery
from support.kill_service import CALM, ROUGH, KillService, name_of, number_of
from support.virtual_time import turns, virtual

from pushsdk import (
    AsyncPushClient,
    Batching,
    Limits,
    Outcome,
    Progress,
    RunFileError,
    StopPolicy,
    read_report,
)
from pushsdk._runs.run_file.journal import Journal

TEN = Batching(max_users=10)
NO_BRAKE = StopPolicy.off()
needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="the other processes are forked")


def pushes(service: FakeService, users: int) -> list[int]:
    """Return the pushes that the service received, by user number."""
    return [service.accepted(name_of(user)) for user in range(users)]


# -- another process ------------------------------------------------------------------------------------------------


@needs_fork
async def test_a_second_process_is_refused_and_the_first_is_not_disturbed(nursery: Nursery, tmp_path: Path) -> None:
    path, sending = tmp_path / "run", asyncio.Event()
    async with KillService(20_000, seed=1, faults=CALM, latency=0.02) as service:
        service.when_seen = lambda requests: sending.set() if requests == 20 else None
        job = {"run": str(path), "users": 20_000, "chunk": 50, "in_flight": 8, "base_url": service.base_url}
        first = await nursery.start({**job, "do": "broadcast"})
        await sending.wait()
        async with AsyncPushClient(service.base_url, "another-key", batching=Batching(max_users=50)) as client:
            for call in (
                lambda: client.resume(path),
                lambda: client.resume(path, on_unknown="resend"),
                lambda: client.broadcast(names(20_000), MESSAGE, run=path),
            ):
                with pytest.raises(RunFileError, match="it is in use by another call or process: wait for it"):
                    await call()
        report = read_report(path)
        assert 0 < report.accepted < 20_000
        assert Counter(row.outcome for row in report.rows())[Outcome.ACCEPTED] >= report.accepted
        end = await first.end()
        assert end == (0, {"accepted": 20_000, "planned": 20_000, "stopped": None})
        await service.quiet()
        judge(path, Plan(path), read_report(path), service.pushes, hold=True, every=True)
    assert service.keys == {KEY}
    assert os.listdir(tmp_path) == ["run"]


@needs_fork
async def test_reports_can_be_read_while_another_process_sends(nursery: Nursery, tmp_path: Path) -> None:
    path, accepted = tmp_path / "run", [0]
    async with KillService(20_000, seed=2, faults=CALM, latency=0.01) as service:
        job = {"run": str(path), "users": 20_000, "chunk": 50, "in_flight": 8, "base_url": service.base_url}
        first = await nursery.start({**job, "do": "broadcast"})

        def read(requests: int) -> None:
            report = read_report(path)
            accepted.append(report.accepted)
            assert report.accepted + report.not_sent + report.unknown == report.planned == 20_000

        service.when_seen = lambda requests: read(requests) if requests % 10 == 0 else None
        end = await first.end()
        assert end == (0, {"accepted": 20_000, "planned": 20_000, "stopped": None})
    assert len(accepted) > 30
    assert accepted == sorted(accepted)


@virtual
async def test_two_runs_on_one_file_in_one_process_are_refused_too(tmp_path: Path) -> None:
    service = FakeService()
    async with client_of(service, batching=TEN, limits=Limits(in_flight=1)) as client:
        first = start(client.broadcast(names(100), MESSAGE, run=tmp_path / "run"))
        while not service.sent:
            await turns(1)
        with pytest.raises(RunFileError, match="in use"):
            await client.broadcast(names(100), MESSAGE, run=tmp_path / "run")
        report = await first
    assert report.accepted == 100
    assert set(service.users().values()) == {1}


# -- the path -------------------------------------------------------------------------------------------------------


def a_folder(path: Path) -> None:
    path.mkdir()


def a_link(path: Path) -> None:
    path.with_name("elsewhere").write_bytes(b"precious")
    path.symlink_to("elsewhere")


def a_dangling_link(path: Path) -> None:
    path.symlink_to("nowhere")


def a_text(path: Path) -> None:
    path.write_text("precious " * 1000)


def a_pipe(path: Path) -> None:
    os.mkfifo(path)


def tree(folder: Path) -> dict[str, bytes | None]:
    """Return the content of a folder."""
    return {str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None for path in folder.rglob("*")}


LINK, NO_FILE = (
    "it is a symbolic link: pass the path of the file itself",
    "it is not a file: pass the path of a run file",
)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (a_folder, NO_FILE),
        (a_pipe, NO_FILE),
        (a_link, LINK),
        (a_dangling_link, LINK),
        (a_text, "it is not a run file"),
    ],
)
@virtual
async def test_a_foreign_file_is_refused_and_unchanged(
    make: Callable[[Path], None], words: str, tmp_path: Path
) -> None:
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


@pytest.mark.parametrize("name", ["missing/run", "file/run", "", ".", "..", "nul\0", "x" * 300])
@virtual
async def test_a_path_that_can_not_be_a_file_is_refused(name: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    service = FakeService()
    words = "its folder can't be used: No such file or directory" if name == "missing/run" else None
    async with client_of(service) as client:
        with pytest.raises(RunFileError, match=words):
            await client.resume(f"{tmp_path}/{name}")
        with pytest.raises(RunFileError, match=words):
            await client.broadcast(names(10), MESSAGE, run=f"{tmp_path}/{name}")
        with pytest.raises(RunFileError):
            read_report(f"{tmp_path}/{name}")
    assert service.sent == []
    assert os.listdir(tmp_path) == ["file"]


# -- writes that fail -----------------------------------------------------------------------------------------------


class FailingCommit:
    """A ``Journal.commit`` that fails from the n-th call on, and records the requests received before."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, service: FakeService, number: int) -> None:
        self.service, self.number, self.calls, self.had = service, number, 0, -1
        self._commit = Journal.commit
        monkeypatch.setattr(Journal, "commit", lambda journal, *parts, **way: self.commit(journal, *parts, **way))

    def commit(self, journal: Journal, *parts: Any, at_once: bool = False) -> bool:
        self.calls += 1
        if self.calls >= self.number:
            if self.had < 0:
                self.had = len(self.service.written)
            raise RunFileError("the run: the disk is full")
        return self._commit(journal, *parts, at_once=at_once)


@pytest.mark.parametrize("durable", [False, True])
@pytest.mark.parametrize("number", [1, 2, 3, 4, 5, 6, 7, 9, 12])
@virtual
async def test_no_request_starts_after_a_failed_write(
    number: int, durable: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, users, service = tmp_path / "run", 200, FakeService(reset_after(), answer(429), answer(400))
    async with client_of(service, batching=TEN, limits=Limits(in_flight=3)) as client:
        with monkeypatch.context() as patches:
            failing = FailingCommit(patches, service, number)
            with pytest.raises(RunFileError, match="the disk is full"):
                await client.broadcast(names(users), MESSAGE, run=path, stop_policy=NO_BRAKE, durable=durable)
        assert failing.had == len(service.written), "a request started after the file had failed"
        plan, report = Plan(path), read_report(path)
        history = judge(path, plan, report, pushes(service, users), hold=True, every=True)
        counts = Counter(number_of(name) for request in service.written for name in request.users)
        assert all(counts[user] <= claims for user, claims in zip(plan.users, history.claims, strict=True))
        assert report.unknown <= 3 * 10 + 10, "what was on its way, and the lost answer"
        report = await client.resume(path, stop_policy=NO_BRAKE)
    judge(path, plan, report, pushes(service, users), hold=True, every=True)
    assert (report.not_sent, report.rejected) == (0, 0)


@needs_fork
@pytest.mark.parametrize("durable", [False, True])
async def test_a_full_disk_ends_the_run_and_a_resume_continues_it(
    durable: bool, nursery: Nursery, tmp_path: Path
) -> None:
    path, full = tmp_path / "run", 0
    async with KillService(6_000, seed=3, faults=ROUGH, latency=0.002) as service:
        job = {"run": str(path), "users": 6_000, "chunk": 10, "in_flight": 8, "base_url": service.base_url}
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


@needs_fork
async def test_a_disk_that_is_full_during_planning_sends_nothing(nursery: Nursery, tmp_path: Path) -> None:
    path = tmp_path / "run"
    async with KillService(3_000, seed=4, faults=CALM) as service:
        job = {"run": str(path), "users": 3_000, "chunk": 50, "in_flight": 8, "base_url": service.base_url}
        end = await (await nursery.start({**job, "do": "broadcast", "file_size": 40_000})).end()
        assert end.told is not None
        assert (end.told["error"], end.told["outcome"], service.seen) == ("RunFileError", "NOT_SENT", 0)
        end = await (await nursery.start({**job, "do": "broadcast"})).end()
        assert end.told is not None
        assert end.told["accepted"] == 3_000


@virtual
async def test_a_run_cancelled_while_claiming_leaves_no_unknown_users(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    service, running = FakeService(), list[asyncio.Task[Any]]()
    commit = Journal.commit

    def cancelling(journal: Journal, *parts: Any, at_once: bool = False) -> bool:
        running[0].cancel()
        return commit(journal, *parts, at_once=at_once)

    monkeypatch.setattr(Journal, "commit", cancelling)
    async with client_of(service, batching=TEN) as client:
        running.append(start(client.broadcast(names(30), MESSAGE, run=tmp_path / "run")))
        await asyncio.wait(running)
    report = read_report(tmp_path / "run")
    assert (service.written, report.unknown, report.not_sent) == ([], 0, 30)


@pytest.mark.parametrize("durable", [False, True])
@virtual
async def test_a_commit_that_fails_unexpectedly_ends_the_run_too(
    durable: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit, calls = Journal.commit, itertools.count(1)

    def fail(journal: Journal, *parts: Any, at_once: bool = False) -> bool:
        if next(calls) == 4:
            raise MemoryError
        return commit(journal, *parts, at_once=at_once)

    monkeypatch.setattr(Journal, "commit", fail)
    service = FakeService()
    async with client_of(service, batching=TEN, limits=Limits(in_flight=2)) as client:
        running = start(client.broadcast(names(100), MESSAGE, run=tmp_path / "run", durable=durable))
        done, _ = await asyncio.wait([running], timeout=60.0)
        running.cancel()
        await asyncio.wait([running])
    assert done
    with pytest.raises(RunFileError, match=r"a commit failed \(MemoryError\), so nothing more was recorded"):
        await running


@virtual
async def test_no_user_is_claimed_after_a_split_that_was_given_up() -> None:
    readings: list[Progress] = []
    async with client_of(FakeService(then=answer(400)), batching=TEN) as client:
        report = await client.broadcast(names(100), MESSAGE, stop_policy=NO_BRAKE, on_progress=readings.append)
    assert (report.rejected, readings[-1].rejected) == (100, 100)
    assert min(reading.in_flight for reading in readings) >= 0
    assert (readings[-1].in_flight, readings[-1].unknown) == (0, 0)
