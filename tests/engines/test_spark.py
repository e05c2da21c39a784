"""Broadcasts by a real Spark on this machine, judged by the service."""

import json
import os
import random
import re
import shutil
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from support.claim_stores import object_claims
from support.engine_lab import installed, spark_session
from support.kill_judge import verdict
from support.odd_ids import odd_ids

from pushsdk import (
    Batching,
    BroadcastError,
    ConfigurationError,
    Limits,
    MessageWarning,
    MobilePush,
    Outcome,
    Rate,
    RunFileError,
    Timeout,
    ValidationError,
    placeholder,
)
from pushsdk._core.policy import Share
from pushsdk.emulator import Fault
from pushsdk.spark import DirectoryClaims, _run, broadcast, read_report
from pushsdk.spark._folder import RunFolder
from pushsdk.spark._tasks import SendPartition, chunk_schema, cut_partition

installed("spark")

AT_A_TIME = "spark.sql.execution.arrow.maxRecordsPerBatch"
HELLO = {"title": {"en": "Hello"}}
USERS = 2_000
SEED = random.SystemRandom().getrandbits(32)


@pytest.fixture(scope="module", params=["classic", "connect"])
def spark(_oracle, tmp_path_factory, request):
    folder = tmp_path_factory.mktemp("spark")
    (folder / "events").mkdir()
    settings = {"spark.eventLog.enabled": "true", "spark.eventLog.dir": (folder / "events").as_uri()}
    with spark_session("local[2,3]", folder, settings, connect=request.param == "connect") as session:
        yield session


@pytest.fixture
def audience(spark):
    def made(users=USERS, **columns):
        fields = [f"{sql} AS `{name}`" for name, sql in columns.items()]
        return spark.range(users).selectExpr("concat('user-', id) AS user_id", *fields)

    return made


@pytest.fixture
def send(service, tmp_path):
    """In small chunks, few at a time; a machine that is busy is not taken for a service that says nothing."""
    return partial(
        broadcast,
        run_dir=tmp_path / "run",
        batching=Batching(max_users=50),
        limits=Limits(in_flight=4),
        timeout=Timeout(total=None, attempt=60.0),
    )


def names(users=USERS):
    return {f"user-{number}": 1 for number in range(users)}


@contextmanager
def sending_by(call):
    """Tasks send by this function: executors get its class by value."""
    with pytest.MonkeyPatch.context() as patch:
        kind = type("Own", (SendPartition,), {"__call__": call, "__module__": "__main__"})
        patch.setattr(_run, "SendPartition", kind)
        yield


# -- what it does ---------------------------------------------------------------------------------------------------


def test_the_session_and_the_one_who_watches_are_as_before(spark, audience, send, service):
    before = spark.conf.getAll
    seen = []
    df = audience()
    assert send(df.union(df.limit(10)), HELLO, on_progress=seen.append).duplicates == 10
    assert service.users() == names()
    assert spark.conf.getAll == before | {AT_A_TIME: spark.conf.get(AT_A_TIME)}
    assert seen[-1].planned == USERS
    assert seen[-1].accepted == USERS
    assert seen[-1].not_sent == 0
    assert {progress.planned for progress in seen} == {USERS}
    with pytest.raises(ConfigurationError, match="on_progress must be"):
        send(audience(), HELLO, on_progress=seen)


def test_ids_may_be_numbers_and_columns_may_have_any_name(spark, send, service):
    df = spark.range(30).selectExpr("CAST(id AS DECIMAL(30, 0)) * 100000000000000000000 AS `a``b.c d`")
    report = send(df, MobilePush(title={"en": "Hello"}), primary_key="a`b.c d", custom_fields={"a": 1}, tasks=3)
    assert service.users().keys() == {str(number * 10**20) for number in range(30)}
    assert report.accepted == 30
    assert report.tasks == 3
    assert {json.dumps(fields) for _, fields in service.texts().values()} == {'{"a": 1}'}


def test_ten_thousand_odd_ids_arrive_as_they_are_and_the_driver_warns_of_damaged_ones(spark, send, service, tmp_path):
    users = odd_ids(SEED)
    pq.write_table(pa.table({"user_id": users}), tmp_path / "users.parquet")
    frame = spark.read.parquet(str(tmp_path / "users.parquet"))
    with pytest.warns(MessageWarning, match="^a user id .* such ids"):
        report = send(frame, HELLO, batching=Batching(max_users=1000))
    assert report.accepted == len(users)
    assert service.users() == dict.fromkeys(users, 1), f"seed {SEED}"


