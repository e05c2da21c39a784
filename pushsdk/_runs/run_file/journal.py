"""The run journal: its plan, its log, and the state of every user now. Nothing here awaits.

The first row in the log seals the plan. Missing and changed rows are detected by one chain of checksums: over the
header, the checksums in the plan's rows, and the log, whose last row the head names. The notes are replaced, as each
copy in the log would stay there; the log has their checksums.
"""

from array import array
from bisect import bisect_right
from collections import Counter
from collections.abc import Collection, Container, Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar
from zlib import crc32

import msgspec

from pushsdk._core.decisions import IN_FLIGHT, OUTCOMES, reason_of
from pushsdk._core.errors import RunFileError, RunPlanError
from pushsdk._core.outcome import GuardedValue, Outcome
from pushsdk._core.user_states import UserState, UserStates
from pushsdk._runs.plan import Chunk, Event, Header, Notes, StopReason, UserRange
from pushsdk._runs.run_file.file import Connection, RunFile, RunFilePath, run_file_error

# Rows per query: a reader blocks the writer for one query at most, and holds no more rows in memory.
PLAN_ROWS, LOG_ROWS = 16, 256

# Bytes per plan row, about. Small chunks share a row: one row per chunk makes planning and opening slower.
PACK = 16 * 1024

# One statement, so all values come from the same commit.
_SELECT_ENDS = (
    "SELECT header.data, header.crc, head.seq, head.crc, (SELECT max(seq) FROM log), notes.data "
    "FROM header, head, notes"
)
_SELECT_PLAN = "SELECT first, data, crc FROM plan WHERE first >= ? ORDER BY first LIMIT ?"
_SELECT_PACK = "SELECT first, data, crc FROM plan WHERE first <= ? ORDER BY first DESC LIMIT 1"
_SELECT_LOG = "SELECT data, crc FROM log WHERE seq > ? AND seq <= ? ORDER BY seq LIMIT ?"

PENDING = frozenset({UserState.PENDING})
IN_DOUBT = frozenset({UserState.UNKNOWN, UserState.CLAIMED})

T = TypeVar("T")


class Row(GuardedValue, frozen=True, gc=False):
    """One planned user: the columns in every report."""

    user_id: str
    outcome: Outcome
    status: int | None = None
    """The last response's HTTP status; None without a response."""
    reason: str = ""
    """The reason why the user was not accepted."""

    def __repr__(self) -> str:
        return f"Row({self.outcome.value}, status={self.status}, reason={self.reason!r})"


class Damaged(Exception):
    """The bytes are not the bytes that were written."""


