"""The journal: plan, events and errors. What events add up to is in ``test_journal_model``."""

import pytest
from support.run_files import BROADCAST, CLAIMED, event, make_run, pieces, record

from pushsdk._core.errors import RunFileError
from pushsdk._runs.plan import Chunk
from pushsdk._runs.run_file.journal import IN_DOUBT, Journal


@pytest.fixture
def path(tmp_path):
    return tmp_path / "a.run"


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
