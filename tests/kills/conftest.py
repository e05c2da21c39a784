"""Processes to kill."""

from collections.abc import Iterator

import pytest
from support.kill_nursery import Nursery


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    with Nursery() as nursery:
        yield nursery