def test_ids_that_a_collation_holds_equal_are_two_users(spark, send, service):
    df = spark.sql("SELECT col1 COLLATE UTF8_LCASE AS user_id FROM VALUES ('Ann'), ('ann')")
    assert df.distinct().count() == 1
    assert send(df, HELLO).accepted == 2
    assert service.users() == {"Ann": 1, "ann": 1}


def test_an_empty_audience_is_an_empty_report(audience, send, service):
    assert send(audience(0), HELLO).planned == 0
    assert service.requests == 0


def test_each_row_fills_the_placeholders(audience, send, service):
    message = MobilePush(title={"en": f"Hello {placeholder('first name', 'you')}"})
    df = audience(250, **{"first name": "CASE WHEN id > 0 THEN concat('N', id) END", "age": "id"})
    assert send(df, message, personal="placeholders").accepted == 250
    texts = service.texts()
    assert texts["user-7"][0]["title"] == {"en": "Hello N7"}
    assert texts["user-0"][0]["title"] == {"en": "Hello you"}
    assert service.users() == names(250)


def test_each_row_is_its_custom_fields(audience, send, service):
    columns = {
        "text": "'x'",
        "whole": "id",
        "real": "1.5D",
        "exact": "CAST('12345678901234567890.10' AS DECIMAL(30, 2))",
        "day": "DATE'2026-01-31'",
        "moment": "TIMESTAMP'2026-01-31 10:00:00.25+02:00'",
        "clock": "TIMESTAMP_NTZ'2026-01-31 10:00:00'",
        "list": "array(1, 2)",
        "nested": "named_struct('a', true)",
        "map": "map('k', 'v')",
        "nothing": "CAST(NULL AS STRING)",
        "nan": "double('NaN')",
    }
    report = send(
        audience(120, **columns),
        HELLO,
        personal="custom_fields",
        fields=list(columns),
        custom_fields={"all": 1, "text": ""},
    )
    assert report.accepted == 120
    assert service.texts()["user-9"][1] == {
        "all": 1,
        "text": "x",
        "whole": 9,
        "real": 1.5,
        "exact": "12345678901234567890.10",
        "day": "2026-01-31",
        "moment": "2026-01-31T08:00:00.250000Z",
        "clock": "2026-01-31T10:00:00.000000",
        "list": [1, 2],
        "nested": {"a": True},
        "map": {"k": "v"},
    }


def test_the_frame_is_evaluated_once_whatever_its_owner_does_with_it(audience, send, service, tmp_path):
    from pyspark.sql.functions import udf

    evaluated = tmp_path / "evaluated"

    @udf("string", useArrow=False)
    def counted(user_id):
        with evaluated.open("a") as file:
            file.write(".")
        return user_id

    df = audience().withColumn("user_id", counted("user_id"))
    assert df.distinct().count() == USERS
    report = send(df, HELLO)
    assert evaluated.stat().st_size == 2 * USERS
    second = send(df, HELLO)
    assert evaluated.stat().st_size == 2 * USERS
    assert second == report
    assert service.users() == names()


# -- what the service does ------------------------------------------------------------------------------------------


def test_lost_responses_and_throttles_double_and_lose_no_user(audience, send, service):
    service.begin(
        [
            Fault.reset_after(every=9, name="lost"),
            Fault.status(429, retry_after=0, every=5, name="throttled"),
            Fault.reset_before(every=11, name="reset"),
        ]
    )
    report = send(audience(), HELLO, stop_policy=None)
    assert all(service.hits().values())
    pushed = service.users()
    outcomes = {row.user_id: row.outcome.name for row in report.rows()}
    assert outcomes.keys() == names().keys()
    verdict((outcome, pushed.get(user, 0), 0) for user, outcome in outcomes.items())
    assert report.accepted + report.unknown == USERS
    assert report.not_sent == 0
    service.begin()
    second = send(audience(), HELLO)
    assert second.accepted == report.accepted
    assert second.unknown == report.unknown
    assert service.requests == 0


def test_a_rejected_key_stops_the_sending_and_the_next_call_sends_the_rest(audience, send, service):
    service.begin([Fault.status(401)])
    report = send(audience(), HELLO)
    assert report.not_sent == USERS
    assert report.accepted == 0
    assert "401" in report.stopped
    with pytest.raises(BroadcastError, match="2,000 NOT_SENT"):
        report.raise_for_failures()
    service.begin()
    assert send(audience(), HELLO, tasks=5).accepted == USERS
    assert service.users() == names()


