"""Deduplication in memory, on disk and of rows, and the memory it takes."""

import errno
import io
import itertools
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pushsdk import RunFileError, ValidationError
from pushsdk._audience.distinct import Distinct

# Small enough that some dozens of ids fill the set, and a part has to be read in several shares.
NEXT_TO_NOTHING = 200
TINY = 10_000
ROOMY = 64 * 1024 * 1024

ids = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=4)
batches = st.lists(st.lists(ids, max_size=40), max_size=20)


def through(batches: Sequence[Sequence[str]], memory: int = ROOMY) -> tuple[list[str], int]:
    """All ids that come out, and how many were repeated."""
    with Distinct(memory=memory) as distinct:
        out = [user for batch in batches for fresh in distinct.add(batch) for user in fresh]
        out += [user for batch in distinct.finish() for user in batch]
        return out, distinct.duplicates


def test_ids_come_out_once_and_in_their_order() -> None:
    assert through([["b", "a", "b"], ["c", "a"]]) == (["b", "a", "c"], 2)


def test_a_batch_without_anything_new_gives_no_batch() -> None:
    with Distinct() as distinct:
        assert distinct.add(["a"]) == [["a"]]
        assert distinct.add(["a", "a"]) == []
        assert distinct.add([]) == []
        assert list(distinct.finish()) == []
        assert distinct.duplicates == 2


@given(batches, st.sampled_from([NEXT_TO_NOTHING, TINY, ROOMY]))
def test_whatever_the_memory_each_id_comes_out_exactly_once(parts: list[list[str]], memory: int) -> None:
    ids = list(itertools.chain.from_iterable(parts))
    out, duplicates = through(parts, memory)
    assert sorted(out) == sorted(set(ids))
    assert duplicates == len(ids) - len(out)


def test_ids_beyond_the_memory_come_out_at_the_end() -> None:
    with Distinct(memory=TINY) as distinct:
        users = [f"user-{i}" for i in range(2000)]
        early = [user for at in range(0, 2000, 10) for fresh in distinct.add(users[at : at + 10]) for user in fresh]
        late = list(distinct.finish())
    assert 0 < len(early) < 100
    assert early == users[: len(early)]
    assert sorted(early + [user for batch in late for user in batch]) == sorted(users)
    assert all(late)


def test_an_id_of_the_memory_does_not_come_out_again_from_the_disk() -> None:
    users = [f"user-{i}" for i in range(200)]
    out, duplicates = through([users, users, users[:1]], TINY)
    assert sorted(out) == sorted(users)
    assert duplicates == 201


def test_ids_that_repeat_only_on_disk_are_counted() -> None:
    first, second = [f"a{i}" for i in range(200)], [f"b{i}" for i in range(200)]
    out, duplicates = through([first, second, second], TINY)
    assert sorted(out) == sorted(first + second)
    assert duplicates == 200


def test_ids_of_all_alphabets_survive_the_disk() -> None:
    users = [f"{odd}{i}" for odd in ("\0", "\n", '"', "\\", "\u2028", "\U0001f600", "é", " ") for i in range(40)]
    assert sorted(through([users[:100], users[100:]], NEXT_TO_NOTHING)[0]) == sorted(users)


def test_a_subclass_of_str_survives_the_disk_as_plain_text() -> None:
    class Name(str):
        __slots__ = ()

    out, _ = through([["a", "b"], [Name(f"user-{i}") for i in range(100)]], NEXT_TO_NOTHING)
    assert len(out) == 102
    assert {*map(type, out)} == {str}


