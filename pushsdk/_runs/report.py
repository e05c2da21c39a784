"""What a broadcast returns: the counts, and from its run file who got it and who did not."""

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
# What a spreadsheet takes for the start of a formula, or strips to get at one (OWASP, CSV injection).
_FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r", "\n")


class BroadcastReport(msgspec.Struct, frozen=True, kw_only=True, weakref=True):
    """What became of a broadcast: users by outcome, ``planned`` in all.

    ``not_sent`` are those whose turn has not come, or who came back untaken: a resume sends to them. ``unknown`` are
    held: a resume sends to them only when told. ``resent`` of all were sent again after an UNKNOWN, and may have been
    pushed twice. ``duplicates`` ids of the source were left out. ``seconds`` is how long the sending took in this
    process; ``stopped`` says why it ended before its end, None where it did not; ``run`` names the run file, if there
    is one.
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
    """Whether another process was sending it: then the users of its requests on their way are among the unknown."""
    file: str = ""
    """Where ``rows`` reads: the run file, or without one a temporary file that goes with this report."""

    def rows(self, outcome: Outcome | None = None) -> Iterator[Row]:
        """Every planned user, or those with this outcome, in the plan's order; read from the file while you iterate.

        Raises RunFileError where the file is gone or damaged.
        """
        journal = Journal.open(Path(self.file), write=False)
        try:
            yield from journal.rows(outcome)
        finally:
            journal.close()

    def write_csv(self, file: TextIO, outcome: Outcome | None = None) -> int:
        """Write the rows as CSV, safe to open in a spreadsheet, and return how many ids were changed for that.

        An id that a spreadsheet might run as a formula (it begins with = + - @, a tab or a line break) gets a ``'``
        before it; ``write_jsonl`` writes it as it is.
        """
        file.write(",".join(COLUMNS) + "\n")
        # All of them quoted: an id may hold a carriage return, which csv leaves bare otherwise.
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
        """Write the rows as JSON lines with the same keys, every id as it is."""
        encode = msgspec.json.Encoder().encode
        for row in self.rows(outcome):
            file.write(encode(row).decode() + "\n")

    def raise_for_failures(self) -> None:
        """Raises BroadcastError unless every planned user was accepted."""
        if self.accepted == self.planned:
            return
        counts = {Outcome.UNKNOWN: self.unknown, Outcome.NOT_SENT: self.not_sent, Outcome.REJECTED: self.rejected}
        told = ", ".join(f"{number} {outcome.value}" for outcome, number in counts.items() if number)
        why = f"; stopped: {self.stopped}" if self.stopped else ""
        error = BroadcastError(
            f"{self.accepted:,} of {count(self.planned)} accepted, {told}{why}; see .report",
            outcome=next(outcome for outcome, number in counts.items() if number),
        )
        error.report = self
        raise error


def report_of(
    journal: Journal, *, run: str | None, seconds: float = 0.0, ending: StopReason | None = None
) -> BroadcastReport:
    """The report of a journal as it stands; ``ending`` where the journal can't know it."""
    tally = journal.tally()
    ending = ending or journal.stop_reason
    return BroadcastReport(
        planned=journal.users,
        accepted=tally.accepted,
        rejected=tally.rejected,
        not_sent=tally.not_sent,
        unknown=tally.unknown,
        resent=tally.resent,
        duplicates=journal.duplicates,
        seconds=seconds,
        stopped=None if ending is None else ending.reason,
        stopped_by=None if ending is None else ending.by,
        run=run,
        file=str(journal.path),
    )


def read_report(run: str | os.PathLike[str]) -> BroadcastReport:
    """The report of a run file, as it stands; nothing is sent.

    Works while another process is sending. Raises RunFileError where it can't be read, or was never planned whole.
    """
    path = Path(os.path.abspath(run))
    # Before it is read: who had been on his way when it was, was so because somebody was sending.
    in_use = RunFilePath(path, write=False).in_use
    journal = Journal.open(path, write=False)
    try:
        if in_use and not journal.sealed:
            raise run_file_error(path, "its plan is being made by another process: look again when it is sending")
        journal.check_planned()
        return msgspec.structs.replace(report_of(journal, run=str(path)), in_use=in_use)
    finally:
        journal.close()


set_public_module(__name__)