# -- what is refused ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changed", "output"),
    [
        ({"custom_fields": {}}, "another message"),
        ({"base_url": "https://elsewhere.example"}, "another base_url"),
        ({"primary_key": "other"}, "another primary_key"),
        ({"personal": "custom_fields", "fields": ["other"]}, "another kind"),
        ({"claims": lambda: DirectoryClaims("elsewhere")}, "another claim store"),
    ],
)
def test_a_run_of_something_else_is_refused(audience, send, service, changed, output):
    df = audience(10, other="id")
    send(df, HELLO)
    with pytest.raises(RunFileError, match=output):
        send(df, **{"message": HELLO, **changed})
    assert service.requests == 1


@pytest.mark.parametrize(
    ("sql", "output"),
    [
        (["CAST(NULL AS STRING) AS user_id"], r"7 rows have no user id \(NULL\) in 'user_id'"),
        (["'' AS user_id"], "7 rows have an empty user id"),
        (["id AS name"], "no column 'user_id'"),
        (["id AS user_id", "id AS user_id"], "several columns 'user_id'"),
        (["CAST(1.5 AS DECIMAL(4, 1)) AS user_id"], "of type decimal"),
    ],
)
def test_a_row_without_an_id_is_an_error_before_anything_is_sent(spark, send, service, tmp_path, sql, output):
    with pytest.raises(ValidationError, match=output):
        send(spark.range(7).selectExpr(*sql), HELLO)
    assert service.requests == 0
    assert not (tmp_path / "run" / "plan").exists()


def test_a_column_without_a_form_in_json_is_an_error(audience, send):
    df = audience(7, photo="binary('x')")
    with pytest.raises(ValidationError, match="'photo' is of type binary"):
        send(df, HELLO, personal="custom_fields", fields=["photo"])
    with pytest.raises(ValidationError, match="did you mean fields='photo'"):
        send(df, HELLO, personal="custom_fields", fields=["photos"])


def test_a_wrong_argument_is_an_error(spark, audience, send):
    for df in (None, [{"user_id": "a"}]):
        with pytest.raises(ValidationError, match="df must be a DataFrame of Spark"):
            send(df, HELLO)
    with pytest.raises(ValidationError, match="df is a stream"):
        send(spark.readStream.format("rate").load(), HELLO)
    for tasks in (0, True):
        with pytest.raises(ConfigurationError, match="tasks must be a whole number"):
            send(audience(1), HELLO, tasks=tasks)


def test_an_error_of_the_frame_is_raised_unchanged(audience, send):
    from pyspark.errors import PySparkException

    with pytest.raises(PySparkException, match="DIVIDE_BY_ZERO"):
        send(audience(5).selectExpr("user_id", "1 / (length(user_id) - 6) AS x").where("x = 1"), HELLO)


# -- when the job fails ---------------------------------------------------------------------------------------------


def _no_claims(driver, folder):
    """In an executor a folder that can't be."""
    return DirectoryClaims(folder / "claims" if os.getpid() == driver else folder / "no" / "claims")


def test_a_failed_job_names_the_cause_and_the_fix(audience, send, service, tmp_path):
    with pytest.raises(BroadcastError) as excinfo:
        send(audience(), HELLO, claims=partial(_no_claims, os.getpid(), tmp_path))
    assert re.search(
        r"the job failed \(.*claim store failed \(FileNotFoundError: .*does its folder exist\?\).*\): call broadcast "
        "with the same arguments to send the rest, no user is pushed twice$",
        str(excinfo.value),
    )
    assert excinfo.value.outcome is Outcome.UNKNOWN
    assert type(excinfo.value.__cause__).__module__.startswith("pyspark.")
    assert "user-" not in str(excinfo.value)
    with pytest.raises(RunFileError, match="no sending came to its end"):
        read_report(tmp_path / "run")
    (tmp_path / "no").mkdir()
    with pytest.raises(BroadcastError, match="an executor does not see the claims that the driver made"):
        send(audience(), HELLO, claims=partial(_no_claims, os.getpid(), tmp_path))
    assert service.users() == {}
    # At once, as a task of the failed job may still write into it.
    (tmp_path / "no").rename(tmp_path / "gone")
    (tmp_path / "no").symlink_to(tmp_path)
    report = send(audience(), HELLO, claims=partial(_no_claims, os.getpid(), tmp_path))
    # A task of the failed job may still have found the claims, and was ended in the middle.
    assert report.accepted + report.unknown == USERS
    assert report.not_sent == 0
    assert set(service.users().values()) == {1}


