"""``not_after``: no request is begun later, by this call or a later one, which the report on the run says."""

import asyncio
import tempfile
from datetime import datetime, timedelta, timezone
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.fake_service import LATENCY, MESSAGE, FakeService, answer, client_of, reset_after
from support.virtual_time import now, run

from pushsdk import Batching, ConfigurationError, Limits, StopPolicy, read_report
from pushsdk._runs import stopping

USERS = [f"user-{number}" for number in range(12)]
# At a few requests at a time, this is about what all of them need.
SECONDS = st.floats(0, 15 * LATENCY) | st.floats(0, 3)
ANSWERS = st.sampled_from([answer(), answer(503, {"Retry-After": "1"}), reset_after()])


@pytest.fixture(autouse=True)
def wall_clock(monkeypatch):
    """The wall clock shows the loop's time."""
    monkeypatch.setattr(stopping, "datetime", SimpleNamespace(now=lambda zone: datetime.fromtimestamp(now(), zone)))


class Timestamp(datetime):
    """A subclass, as in pandas."""


def moment(seconds):
    return Timestamp.fromtimestamp(seconds, timezone(timedelta(seconds=1)))


@given(SECONDS, SECONDS, st.lists(ANSWERS, max_size=12), st.integers(1, 4), st.booleans())
def test_no_request_is_begun_later_by_any_call(end, pause, script, in_flight, resends):
    begun = {}

    def then(request):
        begun[id(request)] = now()
        return script.pop() if script else answer()

    service = FakeService(then=then)
    options = {"on_unknown": "resend"} if resends else {}

    async def story(path):
        batching = Batching(max_users=1)
        limits = Limits(in_flight=in_flight)
        async with client_of(service, batching=batching, limits=limits) as client:
            options["stop_policy"] = StopPolicy.off()
            last = moment(now() + end)
            await client.broadcast(USERS, MESSAGE, run=path, not_after=last, limit=4, **options)
            await client.resume(path, not_after=moment(now() + end + pause), **options)
            return await client.resume(path, **options), last

    with tempfile.TemporaryDirectory() as folder:
        report, last = run(story(Path(folder, "a.run")), collect=False)
    assert all(begun[id(request)] < last.timestamp() for request in service.written)
    assert report.resent <= len(service.written) - len(USERS) + report.not_sent
    left = report.not_sent + report.unknown * resends
    assert report.stopped_by == ("not_after" if left else None)


def test_who_reads_a_run_later_learns_that_a_resume_sends_nothing(tmp_path):
    path = tmp_path / "a.run"

    async def story():
        async with client_of(FakeService()) as client:
            early = await client.broadcast(USERS, MESSAGE, run=path, not_after=moment(now() + 60), limit=4)
            await asyncio.sleep(60)
            return early.stopped_by, read_report(path).stopped_by

    assert run(story(), collect=False) == ("limit", "not_after")


@pytest.mark.parametrize("wrong", ["18:00", datetime(2026, 11, 28)])
async def test_the_bound_has_a_zone(wrong):
    async with client_of(FakeService()) as client:
        with pytest.raises(ConfigurationError, match="not_after must be a datetime with a zone, for example"):
            await client.broadcast(USERS, MESSAGE, not_after=wrong)
