"""The journal of a run: its plan, its log of events, and what they add up to now. Nothing here awaits.

How the rows of the run file make a whole: the seal counts the plan and has a digest of it, each row of the log goes on
from the one before, and the head names the last. What is missing anywhere, or changed, is noticed.
"""

import hashlib
from array import array
from bisect import bisect_right
from collections.abc import Container, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from pushsdk._audience.chunks import Chunk
from pushsdk._core.decisions import OUTCOMES
from pushsdk._core.errors import RunFileError
from pushsdk._core.outcome import Outcome
from pushsdk._core.user_states import UserState, UserStates, UserStatus
from pushsdk._public import set_public_module
from pushsdk._runs.plan import Event, Header, StopReason, UserRange
from pushsdk._runs.run_file.codec import (
    Damaged,
    LogEntry,
    Meta,
    Seal,
    digested,
    log_row,
    meta_row,
    pack,
    read_entry,
    read_meta,
    read_sizes,
    unpack,
)
from pushsdk._runs.run_file.file import Connection, RunFile, RunFilePath, run_file_error

__all__ = ["IN_DOUBT", "NEVER_SETTLED", "PENDING", "Journal", "Row", "Tally"]

# Rows per query: a reader keeps the writer waiting no longer than one takes, and holds no more in memory.
PLAN_ROWS, LOG_ROWS = 16, 256

# One statement, so that all of it is of one commit.
_SELECT_ENDS = "SELECT meta.data, meta.crc, head.seq, head.crc, (SELECT max(seq) FROM log) FROM meta, head"
_SELECT_PLAN = "SELECT first, sizes, bodies, crc FROM plan WHERE first >= ? ORDER BY first LIMIT ?"
_SELECT_PACK = "SELECT first, sizes, bodies, crc FROM plan WHERE first <= ? ORDER BY first DESC LIMIT 1"
_SELECT_LOG = "SELECT seq, events, crc FROM log WHERE seq > ? AND seq <= ? ORDER BY seq LIMIT ?"

NOT_SENT_YET = "not sent yet"
NEVER_SETTLED = "claimed, and never settled"

PENDING = frozenset({UserState.PENDING})
IN_DOUBT = frozenset({UserState.UNKNOWN, UserState.CLAIMED})


class Tally(msgspec.Struct, kw_only=True):
    """Users by what is known of them; together they are the plan's users, but for ``resent``."""

    accepted: int = 0
    rejected: int = 0
    unknown: int = 0
    not_sent: int = 0
    resent: int = 0
    """Users of requests that were sent again although the first try was UNKNOWN. Each may have been pushed twice."""


class Row(msgspec.Struct, frozen=True, gc=False):
    """One planned user: the columns of every report."""

    user_id: str
    outcome: Outcome
    status: int | None = None
    """The HTTP status of the last answer; None where there was none."""
    reason: str = ""
    """Why it was not accepted, in words."""

    def __repr__(self) -> str:
        return f"Row({self.outcome.value}, status={self.status}, reason={self.reason!r})"


