"""What a broadcast by Spark returns: the counts, and user by user what the executors wrote."""

from __future__ import annotations

import os
from collections.abc import Iterator
from operator import methodcaller
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from pushsdk._core.decisions import OUTCOMES
from pushsdk._core.errors import ClaimStoreError, ConfigurationError
from pushsdk._core.idempotency import ClaimRecord
from pushsdk._core.outcome import Outcome
from pushsdk._core.user_states import UserState, UserStates
from pushsdk._public import set_public_module
from pushsdk._runs.report import BroadcastReport
from pushsdk._runs.run_file.file import run_file_error
from pushsdk._runs.run_file.journal import Row
from pushsdk.claims.store import Claim
from pushsdk.spark._claims import call_store, has_sentinel
from pushsdk.spark._folder import OWN_CLAIMS, Manifest, RunFolder, SendingSummary
from pushsdk.spark._preflight import checked_claims

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["SparkReport", "read_report", "report_of"]

# Chunks that are looked up at a time.
AT_A_TIME = 256
_REASONS = {
    UserState.CLAIMED: "claimed, and not settled so far",
    UserState.PENDING: "not sent so far",
}
_COLUMNS = ["user_id", "outcome", "status", "reason"]


def tally_of(folder: RunFolder, manifest: Manifest) -> dict[Outcome, int]:
    """How many users have which outcome by now.

    Raises RunFileError where that can't be told.
    """
    tally = dict.fromkeys(Outcome, 0)
    for _, states in _chunks(folder, manifest):
        for state in UserState:
            tally[OUTCOMES[state]] += states.count(state)
    if sum(tally.values()) != manifest.users:
        raise run_file_error(folder.path, "files of its plan are missing, or are not ours", outcome=Outcome.UNKNOWN)
    return tally


def rows_of(folder: RunFolder, manifest: Manifest, outcome: Outcome | None) -> Iterator[Row]:
    """Every planned user, or those with this outcome by now. Raises the same."""
    for users, states in _chunks(folder, manifest):
        ids = users.to_pylist()
        for start, stop, status in states.runs():
            told = OUTCOMES[status.state]
            if outcome in (None, told):
                for user_id in ids[start:stop]:
                    yield Row(user_id, told, status.status, _REASONS.get(status.state, status.reason))


def _chunks(folder: RunFolder, manifest: Manifest) -> Iterator[tuple[pa.Array, UserStates]]:
    """Yield the users of each chunk, and what is recorded of them."""
    try:
        import pyarrow as pa
        import pyarrow.dataset as ds
    except ImportError:
        raise ConfigurationError("pyarrow is missing: pip install 'pushsdk[spark]'") from None
    from pushsdk.arrow._chunks import claim_key

    if manifest.claims != OWN_CLAIMS:
        raise run_file_error(
            folder.path,
            f"no sending came to its end, and what was sent is known to its claim store alone ({manifest.claims}): "
            "call broadcast with the same arguments",
            outcome=Outcome.UNKNOWN,
        )
    make, _, _ = checked_claims(None, folder.claims)
    try:
        if not folder.claims.is_dir() or not has_sentinel(make, manifest.run):
            raise run_file_error(
                folder.path, "its claims are gone: who was pushed is not known", outcome=Outcome.UNKNOWN
            )
        plan = ds.dataset(folder.plan(manifest.run), format="parquet")
        for batch in plan.to_batches(columns=["chunk_id", "user_ids"], batch_size=AT_A_TIME):
            names, chunks = batch.column("chunk_id").to_pylist(), batch.column("user_ids")
            keys = [claim_key(manifest.run, name) for name in names]
            for chunk, claim in zip(chunks, call_store(make, methodcaller("get", keys)), strict=True):
                yield chunk.values, _states(claim, len(chunk.values))
    except ClaimStoreError as error:
        # Not as itself: that nothing was sent is not said here.
        raise run_file_error(folder.path, f"its claims can't be read: {error}", outcome=Outcome.UNKNOWN) from error
    except (OSError, pa.ArrowException) as error:
        why = f"its plan can't be read ({type(error).__name__})"
        raise run_file_error(folder.path, why, outcome=Outcome.UNKNOWN) from None


def _states(claim: Claim | None, users: int) -> UserStates:
    if claim is None:
        return UserStates(users)
    try:
        states = ClaimRecord.decode(claim.record).states()
        if states.users == users:
            return states
    except ValueError:
        pass
    raise ClaimStoreError("the claim store holds something else than it was given")


class SparkReport(BroadcastReport, frozen=True, kw_only=True):
    """As ``BroadcastReport``; ``run`` is the folder of the run, ``file`` that of its outcomes, as Parquet.

    ``duplicates`` rows of the frame had the id of another. ``seconds`` is how long the sending took, without the plan.
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
            folder = RunFolder(self.run or "")
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
        raise run_file_error(Path(self.file), f"the outcomes can't be read ({why})", outcome=Outcome.UNKNOWN)


def read_report(run_dir: str | os.PathLike[str]) -> SparkReport:
    """The report of the last sending in ``run_dir``; nothing is sent, and Spark is not needed.

    Works while it is being sent, and after a job that failed: then it is what the claims say by now (``in_use``,
    ``stopped``), and has no ``file``. Raises RunFileError where there is no run, where only a claim store of your own
    knows, or where files or claims can't be read.
    """
    folder = RunFolder(run_dir)
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
        duplicates=manifest.duplicates,
        run=str(folder.path),
        in_use=in_use,
        stopped=None if in_use else "the job did not come to its end: call broadcast with the same arguments",
    )


def _sealed(folder: RunFolder) -> Manifest:
    manifest = folder.manifest()
    if manifest is None:
        raise run_file_error(folder.path, "there is no run, or its plan was never whole")
    return manifest


def report_of(folder: RunFolder, manifest: Manifest, outcomes: Path, summary: SendingSummary) -> SparkReport:
    """The report of these outcomes."""
    return SparkReport(
        planned=manifest.users,
        duplicates=manifest.duplicates,
        run=str(folder.path),
        file=str(outcomes),
        **msgspec.structs.asdict(summary),
    )


set_public_module(__name__, "pushsdk.spark")
