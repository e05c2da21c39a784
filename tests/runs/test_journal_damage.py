"""A damaged run file is refused or has exactly its content before the damage."""

import os
import random
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from zlib import crc32

import msgspec
import pytest
from support.run_files import BROADCAST, CLAIMED, PENDING, UNKNOWN, chunk, event, make_run, record, seen, some_events

from pushsdk._core.errors import RunFileError
from pushsdk._runs.plan import Notes
from pushsdk._runs.run_file import file as runfile
from pushsdk._runs.run_file import journal as records
from pushsdk._runs.run_file.journal import Journal

SEED = 20240229


def small_run(path: Path) -> object:
    """Return a run with every kind of event, and its content."""
    journal = make_run(path, (3, 2, 1))
    for events in some_events():
        record(journal, events)
    before = seen(journal)
    journal.close()
    return before


def large_run(path: Path) -> object:
    """Return a run with inner pages and overflow pages in plan and log, and its content."""
    journal = Journal.open_or_create(path, BROADCAST)
    for start in range(0, 400, 2):
        journal.add([chunk(*(f"user-{start}-{number}-{'x' * 20}" for number in range(20))), chunk(str(start))])
    journal.seal(duplicates=1)
    for number in range(300):
        state = (CLAIMED, UNKNOWN, PENDING)[number % 3]
        first = journal.first_user(number)
        record(journal, [event(state, first, first + 1, None, f"reason {number % 5}")] * (number % 17 or 150))
    before = seen(journal)
    journal.close()
    return before


def judge(path: Path, damaged: bytes, before: object, *, label: object, modes: Sequence[bool] = (False, True)) -> bool:
    """Return True if the file was refused."""
    path.write_bytes(damaged)
    refused = False
    for write in modes:
        try:
            journal = Journal.open(path, write=write)
        except RunFileError as error:
            refused = error.path == str(path)
        else:
            try:
                assert seen(journal) == before, label
                if write:
                    go_on(journal, path, label=label)
            finally:
                journal.close()
        assert os.listdir(path.parent) == [path.name], label
    return refused


def go_on(journal: Journal, path: Path, *, label: object) -> None:
    """Undetected damage must not spread when the run continues."""
    for _ in range(3):
        record(journal, [event(CLAIMED, journal.users - 1, journal.users, resent=True)] * 8)
    before = seen(journal)
    journal.close()
    journal = Journal.open(path, write=False)
    assert seen(journal) == before, label
    journal.close()


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, bytes, object]]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runfile, "PAGE", 512)
        path = tmp_path_factory.mktemp("small") / "a.run"
        before = small_run(path)
        yield path, path.read_bytes(), before


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, bytes, object]:
    path = tmp_path_factory.mktemp("large") / "a.run"
    before = large_run(path)
    return path, path.read_bytes(), before


@pytest.mark.parametrize("step", [5, pytest.param(1, marks=pytest.mark.long)])
def test_any_byte_of_a_small_file_may_change(step: int, small: tuple[Path, bytes, object]) -> None:
    path, data, before = small
    draw = random.Random(SEED)
    refused = 0
    for place in range(0, len(data), step):
        changed = bytearray(data)
        changed[place] ^= draw.choice((0xFF, *(1 << bit for bit in range(8))))
        refused += judge(path, bytes(changed), before, label=(place, changed[place]), modes=[place % 2 == 0])
    # The rest of the page is empty.
    assert refused > len(data) / step / 4


def test_any_bit_of_the_files_head_may_change(small: tuple[Path, bytes, object]) -> None:
    path, data, before = small
    for place in range(100):
        for bit in range(8):
            changed = bytearray(data)
            changed[place] ^= 1 << bit
            judge(path, bytes(changed), before, label=(place, bit))


def test_a_small_file_may_end_anywhere(small: tuple[Path, bytes, object]) -> None:
    path, data, before = small
    for size in range(0, len(data), 7):
        assert judge(path, data[:size], before, label=size)