class Journal:
    """One run, in a file of its own. For one thread at a time."""

    def __init__(self, file: RunFile, header: Header) -> None:
        """Use ``create`` or ``open``."""
        self._file = file
        self.header = header
        #: The plan is complete. Set by ``seal``, as is the next one.
        self.sealed = False
        #: Ids that came more than once, and count once.
        self.duplicates = 0
        #: Why the process that sent last ended before the end. Set by ``end``, and gone with the next ``write``.
        self.stop_reason: StopReason | None = None
        # Both have everything that is in the file, and nothing else: changed after each commit.
        #: The status of every user, by position in the plan.
        self.states = UserStates()
        # The position of the first user of each chunk, and at the end that of the next chunk.
        self._offsets = array("Q", [0])
        # Over the checksums of the plan's rows.
        self._digest = hashlib.sha256()
        # Number and checksum of the log's last row.
        self._seq = 0
        self._crc = 0
        # The row of the plan that was read last: number of its first chunk, and its chunks.
        self._pack: tuple[int, list[Chunk]] = (0, [])

    @classmethod
    def create(cls, path: Path, header: Header, *, durable: bool = False) -> "Journal":
        """Begin the plan of a new run at ``path``.

        A plan that was never completed is begun anew. Raises RunFileError where there is anything else already.
        ``durable``: what is committed also survives a power failure, at the price of some syncs per commit.
        """
        meta = meta_row(Meta(header, None))
        place = RunFilePath(path, write=True)
        try:
            while not place.make():
                cls._make_room(place)
            return cls._begin(RunFile.create(place, durable=durable), header, meta)
        except BaseException:
            place.release()
            raise

    @classmethod
    def open(cls, path: Path, *, write: bool, durable: bool = False) -> "Journal":
        """Open a run, checking all of it. Raises RunFileError where it is damaged, no run file, or in use.

        With ``write=False`` it may be in use: what had been committed is seen. What a killed writer left half done
        is rolled back first, also then, so the file and its folder must be writable in that one case.
        """
        place = RunFilePath(path, write=write)
        try:
            return cls._read(RunFile.open(place, write=write, durable=durable))
        except BaseException:
            place.release()
            raise

    def __repr__(self) -> str:
        sealed = "sealed" if self.sealed else "not sealed"
        return f"<Journal {str(self.path)!r}, {sealed}, chunks={self.chunks}, users={self.users}, {self.tally()}>"

    @property
    def path(self) -> Path:
        """Where it is."""
        return self._file.path

    @property
    def chunks(self) -> int:
        """Planned so far."""
        return len(self._offsets) - 1

    @property
    def users(self) -> int:
        """Planned so far."""
        return self.states.users

    def check_planned(self) -> None:
        """Raises RunFileError where the plan was never completed: nothing was sent of it, and nothing can be."""
        if not self.sealed:
            raise run_file_error(
                self.path, "its plan was never finished and nothing was sent: start the broadcast again"
            )

    def add(self, chunks: Sequence[Chunk]) -> None:
        """The next chunks of the plan, in one transaction. Raises RunFileError where they can't be written."""
        self._expect(sealed=False)
        sizes = [chunk.users for chunk in chunks]
        if min(sizes, default=1) < 1:
            raise ValueError("a chunk without users can't be planned")
        rows = list(pack(chunks, self.chunks))
        insert = "INSERT INTO plan VALUES (?, ?, ?, ?)"
        self._file.commit(lambda db: db.executemany(insert, rows), outcome=Outcome.NOT_SENT)
        for row in rows:
            self._digest.update(digested(row))
        self._extend(sizes)

    def seal(self, *, duplicates: int) -> None:
        """The plan is complete: from now on it can be sent, and never changes."""
        self._expect(sealed=False)
        seal = Seal(self.chunks, self.users, duplicates, self._digest.digest())
        data, crc = meta_row(Meta(self.header, seal))

        def work(db: Connection) -> None:
            db.execute("UPDATE meta SET data = ?, crc = ?", (data, crc))
            db.execute("UPDATE head SET crc = ?", (crc,))

        self._file.commit(work, outcome=Outcome.NOT_SENT)
        self.sealed, self.duplicates, self._crc = True, duplicates, crc

    def write(self, events: Sequence[Event]) -> None:
        """Note ``events``, in one transaction that is committed when this returns."""
        self.commit(events)
        self.apply(events)

    def commit(self, events: Sequence[Event], *, at_once: bool = False) -> bool:
        """Commit ``events`` to the file, in one transaction. ``apply`` them afterwards, in the thread that reads.

        Raises RunFileError where that fails: then they did not happen, as far as this journal goes, and nothing can
        be written to it any more. False only with ``at_once``, where another program keeps the file locked: then
        nothing was done, and a commit that waits is called for.
        """
        self._expect(sealed=True)
        users = self.users
        if not all(0 <= start < stop <= users for start, stop, _ in events):
            raise ValueError(f"an event about users that are not among the {users} of the plan")
        return not events or self._log(events, at_once=at_once)

    def apply(self, events: Sequence[Event]) -> None:
        """Take over what has been committed."""
        for start, stop, status in events:
            self.states.set(start, stop, status)
            self.stop_reason = None

    def record_stop(self, reason: StopReason | None) -> None:
        """Note why the sending ended before its end, or that it did not. Raises RunFileError as ``commit`` does."""
        self._expect(sealed=True)
        self._log(reason)
        self.stop_reason = reason

    def _log(self, entry: LogEntry, *, at_once: bool = False) -> bool:
        row = seq, _, crc = log_row(entry, self._seq + 1, self._crc)

        def work(db: Connection) -> None:
            # Fails where another process has slipped in: it made that row.
            db.execute("INSERT INTO log VALUES (?, ?, ?)", row)
            db.execute("UPDATE head SET seq = ?, crc = ?", (seq, crc))

        if not self._file.commit(work, outcome=Outcome.UNKNOWN, at_once=at_once):
            return False
        self._seq, self._crc = seq, crc
        return True

    def ranges(self, states: Container[UserState]) -> Iterator[UserRange]:
        """Yield the users in these states in plan order, as runs of equal status cut at the borders of chunks.

        Events may be written while this is iterated: each piece is right when it is yielded. Users behind the piece
        that was yielded last are not seen again.
        """
        for _, piece in self._runs(states):
            yield piece

    def first_user(self, chunk: int) -> int:
        """Return the position of the first user of a chunk."""
        return self._offsets[chunk]

    def load(self, chunks: Sequence[int]) -> list[Chunk]:
        """Chunks by number, in that order. Neighbours are cheap: they share a row."""
        return [self._load(chunk) for chunk in chunks]

    def tally(self) -> Tally:
        """Users by what is known of them. Cheap."""
        count = self.states.count
        return Tally(
            accepted=count(UserState.ACCEPTED),
            rejected=count(UserState.REJECTED),
            unknown=count(UserState.UNKNOWN) + count(UserState.CLAIMED),
            not_sent=count(UserState.PENDING),
            resent=self.states.resent,
        )

    def rows(self, outcome: Outcome | None = None) -> Iterator[Row]:
        """Yield one row per planned user, in plan order; with ``outcome`` only the users that ended with it."""
        states = frozenset(state for state in UserState if outcome in (None, OUTCOMES[state]))
        chunk, ids = -1, [""]
        for status, piece in self._runs(states):
            if piece.chunk != chunk:
                chunk, ids = piece.chunk, self._ids(piece.chunk)
            first = self._offsets[chunk]
            for user in ids[piece.start - first : piece.stop - first]:
                yield _row(user, status)

    def close(self) -> None:
        """Give back the file and the lock. May be called again, and after a failure."""
        self._file.close()

    @classmethod
    def _make_room(cls, place: RunFilePath) -> None:
        """Remove a plan of ours that was never completed: nothing can have been sent of it."""
        if place.look():
            try:
                there = cls.open(place.path, write=False)
            except RunFileError:
                # Of a writer that was killed within its first commit nothing is left: opening it rolled that back.
                if place.look():
                    raise
            else:
                there.close()
                if there.sealed:
                    raise run_file_error(place.path, "there is a run already: resume it, or give another path")
        place.clear()

    @classmethod
    def _begin(cls, file: RunFile, header: Header, meta: tuple[bytes, int]) -> "Journal":
        def work(db: Connection) -> None:
            file.build()
            db.execute("INSERT INTO meta VALUES (1, ?, ?)", meta)
            db.execute("INSERT INTO head VALUES (1, 0, ?)", meta[1:])

        try:
            file.commit(work, outcome=Outcome.NOT_SENT)
        except BaseException:
            file.close()
            raise
        return cls(file, header)

    @classmethod
    def _read(cls, file: RunFile) -> "Journal":
        try:
            return cls._whole(file)
        except Damaged:
            file.close()
            raise file.damaged() from None
        except BaseException:
            file.close()
            raise

    @classmethod
    def _whole(cls, file: RunFile) -> "Journal":
        ends = file.read(_SELECT_ENDS)
        if len(ends) != 1:
            raise Damaged
        *row, last, end, there = ends[0]
        meta, crc = read_meta(row)
        journal = cls(file, meta.header)
        journal._crc = crc
        journal._read_plan(meta.seal)
        journal._read_log(last)
        if (journal._seq, journal._crc) != (last, end) or journal._seq != (there or 0) or (last and not journal.sealed):
            raise Damaged
        return journal

    def _read_plan(self, seal: Seal | None) -> None:
        while rows := self._file.read(_SELECT_PLAN, self.chunks, PLAN_ROWS):
            for row in rows:
                self._extend(read_sizes(row, self.chunks))
                self._digest.update(digested(row))
        if seal is not None:
            if seal != Seal(self.chunks, self.users, seal.duplicates, self._digest.digest()):
                raise Damaged
            self.sealed, self.duplicates = True, seal.duplicates

    def _read_log(self, last: int) -> None:
        while rows := self._file.read(_SELECT_LOG, self._seq, last, LOG_ROWS):
            for row in rows:
                entry, crc = read_entry(row, self._seq + 1, self._crc)
                self._take(entry)
                self._seq, self._crc = self._seq + 1, crc

    def _take(self, entry: LogEntry) -> None:
        if entry is None or isinstance(entry, StopReason):
            self.stop_reason = entry
            return
        try:
            self.apply(entry)
        except ValueError:
            raise Damaged from None

    def _extend(self, sizes: Sequence[int]) -> None:
        for users in sizes:
            self._offsets.append(self._offsets[-1] + users)
        self.states.extend(sum(sizes))

    def _runs(self, states: Container[UserState]) -> Iterator[tuple[UserStatus, UserRange]]:
        offsets, next_run = self._offsets, self.states.next
        position = chunk = 0
        while (run := next_run(states, position)) is not None:
            start, stop, status = run
            # Mostly the next chunk: to search an array costs as much as all of this.
            if not offsets[chunk] <= start < offsets[chunk + 1]:
                chunk = chunk + 1 if start == offsets[chunk + 1] else bisect_right(offsets, start) - 1
            position = min(stop, offsets[chunk + 1])
            yield status, UserRange(chunk, start, position)

    def _load(self, number: int) -> Chunk:
        if not 0 <= number < self.chunks:
            raise IndexError(f"there is no chunk number {number} in a plan of {self.chunks}")
        first, chunks = self._pack
        if not first <= number < first + len(chunks):
            first, chunks = self._pack = self._fetch(number)
        return chunks[number - first]

    def _fetch(self, number: int) -> tuple[int, list[Chunk]]:
        with suppress(Damaged):
            for row in self._file.read(_SELECT_PACK, number):
                first, chunks = unpack(row)
                if number < first + len(chunks):
                    return first, chunks
        raise self._file.damaged()

    def _ids(self, number: int) -> list[str]:
        chunk = self._load(number)
        with suppress(msgspec.MsgspecError):
            ids = chunk.user_ids()
            if len(ids) == chunk.users:
                return ids
        raise self._file.damaged()

    def _expect(self, *, sealed: bool) -> None:
        if self.sealed is not sealed:
            raise RuntimeError("the plan is complete" if self.sealed else "the plan is not complete yet: seal it first")


def _row(user: str, status: UserStatus) -> Row:
    if status.state is UserState.CLAIMED:
        return Row(user, Outcome.UNKNOWN, None, NEVER_SETTLED)
    reason = status.reason or (NOT_SENT_YET if status.state is UserState.PENDING else "")
    return Row(user, OUTCOMES[status.state], status.status, reason)


set_public_module(__name__)
