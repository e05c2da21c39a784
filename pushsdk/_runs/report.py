"""The broadcast report: its counts, and the outcome of every user as read from the run file."""

import csv
import io
import itertools
import os
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Annotated, Any, Literal, TextIO, get_args

import msgspec
from msgspec.structs import replace

from pushsdk._audience.audience import Audience
from pushsdk._audience.distinct import BATCH
from pushsdk._audience.source import PlainIds, printable
from pushsdk._core.errors import PushError, RunInUseError, RunPlanError, ValidationError
from pushsdk._core.kinds import Rule, check
from pushsdk._core.outcome import Outcome
from pushsdk._core.words import count
from pushsdk._io.file_names import AnyPath
from pushsdk._runs.folder import PLAN, run_files
from pushsdk._runs.plan import ANOTHER_TEXT, MOST_ANSWERS, StopCause, StopReason
from pushsdk._runs.run_file.file import RunFilePath, run_file_error, run_path
from pushsdk._runs.run_file.journal import Journal, Row
from pushsdk._runs.stopping import too_late

COLUMNS = ("user_id", "outcome", "status", "reason")
# A spreadsheet takes these for the start of a formula, or strips them to find one (OWASP, CSV injection).
_FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r", "\n")


_TextFile = Annotated[
    Any,
    Rule(
        "an open text file, for example open('report.csv', 'w', newline='')",
        lambda file: hasattr(file, "write") and not isinstance(file, (io.RawIOBase, io.BufferedIOBase)),
    ),
]


