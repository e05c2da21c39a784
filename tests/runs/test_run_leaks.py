"""Secrets of a run: its files are private, logs and errors have no users and texts, the key is nowhere."""

import asyncio
import logging
import os
import stat
import sys
from contextlib import closing

import pytest
from support.fake_service import FakeService, answer, client_of
from support.kill_child import KEY, MESSAGE, names
from support.kill_service import ROUGH, KillService
from support.virtual_time import virtual

from pushsdk import AsyncPushClient, Batching, BroadcastError, Limits, RetryPolicy, RunFileError, StopPolicy
from pushsdk._runs.run_file.journal import Journal

TEN = Batching(max_users=10)
QUICK = RetryPolicy.safe(initial_delay=0.005, max_delay=0.02, throttle_delay=0.005)


@pytest.fixture(params=[0o000, 0o077], ids=oct)
def mask(request):
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


@pytest.mark.skipif(sys.platform == "win32", reason="permissions of POSIX")
@virtual
async def test_a_run_file_and_the_files_beside_it_are_private(mask, tmp_path):
    found_modes = {}

    def look(request):
        for entry in os.scandir(tmp_path):
            found_modes.setdefault(entry.name, set()).add(stat.S_IMODE(entry.stat().st_mode))
        return answer()

    async with client_of(FakeService(then=look), batching=TEN, limits=Limits(in_flight=1)) as client:
        await client.broadcast(names(100), MESSAGE, run=tmp_path / "run", limit=50)
        await client.resume(tmp_path / "run", durable=True)
    assert found_modes["run"] == {0o600}
    assert all(mode & 0o077 == 0 for modes in found_modes.values() for mode in modes), found_modes
    assert os.listdir(tmp_path) == ["run"]


async def test_logs_and_errors_of_a_failing_run_name_no_user_no_text_and_no_key(tmp_path, caplog):
    caplog.set_level(logging.DEBUG)
    path = tmp_path / "run"
    outputs = []
    users = 3_000
    message = {"title": {"en": "Secret spring"}}
    async with KillService(users, faults=ROUGH, culprits=frozenset({7, 1500})) as service:
        client = AsyncPushClient(
            service.base_url,
            KEY,
            batching=Batching(max_users=20),
            retry=QUICK,
            limits=Limits(in_flight=8),
            on_event=lambda event: outputs.append(repr(event)),
        )
        async with client:
            asyncio.get_running_loop().set_debug(True)
            for on_unknown in ("skip", "resend"):
                report = await client.broadcast(
                    names(users),
                    message,
                    run=path,
                    custom_fields={"code": "Secret code"},
                    on_unknown=on_unknown,
                    stop_policy=StopPolicy.off(),
                    on_progress=lambda progress: outputs.append(repr(progress)),
                )
            with closing(Journal.open(path, write=False)) as journal:
                outputs += [repr(value) for value in (report, client, journal, journal.header, journal.load(0))]
            with pytest.raises(BroadcastError) as failed:
                report.raise_for_failures()
            with pytest.raises(RunFileError) as refused:
                await client.broadcast(names(users), {"title": {"en": "Secret other"}}, run=path)
            outputs += [f"{error.value} {error!r} {error.value.args}" for error in (failed, refused)]
            outputs += [f"{row.reason} {row!r}" for row in report.rows()]
    text = "\n".join([caplog.text, *outputs])
    assert len(service.fates) >= 8, "it was rough"
    for secret in ("person-", "Secret", KEY):
        assert secret not in text
    assert KEY.encode() not in path.read_bytes()
