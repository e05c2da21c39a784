"""The journal: its plan, its events, the states they add up to, and its errors."""

import os
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest
from support.run_files import (
    ACCEPTED,
    BROADCAST,
    CLAIMED,
    EACH,
    PENDING,
    REJECTED,
    chunk,
    event,
    make_run,
    pieces,
    record,
)

from pushsdk._core.errors import RunFileError
from pushsdk._core.outcome import Outcome
from pushsdk._runs.plan import Chunk, Header, Notes, StopReason
from pushsdk._runs.run_file import journal as records
from pushsdk._runs.run_file.journal import IN_DOUBT, Journal


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "a.run"


def test_a_plan_is_counted_as_it_grows_and_sealed_with_its_duplicates(path: Path) -> None:
    journal = Journal.open_or_create(path, BROADCAST)
    journal.add([chunk("a", "b"), chunk("c")])
    journal.add([])
    journal.add([chunk("d")])
    assert (journal.chunks, journal.users, journal.duplicates) == (3, 4, 0)
    journal.seal(duplicates=7)
    assert (journal.sealed, journal.duplicates, journal.outcomes()[Outcome.NOT_SENT]) == (True, 7, 4)
    assert [journal.load(number) for number in (2, 0, 1, 0)] == [
        chunk("d"),
        chunk("a", "b"),
        chunk("c"),
        chunk("a", "b"),
    ]
    journal.close()


def test_notes_are_kept_until_others_are_committed(tmp_path: Path) -> None:
    path = tmp_path / "a.run"
    journal = make_run(path, (3,))
    for notes in (Notes({"400: no": 2}, 7.0, StopReason("stop_policy", "too many")), Notes()):
        journal.commit([], notes)
        record(journal, [event(CLAIMED, 0, 3)])
        journal.close()
        journal = Journal.open(path, write=True)
        assert journal.notes == notes
    journal.close()


def test_small_chunks_share_rows_and_large_ones_do_not(tmp_path: Path) -> None:
    path = tmp_path / "a.run"
    small = [Chunk(1, b'"%d"' % number, b"m" * 996) for number in range(40)]
    large = [Chunk(1, b'"x"', b"m" * 3 * records.PACK), Chunk(1, b'"y"')]
    journal = Journal.open_or_create(path, EACH)
    journal.add([*small, *large])
    journal.seal(duplicates=0)
    journal.close()
    with sqlite3.connect(path) as db:
        assert db.execute("SELECT first FROM plan").fetchall() == [(0,), (16,), (32,), (40,), (41,)]
    db.close()
    journal = Journal.open(path, write=False)
    assert [journal.load(number) for number in range(41, -1, -1)] == [*small, *large][::-1]
    assert [row.user_id for row in journal.rows()] == [*map(str, range(40)), "x", "y"]
    journal.close()


def test_no_row_of_the_plan_is_read_twice_in_a_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = Journal.open_or_create(tmp_path / "a.run", EACH)
    journal.add([Chunk(1, b'"%d"' % number) for number in range(5)])
    read: list[str] = []
    plain = journal._file.read
    monkeypatch.setattr(journal._file, "read", lambda sql, *values: read.append(sql) or plain(sql, *values))
    for number in (3, 0, 4):
        journal.load(number)
    list(journal.rows())
    assert len(read) == 1
    journal.close()


def test_rows_of_one_outcome_leave_out_chunks_without_reading_them(tmp_path: Path) -> None:
    journal = Journal.open_or_create(tmp_path / "a.run", BROADCAST)
    journal.add([Chunk(1, b"what can't be read")])
    journal.add([chunk("a")])
    journal.seal(duplicates=0)
    record(journal, [event(REJECTED, 1, 2, 400)])
    assert [row.user_id for row in journal.rows(Outcome.REJECTED)] == ["a"]
    journal.close()


def test_users_may_be_claimed_while_ranges_are_iterated(path: Path) -> None:
    journal = make_run(path, (3, 3, 3))
    record(journal, [event(ACCEPTED, 4, 5, 204)])
    ranges = []
    for piece in journal.ranges({PENDING}):
        ranges.append((piece.chunk, piece.start, piece.stop))
        if len(ranges) == 2:
            # Other workers claim users ahead, in this chunk and the next.
            record(journal, [event(CLAIMED, 5, 6), event(CLAIMED, 6, 9), event(PENDING, 7, 8)])
    assert ranges == [(0, 0, 3), (1, 3, 4), (2, 7, 8)]
    journal.close()


@pytest.mark.parametrize(("start", "stop"), [(-1, 1), (0, 6), (1, 1), (2, 1), (5, 6)])
def test_an_event_outside_the_plan_is_refused_and_changes_nothing(tmp_path: Path, start: int, stop: int) -> None:
    journal = make_run(tmp_path / "a.run")
    with pytest.raises(ValueError, match="users of the plan, 0 to 4"):
        record(journal, [event(CLAIMED, 0, 3), event(CLAIMED, start, stop)])
    assert journal.outcomes() == {**dict.fromkeys(Outcome, 0), Outcome.NOT_SENT: 5}
    record(journal, [event(CLAIMED, 3, 5)])
    journal.close()
    journal = Journal.open(tmp_path / "a.run", write=False)
    assert pieces(journal.ranges(IN_DOUBT)) == [(1, 3, 5)]
    journal.close()


@pytest.mark.parametrize("ids", [b'"a"', b'"a","b","c"', b'"a",', b"1,2", b"\xff"])
def test_ids_that_contradict_the_plan_are_not_reported(tmp_path: Path, ids: bytes) -> None:
    journal = Journal.open_or_create(tmp_path / "a.run", BROADCAST)
    journal.add([Chunk(2, ids)])
    with pytest.raises(RunFileError, match="damaged"):
        list(journal.rows())
    journal.close()


@pytest.mark.parametrize(
    "use",
    [
        lambda journal: record(journal, [event(CLAIMED, 0, 3)]),
        lambda journal: journal.load(0),
        lambda journal: list(journal.rows()),
    ],
)
def test_a_closed_journal_says_so(path: Path, use: Callable[[Journal], object]) -> None:
    journal = make_run(path)
    journal.close()
    journal.close()
    with pytest.raises(RunFileError, match="closed: open it again"):
        use(journal)


def test_a_journal_opened_for_reading_writes_nothing(tmp_path: Path) -> None:
    make_run(tmp_path / "a.run").close()
    before = (tmp_path / "a.run").read_bytes()
    journal = Journal.open(tmp_path / "a.run", write=False)
    with pytest.raises(RunFileError, match="opened for reading only"):
        record(journal, [event(CLAIMED, 0, 3)])
    journal.close()
    assert (tmp_path / "a.run").read_bytes() == before


def test_a_header_that_can_not_be_stored_leaves_no_file(tmp_path: Path) -> None:
    header = Header(kind="each", base_url="", max_users=1, max_bytes=1, source=object())
    with pytest.raises(TypeError):
        Journal.open_or_create(tmp_path / "a.run", header)
    assert os.listdir(tmp_path) == []


def test_the_repr_of_a_journal_shows_path_and_counts_but_no_ids(path: Path) -> None:
    journal = make_run(path)
    assert repr(journal) == f"<Journal {str(path)!r}, sealed, chunks=2, UserStates(PENDING=5)>"
    journal.close()
    path.unlink()
    journal = Journal.open_or_create(path, BROADCAST)
    assert "not sealed" in repr(journal)
    journal.close()
