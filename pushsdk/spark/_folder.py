"""The folder of a run: its files, its manifest, who may write. Driver and executors see the same one.

The manifest says what a run is about: written once, when its plan is complete, and compared when the run is resumed.
It holds no ids, texts or keys.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeVar

import msgspec

from pushsdk._core import wire
from pushsdk._core.errors import ConfigurationError
from pushsdk._core.outcome import Outcome
from pushsdk._io.files import is_locked, lock
from pushsdk._runs.run_file.file import run_file_error

__all__ = ["OWN_CLAIMS", "Kind", "Manifest", "RunFolder", "SendingSummary", "digest_of", "mismatch", "uri"]

MANIFEST = "manifest.json"
# A letter alone is a drive of Windows.
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:")
# Hadoop reads them as a pattern, or as the end of a scheme.
_PATTERN = re.compile(r"[][{}*?\\:,\x00-\x1f]")

T = TypeVar("T")

FORMAT = 1

#: In place of a kind of claim store: that of the run's own folder.
OWN_CLAIMS = "DirectoryClaims of the run"

Kind = Literal["broadcast", "placeholders", "custom_fields"]
"""One message for all, or what each row fills."""

# By field, where it may not differ: in the words of who reads the refusal.
_SAME = {
    "kind": "another kind (personal=)",
    "primary_key": "another primary_key",
    "base_url": "another base_url",
    "digest": "another message, custom_fields or fields",
    "claims": "another claim store",
}


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """The seal of a plan."""

    format: int = FORMAT
    run: str
    """Names the run, in its idempotency keys and folders."""
    kind: Kind
    digest: str
    base_url: str
    primary_key: str
    claims: str
    """The kind of the claim store."""
    max_users: int
    """The number of users in one chunk at most."""
    chunks: int
    users: int
    duplicates: int
    checksum: str
    """The sum of the hashes of all ids: of the same users in any order."""
    tasks: int
    """The number of tasks that sent first; a later call may use another number."""
    created: float
    """Seconds since the epoch."""
    claim_ttl: float
    """How long its claims are kept, in seconds."""
    version: str
    """Of the package."""


class SendingSummary(msgspec.Struct, frozen=True, kw_only=True):
    """What one sending came to, kept beside its outcomes once all of them were counted."""

    accepted: int = 0
    rejected: int = 0
    not_sent: int = 0
    unknown: int = 0
    seconds: float = 0.0
    stopped: str | None = None
    tasks: int = 0

    @property
    def is_final(self) -> bool:
        """Whether no sending could come to another."""
        return not self.not_sent and not self.unknown


class RunFolder:
    """Where a run is kept: ``manifest.json``, ``plan/RUN`` and ``outcomes/NNNN`` as Parquet, and ``claims``."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Raises ConfigurationError for what is no path of a directory."""
        if not isinstance(path, (str, os.PathLike)) or not isinstance(given := os.fspath(path), str) or not given:
            raise ConfigurationError("run_dir is the path of a directory")
        if _SCHEME.match(given):
            raise ConfigurationError(
                "run_dir is a directory that the driver and all executors see under the same path (a local disk with a "
                "local master, NFS, a mounted volume), not a URI: claims need a file system"
            )
        self.path = Path(given).absolute()
        if _PATTERN.search(str(self.path)):
            raise ConfigurationError("run_dir has a character in its path that Hadoop can't take: one of []{}*?\\:,")

    @property
    def claims(self) -> Path:
        """Of the claim store, where it is ours."""
        return self.path / "claims"

    def plan(self, run: str) -> Path:
        """Of the plan: each attempt at one has a name of its own, for a lost one may still be written to."""
        return self.path / "plan" / run

    @property
    def in_use(self) -> bool:
        """Whether a driver has it now. False where that can't be told."""
        return is_locked(self.path / "lock")

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """The folder, made where there is none, for this driver alone. Raises RunFileError."""
        try:
            self.path = self.path.parent.resolve() / self.path.name
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            if self.path.is_symlink():
                raise run_file_error(self.path, "it is a symbolic link: give the path of the directory itself")
            release = lock(self.path / "lock")
        except BlockingIOError:
            raise run_file_error(self.path, "it is in use by another process: wait for that, or end it") from None
        except OSError as error:
            raise run_file_error(self.path, f"it can't be used: {error.strerror or type(error).__name__}") from None
        try:
            yield
        finally:
            release()

    def manifest(self) -> Manifest | None:
        """The seal of the plan, None where there is none yet. Raises RunFileError where it can't be read."""
        found = self._read(self.path / MANIFEST, Manifest)
        if found is not None and found.format != FORMAT:
            raise run_file_error(self.path, "its manifest is of another version of pushsdk")
        return found

    def check_unsealed(self) -> None:
        """Raises RunFileError where something was sent from here, and the seal has gone."""
        if next(self._outcomes(), None) is not None:
            raise run_file_error(
                self.path, "there are outcomes, but no manifest: give each broadcast a folder of its own"
            )

    def seal(self, manifest: Manifest) -> None:
        """From here on the plan stands."""
        self._write(self.path / MANIFEST, manifest)

    def new_plan(self, run: str) -> Path:
        """An empty place for a plan. What was left by one that never came to its end is removed."""
        self.drop_plans()
        return self._new(self.plan(run))

    def drop_plans(self) -> None:
        """Remove what was written of a plan: it holds user ids, and was never sealed."""
        shutil.rmtree(self.path / "plan", ignore_errors=True)

    def new_claims(self) -> None:
        """The place of the claims. It must be there as long as the run is: without it everybody would be open."""
        self.claims.mkdir(mode=0o700, exist_ok=True)

    def new_outcomes(self) -> Path:
        """An empty place for the outcomes of one sending."""
        last = max((int(path.name) for path in self._outcomes()), default=0)
        return self._new(self.path / "outcomes" / f"{last + 1:04}")

    def conclude(self, outcomes: Path, summary: SendingSummary) -> None:
        """These outcomes are whole."""
        self._write(outcomes.with_suffix(".json"), summary, outcome=Outcome.UNKNOWN)

    def concluded(self) -> tuple[Path, SendingSummary] | None:
        """The last outcomes that are whole."""
        for path in sorted(self._outcomes(), reverse=True):
            found = self._read(path.with_suffix(".json"), SendingSummary)
            if found is not None:
                return path, found
        return None

    def is_underway(self) -> bool:
        """Whether a later sending than the last whole one has begun, and did not come to its end."""
        found, last = self.concluded(), max(self._outcomes(), default=None)
        return last is not None and (found is None or found[0] != last)

    def _outcomes(self) -> Iterator[Path]:
        return (path for path in self.path.glob("outcomes/[0-9]*") if path.name.isdecimal())

    def _new(self, path: Path) -> Path:
        try:
            path.parent.mkdir(mode=0o700, exist_ok=True)
            path.mkdir(mode=0o700)
        except OSError as error:
            raise run_file_error(self.path, f"it can't be written to: {error.strerror}") from None
        return path

    def _read(self, path: Path, kind: type[T]) -> T | None:
        try:
            return msgspec.json.decode(path.read_bytes(), type=kind)
        except FileNotFoundError:
            return None
        except (OSError, ValueError):
            raise run_file_error(self.path, f"its {path.name} can't be read") from None

    def _write(self, path: Path, value: msgspec.Struct, *, outcome: Outcome = Outcome.NOT_SENT) -> None:
        """Whole or not at all, and on the disk when this returns. ``outcome`` is what an error says of the users."""
        beside = path.with_name(path.name + ".new")
        try:
            beside.unlink(missing_ok=True)
            file = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0), 0o600)
            with open(file, "wb") as opened:
                opened.write(msgspec.json.format(msgspec.json.encode(value)))
                opened.flush()
                os.fsync(file)
            beside.replace(path)
            # The name, too.
            parent = os.open(path.parent, os.O_RDONLY)
            try:
                os.fsync(parent)
            finally:
                os.close(parent)
        except OSError as error:
            raise run_file_error(
                self.path, f"its {path.name} can't be written: {error.strerror}", outcome=outcome
            ) from None


