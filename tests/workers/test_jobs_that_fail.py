"""Jobs with a failing push: retryable failures are logged and redelivered until accepted, all others end once."""

import pytest
from support.worker_frameworks import FRAMEWORKS
from support.worker_lab import outlived

from pushsdk.emulator import Fault

FAULTS = [
    # More than the four attempts of one delivery, and without the pause of a 429, to keep the test short.
    Fault.status(408, user="user-00000", first=10),
    Fault.status(400, user="user-00001"),
    Fault.status(500, user="user-00002", accepted=True),
]


@pytest.mark.parametrize("name", FRAMEWORKS)
def test_only_retryable_failures_are_redelivered(name, tmp_path, redis_url):
    # Each job has more deliveries than arq, taskiq and Celery make by default: 5, 3 and 3.
    summary = outlived(name, tmp_path, redis_url, faults=FAULTS, jobs=4, tries=4 * 6)
    assert summary.outcomes == {
        "00000": {"ACCEPTED": 1},
        "00001": {"REJECTED": 1},
        "00002": {"UNKNOWN": 1},
        "00003": {"ACCEPTED": 1},
    }
    assert summary.accepted == {"user-00000": 1, "user-00002": 1, "user-00003": 1}
    # At the default log level, or above it.
    assert "not sent: the connection could not be opened" in summary.log
