"""Edge cases of runs: cancellation while opening, concurrent sends, slow sources, extreme waits."""

from __future__ import annotations

import asyncio
import functools
import gc
import itertools
import os
import sqlite3
import tempfile
import threading
import tracemalloc
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from support.fake_service import (
    MESSAGE,
    FakeService,
    answer,
    client_of,
    hang,
    outcome_of,
    refused,
    reset_after,
    reset_before,
    start,
)
from support.run_files import BROADCAST, CLAIMED, chunk, event, record
from support.virtual_time import turns, virtual

from pushsdk import (
    AsyncPushClient,
    Batching,
    Limits,
    Outcome,
    Progress,
    PushRequest,
    Rate,
    Receipt,
    RunFileError,
    StopPolicy,
    Timeout,
    read_report,
)
from pushsdk._core import wire
from pushsdk._io.files import is_locked
from pushsdk._io.forks import ProcessGuard
from pushsdk._io.threads import in_thread
from pushsdk._runs import api as runs
from pushsdk._runs import planner as planning
from pushsdk._runs.run_file.file import RunFilePath
from pushsdk._runs.run_file.journal import Journal
from pushsdk._runs.sender import ChunkSender

SMALL = Batching(max_users=4)
ONE = Limits(in_flight=1)


def users(count: int) -> list[str]:
    return [f"a-user-with-a-long-name-{number}" for number in range(count)]


class Later:
    """Blocking work that runs when the test asks for it, even if its caller is cancelled."""

    def __init__(self) -> None:
        self.go = asyncio.Event()
        self.started = asyncio.Event()

    async def __call__(self, work: Callable[[], Any]) -> Any:
        self.started.set()
        await self.go.wait()
        return work()


@pytest.mark.parametrize("durable", [False, True])
@virtual
async def test_a_cancellation_outranks_an_error_of_the_file(durable: bool, tmp_path: Path) -> None:
    service = FakeService(then=hang(accepted=True))
    async with client_of(service) as client:
        running = start(client.broadcast(users(4), MESSAGE, run=tmp_path / "run", durable=durable))
        while not service.users():
            await turns(1)

        def broken(events: Any, *, at_once: bool = False) -> bool:
            raise RunFileError("the disk is full")

        for run in client._lifetime.engine.runs:
            run._journal.commit = broken
        running.cancel()
        await asyncio.wait([running])
        assert running.cancelled()


@virtual
async def test_a_run_cancelled_twice_waits_for_the_commit(tmp_path: Path) -> None:
    service = FakeService(then=hang(accepted=True))
    async with client_of(service) as client:
        running = start(client.broadcast(users(4), MESSAGE, run=tmp_path / "run", durable=True))
        while not service.users():
            await turns(1)
        later = Later()
        for run in client._lifetime.engine.runs:
            run._log._offload = later
        running.cancel()
        await later.started.wait()
        await turns(3)
        running.cancel()
        await turns(3)
        assert not running.done(), "the file must not be closed under the thread"
        later.go.set()
        await asyncio.wait([running])
        assert running.cancelled()
    assert [row.reason for row in read_report(tmp_path / "run").rows()] == ["the call was cancelled"] * 4


def test_a_closed_loop_ends_a_run_and_keeps_its_outcomes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commit, go = Journal.commit, threading.Event()

    async def main() -> AsyncPushClient:
        loop, opening = asyncio.get_running_loop(), asyncio.Event()

        def slowly(journal: Journal, *parts: Any, at_once: bool = False) -> bool:
            loop.call_soon_threadsafe(opening.set)
            assert go.wait(10)
            return commit(journal, *parts, at_once=at_once)

        monkeypatch.setattr(Journal, "commit", slowly)
        client = client_of(FakeService(), batching=SMALL)
        client._lifetime.engine.offload = in_thread
        start(client.broadcast(users(8), MESSAGE, run=tmp_path / "run", durable=True))
        await opening.wait()
        # During the commit of its claims: asyncio.run cancels all tasks and waits for them.
        loop.call_later(0.02, go.set)
        return client

    client = asyncio.run(main())
    # Without its loop the client can't be closed. This keeps it from warning about that.
    client._lifetime.home = None
    report = read_report(tmp_path / "run")
    assert (report.planned, report.not_sent, report.in_use) == (8, 8, False)
    assert {row.reason for row in report.rows()} == {"the call was cancelled"}


