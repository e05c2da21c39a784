"""Deduplication in memory, on disk and of rows, and the memory it takes."""

import errno
import io
import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from support.memory import peak_of

from pushsdk import RunFileError
from pushsdk._audience.distinct import Distinct

# Small enough that some dozens of ids fill the set, and a part has to be read in several shares.
NEXT_TO_NOTHING = 200
TINY = 10_000
ROOMY = 64 * 1024 * 1024
MEMORIES = st.sampled_from([NEXT_TO_NOTHING, TINY, ROOMY])


def through(batches):
    """Read all that comes out with hardly any memory."""
    with Distinct(memory=NEXT_TO_NOTHING) as distinct:
        for batch in batches:
            distinct.add(batch)
        for _ in distinct.finish():
            pass


def test_ids_come_out_once_in_their_order_and_in_no_empty_batch():
    with Distinct() as distinct:
        assert distinct.add(["NULL", "a", "NULL"]) == [["NULL", "a"]]
        assert distinct.add(["c", "a"]) == [["c"]]
        assert distinct.add(["a", "a"]) == distinct.add([]) == list(distinct.finish()) == []
        assert distinct.duplicates == 4


rows = st.tuples(st.sampled_from("abcdefgh"), st.fixed_dictionaries({"n": st.integers(0, 99)}))


@example([], [[("a", {"n": 0})], [("b", {"n": 1}), ("b", {"n": 2})]], NEXT_TO_NOTHING, True)
@given(st.lists(st.lists(st.sampled_from("abcdxy"))), st.lists(st.lists(rows)), MEMORIES, st.booleans())
def test_whatever_the_memory_the_first_row_of_an_id_comes_out_and_none_of_an_excluded_id(
    excluded, parts, memory, whole
):
    rows = [row for part in parts for row in part]
    left_out = {user for part in excluded for user in part}
    first = dict(reversed(rows))
    with Distinct(rows=whole, memory=memory) as distinct:
        for part in excluded:
            distinct.exclude(part)
        batches = parts if whole else [[user for user, _ in part] for part in parts]
        out = [item for batch in batches for fresh in distinct.add(batch) for item in fresh]
        out += [item for batch in distinct.finish() for item in batch]
    expected = {user: fields for user, fields in first.items() if user not in left_out}
    assert sorted(out) == sorted(expected.items() if whole else expected)
    assert distinct.excluded == len(first) - len(expected)
    assert distinct.duplicates == len(rows) - len(first)


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs a list of open files")
def test_the_file_has_no_name_and_is_gone_when_closed(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(RuntimeError), Distinct(memory=NEXT_TO_NOTHING) as distinct:
        distinct.add(["a", "b"])
        distinct.add([f"user-{i}" for i in range(1000)])
        assert list(tmp_path.iterdir()) == []
        assert len(os.listdir("/proc/self/fd")) == before + 2
        raise RuntimeError
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize("step", ["made", "written", "read"])
def test_a_disk_that_fails_says_where_to_make_room(step, monkeypatch):
    def fail(now):
        if now == step:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    class Full(io.BytesIO):
        def __init__(self, **_):
            fail("made")

        def write(self, data):
            fail("written")
            return super().write(data)

        def read(self, size=-1):
            fail("read")
            return super().read(size)

    monkeypatch.setattr(tempfile, "TemporaryFile", Full)
    text = r"can't be kept \(No space left on device\), and nothing was sent: make room"
    with pytest.raises(RunFileError, match=text):
        through([["a"] * 9, *([f"user-{i}"] for i in range(100))])


SPILL = """
from pushsdk._audience.distinct import Distinct
def batches(stop):
    for start in range(0, stop, 10_000):
        yield [f"user-{i * 7919 % 1_000_003:08}" for i in range(start, start + 10_000)]
before, count = peak(), 0
with Distinct(memory=16 * 1024 * 1024) as distinct:
    for ids in batches(int(sys.argv[1])):
        distinct.exclude(ids)
    for ids in batches(1_000_000):
        count += sum(map(len, distinct.add(ids)))
    for rest in distinct.finish():
        count += len(rest)
print(count, peak() - before)
"""


def test_a_million_ids_take_no_more_than_the_memory_given():
    count, kilobytes = peak_of(SPILL, 600_000)
    assert count == 400_000
    assert kilobytes < 30 * 1024  # as a set they are 120 MB