class BroadcastReport(msgspec.Struct, frozen=True, kw_only=True, weakref=True):
    """The result of a broadcast: its users by outcome."""

    planned: int = 0
    """All users in the run."""
    accepted: int = 0
    accepted_now: int = 0
    """The accepted users that this call has sent to; the others were accepted before."""
    rejected: int = 0
    not_sent: int = 0
    """Users that a resume sends to."""
    unknown: int = 0
    """Users that a resume skips, unless you pass ``on_unknown="resend"``."""
    resent: int = 0
    """Users that were sent to again after an unknown outcome, and may have been pushed twice."""
    duplicates: int = 0
    """Source ids that were left out because they occurred before."""
    excluded: int = 0
    """Users that ``Audience.exclude`` left out."""
    seconds: float = 0.0
    """Seconds that this process spent sending."""
    stopped: str | None = None
    """The reason for an early end, with its fix; None if the run is complete."""
    stopped_by: StopCause | None = None
    """The kind of that reason."""
    run: str | None = None
    """Path of the run file; None without one."""
    title: str = ""
    """The beginning of the message's title, in its first language; empty if each user has a message."""
    base_url: str = ""
    source: str = ""
    """A description of the user id source."""
    begun: float | None = None
    """Time of the plan, in seconds since the epoch."""
    ended: float | None = None
    """Time when the last process ended the sending; None if a process sends it, or was killed."""
    answers: dict[str, int] = {}
    """Counts of the answers to requests that were not accepted, by status and beginning of the text.

    The texts may contain user ids. At most 20 are kept, with up to 300 characters each.
    """
    reasons: dict[str, int] = {}
    """Users that were not accepted, by reason: a status or a failure, without the service's texts."""
    show_answers: bool = False
    """True if BroadcastError's text quotes ``answers``: the client's option. False after ``read_report``."""
    in_use: bool = False
    """True if another process was sending the run: its users in flight count as unknown."""
    file: str = ""
    """The file that ``rows`` reads: the run file, or a temporary file that is deleted with this report."""

    def __repr__(self) -> str:
        parts = [f"{self.accepted:,} of {count(self.planned)} accepted{self._now()}{self._failed()}"]
        parts += [f"{number:,} x {answer}" for answer, number in self.answers.items()]
        return f"<{type(self).__name__}: {'; '.join(parts)}>"

    def _now(self) -> str:
        """Return how many users a call that has continued a run has got accepted."""
        return f", {self.accepted_now:,} now" if self.seconds and self.accepted_now < self.accepted else ""

    def _failed(self) -> str:
        failed = "".join(f", {number:,} {outcome.value}" for outcome, number in self._failures().items())
        return failed + (f"; stopped: {self.stopped}" if self.stopped else "")

    def _commonest(self) -> str:
        """Return the most frequent reason, with the most frequent response text if that may be shown."""
        if not self.reasons:
            return ""
        reason = max(self.reasons, key=self.reasons.__getitem__)
        status = reason.removeprefix("HTTP ")
        texts = [answer for answer in self.answers if self.show_answers and answer.startswith(f"{status}: ")]
        text = max(texts, key=self.answers.__getitem__, default="").removeprefix(status)
        return f"; most often ({count(self.reasons[reason])}): {reason}{text}"

    def _failures(self) -> dict[Outcome, int]:
        """Return the users that were not accepted, by outcome, worst first."""
        counts = {Outcome.UNKNOWN: self.unknown, Outcome.NOT_SENT: self.not_sent, Outcome.REJECTED: self.rejected}
        return {outcome: number for outcome, number in counts.items() if number}

    def rows(self, *outcomes: Outcome) -> Iterator[Row]:
        """Yield every planned user, or the users with these outcomes, in the plan's order. Reads while you iterate.

        The reason has the service's text if ``answers`` has exactly one text for the status. Raises RunFileError if the
        file is missing or damaged.
        """
        for outcome in outcomes:
            check("outcome", outcome, Literal[*map(str, Outcome)], ValidationError)
        return rows_of(self, outcomes)

    def _only_texts(self) -> dict[int, str]:
        """Return the service's text for each status that has exactly one."""
        parts = [answer.partition(": ") for answer in self.answers]
        texts = Counter(status for status, _, _ in parts)
        return {int(status): text for status, _, text in parts if texts[status] == 1 and text not in ("", ANOTHER_TEXT)}

    def pushed(self) -> Audience:
        """Return the users that the run pushed or may have pushed, ACCEPTED and UNKNOWN: to exclude them from others.

        Raises RunInUseError if the run is being sent, as it may still push to more.
        """
        _check_ended(Path(self.file))
        return Audience(PlainIds(f"pushed by {printable(self.file)}", self._pushed_ids))

    def _pushed_ids(self) -> Iterator[list[str]]:
        rows = self.rows(Outcome.ACCEPTED, Outcome.UNKNOWN)
        while batch := list(itertools.islice(rows, BATCH)):
            yield [row.user_id for row in batch]
        _check_ended(Path(self.file))

    def write_csv(self, file: TextIO, *outcomes: Outcome) -> int:
        """Write the rows as CSV that is safe to open in a spreadsheet. Return how many ids got such a prefix.

        An id that a spreadsheet might run as a formula (the first character is = + - @, tab or line break) is written
        with a ``'`` before it. ``write_jsonl`` changes no id.
        """
        check("file", file, _TextFile, ValidationError)
        return write_rows(file, self.rows(*outcomes))

    def write_jsonl(self, file: TextIO, *outcomes: Outcome) -> None:
        """Write the rows as JSON lines with the same keys and unchanged ids."""
        check("file", file, _TextFile, ValidationError)
        encode = msgspec.json.Encoder().encode
        for row in self.rows(*outcomes):
            file.write(encode(row).decode() + "\n")

    def raise_for_failures(self) -> None:
        """Raise BroadcastError unless every planned user was accepted."""
        if self.accepted == self.planned:
            return
        error = BroadcastError(
            f"{self.accepted:,} of {count(self.planned)} accepted{self._failed()}{self._commonest()}; see .report",
            outcome=next(iter(self._failures())),
        )
        error.report = self
        raise error


def rows_of(report: BroadcastReport, outcomes: Sequence[Outcome] = (), users: Collection[str] = ()) -> Iterator[Row]:
    """Yield the rows with these outcomes, for these users; all of them if none is given."""
    known = report._only_texts()
    for file in run_files(Path(report.file)):
        with closing(Journal.open(file, write=False)) as journal:
            for row in journal.rows(outcomes, users):
                text = known.get(row.status or 0, "")
                yield replace(row, reason=f"{row.reason}: {text}") if text else row


def write_rows(file: TextIO, rows: Iterable[Row]) -> int:
    """Write rows as ``BroadcastReport.write_csv`` does."""
    file.write(",".join(COLUMNS) + "\n")
    # Quote all: the csv module leaves a carriage return in an id bare otherwise.
    writer = csv.writer(file, lineterminator="\n", quoting=csv.QUOTE_ALL)
    changed = 0
    for row in rows:
        is_formula = row.user_id.startswith(_FORMULA_STARTS)
        changed += is_formula
        writer.writerow(("'" * is_formula + row.user_id, row.outcome.value, row.status, row.reason))
    return changed


