"""Events between a request's claim and its answer, if the request goes over an idle connection."""

import asyncio
import gc
import socket
import sqlite3
import tracemalloc
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from itertools import count
from types import SimpleNamespace

import pytest
from support.fake_service import start
from support.kill_child import MESSAGE, names
from support.wire_answers import response
from support.wire_faults import Step, always, answering, good, hold, only, take, when
from support.wire_rig import meeting

from pushsdk import Batching, Limits, Outcome, RetryPolicy, RunFileError, Timeout, read_report
from pushsdk._runs.run_file.file import ask_to_stop
from pushsdk._runs.run_file.journal import Journal

ONE = {"batching": Batching(max_users=1), "limits": Limits(in_flight=1), "retry": RetryPolicy.safe()}


def close(server, run):
    server.open_wires[0].writer.get_extra_info("socket").shutdown(socket.SHUT_RDWR)


@pytest.mark.parametrize(
    ("act", "is_sent", "outcomes"),
    [
        (close, False, "ACCEPTED ACCEPTED ACCEPTED"),
        (lambda server, run: run.cancel(), False, "ACCEPTED NOT_SENT NOT_SENT"),
        (lambda server, run: 1 / 0, False, "UNKNOWN NOT_SENT NOT_SENT"),
        (lambda server, run: run.cancel(), True, "ACCEPTED UNKNOWN NOT_SENT"),
        (lambda server, run: None, True, "ACCEPTED UNKNOWN ACCEPTED"),
    ],
)
async def test_each_user_has_the_outcome_that_the_wire_proves(act, is_sent, outcomes, tmp_path, monkeypatch):
    commit = Journal.commit
    acts = [act]
    claimed = []

    def connects(moment, number):
        if (moment, number) == ("accept", 1):
            claimed.append(read_report(tmp_path / "run").unknown)

    def committing(journal, events, *parts, **options):
        if acts and not is_sent and any(status.state == "CLAIMED" and first == 1 for first, _, status in events):
            acts.pop()(server, run)
        return commit(journal, events, *parts, **options)

    async def answer(wire):
        await take(wire)
        act(server, run)
        await hold(wire)

    monkeypatch.setattr(Journal, "commit", committing)
    script = when(only(1), Step(answer)) if is_sent else connects
    async with meeting(script, timeout=Timeout(attempt=0.3), **ONE) as (server, client):
        run = start(client.broadcast(names(3), MESSAGE, run=tmp_path / "run"))
        with suppress(asyncio.CancelledError, RunFileError):
            await run
    rows = list(read_report(tmp_path / "run").rows())
    assert " ".join(row.outcome for row in rows) == outcomes
    assert server.processed == {row.user_id: 1 for row in rows if row.outcome != "NOT_SENT"}
    assert not any(claimed), "nobody is claimed during a connect"


async def test_requests_that_need_a_task_leave_nothing_in_memory(tmp_path):
    sizes = []
    async with meeting(when(always, answering(response(200), processed=True)), **ONE) as (_, client):
        tracemalloc.start()
        for number in range(3):
            await client.broadcast(names(300), MESSAGE, run=tmp_path / str(number))
            gc.collect()
            sizes.append(tracemalloc.get_traced_memory()[0])
        tracemalloc.stop()
    # The server keeps 2 kB for each.
    assert sizes[2] - sizes[1] < 300 * 3_000


class Falling:
    """A limit of 8 that falls to 1 with the ninth response."""

    limit, in_flight, gap = 8, 0, 0.0

    def __init__(self, *_, **__):
        self.responses = 0

    def started(self, _now):
        self.in_flight += 1

    def ended(self, *_, **__):
        self.in_flight -= 1
        self.responses += 1
        self.limit = 8 if self.responses < 9 else 1


async def test_a_limit_that_falls_while_responses_come_together_does_not_end_the_run(tmp_path, monkeypatch):
    monkeypatch.setattr("pushsdk._io.limiter.AdaptiveLimit", Falling)
    requests, eight = count(1), asyncio.Event()

    async def answer(wire):
        await wire.read_request()
        if (number := next(requests)) > 8:
            if number == 16:
                eight.set()
            await eight.wait()
        wire.process()
        await wire.send(b"HTTP/1.1 204 No Content\r\n\r\n")

    options = {"batching": Batching(max_users=1), "retry": RetryPolicy.safe()}
    async with meeting(when(always, Step(answer)), timeout=Timeout(attempt=5), **options) as (_, client):
        assert (await client.broadcast(names(40), MESSAGE, run=tmp_path / "run")).accepted == 40


