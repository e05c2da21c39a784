"""A worker is killed twice during ten thousand jobs: every job is accounted for, and no user is pushed twice."""

import signal

import pytest
from support.worker_frameworks import FRAMEWORKS
from support.worker_lab import Crash, bereaved, lived

from pushsdk.emulator import Fault
from pushsdk.emulator.faults import preset

SIGKILL, SIGTERM = signal.SIGKILL, signal.SIGTERM
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
        accepted, outcomes = summary.accepted.get(f"user-{order}", 0), summary.outcomes.get(order, set())
        if "ACCEPTED" in outcomes:
            assert accepted == 1, order
        elif "UNKNOWN" not in outcomes:
            assert accepted == 0, order
    assert sum("ACCEPTED" in outcome for outcome in summary.outcomes.values()) > 8_000


@pytest.mark.parametrize("name", FRAMEWORKS)
def test_without_an_idempotency_key_a_user_is_pushed_twice(name, tmp_path, redis_url):
    # Every other request is slow, so a push is in flight at the kill and accepted afterwards.
    crashes, faults = [Crash(100, SIGKILL), Crash(200, SIGKILL)], [Fault.delay(0.1, every=2)]
    summary = lived(name, tmp_path, redis_url, jobs=300, crashes=crashes, faults=faults, idempotent=False)
    assert summary.doubled > 0


def test_a_job_whose_pool_process_is_killed_is_delivered_again(tmp_path, redis_url):
    assert bereaved("celery", tmp_path, redis_url).accepted == {"user-00000": 1}
