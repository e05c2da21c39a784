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


class Scene:
    """A run of three users, one at a time, and the acts upon it while the second user is claimed or in flight."""

    def __init__(self, server):
        self.server, self.run = server, None

    def close(self):
        self.server.open_wires[0].writer.get_extra_info("socket").shutdown(socket.SHUT_RDWR)

    def cancel(self):
        self.run.cancel()

    def fail(self):
        raise OSError("the disk is full")

    def wait(self):
        """The answer does not come."""


@pytest.mark.parametrize(
    ("claimed", "sent", "outcomes"),
    [
        (Scene.close, None, "ACCEPTED ACCEPTED ACCEPTED"),
        (Scene.cancel, None, "ACCEPTED NOT_SENT NOT_SENT"),
        (Scene.fail, None, "UNKNOWN NOT_SENT NOT_SENT"),
        (None, Scene.cancel, "ACCEPTED UNKNOWN NOT_SENT"),
        (None, Scene.wait, "ACCEPTED UNKNOWN ACCEPTED"),
    ],
)
async def test_each_user_has_the_outcome_that_the_wire_proves(claimed, sent, outcomes, tmp_path, monkeypatch):
    acts, commit = [claimed] if claimed else [], Journal.commit

    def committing(journal, events, *parts, **options):
        if acts and any((first, status.state) == (1, "CLAIMED") for first, _, status in events):
            acts.pop()(scene)
        return commit(journal, events, *parts, **options)

    async def act(wire):
        await take(wire)
        sent(scene)
        await hold(wire)

    monkeypatch.setattr(Journal, "commit", committing)
    options = {
        "batching": Batching(max_users=1),
        "limits": Limits(in_flight=1),
        "timeout": Timeout(attempt=0.3),
        "retry": RetryPolicy.safe(),
    }
    async with (
        WireServer(when(only(1), Step(act)) if sent else None) as server,
        client_of(server, **options) as client,
    ):
        scene = Scene(server)
        scene.run = start(client.broadcast(names(3), MESSAGE, run=tmp_path / "run"))
        with suppress(asyncio.CancelledError, RunFileError):
            await scene.run
    assert " ".join(row.outcome for row in read_report(tmp_path / "run").rows()) == outcomes
    assert server.processed.keys() == {
        name for name, outcome in zip(names(3), outcomes.split(), strict=True) if outcome != "NOT_SENT"
    }
    assert set(server.processed.values()) == {1}