async def test_a_request_whose_claim_is_written_too_late_is_not_begun(tmp_path, monkeypatch):
    end, commit = datetime.now(UTC) + timedelta(hours=1), Journal.commit

    def committing(journal, events, *parts, **options):
        if any(status.state == "CLAIMED" and first == 1 for first, _, status in events):
            monkeypatch.setattr("pushsdk._runs.stopping.datetime", SimpleNamespace(now=lambda _: end))
        return commit(journal, events, *parts, **options)

    monkeypatch.setattr(Journal, "commit", committing)
    async with meeting(**ONE) as (server, client):
        report = await client.broadcast(names(3), MESSAGE, run=tmp_path / "run", not_after=end)
    assert [row.outcome for row in report.rows()] == ["ACCEPTED", "NOT_SENT", "NOT_SENT"]
    assert server.processed == {names(1)[0]: 1}


def lock(path, how):
    """Lock the file until the loop has run for a while."""
    other = sqlite3.connect(path)
    other.execute(f"BEGIN {how}")
    other.execute("SELECT * FROM head").fetchall()
    asyncio.get_running_loop().call_later(0.3, other.close)


@pytest.mark.parametrize("how", ["DEFERRED", "IMMEDIATE", "EXCLUSIVE"])
async def test_a_lock_of_the_run_file_stops_neither_the_loop_nor_makes_a_request_late(how, tmp_path, monkeypatch):
    async def answer(wire):
        lock(tmp_path / "run", how)
        await asyncio.sleep(0.05)
        await good.run(wire)

    monkeypatch.setattr("pushsdk._runs.stopping.TICK", 0.01)
    monkeypatch.setattr("pushsdk._runs.run_file.file.LOCK_TIMEOUT", 2)
    users = [*names(2), "u" * 50_000]  # too long for one row in the plan
    async with meeting(when(always, Step(answer)), timeout=Timeout(attempt=0.2), **ONE) as (_, client):
        assert (await client.broadcast(users, MESSAGE, run=tmp_path / "run")).accepted == 3


async def test_a_lock_of_the_run_file_does_not_stop_the_loop_while_it_is_planned(tmp_path, monkeypatch):
    monkeypatch.setattr("pushsdk._runs.run_file.file.LOCK_TIMEOUT", 2)

    async def users():
        for number in range(20_000):
            if number == 10_000:
                lock(tmp_path / "run", "EXCLUSIVE")
            yield str(number)

    async with meeting(**ONE | {"batching": Batching()}) as (_, client):
        assert (await client.broadcast(users(), MESSAGE, run=tmp_path / "run")).accepted == 20_000


async def test_a_run_says_who_stopped_it_though_a_signal_came_too(tmp_path):
    stop = asyncio.Event()

    async def answer(wire):
        ask_to_stop(tmp_path / "run", "bob")
        stop.set()
        await good.run(wire)

    async with meeting(when(always, Step(answer)), **ONE) as (_, client):
        report = await client.broadcast(names(3), MESSAGE, run=tmp_path / "run", stop=stop)
    assert (report.accepted, report.stopped) == (1, "bob stopped it")


async def test_a_policy_that_doubts_a_204_holds_on_an_idle_connection():
    policy = RetryPolicy.safe(statuses={204: Outcome.UNKNOWN})
    async with meeting(**{**ONE, "retry": policy}) as (_, client):
        assert (await client.broadcast(names(3), MESSAGE)).unknown == 3


async def test_a_plan_that_another_program_locks_between_two_requests_is_read_later(tmp_path, monkeypatch):
    locked, load = {2}, Journal.load

    def loading(journal, number, *, at_once=False):
        if at_once and number in locked:
            locked.clear()
            raise BlockingIOError
        return load(journal, number, at_once=at_once)

    monkeypatch.setattr(Journal, "load", loading)
    async with meeting(**ONE) as (_, client):
        report = await client.broadcast(names(4), MESSAGE, run=tmp_path / "run")
    assert (report.accepted, locked) == (4, set())
