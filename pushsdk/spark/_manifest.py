"""What a run is about: written once, when its plan is whole, and compared when the run is taken up again.

Plain data without ids, texts and keys. Who stores it is elsewhere.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import msgspec

from pushsdk._core import wire

__all__ = ["FORMAT", "OWN_CLAIMS", "Kind", "Manifest", "Summary", "digest_of", "objection"]

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
    """Names the run, in its dedupe keys and folders."""
    kind: Kind
    digest: str
    base_url: str
    primary_key: str
    claims: str
    """The kind of the claim store."""
    max_users: int
    """Of a chunk."""
    chunks: int
    users: int
    repeated: int
    checksum: str
    """The sum of the hashes of all ids: of the same users in any order."""
    tasks: int
    """Of the first sending; another may have others."""
    created: float
    """Seconds since the epoch."""
    claim_ttl: float
    """How long its claims are kept, in seconds."""
    version: str
    """Of the package."""


class Summary(msgspec.Struct, frozen=True, kw_only=True):
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


def objection(found: Manifest, wanted: Mapping[str, str], *, claim_ttl: float, now: float | None = None) -> str | None:
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
