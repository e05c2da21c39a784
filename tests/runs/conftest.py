"""Processes that tests kill."""

import pytest
from support.kill_nursery import Nursery


@pytest.fixture(scope="module")
def nursery():
    with Nursery() as nursery:
        yield nursery
