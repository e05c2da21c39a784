"""A folder of run files that share one plan: split once, sent by file, reported as one run."""

import io
import os
from shutil import copyfile

import pytest
from support.fake_service import MESSAGE, FakeService, answer, client_of
from support.virtual_time import virtual

from pushsdk import Batching, Outcome, RunFileError, RunPlanError, read_report
from pushsdk._runs import folder
from pushsdk._runs.run_file.journal import Journal

USERS = [f"u{number}" for number in range(10)]
SMALL = Batching(max_users=2)


async def plan(path, users=USERS, service=None, **options):
    """Plan a folder of 3 run files for 5 requests."""
    path.mkdir(exist_ok=True)
    async with client_of(service or FakeService(), batching=SMALL) as client:
        await client.broadcast(users, MESSAGE, run=path / "plan", **{"parts": 3, "send_parts": unsent, **options})


async def unsent(plan):
    """Send none of the run files."""


def pushed(service):
    return sorted(user for request in service.sent for user in request)


async def send(path, service, **options):
    """Send the files of a folder, one after another."""
    async with client_of(service, batching=SMALL) as client:
        return [await client.resume(file, **options) for file in sorted(path.glob("*.run"))]


@virtual
async def test_a_folder_is_planned_at_once_and_sent_by_file(tmp_path):
    service = FakeService()
    await plan(tmp_path, [*USERS, "u3"], service)
    assert read_report(tmp_path).not_sent == 10
    assert service.sent == []
    assert sorted(os.listdir(tmp_path)) == ["0-of-3.run", "1-of-3.run", "2-of-3.run", "plan"]
    reports = await send(tmp_path, service)
    assert pushed(service) == sorted(USERS)
    whole = read_report(tmp_path)
    assert whole.planned == 10
    assert whole.accepted == 10
    assert whole.duplicates == 1
    assert whole.ended == reports[-1].ended
    assert [row.user_id for row in whole.rows(Outcome.ACCEPTED)] == USERS
    assert sorted(user for users in whole.pushed().ids() for user in users) == sorted(USERS)
    whole.write_csv(text := io.StringIO())
    assert text.getvalue().count("ACCEPTED") == 10


@pytest.mark.parametrize("seals", range(4))
@virtual
async def test_a_folder_that_is_half_planned_is_planned_on(tmp_path, monkeypatch, seals):
    left = [seals]
    seal = Journal.seal

    def dying(journal, **counts):
        if not left[0]:
            raise SystemError
        left[0] -= 1
        seal(journal, **counts)

    with monkeypatch.context() as patch:
        patch.setattr(folder, "_CHUNKS", 1)
        patch.setattr(Journal, "seal", dying)
        with pytest.raises(SystemError):
            await plan(tmp_path)
    if seals:
        assert read_report(tmp_path).not_sent == 10
    else:
        with pytest.raises(RunFileError, match="incomplete"):
            read_report(tmp_path)
    service = FakeService()
    await plan(tmp_path, parts=2)
    await send(tmp_path, service)
    assert pushed(service) == sorted(USERS)
    assert read_report(tmp_path).accepted == 10


@virtual
async def test_a_folder_for_no_users_has_no_run_files(tmp_path):
    with pytest.warns(UserWarning, match="no users"):
        await plan(tmp_path, [])
    assert os.listdir(tmp_path) == ["plan"]


@virtual
async def test_the_file_of_another_run_is_no_part_of_a_plan(tmp_path):
    (tmp_path / "a").mkdir()
    await plan(tmp_path / "a")
    (tmp_path / "b").mkdir()
    (tmp_path / "a" / "1-of-3.run").rename(tmp_path / "b" / "1-of-3.run")
    with pytest.raises(RunPlanError, match="it belongs to another run: name another folder"):
        await plan(tmp_path / "b", USERS[:9])


@virtual
async def test_the_plan_of_a_folder_is_not_sent(tmp_path):
    service = FakeService()
    await plan(tmp_path)
    async with client_of(service, batching=SMALL) as client:
        for call in (client.resume(tmp_path / "plan"), client.broadcast(USERS, MESSAGE, run=tmp_path / "plan")):
            with pytest.raises(RunPlanError, match="it is the plan of a folder"):
                await call
    with pytest.raises(RunPlanError, match="it is the plan of a folder"):
        read_report(tmp_path / "plan")  # in which nobody was pushed
    assert service.sent == []


@virtual
async def test_a_file_that_is_missing_is_not_made_again(tmp_path):
    service = FakeService()
    await plan(tmp_path)
    await send(tmp_path, service)
    (tmp_path / "1-of-3.run").unlink()
    for _ in range(2):
        with pytest.raises(RunPlanError, match="run is missing: restore it"):
            read_report(tmp_path)
        await plan(tmp_path)


@virtual
async def test_a_copy_of_a_run_file_is_no_part_of_a_folder(tmp_path):
    await plan(tmp_path)
    for name in ("1-of-3 (copy).run", "1-of-4.run", "1-of-x.run"):
        copyfile(tmp_path / "1-of-3.run", tmp_path / name)
    assert read_report(tmp_path).planned == 10


@pytest.mark.parametrize("copy", ["01-of-3.run", "3-of-3.run", "1-of-2.run"])
@virtual
async def test_files_made_one_by_one_are_each_needed_once(tmp_path, copy):
    async with client_of(FakeService()) as client:
        for number in range(3):
            await client.broadcast(USERS[number::3], MESSAGE, run=tmp_path / f"{number}-of-3.run")
    copyfile(tmp_path / "1-of-3.run", tmp_path / "1-of-3 (copy).run")
    assert read_report(tmp_path).planned == 10
    copyfile(tmp_path / "1-of-3.run", tmp_path / copy)
    with pytest.raises(RunPlanError, match="more run files than the 3 from 0-of-3"):
        read_report(tmp_path)
    (tmp_path / copy).rename(tmp_path / "1-of-3.run")
    (tmp_path / "0-of-3.run").rename(tmp_path / "0-of-999999999.run")
    with pytest.raises(RunPlanError, match="1-of-999999999"):
        read_report(tmp_path)


@pytest.mark.parametrize(("status", "options"), [(204, {"limit": 2}), (401, {})])
@virtual
async def test_a_run_that_another_process_has_ended_meanwhile_is_not_sent(tmp_path, status, options):
    service = FakeService(answer(status))
    path = tmp_path / "run"
    async with client_of(service, batching=SMALL) as client:
        ended = await client.broadcast(USERS, MESSAGE, run=path, **options)
        again = await client.resume(path, seen=None)
        assert again.accepted == ended.accepted
        assert again.stopped_by == ended.stopped_by
        assert (await client.resume(path, seen=ended.ended)).accepted == 10