def test_a_job_that_fails_in_the_middle_can_be_reported_and_resumed(audience, send, service, tmp_path):
    def ends(self, batches):
        for number, batch in enumerate(_run.SendPartition.__call__(self, batches)):
            if number == 3:
                raise RuntimeError("enough")
            yield batch

    # So many that what it has sent before it is told is not all.
    many = 3 * USERS
    service.begin([Fault.reset_after(user="user-7"), Fault.delay(0.02)])
    with sending_by(ends), pytest.raises(BroadcastError) as excinfo:
        send(audience(many), HELLO, tasks=1)
    assert str(excinfo.value) == (
        f"{tmp_path / 'run'}: the job failed (its cause says why): call broadcast with the same arguments to send the "
        "rest, no user is pushed twice; pushsdk.spark.read_report(run_dir) tells the outcomes so far"
    )
    assert "enough" in str(excinfo.value.__cause__)
    # A worker may still be at its end.
    before = service.users()
    report = read_report(tmp_path / "run")
    outcomes = {row.user_id: row.outcome for row in report.rows()}
    assert outcomes.keys() == names(many).keys()
    assert report.accepted > 0
    assert report.not_sent > 0
    assert {outcomes[user] for user in before} <= {Outcome.ACCEPTED, Outcome.UNKNOWN}
    assert {row.user_id for row in report.rows(Outcome.ACCEPTED)} <= service.users().keys()
    assert not report.in_use
    assert report.rejected == 0
    assert "call broadcast with the same arguments" in str(report.stopped)
    after = send(audience(many), HELLO)
    assert after.accepted + after.unknown == many
    assert set(service.users().values()) == {1}


def test_tasks_that_could_not_send_are_an_error_before_anything_is_planned(audience, send, service, tmp_path):
    with pytest.raises(ConfigurationError) as excinfo:
        send(audience(10), HELLO, base_url="http://127.0.0.1:1", allow_insecure=True)
    assert str(excinfo.value) == (
        "no executor can connect to 127.0.0.1:1 (Connection refused); nothing was sent. If Spark's functions have no "
        "network or no shared files, as in serverless compute, send from this process: "
        "client.broadcast(Audience.table(df.toArrow()), ...)"
    )
    assert list((tmp_path / "run").iterdir()) == []
    for address, options in ((443, {}), (2, {"proxy": "http://127.0.0.1:2"})):
        with pytest.raises(ConfigurationError, match=rf"to 127\.0\.0\.1:{address} "):
            send(audience(10), HELLO, base_url="https://127.0.0.1", **options)


def test_an_executor_that_does_not_see_the_folder_is_an_error(audience, send, service, tmp_path):
    def lost(plan, *arguments):
        return cut_partition(plan / "elsewhere", *arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_run, "cut_partition", lost)
        with pytest.raises(RunFileError, match="does not see run_dir as this process does"):
            send(audience(5), HELLO)
    assert service.requests == 0


def test_executors_without_the_package_are_an_error(audience, send, monkeypatch):
    def freeze(*_, **__):
        raise RuntimeError("Traceback ...\n  import x\nModuleNotFoundError: No module named 'pushsdk'\n\n\tat java")

    monkeypatch.setattr(_run, "_freeze", freeze)
    with pytest.raises(RunFileError, match=r"the executors' Python has no pushsdk: .*PYSPARK_PYTHON.*nothing was sent"):
        send(audience(10), HELLO)


@pytest.mark.parametrize("sizes", [[0, 2, 3], [0, 0, 2, 3]], ids=["one is lost", "another is there twice"])
def test_outcomes_that_are_not_of_each_user_once_are_an_error(audience, send, service, sizes):
    def some(self, batches):
        for batch in _run.SendPartition.__call__(self, batches):
            yield batch.take([*sizes, *range(4, len(batch))])

    with sending_by(some), pytest.raises(RunFileError, match="the plan of 100, and not each of them is there once"):
        send(audience(100), HELLO)
    assert send(audience(100), HELLO).accepted == 100
    assert service.users() == names(100)


# -- the parts, here and not in an executor -------------------------------------------------------------------------