def test_an_id_that_is_not_unicode_is_an_error_when_it_is_spilled() -> None:
    with Distinct(memory=NEXT_TO_NOTHING) as distinct:
        distinct.add(["a", "b"])
        with pytest.raises(ValidationError, match="lone surrogate"):
            distinct.add(["b\ud800"])
            list(distinct.finish())


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs a list of open files")
def test_the_file_has_no_name_and_is_gone_when_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(RuntimeError), Distinct(memory=NEXT_TO_NOTHING) as distinct:
        distinct.add(["a", "b"])
        distinct.add([f"user-{i}" for i in range(1000)])
        assert list(tmp_path.iterdir()) == []
        assert len(os.listdir("/proc/self/fd")) == before + 1
        raise RuntimeError
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize("step", ["made", "written", "read"])
def test_a_disk_that_fails_says_where_to_make_room(step: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Full(io.BytesIO):
        def write(self, data: Any) -> int:
            return self._fails("written") or super().write(data)

        def read(self, size: int | None = -1) -> bytes:
            return self._fails("read") or super().read(size)

        def _fails(self, now: str) -> None:
            if now == step:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def made(**_: Any) -> Full:
        file = Full()
        file._fails("made")
        return file

    monkeypatch.setattr(tempfile, "TemporaryFile", made)
    with pytest.raises(
        RunFileError, match=r"can't be kept \(No space left on device\), and nothing was sent: make room"
    ):
        through([["a"] * 9, *([f"user-{i}"] for i in range(100))], NEXT_TO_NOTHING)


# -- rows -----------------------------------------------------------------------------------------------------------

rows = st.lists(st.lists(st.tuples(st.sampled_from("abcdefgh"), st.fixed_dictionaries({"n": st.integers(0, 99)}))))


def rows_through(batches: Sequence[Sequence[Any]], memory: int) -> tuple[list[Any], int]:
    with Distinct(rows=True, memory=memory) as distinct:
        out = [row for batch in batches for fresh in distinct.add(batch) for row in fresh]
        out += [row for batch in distinct.finish() for row in batch]
        return out, distinct.duplicates


@example([[("a", {"n": 0})], [("b", {"n": 1}), ("b", {"n": 2})]], NEXT_TO_NOTHING)
@given(rows, st.sampled_from([NEXT_TO_NOTHING, TINY, ROOMY]))
def test_the_first_row_of_an_id_counts_whatever_the_memory(parts: list[list[Any]], memory: int) -> None:
    ids = list(itertools.chain.from_iterable(parts))
    first: dict[str, Any] = {}
    for user, fields in ids:
        first.setdefault(user, fields)
    out, duplicates = rows_through(parts, memory)
    assert len(out) == len(first)
    assert dict(out) == first
    assert duplicates == len(ids) - len(first)


def test_rows_keep_their_values_on_disk() -> None:
    values = {"text": "é\u2028", "number": 2**63, "low": -(2**63), "half": 0.5, "yes": True, "list": [1, {"a": None}]}
    batches = [[("a", {}), ("b", {})], [(f"user-{i}", values) for i in range(50)]]
    out, _ = rows_through(batches, NEXT_TO_NOTHING)
    assert sorted(out, key=lambda row: row[0]) == [("a", {}), ("b", {}), *sorted(batches[1])]
    assert all(type(row) is tuple for row in out)


# -- memory ---------------------------------------------------------------------------------------------------------

# The tests' own folder, for what measures.
ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
_MEASURE = """
from pushsdk._audience.distinct import Distinct
from support.memory import peak
before = peak()
count = 0
with Distinct() as distinct:
    for start in range(0, 3_000_000, 10_000):
        for fresh in distinct.add([f"user-{i * 7919 % 3_000_017:08}" for i in range(start, start + 10_000)]):
            count += len(fresh)
    for rest in distinct.finish():
        count += len(rest)
print(count, peak() - before)
"""


def test_three_million_ids_take_no_more_than_the_memory_given() -> None:
    process = subprocess.run(
        [sys.executable, "-c", _MEASURE], capture_output=True, text=True, check=True, env=ENVIRONMENT
    )
    count, kilobytes = map(int, process.stdout.split())
    assert count == 3_000_000
    assert kilobytes < 100 * 1024  # as a set they are 360 MB
