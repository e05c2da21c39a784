"""The journal: plan, events and errors. What events add up to is in ``test_journal_model``."""

import pytest
from support.run_files import BROADCAST, CLAIMED, EACH, event, make_run, pieces, record

from pushsdk._core.errors import RunFileError
from pushsdk._core.outcome import Outcome
from pushsdk._runs.plan import Chunk
from pushsdk._runs.run_file import journal as records
from pushsdk._runs.run_file.file import RunFile
from pushsdk._runs.run_file.journal import IN_DOUBT, Journal


@pytest.fixture
def path(tmp_path):
    return tmp_path / "a.run"


def test_a_plan_is_counted_as_it_grows_and_its_rows_are_read_once(path, monkeypatch):
    small = [Chunk(1, b'"%d"' % number, b"m" * 996) for number in range(40)]
    large = [Chunk(1, b'"x"', b"m" * 3 * records.PACK), Chunk(1, b'"y"')]
    journal = Journal.open_or_create(path, EACH)
    journal.add([*small, *large])
    journal.add([])
    assert (journal.chunks, journal.users, journal.duplicates) == (42, 42, 0)
    journal.seal(duplicates=7)
    journal.close()
    journal = Journal.open(path, write=False)
    assert (journal.sealed, journal.duplicates, journal.outcomes()[Outcome.NOT_SENT]) == (True, 7, 42)
    plain, reads = RunFile.read, []
    monkeypatch.setattr(RunFile, "read", lambda file, sql, *values: reads.append(sql) or plain(file, sql, *values))
    assert [journal.load(number) for number in range(41, -1, -1)] == [*small, *large][::-1]
    assert len(reads) == 5
    assert [row.user_id for row in journal.rows()] == [*map(str, range(40)), "x", "y"]
    journal.close()


@pytest.mark.parametrize(("start", "stop"), [(-1, 1), (0, 6), (1, 1)])
def test_an_event_outside_the_plan_is_refused_and_changes_nothing(path, start, stop):
    journal = make_run(path)
    with pytest.raises(ValueError, match="users of the plan, 0 to 4"):
        record(journal, [event(CLAIMED, 0, 3), event(CLAIMED, start, stop)])
    record(journal, [event(CLAIMED, 3, 5)])
    journal.close()
    journal = Journal.open(path, write=False)
    assert pieces(journal.ranges(IN_DOUBT)) == [(1, 3, 5)]
    journal.close()


@pytest.mark.parametrize("ids", [b'"a"', b"1,2"])
def test_ids_that_contradict_the_plan_are_not_reported(path, ids):
    journal = Journal.open_or_create(path, BROADCAST)
    journal.add([Chunk(2, ids)])
    with pytest.raises(RunFileError, match="damaged"):
        list(journal.rows())
    journal.close()
