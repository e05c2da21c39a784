"""The run folder, which driver and executors share: its files, its lock, its manifest, its progress and its report.

The manifest describes the run. It is written once, when the plan is complete, and compared when the run is resumed. It
holds no ids, texts or keys.
"""

import asyncio
import contextlib
import re
import secrets
import shutil
import threading
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from operator import methodcaller
from pathlib import Path
from typing import Any, Literal, TypeVar

import msgspec

from pushsdk._core.decisions import IN_FLIGHT, OUTCOMES, reason_of
from pushsdk._core.errors import ClaimStoreError, ConfigurationError, PushError, RunFileError
from pushsdk._core.idempotency import ClaimRecord, digest_of
from pushsdk._core.outcome import Outcome
from pushsdk._core.user_states import UserState, UserStates
from pushsdk._io.file_names import AnyPath, check_path
from pushsdk._io.files import is_locked, lock, sync_folder, write_new
from pushsdk._io.sender import guarded
from pushsdk._runs.claim_log import store_failure
from pushsdk._runs.progress import TICK, OnProgress, Pace
from pushsdk._runs.report import COLUMNS, BroadcastReport
from pushsdk._runs.run_file.file import filled_in, run_file_error, system_errors
from pushsdk._runs.run_file.journal import Row
from pushsdk.claims.store import MAX_CLAIM_TTL, Claim, ClaimStore, Put, close_store
from pushsdk.spark._claims import DirectoryClaims

MANIFEST = "manifest.json"
# Hadoop reads these characters as a pattern, or as the end of a scheme.
_PATTERN = re.compile(r"[][{}*?\\:,\x00-\x1f]")

T = TypeVar("T")
ClaimFactory = Callable[[], ClaimStore]

#: The claim store kind in the run's folder.
OWN_CLAIMS = "DirectoryClaims of the run"
# Seconds that a claim may take: a shared volume with many writers is slow at times.
CLAIM_TIMEOUT = 30.0
# Chunks that are looked up at a time.
CHUNKS_PER_LOOKUP = 256

BroadcastKind = Literal["broadcast", "placeholders", "custom_fields"]
"""One message for all, or the request part that each row fills."""


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """A run's description. With the manifest in place the plan is sealed: it never changes."""

    format: Literal[2] = 2
    run: str
    """The run's name in its claims and folders."""
    kind: BroadcastKind
    digest: str
    base_url: str
    primary_key: str
    claims: str
    """The claim store kind."""
    max_users: int
    """The most users per chunk."""
    users: int = 0
    duplicates: int = 0
    checksum: str = "0"
    """The sum of all id hashes, the same in any order. These three are set when the plan is complete."""
    created: float
    """Seconds since the epoch."""
    claim_ttl: float
    """Seconds that its claims are kept."""


