"""A run is its users: the same users continue it, however they come; others are an error, and get nothing."""

import os
import tempfile
from collections import Counter
from contextlib import closing
from io import BytesIO
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.audiences import made
from support.fake_service import MESSAGE, FakeService, client_of
from support.run_files import BROADCAST
from support.virtual_time import run, virtual

from pushsdk import Audience, Batching, RunInUseError, RunPlanError, read_report
from pushsdk._audience.text_files import TextFiles
from pushsdk._runs.run_file.journal import Journal

SMALL = Batching(max_users=2)


async def later(users):
    for user in users:
        yield user


def query(users):
    return Audience.query(f"SELECT unnest({list(users)}::VARCHAR[]) AS user_id")


SOURCES = (
    list,
    iter,
    later,
    query,
    lambda users: Audience.lines(BytesIO("\n".join(users).encode())),
)
# Short ids, whose differences cancel out in a sum of linear checksums.
USERS = st.lists(st.text("01", min_size=1, max_size=3), min_size=1, max_size=8)


@settings(max_examples=50)
@given(USERS, USERS, st.booleans(), st.sampled_from(SOURCES), st.sampled_from(SOURCES), st.data())
def test_only_the_planned_users_are_ever_pushed_to(planned, others, dedupe, first, then, data):
    service = FakeService()
    given = data.draw(st.one_of(st.permutations(planned), st.just(others)))
    count = Counter if not dedupe else lambda users: Counter({*users})
    is_same = count(given) == count(planned)

    async def story(path):
        async with client_of(service, batching=SMALL) as client:
            options = {"run": path, "dedupe": dedupe}
            await client.broadcast(first(planned), MESSAGE, limit=data.draw(st.integers(1, 9)), **options)
            sent = len(service.sent)
            if is_same:
                report = await client.broadcast(then(given), MESSAGE, **options)
                assert report.accepted == report.planned
                assert {user: service.accepted(user) for user in planned} == count(planned)
                return
            numbers = f"this call has {count(given).total()} user"
            with pytest.raises(RunPlanError, match=numbers):
                await client.broadcast(then(given), MESSAGE, **options)
            assert len(service.sent) == sent

    with tempfile.TemporaryDirectory() as folder:
        run(story(Path(folder, "a.run")), collect=False)


def request(user, text):
    return {"userIds": [user], "message": {**MESSAGE, "title": {"en": text}}}


@pytest.mark.parametrize("other", [[request("b", "A"), request("a", "B")], [request("a", "A")], []])
@virtual
async def test_requests_are_the_same_if_each_user_has_the_same_message(other, tmp_path):
    service = FakeService()
    requests = [request("a", "A"), request("b", "B")]
    async with client_of(service) as client:
        await client.send_each(requests, run=tmp_path / "a.run", limit=1)
        with pytest.raises(
            RunPlanError, match=r"this call has (2 users, as planned, but other users or messages|1 user;|0 users \(an)"
        ):
            await client.send_each(other, run=tmp_path / "a.run")
        report = await client.send_each(reversed(requests), run=tmp_path / "a.run")
    assert report.accepted == 2
    assert report.accepted_now == 1
    assert len(service.sent) == 2


@virtual
async def test_a_file_that_has_not_changed_is_not_read_again(tmp_path, monkeypatch):
    table = made(tmp_path, "u.csv", "user_id,other\na,x\nb,y\n")
    service = FakeService()
    read = TextFiles.ids
    given = []

    def ids(file, counts):
        for batch in read(file, counts):
            given.append(batch)
            yield batch

    monkeypatch.setattr(TextFiles, "ids", ids)
    async with client_of(service) as client:

        async def push(key="user_id"):
            await client.broadcast(Audience.read(table, primary_key=key), MESSAGE, run=tmp_path / "a.run", limit=1)

        await push()
        await push()
        assert given == [["a", "b"]]
        with pytest.raises(RunPlanError, match="2 users, as planned, but not the same users"):
            await push("other")
        os.utime(table, ns=(0, 1))
        await push()
        assert given == [["a", "b"], ["x", "y"], ["a", "b"]]
    assert service.accepted("x") == 0


@virtual
async def test_a_run_in_use_has_an_error_to_catch_and_to_retry(tmp_path):
    with closing(Journal.open_or_create(tmp_path / "a.run", BROADCAST)):
        async with client_of(FakeService()) as client:
            with pytest.raises(RunInUseError, match="in use by another call or process") as raised:
                await client.broadcast(["a"], MESSAGE, run=tmp_path / "a.run")
        assert raised.value.retryable
        with pytest.raises(RunInUseError, match="still planning it"):
            read_report(tmp_path / "a.run")
