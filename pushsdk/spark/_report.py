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

__all__ = ["SparkReport", "read_report", "report_of"]


class SparkReport(BroadcastReport, frozen=True, kw_only=True):
    """As ``BroadcastReport``; ``run`` is the folder of the run, ``file`` that of its outcomes, as Parquet.

    ``repeated`` rows of the frame had the id of another. ``seconds`` is how long the sending took, without the plan.
    ``stopped`` is what most of those said who were not sent to. ``resent`` is always 0.
    """

    tasks: int = 0
    """How many shared the sending."""

    def rows(self, outcome: Outcome | None = None) -> Iterator[Row]:
        """Every planned user, or those with this outcome, in no particular order; read while you iterate.

        Raises RunFileError where the files are gone or damaged.
        """
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
        raise refusal(Path(self.file), f"the outcomes can't be read ({why})")


_COLUMNS = ["user_id", "outcome", "status", "reason"]


def read_report(run_dir: str | os.PathLike[str]) -> SparkReport:
    """The report of the last sending in ``run_dir`` that came to its end; nothing is sent, and Spark is not needed.

    Raises RunFileError where there is none, or where a later one goes on or was killed.
    """
    folder = Folder(run_dir)
    manifest, found = folder.manifest(), folder.concluded()
    if manifest is None:
        raise refusal(folder.path, "there is no run, or its plan was never whole")
    if found is None:
        raise refusal(folder.path, "no sending came to its end: call broadcast with the same arguments")
    if folder.is_underway():
        raise refusal(
            folder.path,
            "a later sending goes on, or did not come to its end: wait, or call broadcast with the same arguments",
            outcome=Outcome.UNKNOWN,
        )
    return report_of(folder, manifest, *found)


def report_of(folder: Folder, manifest: Manifest, outcomes: Path, summary: Summary) -> SparkReport:
    """The report of these outcomes."""
    return SparkReport(
        planned=manifest.users,
        repeated=manifest.repeated,
        run=str(folder.path),
        file=str(outcomes),
        **msgspec.structs.asdict(summary),
    )