class RunFolder:
    """A run folder: ``manifest.json``, ``plan/RUN`` and ``outcomes/NNNN`` as Parquet, and ``claims``.

    Raises ConfigurationError if ``path`` is not a directory path.
    """

    def __init__(self, path: AnyPath) -> None:
        self.path = filled_in(Path(check_path("run_dir", path, "/shared/spring")).absolute())
        if _PATTERN.search(str(self.path)):
            raise ConfigurationError(
                "run_dir must be a directory that the driver and all executors see under the same path (a local disk "
                "with a local master, NFS, a mounted volume), not a URI, as claims need a file system; without the "
                "characters []{}*?\\:, which Hadoop can't take"
            )

    @property
    def claims(self) -> Path:
        """The claim store folder, if the store is ``OWN_CLAIMS``."""
        return self.path / "claims"

    def own_claims(self) -> ClaimFactory:
        """Return the function that makes the claim store in the run's folder."""
        return partial(DirectoryClaims, self.claims, claim_ttl=MAX_CLAIM_TTL, timeout=CLAIM_TIMEOUT)

    def plan(self, run: str) -> Path:
        """Return the plan folder: one for each attempt, because a lost task may still write to an older one."""
        return self.path / "plan" / run

    @property
    def in_use(self) -> bool:
        """True if a driver has locked the folder; False also if that is unknown."""
        return is_locked(self.path / "lock")

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Lock the folder for this driver; create it if it is missing. Raises RunInUseError, RunFileError."""
        self.path = self.path.parent.resolve() / self.path.name
        with system_errors(self.path, "it can't be used"):
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            if self.path.is_symlink():
                raise run_file_error(self.path, "it is a symbolic link: give the path of the directory itself")
            release = lock(self.path / "lock")
        try:
            yield
        finally:
            release()

    def manifest(self) -> Manifest | None:
        """Return the manifest, None if the plan is not sealed. Raises RunFileError if it can't be read."""
        return self._read(self.path / MANIFEST, Manifest)

    def check_unsealed(self) -> None:
        """Raise RunFileError if there are outcomes without a manifest: users were sent to, and the seal is gone."""
        if self.last_outcomes() is not None:
            raise run_file_error(self.path, "there are outcomes, but no manifest: give each broadcast its own folder")

    def seal(self, manifest: Manifest) -> None:
        self._write(self.path / MANIFEST, manifest)

    def new_plan(self, run: str) -> Path:
        """Create the empty folder for a plan. Earlier plans, which were never sealed, are removed."""
        self.drop_plans()
        return self._new(self.plan(run))

    def drop_plans(self) -> None:
        """Remove plans that were never sealed: they hold user ids."""
        shutil.rmtree(self.path / "plan", ignore_errors=True)

    def new_outcomes(self) -> Path:
        """Create the empty folder for one sending's outcomes."""
        last = self.last_outcomes()
        return self._new(self.path / "outcomes" / f"{1 if last is None else int(last.name) + 1:04}")

    def conclude(self, outcomes: Path, report: "SparkReport") -> None:
        self._write(outcomes.with_suffix(".json"), report, outcome=Outcome.UNKNOWN)

    def concluded(self, manifest: Manifest) -> "SparkReport | None":
        """Return the report on the last sending, None if there is none or if the sending has not concluded."""
        outcomes = self.last_outcomes()
        report = None if outcomes is None else self._read(outcomes.with_suffix(".json"), SparkReport)
        return None if report is None else self.completed(report, manifest, file=str(outcomes))

    def completed(self, report: "SparkReport", manifest: Manifest, **others: Any) -> "SparkReport":
        """Return the report on a sending with the facts about its run."""
        return msgspec.structs.replace(
            report,
            planned=manifest.users,
            duplicates=manifest.duplicates,
            run=str(self.path),
            base_url=manifest.base_url,
            begun=manifest.created,
            **others,
        )

    def last_outcomes(self) -> Path | None:
        return max(self.path.glob("outcomes/[0-9][0-9][0-9][0-9]"), default=None)

    def _new(self, path: Path) -> Path:
        with system_errors(self.path, "it can't be written to"):
            path.parent.mkdir(mode=0o700, exist_ok=True)
            path.mkdir(mode=0o700)
        return path

    def _read(self, path: Path, kind: type[T]) -> T | None:
        try:
            return msgspec.json.decode(path.read_bytes(), type=kind)
        except FileNotFoundError:
            return None
        except (OSError, ValueError):
            raise run_file_error(self.path, f"its {path.name} can't be read, or is of another version") from None

    def _write(self, path: Path, value: msgspec.Struct, *, outcome: Outcome = Outcome.NOT_SENT) -> None:
        """Replace a file atomically and durably. ``outcome`` is an error's outcome."""
        beside = path.with_name(path.name + ".new")
        with system_errors(self.path, f"its {path.name} can't be written", outcome):
            beside.unlink(missing_ok=True)
            write_new(beside, msgspec.json.format(msgspec.json.encode(value)))
            beside.replace(path)
            sync_folder(path.parent)


# The sentinel is a claim for the run itself: a store without the sentinel is not the store with the run's claims.