def test_any_byte_of_a_large_file_may_change(large: tuple[Path, bytes, object]) -> None:
    path, data, before = large
    draw = random.Random(SEED)
    heads = [page + place for page in range(0, len(data), runfile.PAGE) for place in range(8)]
    places = draw.sample(heads, 120) + draw.sample(range(len(data)), 180)
    for place in places:
        changed = bytearray(data)
        changed[place] ^= draw.choice((0xFF, *(1 << bit for bit in range(8))))
        judge(path, bytes(changed), before, label=(place, changed[place]), modes=[draw.random() < 0.5])


def test_a_large_file_may_end_anywhere(large: tuple[Path, bytes, object]) -> None:
    path, data, before = large
    draw = random.Random(SEED)
    for size in [*range(runfile.PAGE, len(data), 10 * runfile.PAGE), *draw.sample(range(len(data)), 40)]:
        assert judge(path, data[:size], before, label=size)


def test_pages_may_be_lost_or_swapped(large: tuple[Path, bytes, object]) -> None:
    path, data, before = large
    draw = random.Random(SEED)
    pages = [data[start : start + runfile.PAGE] for start in range(0, len(data), runfile.PAGE)]
    for _ in range(40):
        one, other = draw.sample(range(len(pages)), 2)
        swapped, zeroed = list(pages), list(pages)
        swapped[one], swapped[other] = pages[other], pages[one]
        zeroed[one] = bytes(runfile.PAGE)
        assert judge(path, b"".join(swapped), before, label=(one, other))
        assert judge(path, b"".join(zeroed), before, label=one)


LOST = {
    "the log's last row": "DELETE FROM log WHERE seq = 3",
    "a row of the log": "DELETE FROM log WHERE seq = 2",
    "the log's first row": "DELETE FROM log WHERE seq = 1",
    "all of the log": "DELETE FROM log",
    "two rows of the log change places": "UPDATE log SET seq = -seq; UPDATE log SET seq = seq + 4",
    "a row of the log at the wrong number": "UPDATE log SET seq = 4 WHERE seq = 3",
    "a row of the log twice": "UPDATE log SET data = (SELECT data FROM log WHERE seq = 1) WHERE seq = 2",
    "the head": "DELETE FROM head",
    "the head goes back": "UPDATE head SET seq = 2",
    "the head goes back, with its checksum": "UPDATE head SET seq = 0, crc = (SELECT crc FROM meta)",
    "a second head": "INSERT INTO head SELECT 2, seq, crc FROM head",
    "the head is text": "UPDATE head SET seq = 'x'",
    "the meta row": "DELETE FROM meta",
    "a row of the plan": "DELETE FROM plan WHERE first = 0",
    "the plan's last row": "DELETE FROM plan WHERE first = 2",
    "a row of the plan at the wrong number": "UPDATE plan SET first = 3 WHERE first = 2",
    "two rows of the plan in one": "UPDATE plan SET data = (SELECT data FROM plan WHERE first = 2) WHERE first = 0",
    "a size": "UPDATE plan SET data = x'919101' WHERE first = 0",
    "a text for a blob": "UPDATE plan SET data = 'text' WHERE first = 0",
    "no checksum": "UPDATE plan SET crc = 'x' WHERE first = 0",
    "no checksum of the log": "UPDATE log SET crc = 'x' WHERE seq = 1",
    "no checksum of the meta row": "UPDATE meta SET crc = 'x'",
    "the notes": "UPDATE meta SET data = x'80' WHERE id = 2",
    "the notes of another program": "UPDATE meta SET data = 'text' WHERE id = 2",
    "another table": "CREATE TABLE other (id INTEGER)",
    "a trigger": "CREATE TRIGGER t AFTER INSERT ON log BEGIN DELETE FROM log; END",
    "a table less": "DROP TABLE log",
}  # fmt: skip