class Journal:
    """One run and its file. Made by ``open`` or ``open_or_create``. For one thread at a time.

    ``at_once`` is as in ``RunFile``.
    """

    def __init__(self, run_path: RunFilePath, file: RunFile, header: Header) -> None:
        self._run_path = run_path
        self._file = file
        # The reason for CLAIMED users. Set by ``_open``.
        self._claimed = IN_FLIGHT[True]
        self.header = header
        #: The notes. Set by ``apply``.
        self.notes = Notes()
        # Both are changed after each commit, so they match the file.
        #: The status of every user, by position in the plan.
        self.states = UserStates()
        # Positions of each chunk's first user, then the position after the last user.
        self._offsets = array("Q", [0])
        # Number of the log's last row, and the checksum of all rows so far. Set by ``_open`` and ``open_or_create``.
        self._seq = 0
        self._crc = 0
        # The plan row that was read last: its first chunk's number, and its chunks.
        self._pack: tuple[int, list[Chunk]] = (0, [])

    @classmethod
    def open_or_create(cls, path: Path, header: Header, *, durable: bool = False) -> "Journal":
        """Open the planned run at ``path``, or start a plan there. A plan that was never completed is replaced.

        ``durable`` commits survive a power failure, at the price of some syncs per commit. Raises RunFileError if the
        path holds anything else.
        """
        data, crc = _encode(header)
        run_path = RunFilePath(path, write=True)

        def fill(db: Connection) -> None:
            db.execute("INSERT INTO header VALUES (?, ?)", (data, crc))
            db.execute("INSERT INTO head VALUES (0, ?)", (crc,))
            db.execute("INSERT INTO notes VALUES (x'')")

        with run_path.released_on_error():
            while not run_path.make():
                if (planned := cls._planned(run_path, durable=durable)) is not None:
                    return planned
                run_path.clear()
            try:
                file = RunFile.create(run_path, fill, durable=durable)
            except RunFileError:
                run_path.drop()
                raise
        journal = cls(run_path, file, header)
        journal._crc = crc
        return journal

    @classmethod
    def open(cls, path: Path, *, write: bool, durable: bool = False) -> "Journal":
        """Open a run and check all of it. Raise RunFileError if it is damaged, no run file, or in use.

        With ``write=False`` the file may be in use: the committed part is read. If a writer was killed in a commit,
        the commit is rolled back first, which needs write access to the file and its folder.
        """
        run_path = RunFilePath(path, write=write)
        with run_path.released_on_error():
            return cls._open(run_path, write=write, durable=durable)

    @property
    def path(self) -> Path:
        return self._file.path

    @property
    def chunks(self) -> int:
        return len(self._offsets) - 1

    @property
    def users(self) -> int:
        return self.states.users

    @property
    def sealed(self) -> bool:
        """Return True if the plan is complete."""
        return self._seq > 0

    def check_planned(self) -> None:
        """Raise RunFileError if the plan is incomplete: nothing was sent, and nothing can be."""
        if not self.sealed:
            why = "its plan is incomplete and nothing was sent: start the broadcast again"
            raise run_file_error(self.path, why, kind=RunPlanError)

    def add(self, chunks: Sequence[Chunk]) -> None:
        """Add the plan's next chunks in one transaction. Raise RunFileError if that fails."""
        rows = list(_pack(chunks, self.chunks))
        insert = "INSERT INTO plan VALUES (?, ?, ?)"
        self._file.commit(lambda db: db.executemany(insert, rows), outcome=Outcome.NOT_SENT)
        for _, _, crc in rows:
            self._continue(crc)
        self._extend([chunk.users for chunk in chunks])

    def seal(self, *, duplicates: int, excluded: int = 0) -> None:
        """Mark the plan as complete. From now on it can be sent and never changes."""
        notes = Notes(duplicates=duplicates, excluded=excluded)
        self.commit([], notes)
        self.apply([], notes)

    def commit(self, events: Sequence[Event], notes: Notes | None = None, *, at_once: bool = False) -> None:
        """Commit ``events``, and new notes, in one transaction. ``apply`` them afterwards, in the thread that reads.

        Raises RunFileError if that fails; the journal then accepts no further writes.
        """
        seq = self._seq + 1
        noted, notes_crc = _encode(notes)
        data, crc = _encode((events, notes and notes_crc), self._crc)

        def work(db: Connection) -> None:
            # The INSERT fails if another process has written a row despite the lock.
            db.execute("INSERT INTO log VALUES (?, ?, ?)", (seq, data, crc))
            db.execute("UPDATE head SET seq = ?, crc = ?", (seq, crc))
            if notes:
                db.execute("UPDATE notes SET data = ?", (noted,))

        self._file.commit(work, outcome=Outcome.UNKNOWN if self.sealed else Outcome.NOT_SENT, at_once=at_once)
        self._seq, self._crc = seq, crc

    def apply(self, events: Sequence[Event], notes: Notes | None = None) -> None:
        """Update the states with events that have been committed, and the notes."""
        self.notes = notes or self.notes
        for start, stop, status in events:
            self.states.set(start, stop, status)

    def ranges(self, states: Container[UserState]) -> Iterator[UserRange]:
        """Yield the users in these states, as they are at the first, in plan order: ranges of one status and chunk."""
        offsets = self._offsets
        for start, stop, status in self.states.runs():
            chunk = bisect_right(offsets, start) - 1
            while start < stop and status.state in states:
                end = min(stop, offsets[chunk + 1])
                yield UserRange(chunk, start, end)
                start, chunk = end, chunk + 1

    def first_user(self, chunk: int) -> int:
        return self._offsets[chunk]

    def load(self, number: int, *, at_once: bool = False) -> Chunk:
        """Return a chunk by its number. The next chunk is cheap: neighbors share a row."""
        first, chunks = self._pack
        if not first <= number < first + len(chunks):
            first, chunks = self._pack = self._fetch(number, at_once)
        return chunks[number - first]

    def stop_asked(self) -> StopReason | None:
        """Return the reason to stop if somebody has left a stop mark for this process."""
        by = self._run_path.stopped_by()
        return StopReason("asked", f"{by} stopped it") if by else None

    def outcomes(self) -> dict[Outcome, int]:
        """Return how many planned users have each outcome. Cheap."""
        users = dict.fromkeys(Outcome, 0)
        for state, outcome in OUTCOMES.items():
            users[outcome] += self.states.count(state)
        return users

    def reasons(self) -> dict[str, int]:
        """Count users by the reason why they were not accepted, if there is one."""
        users: Counter[str] = Counter()
        for start, stop, status in self.states.runs():
            users[reason_of(status, "", claimed=self._claimed)] += stop - start
        return {reason: number for reason, number in users.items() if reason}

    def rows(self, outcomes: Sequence[Outcome] = (), users: Collection[str] = ()) -> Iterator[Row]:
        """Yield one row per planned user in plan order; if given, only with these ``outcomes``, for these ``users``."""
        states = frozenset(state for state in UserState if not outcomes or OUTCOMES[state] in outcomes)
        chunk, ids = -1, [""]
        is_wanted = users.__contains__ if users else None  # all pass then, as an id is never empty
        for positions in self.ranges(states):
            if positions.chunk != chunk:
                chunk, ids = positions.chunk, self.load(positions.chunk).user_ids()
            first, status = self._offsets[chunk], self.states.at(positions.start)
            reason = reason_of(status, claimed=self._claimed)
            for user in filter(is_wanted, ids[positions.start - first : positions.stop - first]):
                yield Row(user, OUTCOMES[status.state], status.status, reason)

    def drop_incomplete(self) -> None:
        """Remove the file if its plan is incomplete: nothing was sent, and nothing can be."""
        if not self.sealed:
            self._file.close()
            self._run_path.drop()

    def close(self) -> None:
        """Close the file and release the lock. Safe to call again, and after a failure."""
        self._file.close()
        self._run_path.release()

    @classmethod
    def _planned(cls, run_path: RunFilePath, *, durable: bool) -> "Journal | None":
        """Return the run, None if its plan was never completed, so nothing was sent."""
        try:
            journal = cls._open(run_path, write=True, durable=durable)
        except RunFileError:
            # Empty, perhaps as a writer was killed in its first commit, which opening has rolled back.
            if run_path.check():
                raise
            return None
        if journal.sealed:
            return journal
        journal._file.close()
        return None

    @classmethod
    def _open(cls, run_path: RunFilePath, *, write: bool, durable: bool) -> "Journal":
        # Before reading: users in flight then were in flight in a live process.
        claimed = IN_FLIGHT[run_path.in_use]
        file = RunFile.open(run_path, write=write, durable=durable)
        with file.closed_on_error():
            try:
                ends = file.read(_SELECT_ENDS)
                if len(ends) != 1:
                    raise Damaged
                *row, last, last_crc, newest, notes = ends[0]
                journal = cls(run_path, file, _decode(_HEADER, row))
                journal._claimed, journal._crc = claimed, row[1]
                if last:
                    journal._read_plan()
                    journal.notes = _decode(_NOTES, (notes, journal._read_log(last)))
                if (journal._seq, journal._crc, newest or 0) != (last, last_crc, last):
                    raise Damaged
                return journal
            except Damaged:
                raise file.damaged() from None

    def _read_plan(self) -> None:
        while rows := self._file.read(_SELECT_PLAN, self.chunks, PLAN_ROWS):
            for first, *row in rows:
                if first != self.chunks:
                    raise Damaged
                self._extend([chunk.users for chunk in _decode(_CHUNKS, row, first)])
                self._continue(row[1])

    def _read_log(self, last: int) -> int | None:
        """Read the log up to this row. Return the checksum of the notes."""
        notes_crc = None
        while rows := self._file.read(_SELECT_LOG, self._seq, last, LOG_ROWS):
            for row in rows:
                events, noted = _decode(_ENTRY, row, self._crc)
                notes_crc = notes_crc if noted is None else noted
                self._seq, self._crc = self._seq + 1, row[1]
                try:
                    self.apply(events)
                except ValueError:
                    raise Damaged from None
        return notes_crc

    def _continue(self, crc: int) -> None:
        """Have the chain of checksums go on with that of a row in the plan."""
        self._crc = crc32(b"%d," % crc, self._crc)

    def _extend(self, sizes: Sequence[int]) -> None:
        for users in sizes:
            self._offsets.append(self._offsets[-1] + users)
        self.states.extend(sum(sizes))

    def _fetch(self, number: int, at_once: bool) -> tuple[int, list[Chunk]]:
        with suppress(Damaged):
            for first, *row in self._file.read(_SELECT_PACK, number, at_once=at_once):
                chunks = _decode(_CHUNKS, row, first)
                if number < first + len(chunks):
                    return first, chunks
        raise self._file.damaged()


