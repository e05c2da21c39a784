"""The report of a run: rows, CSV for spreadsheets, exact JSON lines, and what the service answered."""

import csv
import gc
import io
import json
import os
from pathlib import Path

import pytest
from support.fake_service import MESSAGE, FakeService, answer, client_of
from support.virtual_time import run, virtual

from pushsdk import Batching, BroadcastError, Limits, Outcome, StopPolicy

pytestmark = pytest.mark.filterwarnings("ignore:a user id")

FORMULAS = ["=1+1", "+4912345", "-5", "@SUM(A1)", "\tx", "\rx", "\nx"]
PLAIN = ["user-1", 'quo"te', "com,ma", "new\nline", "'x", "ünï", " padded "]
ONE = Batching(max_users=1)


async def report_of(ids):
    service = FakeService(then=lambda request: answer(404 if "user-1" in request.users else 204))
    async with client_of(service, batching=ONE) as client:
        return await client.broadcast(ids, MESSAGE, stop_policy=StopPolicy.off())


@virtual
async def test_csv_is_safe_in_a_spreadsheet_and_json_lines_are_exact():
    report = await report_of([*FORMULAS, *PLAIN])
    file = io.StringIO(newline="")
    assert report.write_csv(file) == len(FORMULAS)
    assert file.getvalue().startswith("user_id,outcome,status,reason\n")
    rows = list(csv.DictReader(io.StringIO(file.getvalue(), newline="")))
    assert [row["user_id"] for row in rows] == [*("'" + formula for formula in FORMULAS), *PLAIN]
    assert rows[len(FORMULAS)] == {"user_id": "user-1", "outcome": "REJECTED", "status": "404", "reason": "HTTP 404"}
    assert rows[0]["reason"] == ""
    report.write_jsonl(file := io.StringIO())
    lines = [json.loads(line) for line in file.getvalue().split("\n")[:-1]]
    assert [line["user_id"] for line in lines] == [*FORMULAS, *PLAIN]
    assert lines[len(FORMULAS)] == {"user_id": "user-1", "outcome": "REJECTED", "status": 404, "reason": "HTTP 404"}


@virtual
@pytest.mark.parametrize(("show", "text"), [(True, "HTTP 400: blocked"), (False, "HTTP 400")])
async def test_failures_name_the_commonest_reason_and_the_answer_if_it_may_be_shown(show, text):
    fates = {"a": answer(404, body=b"no such user"), "b": answer(400, body=b"busy"), "e": answer(204)}
    service = FakeService(then=lambda request: fates.get(request.users[0], answer(400, body=b"blocked")))
    async with client_of(service, batching=ONE, show_answers=show) as client:
        report = await client.broadcast(["a", "b", "c", "d", "e"], MESSAGE, stop_policy=StopPolicy.off())
    assert report.reasons == {"HTTP 404": 1, "HTTP 400": 3}
    with pytest.raises(BroadcastError) as caught:
        report.raise_for_failures()
    assert str(caught.value) == f"1 of 5 users accepted, 4 REJECTED; most often (3 users): {text}; see .report"
    error = caught.value
    assert error.outcome == Outcome.REJECTED
    assert error.user_ids == ()
    assert error.report == report


@virtual
async def test_an_error_of_users_that_were_not_tried_names_no_reason():
    async with client_of(FakeService()) as client:
        report = await client.broadcast(["a", "b"], MESSAGE, limit=1)
    with pytest.raises(BroadcastError, match=r"1 NOT_SENT; stopped: the limit is reached: [a-z ]*; see"):
        report.raise_for_failures()


def test_the_temporary_file_of_a_run_is_deleted_with_its_report(monkeypatch):
    report, copied = (run(report_of(PLAIN)) for _ in range(2))
    file = Path(report.file)
    kept = Path(copied.file)
    assert file.stat().st_mode & 0o777 == 0o600
    del report
    with monkeypatch.context() as forked:
        forked.setattr(os, "getpid", lambda: -1)  # a child drops only its copy
        del copied
        gc.collect()
    assert not file.parent.exists()
    assert kept.exists()
    kept.unlink()
    kept.parent.rmdir()


# -- what the run is, and what the service answered -------------------------------------------------------------------


@virtual
async def test_a_run_keeps_a_bounded_number_of_different_answers():
    service = FakeService(then=lambda request: answer(404, body=f"no user {request.users[0]}".encode()))
    async with client_of(service, batching=ONE, limits=Limits(in_flight=1)) as client:
        report = await client.broadcast([f"user-{number}" for number in range(30)], MESSAGE)
    assert len(report.answers) == 21
    assert report.answers["404: no user user-0"] == 1
    assert report.answers["404: another text"] == 10
