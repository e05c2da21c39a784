"""What comes between a request's claim and its answer, if the request goes over an idle connection."""

import asyncio
import socket
from contextlib import suppress

import pytest
from support.fake_service import start
from support.kill_child import MESSAGE, names
from support.wire_faults import Step, hold, only, take, when
from support.wire_rig import client_of
from support.wire_server import WireServer

from pushsdk import Batching, Limits, RetryPolicy, RunFileError, Timeout, read_report
from pushsdk._runs.run_file.journal import Journal


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
    commit, acts = Journal.commit, [act]

    def committing(journal, events, *parts, **options):
        if acts and not is_sent and any(status.state == "CLAIMED" and first == 1 for first, _, status in events):
            acts.pop()(server, run)
        return commit(journal, events, *parts, **options)

    async def answer(wire):
        await take(wire)
        act(server, run)
        await hold(wire)

    monkeypatch.setattr(Journal, "commit", committing)
    one = {"batching": Batching(max_users=1), "limits": Limits(in_flight=1), "timeout": Timeout(attempt=0.3)}
    async with (
        WireServer(when(only(1), Step(answer)) if is_sent else None) as server,
        client_of(server, retry=RetryPolicy.safe(), **one) as client,
    ):
        run = start(client.broadcast(names(3), MESSAGE, run=tmp_path / "run"))
        with suppress(asyncio.CancelledError, RunFileError):
            await run
    rows = list(read_report(tmp_path / "run").rows())
    assert " ".join(row.outcome for row in rows) == outcomes
    assert server.processed == {row.user_id: 1 for row in rows if row.outcome != "NOT_SENT"}
