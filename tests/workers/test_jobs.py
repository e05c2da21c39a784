"""Jobs whose worker is killed or terminated, or whose push fails: each is accounted for, no user is pushed twice."""

import signal

import pytest
from support.worker_frameworks import FRAMEWORKS
from support.worker_lab import Crash, lived, outlived, terminated

from pushsdk.emulator import Fault
from pushsdk.emulator.faults import preset

SIGKILL = signal.SIGKILL
SIGTERM = signal.SIGTERM
ORDERS = [f"{number:05}" for number in range(10_000)]


@pytest.mark.parametrize("name", FRAMEWORKS)
def test_with_an_idempotency_key_no_user_is_pushed_twice(name, tmp_path, redis_url):
    crashes = [Crash(3_000, SIGKILL), Crash(6_000, SIGTERM)]
    faults = preset("flaky").faults
    summary = lived(name, tmp_path, redis_url, jobs=10_000, crashes=crashes, faults=faults, idempotent=True)
    assert summary.doubled == 0
    lost = set(ORDERS) - summary.outcomes.keys()
    assert len(lost) <= (5 if FRAMEWORKS[name].left else 0)
    for order in ORDERS:
        accepted = summary.accepted.get(f"user-{order}", 0)
        outcomes = summary.outcomes.get(order, set())
        if "ACCEPTED" in outcomes:
            assert accepted == 1, order
        elif "UNKNOWN" not in outcomes:
            assert accepted == 0, order
    assert sum("ACCEPTED" in outcome for outcome in summary.outcomes.values()) > 8_000


@pytest.mark.parametrize("name", FRAMEWORKS)
def test_without_an_idempotency_key_a_user_is_pushed_twice(name, tmp_path, redis_url):
    # Every other request is slow, so a push is in flight at the kill and accepted afterwards.
    crashes = [Crash(100, SIGKILL), Crash(200, SIGKILL)]
    faults = [Fault.delay(0.1, every=2)]
    summary = lived(name, tmp_path, redis_url, jobs=300, crashes=crashes, faults=faults, idempotent=False)
    assert summary.doubled > 0


@pytest.mark.parametrize("name", FRAMEWORKS)
def test_a_worker_finishes_its_jobs_and_closes_its_client(name, tmp_path, redis_url):
    summary = terminated(name, tmp_path, redis_url, jobs=2)
    assert summary.outcomes == {"00000": {"ACCEPTED": 1}, "00001": {"ACCEPTED": 1}}
    assert summary.accepted == {"user-00000": 1, "user-00001": 1}
    assert "never awaited" not in summary.log
    assert "Traceback" not in summary.log


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