def uri(path: Path) -> str:
    """The path for Spark, whatever its default file system is. Not quoted: Hadoop takes it as it stands."""
    return f"file://{path.as_posix()}"


def digest_of(message: Any, custom_fields: Mapping[str, Any] | None, fields: Sequence[str]) -> str:
    """A hash of what is sent. Raises ValidationError where that can't be."""
    told = hashlib.sha256(b"pushsdk spark 1")
    for part in (
        wire.encode_message(message),
        wire.encode_custom_fields(custom_fields),
        *(name.encode(errors="surrogatepass") for name in fields),
    ):
        # Each behind its length: no two run together into the same bytes.
        told.update(b"-" if part is None else b"%d:" % len(part) + part)
    return told.hexdigest()


def mismatch(found: Manifest, wanted: Mapping[str, str], *, claim_ttl: float, now: float | None = None) -> str | None:
    """Why the run that was found can't be taken up as what is wanted; None where it can."""
    for name, words in _SAME.items():
        if getattr(found, name) != wanted[name]:
            return f"the run is of {words}: use a folder of its own for each broadcast"
    age = (time.time() if now is None else now) - found.created
    # The other half is for the sending: no claim may expire while it goes on.
    kept = min(claim_ttl, found.claim_ttl)
    if age > kept / 2:
        return (
            f"the run was planned {age / 86400:.1f} days ago, over half of the {kept / 86400:.1f} that its claims "
            "are kept: soon it is not known any more who was pushed, so nothing is sent"
        )
    return None