@pytest.mark.parametrize("statement", LOST.values(), ids=LOST)
def test_missing_and_moved_rows_are_detected(tmp_path: Path, statement: str) -> None:
    path = tmp_path / "a.run"
    journal = Journal.open_or_create(path, BROADCAST)
    journal.add([chunk("a", "b", "c"), chunk("d", "e")])
    journal.add([chunk("f")])
    journal.seal(duplicates=4)
    for events in some_events():
        journal.commit(events, Notes({"400: no": 1}))
        journal.apply(events)
    journal.close()
    with sqlite3.connect(path) as db:
        db.executescript(statement)
    db.close()
    for write in (False, True):
        with pytest.raises(RunFileError, match="damaged"):
            Journal.open(path, write=write)


def forge(
    path: Path, *, meta: records.Meta | bytes | None = None, events: bytes | None = None, plan: bytes | None = None
) -> None:
    """Return rows with valid checksums and other content."""
    with sqlite3.connect(path) as db:
        if meta is not None:
            data, crc = records._encode(meta) if isinstance(meta, records.Meta) else (meta, crc32(meta))
            db.execute("UPDATE meta SET data = ?, crc = ?", (data, crc))
            db.execute("UPDATE head SET crc = ?", (crc,))
        if events is not None:
            (last,) = db.execute("SELECT crc FROM head").fetchone()
            db.execute("INSERT INTO log VALUES (1, ?, ?)", (events, crc32(events, last)))
            db.execute("UPDATE head SET seq = 1, crc = ?", (crc32(events, last),))
        if plan is not None:
            db.execute("UPDATE plan SET data = ?, crc = ?", (plan, crc32(plan)))
    db.close()


SEAL = records.Seal(2, 5, 4, b"")
FORGED = {
    "a header that is none": {"meta": b"\x01"},
    "a seal that counts something else": {"meta": records.Meta(BROADCAST, SEAL)},
    "events that are none": {"events": b"\x91\x01"},
    "events that are no bytes of ours": {"events": b"\xc1"},
    "events about nobody": {"events": msgspec.msgpack.encode([event(CLAIMED, 4, 6)])},
    "a state that is none": {"events": msgspec.msgpack.encode([(0, 1, ("GONE",))])},
    "users before the first": {"events": msgspec.msgpack.encode([event(CLAIMED, -1, 1)])},
    "an ending that is none": {"events": msgspec.msgpack.encode({"by": "chance", "reason": ""})},
    "a number for an ending": {"events": msgspec.msgpack.encode(1)},
    "events without a seal": {"meta": records.Meta(BROADCAST, None), "events": msgspec.msgpack.encode([])},
    "a plan of other bodies": {"plan": msgspec.msgpack.encode([(users, b'"x"', None, None) for users in (3, 2)])},
    "bottomless nesting": {"events": b"\x91" * 100_000 + b"\x01"},
}  # fmt: skip


@pytest.mark.parametrize("rows", FORGED.values(), ids=FORGED)
def test_forged_rows_with_valid_checksums_are_refused(tmp_path: Path, rows: dict[str, object]) -> None:
    make_run(tmp_path / "a.run").close()
    forge(tmp_path / "a.run", **rows)  # type: ignore[arg-type]
    with pytest.raises(RunFileError, match="damaged"):
        Journal.open(tmp_path / "a.run", write=False)


def vandalise(path: Path, statement: str) -> None:
    with sqlite3.connect(path) as db:
        db.execute(statement)
    db.close()


@pytest.mark.parametrize("statement", ["", " WHERE first = 2"])
@pytest.mark.parametrize("name", ["DELETE FROM plan", "UPDATE plan SET data = x'90'", "UPDATE plan SET first = -7"])
def test_a_plan_that_is_damaged_after_it_was_opened_is_not_loaded(tmp_path: Path, name: str, statement: str) -> None:
    journal = Journal.open_or_create(tmp_path / "a.run", BROADCAST)
    journal.add([chunk("a"), chunk("b")])
    if statement:
        journal.add([chunk("c")])
    journal.seal(duplicates=0)
    journal.close()
    journal = Journal.open(tmp_path / "a.run", write=False)
    vandalise(tmp_path / "a.run", name + statement)
    with pytest.raises(RunFileError, match="damaged"):
        journal.load(journal.chunks - 1)
    journal.close()