@pytest.mark.parametrize("exists", [False, True])
@virtual
async def test_a_run_cancelled_while_opening_its_file_closes_it(exists: bool, tmp_path: Path) -> None:
    async with client_of(FakeService()) as client:
        if exists:
            await client.broadcast(users(2), MESSAGE, run=tmp_path / "run")
        at_once, client._lifetime.engine.offload = client._lifetime.engine.offload, (later := Later())
        running = start(client.broadcast(users(2), MESSAGE, run=tmp_path / "run"))
        await later.started.wait()
        running.cancel()
        await turns(3)
        running.cancel()
        await turns(3)
        assert not running.done(), "it waits for the thread"
        later.go.set()
        await asyncio.wait([running])
        assert running.cancelled()
        client._lifetime.engine.offload = at_once
        assert (await client.broadcast(users(2), MESSAGE, run=tmp_path / "run")).accepted == 2


@virtual
async def test_a_thread_that_fails_after_a_cancellation_logs_nothing(tmp_path: Path) -> None:
    async with client_of(FakeService()) as client:
        client._lifetime.engine.offload = later = Later()
        running = start(client.resume(tmp_path / "nothing"))
        await later.started.wait()
        running.cancel()
        await turns(3)
        later.go.set()
        await asyncio.wait([running])
        assert running.cancelled()


@virtual
async def test_sends_get_slots_beside_a_busy_run() -> None:
    service = FakeService()
    async with client_of(service, batching=SMALL, rate=Rate(requests_per_second=2)) as client:
        running = start(client.broadcast(users(400), MESSAGE))
        await asyncio.sleep(1.0)
        sends = [
            start(client.send(f"lone-{number}", {"title": {"en": f"{number}"}}, timeout=20.0)) for number in range(5)
        ]
        assert [type(await outcome_of(call)) for call in sends] == [Receipt] * 5
        running.cancel()
        await asyncio.wait([running])


@virtual
async def test_slots_released_together_are_all_used() -> None:
    service = FakeService(then=lambda request: answer(after=1.0))
    loop = asyncio.get_running_loop()
    async with client_of(service, batching=SMALL, limits=Limits(in_flight=2)) as client:
        lone = [start(client.send(f"lone-{number}", {"title": {"en": f"{number}"}})) for number in range(2)]
        await asyncio.sleep(0.5)
        started = loop.time()
        report = await client.broadcast(users(8), MESSAGE)
        assert loop.time() - started == pytest.approx(1.5, abs=0.05)
        assert [type(await outcome_of(call)) for call in lone] == [Receipt] * 2
    assert (report.accepted, service.most_in_flight) == (8, 2)


@virtual
async def test_a_stop_after_a_split_sends_none_of_the_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    send_part = ChunkSender._send_part

    async def stopped(sender: ChunkSender, splitter: Any, part: Any) -> bool:
        sender.stopping.stop("asked", "the caller asked for a stop")
        return await send_part(sender, splitter, part)

    monkeypatch.setattr(ChunkSender, "_send_part", stopped)
    service = FakeService(then=answer(400))
    async with client_of(service) as client:
        report = await client.broadcast(users(8), MESSAGE)
    assert (report.not_sent, len(service.sent)) == (8, 1)


@virtual
async def test_a_cancellation_after_a_rejection_rejects_no_untried_user(tmp_path: Path) -> None:
    async def slowly(request: Any) -> None:
        request.write()
        request.respond(400)
        await asyncio.get_running_loop().create_future()

    service = FakeService(then=slowly)
    async with client_of(service) as client:
        running = start(client.broadcast(users(4), MESSAGE, run=tmp_path / "run"))
        while not service.requests:
            await turns(1)
        running.cancel()
        await asyncio.wait([running])
    report = read_report(tmp_path / "run")
    assert (report.not_sent, report.rejected) == (4, 0)


@virtual
async def test_a_message_that_was_accepted_is_not_to_blame_for_stale_ids() -> None:
    stale = {*users(400)[100:200]} | {users(400)[300]}
    service = FakeService(then=lambda request: answer(400 if stale & {*request.users} else 204))
    async with client_of(service, batching=Batching(max_users=100), limits=ONE) as client:
        report = await client.broadcast(users(400), MESSAGE, stop_policy=StopPolicy.off())
    assert {row.user_id for row in report.rows(Outcome.REJECTED)} == stale
    assert (report.accepted, report.not_sent) == (299, 0)


