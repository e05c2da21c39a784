"""Processes to kill."""

import os

import pytest
from support.kill_nursery import Nursery


@pytest.fixture(scope="module")
def nursery():
    if not hasattr(os, "fork"):
        pytest.skip("its processes are forked")
    with Nursery() as nursery:
        yield nursery