@pytest.mark.parametrize("claims_address", ["nothing", "a folder", "a folder in it"])
def test_a_run_whose_claims_were_removed_is_not_resumed(audience, send, service, tmp_path, claims_address):
    service.fail([Fault.status(401)])
    assert send(audience(), HELLO).not_sent == USERS
    service.fail([])
    claims = tmp_path / "run" / "claims"
    shutil.rmtree(claims)
    if claims_address != "nothing":
        (claims / "00" if claims_address == "a folder in it" else claims).mkdir(parents=True)
    with pytest.raises((RunFileError, ConfigurationError), match=r"its claims are gone|holds other files"):
        send(audience(), HELLO)
    assert service.users() == {}
    # The moved file can be put back.
    assert claims.exists() is (claims_address != "nothing")


def test_a_complete_run_is_reported_without_its_claims(audience, send, service, tmp_path):
    report = send(audience(), HELLO)
    shutil.rmtree(tmp_path / "run" / "claims")
    assert send(audience(), HELLO) == report
    assert service.users() == names()


def test_claims_may_be_in_an_object_store(audience, send, service, objects):
    claims = partial(object_claims, objects.url, "spring")
    service.fail([Fault.status(401)])
    assert send(audience(), HELLO, claims=claims).not_sent == USERS
    service.fail([])
    for _ in range(2):
        assert send(audience(), HELLO, claims=claims).accepted == USERS
    assert service.users() == names()
    assert len(objects.objects) > 1


def test_a_task_checks_the_run_of_the_folder(audience, send, service, tmp_path):
    send(audience(3), HELLO)
    folder = RunFolder(tmp_path / "run")
    manifest = folder.manifest()
    claims = partial(DirectoryClaims, folder.claims)
    sending = {"message": HELLO, "base_url": service.base_url, "claims": claims, "run": manifest.run, "rate": Share()}
    # Not seen so far.
    outcomes = str(folder.path / "outcomes" / "0002")
    sender = SendPartition(outcomes, sending)
    plan = ds.dataset(folder.plan(manifest.run), format="parquet").to_table().to_batches()
    rows = [row for batch in sender(plan) for row in batch.to_pylist()]
    assert {row["user_id"]: row["outcome"] for row in rows} == dict.fromkeys(names(3), "ACCEPTED")
    assert service.users() == names(3)
    with pytest.raises(ConfigurationError, match="an executor does not see the claims"):
        next(SendPartition(outcomes, sending | {"run": "another"})(plan))
    assert [folder.new_outcomes().name for _ in range(2)] == ["0002", "0003"]
    with pytest.raises(ConfigurationError, match="another call of broadcast sends the rest of this run"):
        next(sender(plan))


def test_a_plan_that_does_not_read_as_it_was_written_is_not_sealed(spark, tmp_path):
    rows = [{"chunk_id": "1", "user_ids": [name], "rows": 1} for name in "ab"]
    pq.write_table(pa.Table.from_pylist(rows, chunk_schema()), tmp_path / "part.parquet")
    with pytest.raises(RunFileError, match="does not read as it was written"):
        _run.count(spark, RunFolder(tmp_path), tmp_path, primary_key="user_id")


def test_each_task_knows_which_part_of_the_rate_is_its_own(audience, send, service, tmp_path):
    def noted(self, batches):
        from pushsdk.spark import _tasks

        rate = _tasks.of_task(self.options, _tasks._task_number())["rate"]
        (tmp_path / f"rate-{rate.index}").write_text(f"{rate.users_per_second} of {rate.count}")
        yield from _run.SendPartition.__call__(self, batches)

    with sending_by(noted):
        assert send(audience(300), HELLO, tasks=3, rate=Rate(users_per_second=3000)).accepted == 300
    assert {path.name: path.read_text() for path in tmp_path.glob("rate-*")} == {
        f"rate-{place}": "1000.0 of 3" for place in range(3)
    }


# -- what must not be seen ------------------------------------------------------------------------------------------


def test_the_key_is_in_no_file(spark, audience, send, service, tmp_path, capfd):
    send(audience(), HELLO)
    key = service.api_key.encode()
    events = Path(spark.conf.get("spark.eventLog.dir").removeprefix("file://"))
    local = Path(spark.conf.get("spark.local.dir"))
    files = [path for folder in (tmp_path, events, local) for path in folder.rglob("*") if path.is_file()]
    assert {"manifest.json"} < {path.name for path in files}
    assert any(path.is_relative_to(events) for path in files)
    assert [path for path in files if key in path.read_bytes()] == []
    output = "".join(capfd.readouterr())
    assert service.api_key not in output
    assert "user-1" not in output
