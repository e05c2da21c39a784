"""What a broadcast by Spark returns: the counts, and user by user what the executors wrote."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import msgspec

from pushsdk._broadcast.place import refusal
from pushsdk._broadcast.report import Row
from pushsdk._broadcast.results import BroadcastReport
from pushsdk._core.errors import ConfigurationError
from pushsdk._core.outcome import Outcome
from pushsdk.spark._folder import Folder
from pushsdk.spark._manifest import Manifest, Summary
from pushsdk.spark._standing import rows_of, tally_of

__all__ = ["SparkReport", "read_report", "report_of"]


class SparkReport(BroadcastReport, frozen=True, kw_only=True):
    """As ``BroadcastReport``; ``run`` is the folder of the run, ``file`` that of its outcomes, as Parquet.

    ``repeated`` rows of the frame had the id of another. ``seconds`` is how long the sending took, without the plan.
    ``stopped`` is what most of those said who were not sent to. ``resent`` is always 0. Without a ``file`` the sending
    has not come to its end: what is known so far is read from the plan and the claims, and ``stopped`` is what to do.
    """

    tasks: int = 0
    """How many shared the sending."""

    def rows(self, outcome: Outcome | None = None) -> Iterator[Row]:
        """Every planned user, or those with this outcome, in no particular order; read while you iterate.

        Raises RunFileError where the files or the claims are gone or damaged.
        """
        if not self.file:
            folder = Folder(self.run or "")
            yield from rows_of(folder, _sealed(folder), outcome)
            return
        try:
            import pyarrow as pa
            import pyarrow.dataset as ds
        except ImportError:
            raise ConfigurationError("pyarrow is missing: pip install 'pushsdk[spark]'") from None
        wanted = None if outcome is None else ds.field("outcome") == outcome.value
        try:
            for batch in ds.dataset(self.file, format="parquet").to_batches(columns=_COLUMNS, filter=wanted):
                columns = (batch.column(name).to_pylist() for name in _COLUMNS)
                for user_id, told, status, reason in zip(*columns, strict=True):
                    yield Row(user_id, Outcome(told), status, reason or "")
        except (OSError, pa.ArrowException) as error:
            why = type(error).__name__
        else:
            return
        raise refusal(Path(self.file), f"the outcomes can't be read ({why})", outcome=Outcome.UNKNOWN)


_COLUMNS = ["user_id", "outcome", "status", "reason"]


def read_report(run_dir: str | os.PathLike[str]) -> SparkReport:
    """The report of the last sending in ``run_dir``; nothing is sent, and Spark is not needed.

    Works while it is being sent, and after a job that failed: then it is what the claims say by now (``in_use``,
    ``stopped``), and has no ``file``. Raises RunFileError where there is no run, where only a claim store of your own
    knows, or where files or claims can't be read.
    """
    folder = Folder(run_dir)
    # Before it is read: who is on his way then, is so because somebody sends.
    in_use = folder.in_use
    manifest, is_underway = _sealed(folder), folder.is_underway()
    # After that: what comes to its end meanwhile is the last then.
    found = folder.concluded()
    if found is not None and not is_underway:
        return report_of(folder, manifest, *found)
    tally = tally_of(folder, manifest)
    return SparkReport(
        planned=manifest.users,
        accepted=tally[Outcome.ACCEPTED],
        rejected=tally[Outcome.REJECTED],
        not_sent=tally[Outcome.NOT_SENT],
        unknown=tally[Outcome.UNKNOWN],
        repeated=manifest.repeated,
        run=str(folder.path),
        in_use=in_use,
        stopped=None if in_use else "the job did not come to its end: call broadcast with the same arguments",
    )


def _sealed(folder: Folder) -> Manifest:
    manifest = folder.manifest()
    if manifest is None:
        raise refusal(folder.path, "there is no run, or its plan was never whole")
    return manifest


def report_of(folder: Folder, manifest: Manifest, outcomes: Path, summary: Summary) -> SparkReport:
    """The report of these outcomes."""
    return SparkReport(
        planned=manifest.users,
        repeated=manifest.repeated,
        run=str(folder.path),
        file=str(outcomes),
        **msgspec.structs.asdict(summary),
    )