# A time may be of a subclass, such as a Timestamp of pandas: then its text is kept, in UTC, as msgspec reads no offset
# with seconds.
_encoder = msgspec.msgpack.Encoder(enc_hook=lambda time: datetime.isoformat(time.astimezone(UTC)))
_HEADER = msgspec.msgpack.Decoder(Header)
_CHUNKS = msgspec.msgpack.Decoder(list[Chunk])
_NOTES = msgspec.msgpack.Decoder(Notes)
_ENTRY = msgspec.msgpack.Decoder(tuple[list[Event], int | None])


def _encode(value: object, crc: int = 0) -> tuple[bytes, int]:
    """Return data and checksum of a row. The checksum continues ``crc``: from the row before, or the row's number."""
    data = _encoder.encode(value)
    return data, crc32(data, crc)


def _decode(decoder: msgspec.msgpack.Decoder[T], row: Sequence[object], crc: int = 0) -> T:
    """Return the value of a row: data and checksum, as ``_encode`` returned them for this ``crc``."""
    match row:
        case (bytes(data), int(own)) if own == crc32(data, crc):
            # The checksum is right, so if this fails, another program or version wrote the row.
            try:
                return decoder.decode(data)
            except (msgspec.MsgspecError, ValueError, RecursionError):
                pass
    raise Damaged


def _pack(chunks: Iterable[Chunk], first: int) -> Iterator[tuple[int, bytes, int]]:
    """Yield first chunk number, data and checksum of each row. ``first`` numbers the very first chunk."""
    packed: list[Chunk] = []
    room = PACK
    for chunk in chunks:
        size = len(chunk.ids) + len(chunk.message or b"") + len(chunk.custom_fields or b"")
        if packed and size > room:
            yield first, *_encode(packed, first)
            first += len(packed)
            packed, room = [], PACK
        packed.append(chunk)
        room -= size
    if packed:
        yield first, *_encode(packed, first)
