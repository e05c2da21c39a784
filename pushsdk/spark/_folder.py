"""The folder of a run, which driver and executors share: its files, its lock, its manifest.

The manifest describes the run. It is written once, when the plan is complete, and compared when the run is resumed. It
holds no ids, texts or keys.
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

MANIFEST = "manifest.json"
# A single letter is a drive of Windows.
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:")
# Hadoop reads these characters as a pattern, or as the end of a scheme.
_PATTERN = re.compile(r"[][{}*?\\:,\x00-\x1f]")

T = TypeVar("T")

FORMAT = 2

#: The kind of the claim store in the run's folder.
OWN_CLAIMS = "DirectoryClaims of the run"

BroadcastKind = Literal["broadcast", "placeholders", "custom_fields"]
"""One message for all, or the part of the request that each row fills."""

# Fields of the manifest that may not differ, in the words of an error.
_FIXED = {
    "kind": "another kind (personal=)",
    "primary_key": "another primary_key",
    "base_url": "another base_url",
    "digest": "another message, custom_fields or fields",
    "claims": "another claim store",
}


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """The description of a run. With the manifest in place the plan is sealed: it never changes."""

    format: int = FORMAT
    run: str
    """The name of the run in its claims and folders."""
    kind: BroadcastKind
    digest: str
    base_url: str
    primary_key: str
    claims: str
    """The kind of the claim store."""
    max_users: int
    """The most users of one chunk."""
    chunks: int
    users: int
    duplicates: int
    checksum: str
    """The sum of the hashes of all ids, the same in any order."""
    tasks: int
    """The tasks of the first sending; a later call may use another number."""
    created: float
    """Seconds since the epoch."""
    claim_ttl: float
    """Seconds that its claims are kept."""
    version: str
    """The version of pushsdk."""


class SendingSummary(msgspec.Struct, frozen=True, kw_only=True):
    """The counts of one sending, written beside its outcomes when all of them are complete."""

    accepted: int = 0
    rejected: int = 0
    not_sent: int = 0
    unknown: int = 0
    seconds: float = 0.0
    stopped: str | None = None
    tasks: int = 0

    @classmethod
    def of(cls, users: Mapping[Outcome, int], **others: Any) -> SendingSummary:
        """Return the summary of so many ``users`` with each outcome."""
        counts: dict[str, Any] = {outcome.lower(): number for outcome, number in users.items()}
        return cls(**counts, **others)

    @property
    def is_final(self) -> bool:
        """Return True if another sending would change nothing."""
        return not self.not_sent and not self.unknown


class RunFolder:
    """The folder of a run: ``manifest.json``, ``plan/RUN`` and ``outcomes/NNNN`` as Parquet, and ``claims``.

    Raises ConfigurationError if ``path`` is not the path of a directory.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        name = os.fspath(path) if isinstance(path, (str, os.PathLike)) else None
        if not isinstance(name, str) or not name:
            raise ConfigurationError(f"run_dir must be the path of a directory; got {type(path).__name__}")
        if _SCHEME.match(name):
            raise ConfigurationError(
                "run_dir must be a directory that the driver and all executors see under the same path (a local disk "
                "with a local master, NFS, a mounted volume), not a URI: claims need a file system"
            )
        self.path = Path(name).absolute()
        if _PATTERN.search(str(self.path)):
            raise ConfigurationError("run_dir has a character in its path that Hadoop can't take: one of []{}*?\\:,")

    @property
    def claims(self) -> Path:
        """The folder of the claim store, if it is ``OWN_CLAIMS``."""
        return self.path / "claims"

    def plan(self, run: str) -> Path:
        """Return the folder of the plan: one for each attempt, because a lost task may still write to an older one."""
        return self.path / "plan" / run

    @property
    def in_use(self) -> bool:
        """True if a driver has locked the folder; False also if that is unknown."""
        return is_locked(self.path / "lock")

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Lock the folder for this driver; create it if it is missing. Raises RunFileError."""
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
        """Return the manifest, None if the plan is not sealed. Raises RunFileError if it can't be read."""
        manifest = self._read(self.path / MANIFEST, Manifest)
        if manifest is not None and manifest.format != FORMAT:
            raise run_file_error(self.path, "its manifest is of another version of pushsdk")
        return manifest

    def check_unsealed(self) -> None:
        """Raise RunFileError if there are outcomes without a manifest: users were sent to, and the seal is gone."""
        if next(self._outcomes(), None) is not None:
            raise run_file_error(self.path, "there are outcomes, but no manifest: give each broadcast its own folder")

    def seal(self, manifest: Manifest) -> None:
        """Write the manifest. From here on the plan never changes."""
        self._write(self.path / MANIFEST, manifest)

    def new_plan(self, run: str) -> Path:
        """Create the empty folder of a plan. Earlier plans, which were never sealed, are removed."""
        self.drop_plans()
        return self._new(self.plan(run))

    def drop_plans(self) -> None:
        """Remove plans that were never sealed: they hold user ids."""
        shutil.rmtree(self.path / "plan", ignore_errors=True)

    def new_claims(self) -> None:
        """Create the folder of the claims. Without it all users of the run would count as pending."""
        self.claims.mkdir(mode=0o700, exist_ok=True)

    def new_outcomes(self) -> Path:
        """Create the empty folder for the outcomes of one sending."""
        last = max((int(path.name) for path in self._outcomes()), default=0)
        return self._new(self.path / "outcomes" / f"{last + 1:04}")

    def conclude(self, outcomes: Path, summary: SendingSummary) -> None:
        """Mark these outcomes as complete."""
        self._write(outcomes.with_suffix(".json"), summary, outcome=Outcome.UNKNOWN)

    def concluded(self) -> tuple[Path, SendingSummary] | None:
        """Return the last complete outcomes and their summary, None if there are none."""
        for path in sorted(self._outcomes(), reverse=True):
            summary = self._read(path.with_suffix(".json"), SendingSummary)
            if summary is not None:
                return path, summary
        return None

    def is_underway(self) -> bool:
        """Return True if the last sending has not concluded its outcomes."""
        concluded, last = self.concluded(), max(self._outcomes(), default=None)
        return last is not None and (concluded is None or concluded[0] != last)

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
        """Replace a file atomically and durably. ``outcome`` is that of an error."""
        beside = path.with_name(path.name + ".new")
        try:
            beside.unlink(missing_ok=True)
            with open(beside, "xb", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
                file.write(msgspec.json.format(msgspec.json.encode(value)))
                file.flush()
                os.fsync(file.fileno())
            beside.replace(path)
            # The new name is durable only after this.
            parent = os.open(path.parent, os.O_RDONLY)
            try:
                os.fsync(parent)
            finally:
                os.close(parent)
        except OSError as error:
            problem = f"its {path.name} can't be written: {error.strerror}"
            raise run_file_error(self.path, problem, outcome=outcome) from None


def uri(path: Path) -> str:
    """Return the path for Spark, whatever its default file system is. Hadoop wants it unquoted."""
    return f"file://{path.as_posix()}"


def digest_of(message: Any, custom_fields: Mapping[str, Any] | None, fields: Sequence[str]) -> str:
    """Return a hash of the message, its custom fields and columns. Raises ValidationError if they can't be sent."""
    names = [name.encode(errors="surrogatepass") for name in fields]
    parts = (wire.encode_message(message), wire.encode_custom_fields(custom_fields), names)
    return hashlib.sha256(msgspec.msgpack.encode(parts)).hexdigest()


def mismatch(manifest: Manifest, spec: Mapping[str, str], *, claim_ttl: float, now: float | None = None) -> str | None:
    """Return why the run can't be resumed for this spec, None if it can."""
    for name, words in _FIXED.items():
        if getattr(manifest, name) != spec[name]:
            return f"the run is of {words}: use another folder for each broadcast"
    age = (time.time() if now is None else now) - manifest.created
    # The other half is for the sending: no claim may expire before its end.
    kept = min(claim_ttl, manifest.claim_ttl)
    if age > kept / 2:
        return (
            f"the run was planned {age / 86400:.1f} days ago, over half of the {kept / 86400:.1f} that its claims are "
            "kept. Nothing is sent: claims that expire would have users pushed twice. Plan a new run"
        )
    return None
