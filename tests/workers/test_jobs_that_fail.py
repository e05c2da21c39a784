"""Jobs whose push fails: what may be repeated comes again until it is through, anything else is done, once."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.worker_frameworks import FRAMEWORKS
from support.worker_lab import outlived

from pushsdk.emulator import Fault

FAULTS = [
    # For more than the four attempts of one delivery, and with no pause as after a 429: workers under test are hasty.
    Fault.status(408, user="user-00000", first=10),
    Fault.status(400, user="user-00001"),
    Fault.status(500, user="user-00002", accepted=True),
]


@pytest.mark.parametrize("name", FRAMEWORKS)
def test_what_may_be_repeated_comes_again_and_nothing_else(name: str, tmp_path: Path, redis_url: str) -> None:
    # Any of the four alone comes more often than arq, taskiq and Celery would try by themselves: 5, 3 and 3 times.
    told = outlived(name, tmp_path, redis_url, faults=FAULTS, jobs=4, tries=4 * 6)
    assert told.outcomes == {
        "00000": {"ACCEPTED": 1},
        "00001": {"REJECTED": 1},
        "00002": {"UNKNOWN": 1},
        "00003": {"ACCEPTED": 1},
    }
    assert told.accepted == {"user-00000": 1, "user-00002": 1, "user-00003": 1}