def call_store(make: ClaimFactory, operation: Callable[[ClaimStore], Awaitable[T]]) -> T:
    """Return the result of an operation on a new store, in a thread with its own event loop.

    Raises ClaimStoreError if the operation fails or exceeds the store's timeout. A failure to close is logged.
    """

    async def run() -> T:
        store = make()
        try:
            async with asyncio.timeout(store.timeout):
                return await operation(store)
        finally:
            await close_store(store)

    try:
        with ThreadPoolExecutor(1, "pushsdk-claims") as thread:
            return thread.submit(asyncio.run, run()).result()
    except PushError:
        raise
    except Exception as error:
        raise ClaimStoreError(store_failure(error)) from error


def plant_sentinel(make: ClaimFactory, run: str) -> None:
    """Claim the run itself, before its plan is sealed. Raises ClaimStoreError."""
    claim = Claim(secrets.token_hex(16), b"{}")
    # No chunk has this key: chunk keys continue after the run name.
    call_store(make, lambda store: store.put([Put(digest_of(run), claim)], store.claim_ttl))


def has_sentinel(make: ClaimFactory, run: str) -> bool:
    """Return True if the store has the sentinel for the run. Raises ClaimStoreError."""
    return call_store(make, lambda store: store.get([digest_of(run)])) != [None]


# Progress: each task writes its counts beside its outcomes, and the driver reads and adds them.


def counted(batches: Iterator[Any], outcomes: str, task: int) -> Iterator[Any]:
    """Yield a task's outcomes; write their counts twice a second and at the end."""
    users, due = Counter[str](), 0.0

    def write() -> None:
        # Spark and Arrow skip a file with such a name. Without it, only on_progress knows less.
        path = Path(outcomes, f"_counts-{task}")
        with contextlib.suppress(OSError):
            path.with_suffix(".new").write_bytes(msgspec.json.encode(users))
            path.with_suffix(".new").replace(path)

    for batch in batches:
        yield batch
        users.update(map(str.lower, batch.column("outcome").to_pylist()))
        if time.monotonic() >= due:
            write()
            due = time.monotonic() + TICK
    write()


@contextlib.contextmanager
def watched(on_progress: OnProgress, outcomes: Path, planned: int) -> Iterator[None]:
    """Call ``on_progress`` from a thread twice a second, and at the end, with all tasks' counts."""
    ended, pace = threading.Event(), Pace(time.monotonic(), planned)

    def report(outcomes: Path) -> None:
        users = Counter[str]()
        for path in outcomes.glob("_counts-*[0-9]"):
            users.update(msgspec.json.decode(path.read_bytes(), type=dict[str, int]))
        left = planned - users.total() + users.pop("not_sent", 0)
        on_progress(pace.progress(time.monotonic(), stage="sending", planned=planned, **users, not_sent=left))

    def watch() -> None:
        call, is_last = guarded("on_progress", report), False
        while not is_last:
            is_last = ended.wait(TICK)
            call(outcomes)

    with ThreadPoolExecutor(1, "pushsdk-progress") as thread:
        thread.submit(watch)
        try:
            yield
        finally:
            ended.set()


class SparkReport(BroadcastReport, frozen=True, kw_only=True):
    """The result of a Spark broadcast. ``run`` is the run folder, ``file`` the folder with its outcomes as Parquet.

    ``duplicates`` rows in the frame were left out because another row has their id. ``seconds`` is the sending time,
    without the plan. ``stopped`` is the reason that most of the ``not_sent`` users have. ``resent`` and
    ``accepted_now`` are always 0. Without a ``file`` the sending has not concluded: the counts come from the plan and
    the claims, and ``stopped`` says what to do.
    """

    tasks: int = 0
    """Number of tasks that shared the sending."""

    def _now(self) -> str:
        return ""

    def rows(self, *outcomes: Outcome) -> Iterator[Row]:
        """Yield every planned user, or the users with these outcomes, in no particular order. Reads while you iterate.

        Raises RunFileError if the files or the claims are missing or damaged.
        """
        if not self.file:
            yield from _recorded_rows(RunFolder(self.run or ""), outcomes)
            return
        pa, ds = _pyarrow()
        condition = ds.field("outcome").isin([*map(str, outcomes)]) if outcomes else None
        try:
            for batch in ds.dataset(self.file, format="parquet").to_batches(columns=list(COLUMNS), filter=condition):
                columns = [column.to_pylist() for column in batch.columns]
                for user_id, name, status, reason in zip(*columns, strict=True):
                    yield Row(user_id, Outcome(name), status, reason or "")
        except (OSError, pa.ArrowException) as error:
            problem = f"the outcomes can't be read ({type(error).__name__})"
            raise run_file_error(Path(self.file), problem, outcome=Outcome.UNKNOWN) from None


