"""Progress of a broadcast by Spark: what tasks write, and what the driver makes of it."""

import pyarrow as pa
import pytest

from pushsdk.spark._folder import counted, watched


def batch(**users):
    return pa.RecordBatch.from_pydict({"outcome": [name for name in users for _ in range(users[name])]})


def last_progress(folder):
    seen = []
    with watched(seen.append, folder, planned=20):
        pass
    return seen[-1]


def test_progress_is_the_sum_of_the_counts_of_all_tasks(tmp_path):
    list(counted(iter([batch(ACCEPTED=3), batch(ACCEPTED=2, UNKNOWN=1)]), str(tmp_path), 0))
    list(counted(iter([batch(REJECTED=4, NOT_SENT=5)]), str(tmp_path), 1))
    progress = last_progress(tmp_path)
    assert progress.stage == "sending"
    assert progress.planned == 20
    assert progress.accepted == 5
    assert progress.rejected == 4
    assert progress.unknown == 1
    assert progress.not_sent == 10


def test_a_repeated_task_replaces_its_counts_and_shows_them_from_its_first_batch_on(tmp_path):
    list(counted(iter([batch(ACCEPTED=9)]), str(tmp_path), 0))
    again = counted(iter([batch(ACCEPTED=3), batch(ACCEPTED=2)]), str(tmp_path), 0)
    assert next(again).num_rows == 3
    assert next(again).num_rows == 2
    progress = last_progress(tmp_path)
    assert progress.accepted == 3
    assert progress.not_sent == 17
    assert progress.eta == pytest.approx(17 / progress.rate)


def test_counts_that_can_not_be_written_end_no_task(tmp_path):
    assert len(list(counted(iter([batch(ACCEPTED=3)]), str(tmp_path / "gone"), 0))) == 1
    assert last_progress(tmp_path).eta is None


def test_an_on_progress_that_fails_is_logged(tmp_path, caplog):
    with watched(lambda progress: 1 / 0, tmp_path, planned=20):
        pass
    assert "on_progress raised ZeroDivisionError" in caplog.text