@virtual
async def test_a_limit_rejects_no_untried_user(tmp_path: Path) -> None:
    stale = {users(400)[number * 99 // 7] for number in range(8)}
    service = FakeService(then=lambda request: answer(400 if stale & {*request.users} else 204))
    async with client_of(service, batching=Batching(max_users=100), limits=ONE) as client:
        run = tmp_path / "run"
        first = await client.broadcast(users(400), MESSAGE, run=run, limit=100, stop_policy=StopPolicy.off())
        assert (first.rejected, first.not_sent, first.stopped_by) == (8, 392, "limit")
        report = await client.broadcast(users(400), MESSAGE, run=run, stop_policy=StopPolicy.off())
    assert (report.accepted, report.rejected) == (392, 8)


@pytest.mark.parametrize(
    ("timeout", "seconds"), [(Timeout(total=5.0, attempt=None), 5.0), (2.0, 2.0), (Timeout(attempt=3.0), 3.0)]
)
@virtual
async def test_an_attempt_is_limited_by_the_total_timeout(timeout: Any, seconds: float) -> None:
    loop = asyncio.get_running_loop()
    async with client_of(FakeService(then=hang(accepted=True)), timeout=timeout) as client:
        started = loop.time()
        report = await client.broadcast(users(4), MESSAGE)
    assert (report.unknown, loop.time() - started) == (4, pytest.approx(seconds, abs=0.05))


@virtual
async def test_without_any_timeout_an_attempt_has_none() -> None:
    async with client_of(FakeService(), timeout=Timeout(total=None, attempt=None)) as client:
        assert (await client.broadcast(users(4), MESSAGE)).accepted == 4


@virtual
async def test_one_retry_after_of_a_day_does_not_hold_the_run_for_a_day() -> None:
    service = FakeService(answer(429, {"Retry-After": "86400"}))
    loop = asyncio.get_running_loop()
    async with client_of(service, batching=SMALL) as client:
        started = loop.time()
        report = await client.broadcast(users(40), MESSAGE)
    assert (report.accepted, report.stopped) == (40, None)
    assert loop.time() - started < 70.0


@virtual
async def test_a_resend_counts_its_users_once_in_the_stats() -> None:
    service = FakeService(reset_before(), reset_before())
    async with client_of(service, batching=SMALL, limits=ONE) as client:
        await client.broadcast(users(4), MESSAGE, on_unknown="resend", stop_policy=StopPolicy.off())
        stats = client.stats()
    assert (stats.accepted, stats.unknown) == (4, 0)


@virtual
async def test_users_of_a_stopped_resend_are_counted_as_unknown() -> None:
    stop = asyncio.Event()
    service = FakeService(reset_before(), then=refused())
    async with client_of(service, batching=SMALL, limits=ONE) as client:
        asyncio.get_running_loop().call_later(3.0, stop.set)
        report = await client.broadcast(users(4), MESSAGE, on_unknown="resend", stop_policy=StopPolicy.off(), stop=stop)
        assert (report.unknown, client.stats().unknown, report.stopped_by) == (4, 4, "asked")


@virtual
async def test_a_resend_that_is_refused_for_its_key_leaves_its_users_unknown_and_counts_them() -> None:
    service = FakeService(reset_before(), then=answer(401))
    async with client_of(service, batching=SMALL, limits=ONE) as client:
        report = await client.broadcast(users(4), MESSAGE, on_unknown="resend", stop_policy=StopPolicy.off())
        assert (report.unknown, client.stats().unknown, report.stopped_by) == (4, 4, "refused")


@virtual
async def test_a_limit_that_leaves_unknown_users_is_reported(tmp_path: Path) -> None:
    service = FakeService(*[reset_after()] * 4)
    async with client_of(service, batching=SMALL, limits=ONE) as client:
        await client.broadcast(users(16), MESSAGE, run=tmp_path / "run", stop_policy=StopPolicy.off())
        report = await client.resume(tmp_path / "run", on_unknown="resend", limit=4)
    assert (report.accepted, report.unknown, report.stopped_by) == (4, 12, "limit")


@virtual
async def test_a_run_planned_without_dedupe_is_not_resumed_with_it(tmp_path: Path) -> None:
    async with client_of(FakeService()) as client:
        await client.broadcast(["a", "a"], MESSAGE, run=tmp_path / "run", dedupe=False, limit=1)
        with pytest.raises(RunFileError, match="planned with dedupe=False: pass the same, or resume it"):
            await client.broadcast(["a", "a"], MESSAGE, run=tmp_path / "run")


@virtual
async def test_a_plan_that_becomes_unreadable_ends_the_run_without_unknown_users(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    load = Journal.load

    def fail(journal: Journal, number: int) -> Any:
        if number == 4:
            raise RunFileError("the run: it is damaged")
        return load(journal, number)

    monkeypatch.setattr(Journal, "load", fail)
    async with client_of(FakeService(), batching=SMALL, limits=Limits(in_flight=4)) as client:
        with pytest.raises(RunFileError, match="damaged"):
            await client.broadcast(users(64), MESSAGE, run=tmp_path / "run")
    report = read_report(tmp_path / "run")
    assert (report.accepted, report.unknown, report.not_sent) == (16, 0, 48)


# -- sources --------------------------------------------------------------------------------------------------------


class SlowSource:
    """An async source of one id per ten seconds that records its closing."""

    def __init__(self) -> None:
        self.given = 0
        self.closed = False

    async def ids(self) -> AsyncIterator[str]:
        try:
            for self.given in itertools.count(1):
                await asyncio.sleep(10.0)
                yield f"user-{self.given}"
        finally:
            self.closed = True


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "BLOCK_SECONDS", 0.0)


@pytest.mark.usefixtures("impatient")
@virtual
async def test_a_stop_ends_the_planning_from_a_slow_source_and_closes_it() -> None:
    stop, slow = asyncio.Event(), SlowSource()
    readings: list[Progress] = []
    async with client_of(FakeService()) as client:
        asyncio.get_running_loop().call_later(35.0, stop.set)
        report = await client.broadcast(slow.ids(), MESSAGE, stop=stop, on_progress=readings.append)
    assert (slow.given, slow.closed, report.stopped_by) == (4, True, "asked")
    assert readings


@pytest.mark.usefixtures("impatient")
@virtual
async def test_closing_the_client_ends_the_planning() -> None:
    slow = SlowSource()
    client = client_of(FakeService())
    running = start(client.broadcast(slow.ids(), MESSAGE))
    await asyncio.sleep(25.0)
    await client.aclose()
    report = await outcome_of(running)
    assert (report.stopped_by, slow.closed) == ("closed", True)
    assert report.stopped == "the client was closed before its plan was complete: nothing was sent"


@pytest.mark.usefixtures("impatient")
@virtual
async def test_the_first_reason_to_end_the_planning_stays() -> None:
    stop, slow = asyncio.Event(), SlowSource()
    client = client_of(FakeService())
    running = start(client.broadcast(slow.ids(), MESSAGE, stop=stop))
    await asyncio.sleep(25.0)
    await client.aclose()
    stop.set()
    assert (await outcome_of(running)).stopped_by == "closed"


@pytest.mark.usefixtures("impatient")
@virtual
async def test_an_iterator_without_aclose_is_read() -> None:
    class Numbers:
        def __init__(self) -> None:
            self.left = iter("abc")

        def __aiter__(self) -> Numbers:
            return self

        async def __anext__(self) -> str:
            try:
                return next(self.left)
            except StopIteration:
                raise StopAsyncIteration from None

    async with client_of(FakeService()) as client:
        assert (await client.broadcast(Numbers(), MESSAGE)).accepted == 3
        assert (await client.broadcast((f"{number}" for number in range(300)), MESSAGE)).accepted == 300


@pytest.mark.parametrize("each", [False, True])
@virtual
async def test_a_durable_plan_is_written_in_a_thread(each: bool, tmp_path: Path) -> None:
    works = 0

    async def counting(work: Callable[[], Any]) -> Any:
        nonlocal works
        works += 1
        return work()

    async with client_of(FakeService()) as client:
        client._lifetime.engine.offload = counting
        if each:
            requests = [PushRequest(user_ids=[user], message=MESSAGE) for user in users(4)]
            report = await client.send_each(requests, run=tmp_path / "run", durable=True, limit=2)
        else:
            report = await client.broadcast(users(4), MESSAGE, run=tmp_path / "run", durable=True, limit=2)
    assert (report.accepted, report.stopped_by) == (2, "limit")
    assert works >= 6, "opened, planned, sealed, claimed, settled, ended"


@virtual
async def test_a_full_disk_during_deduplication_is_a_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(**_: Any) -> Any:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(planning, "Distinct", functools.partial(planning.Distinct, memory=1))
    monkeypatch.setattr(tempfile, "TemporaryFile", full)
    async with client_of(FakeService()) as client:
        with pytest.raises(RunFileError, match="No space left on device"):
            await client.broadcast(users(4), MESSAGE)


@virtual
async def test_without_a_temporary_folder_the_error_names_the_fix(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def none(prefix: str) -> str:
        raise FileNotFoundError(2, "No usable temporary directory")

    monkeypatch.setattr(runs.tempfile, "mkdtemp", none)
    async with client_of(FakeService()) as client:
        with pytest.raises(RunFileError, match="set TMPDIR, or pass run="):
            await client.broadcast(users(4), MESSAGE)


@virtual
async def test_the_path_of_a_run_does_not_follow_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    async with client_of(FakeService()) as client:
        running = start(client.broadcast(users(4), MESSAGE, run="spring.run"))
        await turns(1)
        monkeypatch.chdir("/")
        assert (await running).run == str(tmp_path / "spring.run")


# -- the file -------------------------------------------------------------------------------------------------------


@virtual
async def test_another_programs_lock_does_not_stop_the_loop_and_loses_nothing(tmp_path: Path) -> None:
    path, service = tmp_path / "run", FakeService()
    connections: list[sqlite3.Connection] = []
    works = 0

    async def away(work: Callable[[], Any]) -> Any:
        nonlocal works
        works += 1
        for user in connections:
            user.close()
        return work()

    async with client_of(service, batching=SMALL, limits=ONE) as client:
        await client.broadcast(users(16), MESSAGE, run=path, limit=4)
        opening = client._lifetime.engine.offload
        running = start(client.resume(path))
        while len(service.requests) < 2:
            await turns(1)
        assert client._lifetime.engine.offload is opening
        connections.append(sqlite3.connect(path, isolation_level=None))
        connections[0].execute("BEGIN")
        connections[0].execute("SELECT * FROM head").fetchall()
        for run in client._lifetime.engine.runs:
            run._log._offload = away
        report = await running
    assert (report.accepted, report.unknown) == (16, 0)
    assert works == 1


def test_a_reader_learns_that_a_run_is_being_sent(tmp_path: Path) -> None:
    path = tmp_path / "run"
    journal = Journal.open_or_create(path, BROADCAST)
    journal.add([chunk("a")])
    journal.seal(duplicates=0)
    record(journal, [event(CLAIMED, 0, 1)])
    assert (read_report(path).in_use, read_report(path).unknown) == (True, 1)
    journal.close()
    assert not read_report(path).in_use
    (tmp_path / "run-lock").write_bytes(b"")
    assert not RunFilePath(path, write=False).in_use, "left by somebody who was killed"


def test_a_reader_learns_that_a_run_is_being_planned(tmp_path: Path) -> None:
    journal = Journal.open_or_create(tmp_path / "run", BROADCAST)
    with pytest.raises(RunFileError, match="another process is still planning it: read it again"):
        read_report(tmp_path / "run")
    journal.close()
    with pytest.raises(RunFileError, match="incomplete"):
        read_report(tmp_path / "run")


def test_without_flock_no_lock_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pushsdk._io.files.HAVE_FLOCK", False)
    assert not is_locked(tmp_path / "run-lock")


def test_a_forked_child_leaves_its_parents_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "run").write_bytes(b"")
    guard = ProcessGuard()
    with monkeypatch.context() as forked:
        forked.setattr(os, "getpid", lambda: -1)
        runs._remove(str(tmp_path), guard)
    assert (tmp_path / "run").exists()
    runs._remove(str(tmp_path), guard)
    assert not tmp_path.exists()


@virtual
async def test_the_bodies_of_answered_requests_are_freed() -> None:
    service = FakeService()
    async with client_of(service, batching=Batching(max_users=100)) as client:
        tracemalloc.start()
        try:
            await client.broadcast(users(20_000), MESSAGE)
            service.requests.clear()
            gc.collect()
            bodies = tracemalloc.take_snapshot().filter_traces([tracemalloc.Filter(True, wire.__file__)])
        finally:
            tracemalloc.stop()
    assert sum(trace.size for trace in bodies.traces) < 100_000
