"""A damaged run file is refused or has exactly its content before the damage."""

import os
import random
import sqlite3
from pathlib import Path
from typing import NamedTuple
from zlib import crc32

import msgspec
import pytest
from support.run_files import BROADCAST, CLAIMED, PENDING, UNKNOWN, chunk, event, make_run, record, seen, some_events

from pushsdk._core.errors import RunFileError
from pushsdk._runs.plan import Notes
from pushsdk._runs.run_file import file as runfile
from pushsdk._runs.run_file.journal import Journal


class Intact(NamedTuple):
    """A run file before the damage."""

    path: Path
    data: bytes
    content: object

    def is_refused(self, damaged, label, *, modes=(False, True)):
        """Return True if the damaged file is refused; otherwise it has its content, also when the run goes on."""
        self.path.write_bytes(damaged)
        refused = False
        for write in modes:
            try:
                journal = Journal.open(self.path, write=write)
            except RunFileError as error:
                refused = error.path == str(self.path)
            else:
                assert seen(journal) == self.content, label
                if write:
                    journal = go_on(journal, self.path, label)
                journal.close()
            assert os.listdir(self.path.parent) == [self.path.name], label
        return refused


def go_on(journal, path, label):
    """Undetected damage must not spread when the run continues."""
    for _ in range(3):
        record(journal, [event(CLAIMED, journal.users - 1, journal.users, resent=True)] * 8)
    before = seen(journal)
    journal.close()
    journal = Journal.open(path, write=False)
    assert seen(journal) == before, label
    return journal


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """A run with every kind of event in small pages."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runfile, "PAGE", 512)
        path = tmp_path_factory.mktemp("small") / "a.run"
        journal = make_run(path, (3, 2, 1))
        for events in some_events():
            record(journal, events)
        content = seen(journal)
        journal.close()
        yield Intact(path, path.read_bytes(), content)


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """A run with inner pages and overflow pages in plan and log."""
    path = tmp_path_factory.mktemp("large") / "a.run"
    journal = Journal.open_or_create(path, BROADCAST)
    for start in range(0, 400, 2):
        journal.add([chunk(*(f"user-{start}-{number}-{'x' * 20}" for number in range(20))), chunk(str(start))])
    journal.seal(duplicates=1)
    for number in range(300):
        state = (CLAIMED, UNKNOWN, PENDING)[number % 3]
        first = journal.first_user(number)
        record(journal, [event(state, first, first + 1, None, f"reason {number % 5}")] * (number % 17 or 150))
    content = seen(journal)
    journal.close()
    return Intact(path, path.read_bytes(), content)


@pytest.mark.parametrize(
    ("name", "places"), [("small", 400), ("large", 60), pytest.param("large", 3000, marks=pytest.mark.long)]
)
def test_any_byte_may_change(name, places, request):
    intact = request.getfixturevalue(name)
    draw = random.Random(20240229)
    refused = 0
    page = len(intact.data) // 2 if name == "small" else runfile.PAGE
    heads = [start + place for start in range(0, len(intact.data), page) for place in range(100 if not start else 8)]
    for place in draw.sample(heads, min(len(heads), places // 3)) + draw.sample(range(len(intact.data)), places):
        changed = bytearray(intact.data)
        changed[place] ^= draw.choice((0xFF, *(1 << bit for bit in range(8))))
        refused += intact.is_refused(bytes(changed), (place, changed[place]), modes=(draw.random() < 0.5,))
    # The rest of a page is empty.
    assert refused > places / 4


def vandalize(path, statement, *values):
    with sqlite3.connect(path) as db:
        db.execute(statement, values)
    db.close()


LOST = [
    "DELETE FROM log WHERE seq = 3",
    "DELETE FROM log",
    "UPDATE log SET seq = seq - 1",
    "UPDATE log SET data = (SELECT data FROM log WHERE seq = 1) WHERE seq = 2",
    "DELETE FROM head",
    "UPDATE head SET seq = 0, crc = (SELECT crc FROM header)",
    "INSERT INTO head SELECT seq, crc FROM head",
    "DELETE FROM plan WHERE first = 0",
    "DELETE FROM plan WHERE first = 2",
    "UPDATE plan SET data = (SELECT data FROM plan WHERE first = 2) WHERE first = 0",
    "UPDATE plan SET data = 'text' WHERE first = 0",
    "DELETE FROM notes",
    "UPDATE notes SET data = x'80'",
]


@pytest.mark.parametrize("statement", LOST)
def test_missing_and_moved_rows_are_detected(tmp_path, statement):
    path = tmp_path / "a.run"
    journal = Journal.open_or_create(path, BROADCAST)
    journal.add([chunk("a", "b", "c"), chunk("d", "e")])
    journal.add([chunk("f")])
    journal.seal(duplicates=4)
    for events in some_events():
        journal.commit(events, Notes(answers={"400: no": 1}))
    journal.close()
    vandalize(path, statement)
    for write in (False, True):
        with pytest.raises(RunFileError, match="damaged"):
            Journal.open(path, write=write)


def test_the_file_does_not_grow_with_each_copy_of_the_notes(tmp_path):
    journal = make_run(tmp_path / "a.run")
    for count in range(100):
        journal.commit([], Notes(answers={"x" * 5000: count}))
    journal.close()
    assert os.path.getsize(journal.path) < 50_000


FORGED = {
    "bytes that are not ours": b"\xc1",
    "events about nobody": msgspec.msgpack.encode(([event(CLAIMED, 4, 6)], None)),
    "a state that is none": msgspec.msgpack.encode(([(0, 1, ("GONE",))], None)),
}


@pytest.mark.parametrize("entry", FORGED.values(), ids=FORGED)
def test_forged_rows_with_valid_checksums_are_refused(tmp_path, entry):
    path = tmp_path / "a.run"
    make_run(path).close()
    with sqlite3.connect(path) as db:
        seq, last = db.execute("SELECT seq + 1, crc FROM head").fetchone()
    db.close()
    crc = crc32(entry, last)
    vandalize(path, "INSERT INTO log VALUES (?, ?, ?)", seq, entry, crc)
    vandalize(path, "UPDATE head SET seq = ?, crc = ?", seq, crc)
    with pytest.raises(RunFileError, match="damaged"):
        Journal.open(path, write=False)


@pytest.mark.parametrize(
    "statement", ["DELETE FROM plan", "UPDATE plan SET data = x'90'", "UPDATE plan SET first = -7 WHERE first = 1"]
)
def test_a_plan_that_is_damaged_after_it_was_opened_is_not_loaded(tmp_path, statement):
    journal = Journal.open_or_create(tmp_path / "a.run", BROADCAST)
    journal.add([chunk("a")])
    journal.add([chunk("b")])
    journal.seal(duplicates=0)
    vandalize(tmp_path / "a.run", statement)
    with pytest.raises(RunFileError, match="damaged"):
        journal.load(1)
    journal.close()


@pytest.mark.parametrize(
    ("offset", "value", "words"),
    [
        (68, 0, "not a run file"),
        (63, runfile.FORMAT + 1, "use the version that made it"),
        (63, runfile.FORMAT - 1, "use the version that made it"),
    ],
)
def test_the_files_head_names_application_and_version(tmp_path, offset, value, words):
    path = tmp_path / "a.run"
    make_run(path).close()
    data = bytearray(path.read_bytes())
    data[offset] = value
    path.write_bytes(data)
    with pytest.raises(RunFileError, match=words):
        Journal.open(path, write=True)
