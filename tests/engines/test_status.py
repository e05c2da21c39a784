"""Reports of a run during its sending and after a failed job, compared with the service's count."""

import io
import json
import secrets
import shutil
from collections import Counter
from functools import partial

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.claim_puts import put

from pushsdk import BroadcastError, Outcome, RunFileError
from pushsdk._core.idempotency import digest_of
from pushsdk.arrow import plan_schema, push_batches
from pushsdk.arrow._chunks import claim_name
from pushsdk.claims import Claim
from pushsdk.emulator import Fault
from pushsdk.spark import DirectoryClaims, SparkReport, read_report
from pushsdk.spark._folder import OWN_CLAIMS, Manifest, RunFolder, call_store, plant_sentinel

USERS = 60
SIZE = 10
RUN = "f00d"
MESSAGE = {"title": {"en": "Hello"}}
MANIFEST = Manifest(
    run=RUN,
    kind="broadcast",
    digest="d1",
    base_url="https://push.example",
    primary_key="user_id",
    claims=OWN_CLAIMS,
    max_users=SIZE,
    users=USERS,
    duplicates=2,
    checksum="77",
    created=1_000_000.0,
    claim_ttl=1e7,
)


class Run:
    """A sealed run with a plan in two files."""

    def __init__(self, path):
        self.folder = RunFolder(path)
        self.claims = partial(DirectoryClaims, self.folder.claims, durable=False)
        self.folder.path.mkdir()
        plan = self.folder.new_plan(RUN)
        ids = [f"user-{number}" for number in range(USERS)]
        self.chunks = [
            {"chunk_id": f"{at:05}", "user_ids": ids[at : at + SIZE], "fields": ['{"a": 1}'] * SIZE}
            for at in range(0, USERS, SIZE)
        ]
        for part, chunks in enumerate((self.chunks[:3], self.chunks[3:])):
            pq.write_table(pa.Table.from_pylist(chunks, plan_schema(True)), plan / f"part-{part}.parquet")
        self.folder.claims.mkdir(mode=0o700)
        plant_sentinel(self.claims, RUN)
        self.folder.seal(MANIFEST)
        self.folder.new_outcomes()

    def send(self, chunks, **value):
        """To the first of them, as a task does that is not heard of any more."""
        plan = pa.RecordBatch.from_pylist(self.chunks[:chunks], plan_schema(True))
        batches = push_batches([plan], MESSAGE, run=RUN, claims=self.claims, **value)
        return Counter(outcome for batch in batches for outcome in batch.column("outcome").to_pylist())

    def put(self, chunk, record):
        """Have this be what is claimed of a chunk."""
        claim = Claim(secrets.token_hex(16), record)
        key = digest_of(claim_name(RUN, self.chunks[chunk]["chunk_id"]))
        call_store(self.claims, lambda store: put(store, claim, key=key, ttl=1e6))


@pytest.fixture
def run(tmp_path):
    return Run(tmp_path / "run")


def counts(report):
    return report.accepted, report.rejected, report.unknown, report.not_sent


def test_after_a_failed_job_the_report_shows_the_claims(run, service):
    service.begin([Fault.status(404, user="user-5"), Fault.reset_after(user="user-15")])
    assert run.send(4) == {"ACCEPTED": 20, "REJECTED": 10, "UNKNOWN": 10}
    report = read_report(run.folder.path)
    assert counts(report) == (20, 10, 10, 20)
    assert report.planned == USERS
    assert report.duplicates == 2
    assert report.file == ""
    assert not report.in_use
    assert report.stopped == "the job did not come to its end: call broadcast with the same arguments"
    assert " now" not in repr(msgspec.structs.replace(report, seconds=1.0))
    rows = {row.user_id: row for row in report.rows()}
    assert len(rows) == USERS
    assert [(rows[name].outcome, rows[name].status, rows[name].reason) for name in ("user-5", "user-15")] == [
        (Outcome.REJECTED, 404, "HTTP 404"),
        (Outcome.UNKNOWN, None, "the connection broke: Connection reset by peer"),
    ]
    assert rows["user-59"].outcome == Outcome.NOT_SENT
    assert rows["user-59"].reason == "not sent yet"
    # A pushed user is accepted or unknown.
    accepted = {row.user_id for row in report.rows(Outcome.ACCEPTED)}
    assert {rows[name].reason for name in accepted} == {""}
    assert service.users() == dict.fromkeys(accepted | {f"user-{number}" for number in range(10, 20)}, 1)
    with pytest.raises(BroadcastError, match="10 UNKNOWN, 20 NOT_SENT, 10 REJECTED; stopped: the job did not come"):
        report.raise_for_failures()
    report.write_csv(file := io.StringIO(), Outcome.REJECTED)
    assert len(file.getvalue().splitlines()) == 11


def test_a_report_during_the_sending_is_in_use(run, service):
    with run.folder.locked():
        run.send(2)
        report = read_report(run.folder.path)
    assert report.in_use
    assert report.stopped is None
    assert counts(report) == (20, 0, 0, 40)


def test_a_failed_later_sending_replaces_the_report_of_the_one_before(run, service):
    run.folder.conclude(run.folder.path / "outcomes" / "0001", SparkReport(not_sent=USERS))
    assert read_report(run.folder.path).file
    run.folder.new_outcomes()
    run.send(6)
    assert counts(read_report(run.folder.path)) == (USERS, 0, 0, 0)


@pytest.mark.parametrize("entries", [(), ("pushsdk-claims",)])
def test_missing_claims_are_an_error_and_are_not_created(run, entries):
    shutil.rmtree(run.folder.claims)
    if entries:
        run.folder.claims.mkdir()
    with pytest.raises(RunFileError, match="its claims are gone, so which users were pushed is unknown") as excinfo:
        read_report(run.folder.path)
    assert excinfo.value.outcome is Outcome.UNKNOWN
    assert run.folder.claims.exists() is bool(entries)


def test_outcomes_in_another_claim_store_are_not_guessed(run):
    run.folder.seal(msgspec.structs.replace(MANIFEST, claims="RedisClaims"))
    with pytest.raises(RunFileError, match=r"known to its claim store alone \(RedisClaims\): call broadcast"):
        read_report(run.folder.path)


def test_a_damaged_plan_is_an_error(run):
    part = run.folder.plan(RUN) / "part-1.parquet"
    data = part.read_bytes()
    part.write_bytes(data[:-9])
    with pytest.raises(RunFileError, match="its plan can't be read") as excinfo:
        read_report(run.folder.path)
    assert excinfo.value.outcome is Outcome.UNKNOWN
    part.unlink()
    with pytest.raises(RunFileError, match="files of its plan are missing"):
        read_report(run.folder.path)
    run.folder.drop_plans()
    with pytest.raises(RunFileError, match=r"its plan can't be read \(FileNotFoundError\)"):
        read_report(run.folder.path)


def test_a_claim_of_other_users_is_an_error(run):
    record = {"fingerprint": "f", "claimed_at": 1.0, "users": [["ACCEPTED", SIZE + 1, 204]]}
    run.put(2, json.dumps(record).encode())
    with pytest.raises(
        RunFileError, match=r"claims can't be read: .* holds something else than it was given"
    ) as excinfo:
        read_report(run.folder.path)
    assert excinfo.value.outcome is Outcome.UNKNOWN
