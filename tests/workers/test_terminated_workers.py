"""SIGTERM to a worker, for example by a deployment: jobs in flight are finished, and the client is closed."""

import pytest
from support.worker_frameworks import FRAMEWORKS
from support.worker_lab import terminated


@pytest.mark.parametrize("name", FRAMEWORKS)
def test_a_worker_finishes_its_jobs_and_closes_its_client(name, tmp_path, redis_url):
    summary = terminated(name, tmp_path, redis_url, jobs=2)
    assert summary.outcomes == {"00000": {"ACCEPTED": 1}, "00001": {"ACCEPTED": 1}}
    assert summary.accepted == {"user-00000": 1, "user-00001": 1}
    assert "never awaited" not in summary.log
    assert "Traceback" not in summary.log