def _check_ended(path: Path) -> None:
    if _is_used(path):
        raise run_file_error(path, "it is still pushing: wait until it ends", kind=RunInUseError)


def _is_used(path: Path) -> bool:
    files = [*run_files(path), path / PLAN] if os.path.isdir(path) else [path]
    return any(RunFilePath(file, write=False).in_use for file in files)


class BroadcastError(PushError):
    """Some users in a broadcast were not accepted. Raised by ``BroadcastReport.raise_for_failures``.

    ``outcome`` is the worst outcome: UNKNOWN, then NOT_SENT, then REJECTED.
    """

    report: BroadcastReport | None = None
    """The run's report; None if a Spark job failed."""


def report_of(journal: Journal, *, run: Path | None, stop_reason: StopReason | None = None) -> BroadcastReport:
    """Return the report on a journal. ``stop_reason`` is for a plan that was stopped: the journal has no record yet."""
    stop_reason, users = stop_reason or journal.notes.stop_reason, journal.outcomes()
    if users[Outcome.NOT_SENT]:  # whatever stopped the run, a resume would not begin a request
        stop_reason = too_late(journal.header.not_after) or stop_reason
    titles = msgspec.json.decode(journal.header.message or b"{}").get("title", {})
    return BroadcastReport(
        planned=journal.users,
        accepted=users[Outcome.ACCEPTED],
        rejected=users[Outcome.REJECTED],
        not_sent=users[Outcome.NOT_SENT],
        unknown=users[Outcome.UNKNOWN],
        resent=journal.states.resent,
        duplicates=journal.notes.duplicates,
        excluded=journal.notes.excluded,
        stopped=stop_reason.reason if stop_reason else None,
        stopped_by=stop_reason.by if stop_reason else None,
        run=str(run) if run else None,
        title=printable(next(iter(titles.values()), ""), 60),
        base_url=journal.header.base_url,
        source=journal.header.source,
        begun=journal.header.created,
        ended=journal.notes.ended,
        answers=journal.notes.answers,
        reasons=journal.reasons(),
        file=str(journal.path),
    )


def read_report(run: AnyPath) -> BroadcastReport:
    """Return the report on a run file, or the sum for a folder of run files. Works while other processes are sending.

    Raises RunFileError if a file can't be read or its plan is incomplete.
    """
    path = run_path(run)
    # Ask for the lock before reading: users in flight at that time then prove that the writer was alive.
    in_use = _is_used(path)
    reports = [_read_report(file, in_use=in_use) for file in run_files(path)]
    return _sum(reports, path) if path.is_dir() else reports[0]


def _sum(reports: Sequence[BroadcastReport], folder: Path) -> BroadcastReport:
    """Return the report on a folder: its reason for an early end is the worst one in a file."""
    whole = BroadcastReport(
        **{name: _combined([getattr(report, name) for report in reports]) for name in BroadcastReport.__struct_fields__}
    )
    # A file that was stopped with its last request is complete.
    worst = _worst(reports) if whole.not_sent else BroadcastReport()
    ends = [report.ended for report in reports if report.ended or report.not_sent < report.planned]
    return replace(
        whole,
        run=str(folder),
        file=str(folder),
        stopped=worst.stopped,
        stopped_by=worst.stopped_by,
        ended=None if None in ends else max(filter(None, ends), default=None),
    )


def _worst(reports: Sequence[BroadcastReport]) -> BroadcastReport:
    """Return the report with the worst reason for an early end, an empty one if none ended early."""
    stopped = [report for report in reports if report.stopped_by]
    return min(stopped, key=lambda report: get_args(StopCause).index(report.stopped_by), default=BroadcastReport())


def _combined(values: Sequence[Any]) -> Any:
    """Return the sum, or the first value if there is none."""
    if type(values[0]) is dict:
        return dict(sum(map(Counter, values), Counter[str]()).most_common(MOST_ANSWERS))
    return sum(values) if type(values[0]) is int else values[0]


def _read_report(path: Path, *, in_use: bool) -> BroadcastReport:
    with closing(Journal.open(path, write=False)) as journal:
        if journal.header.parts and journal.notes.ended is not None:
            raise run_file_error(path, "it is the plan of a folder: name the folder", kind=RunPlanError)
        if in_use and not journal.sealed:
            why = "another process is still planning it: read it again once it is sending"
            raise run_file_error(path, why, kind=RunInUseError)
        journal.check_planned()
        return replace(report_of(journal, run=path), in_use=in_use)