def test_a_file_that_is_truncated_while_open_is_not_read(tmp_path: Path) -> None:
    journal = make_run(tmp_path / "a.run", (1,) * 50)
    os.truncate(tmp_path / "a.run", runfile.PAGE)
    with pytest.raises(RunFileError, match="damaged"):
        journal.load(0)
    journal.close()


@pytest.mark.parametrize(
    ("offset", "value", "words"),
    [
        (68, 0, "not a run file"),
        (63, runfile.FORMAT + 1, "made by a newer pushsdk"),
        (63, 1, "made by an older pushsdk"),
        (63, 0, "damaged"),
    ],
)
def test_the_files_head_names_application_and_version(tmp_path: Path, offset: int, value: int, words: str) -> None:
    path = tmp_path / "a.run"
    make_run(path).close()
    data = bytearray(path.read_bytes())
    data[offset] = value
    path.write_bytes(data)
    with pytest.raises(RunFileError, match=words):
        Journal.open(path, write=True)


def foreign(path: Path, mode: str) -> None:
    with sqlite3.connect(path) as db:
        db.execute(f"PRAGMA journal_mode = {mode}")
        db.execute("CREATE TABLE theirs (id INTEGER)")
    db.close()


FOREIGN: dict[str, Callable[[Path], object]] = {
    "an SQLite file": lambda path: foreign(path, "DELETE"),
    "an SQLite file with a WAL": lambda path: foreign(path, "WAL"),
    "text": lambda path: path.write_text("user_id,name\n" * 100),
    "a few bytes": lambda path: path.write_bytes(b"x"),
    "zeros": lambda path: path.write_bytes(bytes(10_000)),
}


@pytest.mark.parametrize("make", FOREIGN.values(), ids=FOREIGN)
def test_a_foreign_file_is_neither_opened_nor_replaced(tmp_path: Path, make: Callable[[Path], object]) -> None:
    path = tmp_path / "a.run"
    make(path)
    before = {entry: (tmp_path / entry).read_bytes() for entry in os.listdir(tmp_path)}
    for use in (
        lambda: Journal.open(path, write=False),
        lambda: Journal.open(path, write=True),
        lambda: Journal.open_or_create(path, BROADCAST),
    ):
        with pytest.raises(RunFileError, match="it is not a run file"):
            use()
        assert {entry: (tmp_path / entry).read_bytes() for entry in os.listdir(tmp_path)} == before


def test_the_check_on_opening_reads_in_bounded_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "PLAN_ROWS", 2)
    monkeypatch.setattr(records, "LOG_ROWS", 2)
    path = tmp_path / "a.run"
    before = large_run(path)
    most = 0
    plain = runfile.RunFile.read

    def read(file: runfile.RunFile, sql: str, *values: int) -> list[object]:
        nonlocal most
        rows = plain(file, sql, *values)
        most = max(most, len(rows))
        return rows

    monkeypatch.setattr(runfile.RunFile, "read", read)
    journal = Journal.open(path, write=False)
    assert (seen(journal), most) == (before, 2)
    journal.close()


def test_a_damaged_text_leaves_no_lock_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runfile, "LOCK_TIMEOUT", 0.1)
    path = tmp_path / "a.run"
    make_run(path).close()
    intact = path.read_bytes()
    damaged = bytearray(intact)
    damaged[intact.index(b"data BLOB")] |= 0x80  # still a name for SQLite, but no UTF-8
    path.write_bytes(damaged)
    with pytest.raises(RunFileError, match="damaged") as excinfo:
        Journal.open(path, write=True)
    path.write_bytes(intact)
    Journal.open(path, write=True).close()
    del excinfo
