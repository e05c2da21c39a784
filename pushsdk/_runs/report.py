"""The report of a broadcast: its counts, and the outcome of every user as read from the run file."""

import csv
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

import msgspec

from pushsdk._core.errors import BroadcastError
from pushsdk._core.outcome import Outcome
from pushsdk._core.words import count
from pushsdk._public import set_public_module
from pushsdk._runs.plan import StopCause, StopReason
from pushsdk._runs.run_file.file import RunFilePath, run_file_error
from pushsdk._runs.run_file.journal import Journal, Row

__all__ = ["COLUMNS", "BroadcastReport", "read_report", "report_of"]

COLUMNS = ("user_id", "outcome", "status", "reason")
# A spreadsheet takes these for the start of a formula, or strips them to find one (OWASP, CSV injection).
_FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r", "\n")


class BroadcastReport(msgspec.Struct, frozen=True, kw_only=True, weakref=True):
    """The result of a broadcast: ``planned`` users in all, by outcome.

    A resume sends to the ``not_sent`` users. It skips the ``unknown`` users unless you pass ``on_unknown="resend"``.
    ``resent`` users were sent to again after an unknown outcome, and may have been pushed twice. ``duplicates`` ids of
    the source were left out. ``seconds`` is the time that this process spent sending. ``stopped`` is the reason for an
    early end, with its fix; None if the run is complete. ``run`` is the path of the run file; None without one.
    """

    planned: int = 0
    accepted: int = 0
    rejected: int = 0
    not_sent: int = 0
    unknown: int = 0
    resent: int = 0
    duplicates: int = 0
    seconds: float = 0.0
    stopped: str | None = None
    stopped_by: StopCause | None = None
    run: str | None = None
    in_use: bool = False
    """True if another process was sending the run: the users of its requests in flight count as unknown."""
    file: str = ""
    """The file that ``rows`` reads: the run file, or a temporary file that is deleted with this report."""

    def rows(self, outcome: Outcome | None = None) -> Iterator[Row]:
        """Yield every planned user, or the users with this outcome, in the plan's order. Reads while you iterate.

        Raises RunFileError if the file is missing or damaged.
        """
        journal = Journal.open(Path(self.file), write=False)
        try:
            yield from journal.rows(outcome)
        finally:
            journal.close()

    def write_csv(self, file: TextIO, outcome: Outcome | None = None) -> int:
        """Write the rows as CSV that is safe to open in a spreadsheet. Return the number of ids changed for that.

        An id that a spreadsheet might run as a formula (a first character of = + - @, tab or line break) is written
        with a ``'`` before it. ``write_jsonl`` changes no id.
        """
        file.write(",".join(COLUMNS) + "\n")
        # Quote all: the csv module leaves a carriage return in an id bare otherwise.
        writer = csv.writer(file, lineterminator="\n", quoting=csv.QUOTE_ALL)
        changed = 0
        for row in self.rows(outcome):
            user_id = row.user_id
            if user_id.startswith(_FORMULA_STARTS):
                user_id = "'" + user_id
                changed += 1
            status = "" if row.status is None else row.status
            writer.writerow((user_id, row.outcome.value, status, row.reason))
        return changed

    def write_jsonl(self, file: TextIO, outcome: Outcome | None = None) -> None:
        """Write the rows as JSON lines with the same keys and unchanged ids."""
        encode = msgspec.json.Encoder().encode
        for row in self.rows(outcome):
            file.write(encode(row).decode() + "\n")

    def raise_for_failures(self) -> None:
        """Raise BroadcastError unless every planned user was accepted."""
        if self.accepted == self.planned:
            return
        counts = {Outcome.UNKNOWN: self.unknown, Outcome.NOT_SENT: self.not_sent, Outcome.REJECTED: self.rejected}
        failed = ", ".join(f"{number} {outcome.value}" for outcome, number in counts.items() if number)
        why = f"; stopped: {self.stopped}" if self.stopped else ""
        error = BroadcastError(
            f"{self.accepted:,} of {count(self.planned)} accepted, {failed}{why}; see .report",
            outcome=next(outcome for outcome, number in counts.items() if number),
        )
        error.report = self
        raise error


def report_of(
    journal: Journal, *, run: str | None, seconds: float = 0.0, stop_reason: StopReason | None = None
) -> BroadcastReport:
    """Return the report of a journal. ``stop_reason`` is for a plan that was stopped: the journal has no record yet."""
    tally = journal.tally()
    stop_reason = stop_reason or journal.stop_reason
    return BroadcastReport(
        planned=journal.users,
        accepted=tally.accepted,
        rejected=tally.rejected,
        not_sent=tally.not_sent,
        unknown=tally.unknown,
        resent=tally.resent,
        duplicates=journal.duplicates,
        seconds=seconds,
        stopped=None if stop_reason is None else stop_reason.reason,
        stopped_by=None if stop_reason is None else stop_reason.by,
        run=run,
        file=str(journal.path),
    )


def read_report(run: str | os.PathLike[str]) -> BroadcastReport:
    """Return the report of a run file. Sends nothing, and works while another process is sending.

    Raises RunFileError if the file can't be read or its plan is incomplete.
    """
    path = Path(os.path.abspath(run))
    # Ask for the lock before reading: users in flight at the time of reading then prove that the writer was alive.
    in_use = RunFilePath(path, write=False).in_use
    journal = Journal.open(path, write=False)
    try:
        if in_use and not journal.sealed:
            raise run_file_error(path, "another process is still planning it: read it again once it is sending")
        journal.check_planned()
        return msgspec.structs.replace(report_of(journal, run=str(path)), in_use=in_use)
    finally:
        journal.close()


set_public_module(__name__)