def read_report(run_dir: AnyPath) -> SparkReport:
    """Return the report on the last sending in ``run_dir``. Sends nothing, and does not need Spark.

    While a sending goes on, and after a failed job, the report has no ``file``: its counts come from the claims so
    far, see ``in_use`` and ``stopped``. Raises RunFileError if there is no run, if the outcomes are known only to your
    own claim store, or if files or claims can't be read.
    """
    folder = RunFolder(run_dir)
    # Before the claims are read: users that are claimed then are in flight, because a sending goes on.
    in_use = folder.in_use
    manifest = _sealed(folder)
    report = folder.concluded(manifest)
    if report is not None:
        return report
    users: Counter[str] = Counter()
    for _, states in _recorded_chunks(folder, manifest):
        for state in UserState:
            users[OUTCOMES[state].lower()] += states.count(state)
    if users.total() != manifest.users:
        raise run_file_error(folder.path, "files of its plan are missing, or are not ours", outcome=Outcome.UNKNOWN)
    stopped = None if in_use else "the job did not come to its end: call broadcast with the same arguments"
    return folder.completed(SparkReport(**dict[str, Any](users), stopped=stopped), manifest, in_use=in_use)


def _sealed(folder: RunFolder) -> Manifest:
    manifest = folder.manifest()
    if manifest is None:
        raise run_file_error(folder.path, "there is no run, or its plan was never sealed")
    return manifest


def _recorded_rows(folder: RunFolder, outcomes: Collection[Outcome]) -> Iterator[Row]:
    claimed = IN_FLIGHT[folder.in_use]
    for users, states in _recorded_chunks(folder, _sealed(folder)):
        ids = users.to_pylist()
        for start, stop, status in states.runs():
            recorded = OUTCOMES[status.state]
            if not outcomes or recorded in outcomes:
                for user_id in ids[start:stop]:
                    yield Row(user_id, recorded, status.status, reason_of(status, claimed=claimed))


def _recorded_chunks(folder: RunFolder, manifest: Manifest) -> Iterator[tuple[Any, UserStates]]:
    """Yield the user ids in each chunk, as an Arrow array, and their states by the claims."""
    pa, ds = _pyarrow()
    from pushsdk.arrow._chunks import claim_name

    def error(problem: str) -> RunFileError:
        # The outcome is not NOT_SENT, as for other folder errors: users may have been sent to.
        return run_file_error(folder.path, problem, outcome=Outcome.UNKNOWN)

    if manifest.claims != OWN_CLAIMS:
        raise error(
            f"no sending came to its end, and what was sent is known to its claim store alone ({manifest.claims}): "
            "call broadcast with the same arguments"
        )
    make = folder.own_claims()
    try:
        if not folder.claims.is_dir() or not has_sentinel(make, manifest.run):
            raise error("its claims are gone, so which users were pushed is unknown: restore its folder claims")
        plan = ds.dataset(folder.plan(manifest.run), format="parquet")
        for batch in plan.to_batches(columns=["chunk_id", "user_ids"], batch_size=CHUNKS_PER_LOOKUP):
            keys = [digest_of(claim_name(manifest.run, name)) for name in batch.column("chunk_id").to_pylist()]
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
    with contextlib.suppress(ValueError):
        states = ClaimRecord.decode(claim.record).states()
        if states.users == users:
            return states
    raise ClaimStoreError("the claim store holds something else than it was given")


def _pyarrow() -> tuple[Any, Any]:
    """Return pyarrow and pyarrow.dataset. Raises ConfigurationError if they are missing."""
    try:
        import pyarrow as pa
        import pyarrow.dataset as ds
    except ImportError:
        raise ConfigurationError("the report needs pyarrow (the extra 'spark'): pip install pyarrow") from None
    return pa, ds
