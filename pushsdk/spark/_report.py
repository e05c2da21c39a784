"""The report of a broadcast by Spark: its counts, and the outcome of each user."""

from __future__ import annotations

import os
from collections.abc import Iterator
from operator import methodcaller
from pathlib import Path
from typing import Any

import msgspec

from pushsdk._core.decisions import OUTCOMES
from pushsdk._core.errors import ClaimStoreError, ConfigurationError, RunFileError
from pushsdk._core.idempotency import ClaimRecord
from pushsdk._core.outcome import Outcome
from pushsdk._core.user_states import UserState, UserStates
from pushsdk._runs.report import BroadcastReport
from pushsdk._runs.run_file.file import run_file_error
from pushsdk._runs.run_file.journal import Row
from pushsdk.claims.store import Claim
from pushsdk.spark._claims import call_store, has_sentinel
from pushsdk.spark._folder import OWN_CLAIMS, Manifest, RunFolder, SendingSummary
from pushsdk.spark._preflight import checked_claims

# Chunks that are looked up at a time.
CHUNKS_PER_LOOKUP = 256
_REASONS = {
    UserState.CLAIMED: "claimed, and not settled so far",
    UserState.PENDING: "not sent so far",
}
_COLUMNS = ["user_id", "outcome", "status", "reason"]


class SparkReport(BroadcastReport, frozen=True, kw_only=True):
    """The result of a broadcast by Spark. ``run`` is the folder of the run, ``file`` that of its outcomes as Parquet.

    ``duplicates`` rows of the frame were left out because another row has their id. ``seconds`` is the time of the
    sending, without the plan. ``stopped`` is the reason that most of the ``not_sent`` users have. ``resent`` is always
    0. Without a ``file`` the sending has not concluded: the counts come from the plan and the claims, and ``stopped``
    says what to do.
    """

    tasks: int = 0
    """Number of tasks that shared the sending."""

    def rows(self, outcome: Outcome | None = None) -> Iterator[Row]:
        """Yield every planned user, or the users with this outcome, in no particular order. Reads while you iterate.

        Raises RunFileError if the files or the claims are missing or damaged.
        """
        if not self.file:
            yield from _recorded_rows(RunFolder(self.run or ""), outcome)
            return
        pa, ds = _pyarrow()
        condition = None if outcome is None else ds.field("outcome") == outcome.value
        try:
            for batch in ds.dataset(self.file, format="parquet").to_batches(columns=_COLUMNS, filter=condition):
                columns = (batch.column(name).to_pylist() for name in _COLUMNS)
                for user_id, name, status, reason in zip(*columns, strict=True):
                    yield Row(user_id, Outcome(name), status, reason or "")
        except (OSError, pa.ArrowException) as error:
            problem = f"the outcomes can't be read ({type(error).__name__})"
            raise run_file_error(Path(self.file), problem, outcome=Outcome.UNKNOWN) from None


def read_report(run_dir: str | os.PathLike[str]) -> SparkReport:
    """Return the report of the last sending in ``run_dir``. Sends nothing, and does not need Spark.

    While a sending goes on, and after a failed job, the report has no ``file``: its counts are those of the claims so
    far, see ``in_use`` and ``stopped``. Raises RunFileError if there is no run, if the outcomes are known only to your
    own claim store, or if files or claims can't be read.
    """
    folder = RunFolder(run_dir)
    # Before the claims are read: users that are claimed then are in flight, because a sending goes on.
    in_use = folder.in_use
    manifest, is_underway = _sealed(folder), folder.is_underway()
    # After that: a sending that concludes meanwhile is then the last one.
    concluded = folder.concluded()
    if concluded is not None and not is_underway:
        return report_of(folder, manifest, *concluded)
    users = dict.fromkeys(Outcome, 0)
    for _, states in _recorded_chunks(folder, manifest):
        for state in UserState:
            users[OUTCOMES[state]] += states.count(state)
    if sum(users.values()) != manifest.users:
        raise run_file_error(folder.path, "files of its plan are missing, or are not ours", outcome=Outcome.UNKNOWN)
    stopped = None if in_use else "the job did not come to its end: call broadcast with the same arguments"
    return report_of(folder, manifest, None, SendingSummary.of(users, stopped=stopped), in_use=in_use)


def report_of(
    folder: RunFolder, manifest: Manifest, outcomes: Path | None, summary: SendingSummary, *, in_use: bool = False
) -> SparkReport:
    """Return the report of a sending; ``outcomes`` is None if it has not concluded."""
    return SparkReport(
        planned=manifest.users,
        duplicates=manifest.duplicates,
        run=str(folder.path),
        file="" if outcomes is None else str(outcomes),
        in_use=in_use,
        **msgspec.structs.asdict(summary),
    )


def _sealed(folder: RunFolder) -> Manifest:
    manifest = folder.manifest()
    if manifest is None:
        raise run_file_error(folder.path, "there is no run, or its plan was never sealed")
    return manifest


def _recorded_rows(folder: RunFolder, outcome: Outcome | None) -> Iterator[Row]:
    for users, states in _recorded_chunks(folder, _sealed(folder)):
        ids = users.to_pylist()
        for start, stop, status in states.runs():
            recorded = OUTCOMES[status.state]
            if outcome in (None, recorded):
                for user_id in ids[start:stop]:
                    yield Row(user_id, recorded, status.status, _REASONS.get(status.state, status.reason))


def _recorded_chunks(folder: RunFolder, manifest: Manifest) -> Iterator[tuple[Any, UserStates]]:
    """Yield the user ids of each chunk, as an Arrow array, and their states by the claims."""
    pa, ds = _pyarrow()
    from pushsdk.arrow._chunks import claim_key

    def error(problem: str) -> RunFileError:
        # The outcome is not NOT_SENT, as for other errors of a folder: users may have been sent to.
        return run_file_error(folder.path, problem, outcome=Outcome.UNKNOWN)

    if manifest.claims != OWN_CLAIMS:
        raise error(
            f"no sending came to its end, and what was sent is known to its claim store alone ({manifest.claims}): "
            "call broadcast with the same arguments"
        )
    make, _, _ = checked_claims(None, folder.claims)
    try:
        if not folder.claims.is_dir() or not has_sentinel(make, manifest.run):
            raise error("its claims are gone: which users were pushed is unknown")
        plan = ds.dataset(folder.plan(manifest.run), format="parquet")
        for batch in plan.to_batches(columns=["chunk_id", "user_ids"], batch_size=CHUNKS_PER_LOOKUP):
            keys = [claim_key(manifest.run, name) for name in batch.column("chunk_id").to_pylist()]
            claims = call_store(make, methodcaller("get", keys))
            for chunk, claim in zip(batch.column("user_ids"), claims, strict=True):
                yield chunk.values, _states(claim, len(chunk.values))
    except ClaimStoreError as failure:
        raise error(f"its claims can't be read: {failure}") from failure
    except (OSError, pa.ArrowException) as failure:
        raise error(f"its plan can't be read ({type(failure).__name__})") from None


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


def _pyarrow() -> tuple[Any, Any]:
    """Return pyarrow and pyarrow.dataset. Raises ConfigurationError if they are missing."""
    try:
        import pyarrow as pa
        import pyarrow.dataset as ds
    except ImportError:
        raise ConfigurationError("pyarrow is missing: pip install 'pushsdk[spark]'") from None
    return pa, ds
