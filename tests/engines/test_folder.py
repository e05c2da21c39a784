"""The folder of a run: valid paths, permissions, the manifest, reports, and the rest of a crash."""

import asyncio
import io
import stat
from datetime import date
from functools import partial
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pushsdk import ClaimStoreError, ConfigurationError, Outcome, RunFileError, RunInUseError
from pushsdk._core.idempotency import digest_of
from pushsdk.claims import MemoryClaims
from pushsdk.spark import DirectoryClaims, SparkReport, _run, read_report
from pushsdk.spark._folder import Manifest, RunFolder, call_store, has_sentinel, plant_sentinel
from pushsdk.spark._preflight import content_digest, mismatch
from pushsdk.spark._tasks import SendPartition

DAY = 86400.0
MANIFEST = Manifest(
    run="f00d",
    kind="broadcast",
    digest="d1",
    base_url="https://push.example",
    primary_key="user_id",
    claims="DirectoryClaims of the run",
    max_users=1000,
    users=3,
    duplicates=1,
    checksum="77",
    created=1_000_000.0,
    claim_ttl=2 * 86400.0,
)


def wanted(*, days=0.0, **fields):
    """Return the run that is asked for ``days`` after the plan."""
    return msgspec.structs.replace(MANIFEST, created=MANIFEST.created + days * DAY, claim_ttl=3 * DAY, **fields)


@pytest.fixture
def folder(tmp_path):
    return RunFolder(tmp_path / "run")


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("s3a://bucket/run", "not a URI"),
        ("dbfs:/run", "not a URI"),
        ("", "run_dir must be a path"),
        (b"run", "run_dir must be a path"),
        *((f"/runs/{name}", "can't take") for name in ("a*", "a?", "[a]", "a,b", "a:b", "a\\b", "a\nb")),
    ],
)
def test_a_value_that_is_not_a_path_or_that_hadoop_reads_as_a_pattern_is_an_error(value, text):
    with pytest.raises(ConfigurationError, match=text):
        RunFolder(value)


def test_a_run_whose_value_is_missing_is_refused():
    with pytest.raises(RunFileError, match="date'>: the name has a placeholder instead"):
        RunFolder(f"/runs/daily-{date}")


def test_it_is_for_its_owner_only(folder):
    with folder.locked():
        plan = folder.new_plan("f00d")
        outcomes = folder.new_outcomes()
        folder.claims.mkdir(mode=0o700)
        folder.seal(MANIFEST)
        folder.conclude(outcomes, SparkReport())
        paths = list(folder.path.rglob("*"))
        assert {plan, outcomes, folder.claims} <= set(paths)
        assert [path for path in [folder.path, *paths] if mode(path) != (0o700 if path.is_dir() else 0o600)] == []


def test_a_locked_folder_and_an_unusable_folder_have_different_errors(tmp_path, folder):
    (tmp_path / "file").touch()
    with pytest.raises(RunFileError, match="can't be used: "), RunFolder(tmp_path / "file").locked():
        pass
    with folder.locked(), pytest.raises(RunInUseError, match="in use"), RunFolder(folder.path).locked():
        pass


def test_a_symbolic_link_is_an_error(tmp_path):
    (tmp_path / "there").mkdir()
    (tmp_path / "link").symlink_to("there")
    with pytest.raises(RunFileError, match="symbolic link"), RunFolder(tmp_path / "link").locked():
        pass


@pytest.mark.parametrize("text", ["{", '{"format": 1}'])
def test_a_damaged_manifest_is_an_error(folder, text):
    folder.path.mkdir()
    (folder.path / "manifest.json").write_text(text)
    with pytest.raises(RunFileError, match=r"manifest\.json can't be read"):
        folder.manifest()


def test_a_manifest_of_another_version_is_an_error(folder):
    folder.path.mkdir()
    folder.seal(msgspec.structs.replace(MANIFEST, format=3))
    with pytest.raises(RunFileError, match="another version"):
        folder.manifest()


