"""The report of a run: rows, CSV for spreadsheets, exact JSON lines."""

from __future__ import annotations

import csv
import gc
import io
import json
import os
from pathlib import Path

import pytest
from support.fake_service import MESSAGE, FakeService, answer, client_of
from support.virtual_time import virtual

from pushsdk import Batching, BroadcastError, BroadcastReport, Outcome, RunFileError, StopPolicy, read_report

FORMULAS = ["=1+1", "+4912345", "-5", "@SUM(A1)", "\tx", "\rx", "\nx"]
PLAIN = ["user-1", 'quo"te', "com,ma", "new\nline", "'x", "ünï", " padded "]


async def report_of(ids: list[str], run: Path | None = None) -> BroadcastReport:
    service = FakeService(then=lambda request: answer(404 if "user-1" in request.users else 204))
    async with client_of(service, batching=Batching(max_users=1)) as client:
        return await client.broadcast(ids, MESSAGE, run=run, stop_policy=StopPolicy.off())


@virtual
async def test_csv_is_safe_in_a_spreadsheet_and_counts_changed_ids() -> None:
    report = await report_of([*FORMULAS, *PLAIN])
    file = io.StringIO(newline="")
    assert report.write_csv(file) == len(FORMULAS)
    assert file.getvalue().startswith("user_id,outcome,status,reason\n")
    rows = list(csv.DictReader(io.StringIO(file.getvalue(), newline="")))
    assert [row["user_id"] for row in rows] == [*("'" + each for each in FORMULAS), *PLAIN]
    assert rows[len(FORMULAS)] == {"user_id": "user-1", "outcome": "REJECTED", "status": "404", "reason": "HTTP 404"}
    assert rows[0]["reason"] == ""


@virtual
async def test_json_lines_are_exact() -> None:
    report = await report_of([*FORMULAS, *PLAIN])
    file = io.StringIO()
    report.write_jsonl(file)
    rows = [json.loads(line) for line in file.getvalue().split("\n")[:-1]]
    assert [row["user_id"] for row in rows] == [*FORMULAS, *PLAIN]
    assert {tuple(row) for row in rows} == {("user_id", "outcome", "status", "reason")}
    assert rows[len(FORMULAS)] == {"user_id": "user-1", "outcome": "REJECTED", "status": 404, "reason": "HTTP 404"}


@virtual
async def test_rows_can_be_had_by_outcome() -> None:
    report = await report_of(PLAIN)
    assert [row.user_id for row in report.rows(Outcome.REJECTED)] == ["user-1"]
    assert len(list(report.rows(Outcome.ACCEPTED))) == len(PLAIN) - 1
    file = io.StringIO()
    report.write_csv(file, Outcome.UNKNOWN)
    assert file.getvalue() == "user_id,outcome,status,reason\n"


@virtual
async def test_failures_raise_an_error_that_names_no_user() -> None:
    report = await report_of(PLAIN)
    with pytest.raises(BroadcastError, match=r"6 of 7 users accepted, 1 REJECTED; see \.report") as caught:
        report.raise_for_failures()
    assert caught.value.outcome is Outcome.REJECTED
    assert caught.value.user_ids == ()
    assert "user-1" not in repr(report)
    assert "user-1" not in repr(list(report.rows(Outcome.REJECTED)))


@virtual
async def test_a_report_has_the_stop_reason() -> None:
    service = FakeService(then=answer(401))
    async with client_of(service) as client:
        report = await client.broadcast(["a"], MESSAGE)
    with pytest.raises(BroadcastError, match=r"1 NOT_SENT; stopped: .*401"):
        report.raise_for_failures()


@virtual
async def test_a_report_is_read_again_from_its_file(tmp_path: Path) -> None:
    report = await report_of(PLAIN, tmp_path / "run")
    again = read_report(str(tmp_path / "run"))
    assert (again.accepted, again.rejected, again.run) == (report.accepted, report.rejected, str(tmp_path / "run"))
    assert list(again.rows()) == list(report.rows())


@virtual
async def test_the_temporary_file_of_a_run_is_deleted_with_its_report() -> None:
    report = await report_of(PLAIN)
    file = report.file
    assert os.stat(file).st_mode & 0o777 == 0o600
    del report
    gc.collect()
    assert not os.path.exists(os.path.dirname(file))  # noqa: ASYNC240


def test_a_missing_file_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(RunFileError, match="run"):
        read_report(tmp_path / "no.run")
    with pytest.raises(RunFileError):
        list(BroadcastReport(file=str(tmp_path / "no.run")).rows())