def test_a_folder_that_can_not_be_written_is_an_error(folder):
    folder.path.mkdir()
    (folder.path / "plan").touch()
    with pytest.raises(RunFileError, match="can't be written to"):
        folder.new_plan("f00d")
    (folder.path / "manifest.json").mkdir()
    with pytest.raises(RunFileError, match=r"manifest\.json can't be written"):
        folder.seal(MANIFEST)


def test_the_rest_of_an_earlier_plan_is_removed(folder):
    folder.path.mkdir()
    path = folder.new_plan("1") / "part"
    path.touch()
    assert folder.new_plan("2").is_dir()
    assert not path.exists()
    folder.drop_plans()
    assert not (folder.path / "plan").exists()


def test_each_sending_has_its_own_outcomes(folder):
    folder.path.mkdir()
    folder.check_unsealed()
    assert [folder.new_outcomes().name for _ in range(3)] == ["0001", "0002", "0003"]
    with pytest.raises(RunFileError, match="no manifest"):
        folder.check_unsealed()


def test_the_last_sending_counts_if_it_has_concluded(folder):
    folder.path.mkdir()
    assert folder.concluded(MANIFEST) is None
    first, second = (folder.new_outcomes() for _ in range(2))
    folder.conclude(first, SparkReport(accepted=1))
    assert folder.concluded(MANIFEST) is None
    folder.conclude(second, SparkReport(accepted=2))
    report = folder.concluded(MANIFEST)
    assert report.accepted == 2
    assert report.planned == MANIFEST.users
    assert report.file == str(second)
    folder.new_outcomes()
    assert folder.concluded(MANIFEST) is None


def test_users_are_unknown_if_their_outcomes_can_not_be_concluded(folder):
    folder.path.mkdir()
    outcomes = folder.new_outcomes()
    outcomes.with_suffix(".json").mkdir()
    with pytest.raises(RunFileError, match="can't be written") as excinfo:
        folder.conclude(outcomes, SparkReport())
    assert excinfo.value.outcome is Outcome.UNKNOWN


def test_a_plan_that_spark_wrote_elsewhere_is_an_error(folder):
    folder.path.mkdir()
    with pytest.raises(RunFileError, match="Spark's driver writes its files elsewhere"):
        _run.count(None, folder, folder.new_plan("f00d"), primary_key="user_id")


def test_a_store_is_recognized_by_the_sentinel(tmp_path):
    make = partial(DirectoryClaims, tmp_path / "claims")
    plant_sentinel(make, "f00d")
    assert has_sentinel(make, "f00d") is True
    assert not has_sentinel(make, "beef")
    assert not has_sentinel(partial(DirectoryClaims, tmp_path / "others"), "f00d")


def test_a_failing_store_is_an_error_before_anything_is_sent(tmp_path):
    with pytest.raises(ClaimStoreError, match=r"the claim store failed \(FileNotFoundError: No such file"):
        has_sentinel(partial(DirectoryClaims, tmp_path / "no" / "claims"), "f00d")
    (tmp_path / "else").mkdir()
    (tmp_path / "else" / "file").touch()
    with pytest.raises(ConfigurationError, match="holds other files"):
        plant_sentinel(partial(DirectoryClaims, tmp_path / "else"), "f00d")


class Clinging(MemoryClaims):
    """Answers, and does not close as it should."""

    def __init__(self, error=None):
        super().__init__()
        self.timeout, self.error = 0.05, error

    async def aclose(self):
        if self.error is None:
            await asyncio.Event().wait()
        else:
            raise self.error


@pytest.mark.parametrize(
    ("error", "kind"), [(OSError("redis://user:secret@host is gone"), "OSError"), (None, "TimeoutError")]
)
def test_a_store_that_does_not_close_is_logged_with_the_kind_of_error(error, kind, caplog):
    assert call_store(partial(Clinging, error), lambda store: store.get([digest_of("f00d")])) == [None]
    assert caplog.messages == [f"the claim store could not be closed ({kind})"]


# -- what is compared -----------------------------------------------------------------------------------------------


def test_the_same_run_is_resumed():
    assert mismatch(MANIFEST, wanted(days=1.0)) is None


def test_an_executor_with_other_claims_is_an_error(folder, tmp_path):
    sender = SendPartition(str(folder.path), {"run": "f00d", "claims": partial(DirectoryClaims, tmp_path / "others")})
    with pytest.raises(ConfigurationError, match="does not see the claims that the driver made"):
        next(sender([]))


def test_a_run_whose_claims_may_expire_is_not_resumed():
    reason = mismatch(MANIFEST, wanted(days=1.1))
    assert reason == (
        "the run was planned 1.1 days ago, over half of the 2.0 that its claims are kept. Nothing is sent: claims that "
        "expire would have users pushed twice. Plan a new run for the others"
    )


def test_a_digest_covers_everything_sent():
    hello = {"title": {"en": "Hello"}}
    payloads = [(hello, None, ()), ({"title": {"en": "Hello!"}}, None, ()), (hello, {}, ()), (hello, {"a": 1}, ())]
    payloads += [(hello, None, fields) for fields in (("a",), ("a", "b"), ("ab",))]
    digests = [content_digest(*payload) for payload in payloads]
    assert len({*digests}) == len(digests)
    assert digests[0] == content_digest(*payloads[0])


# -- the report -----------------------------------------------------------------------------------------------------


def concluded(folder):
    folder.path.mkdir()
    folder.seal(MANIFEST)
    outcomes = folder.new_outcomes()
    kinds = {"user_id": pa.string(), "outcome": pa.string(), "status": pa.int16(), "reason": pa.string()}
    rows = [("a", "ACCEPTED", 204, ""), ("b", "UNKNOWN", None, "no answer"), ("=c", "NOT_SENT", 429, None)]
    for number, part in enumerate((rows[:2], rows[2:])):
        table = pa.Table.from_pylist([dict(zip(kinds, row, strict=True)) for row in part], pa.schema(kinds))
        pq.write_table(table, outcomes / f"part-{number}.parquet")
    (outcomes / "_SUCCESS").touch()
    folder.conclude(outcomes, SparkReport(accepted=1, unknown=1, not_sent=1, seconds=2.5, tasks=4, stopped="paused"))
    return read_report(folder.path)


def test_the_report_has_the_counts_and_a_row_for_every_user_and_is_written_as_csv(folder):
    report = concluded(folder)
    assert report.planned == 3
    assert report.duplicates == 1
    assert report.accepted == 1
    assert report.unknown == 1
    assert report.not_sent == 1
    assert report.seconds == 2.5
    assert report.tasks == 4
    assert report.stopped == "paused"
    assert report.run == str(folder.path)
    rows = sorted((row.user_id, row.outcome, row.status, row.reason) for row in report.rows())
    assert rows == [("=c", "NOT_SENT", 429, ""), ("a", "ACCEPTED", 204, ""), ("b", "UNKNOWN", None, "no answer")]
    assert {row.user_id for row in report.rows(Outcome.UNKNOWN, Outcome.ACCEPTED)} == {"a", "b"}
    assert report.write_csv(file := io.StringIO(), Outcome.NOT_SENT) == 1
    assert file.getvalue() == 'user_id,outcome,status,reason\n"\'=c","NOT_SENT","429",""\n'


@pytest.mark.parametrize("damage", ["cut", "gone"])
def test_damaged_outcomes_are_an_error(folder, damage):
    report = concluded(folder)
    part = Path(report.file) / "part-0.parquet"
    part.write_bytes(part.read_bytes()[:-9])
    if damage == "gone":
        Path(report.file).rename(folder.path / "elsewhere")
    with pytest.raises(RunFileError, match="can't be read"):
        list(report.rows())


def test_a_report_without_a_run_is_an_error(folder, tmp_path):
    with pytest.raises(RunFileError, match="there is no run"):
        read_report(folder.path)
    with pytest.raises(RunFileError, match="there is no run"):
        list(SparkReport(run=str(folder.path)).rows())
    (tmp_path / "file").touch()
    with pytest.raises(RunFileError, match=r"file: its manifest\.json can't be read"):
        read_report(tmp_path / "file")
