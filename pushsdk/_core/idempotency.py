"""Idempotency keys: a call's record in a claim store, and its meaning for a later call.

Decides only. A position is a user's index among the call's sorted distinct users. User ids are not stored,
and their order in the call does not matter.
"""

import hashlib
from collections.abc import Sequence

import msgspec

from pushsdk._core.body import EncodedIds
from pushsdk._core.decisions import OUTCOMES, decide
from pushsdk._core.errors import ValidationError
from pushsdk._core.kinds import must_be
from pushsdk._core.outcome import Verdict
from pushsdk._core.user_states import Run, UserState, UserStates, UserStatus

KEY_BYTES = 512
# Prefix for the hashed data: fingerprints with another format version never match.
_PAYLOADS = b"pushsdk payload 3"
# A job's name in texts and log lines: so many digits of its key's hash, as a key may name a person.
NAME_DIGITS = 12
# The parts of a fingerprint in their digits' order, by the end of the digits. Users come last: ids are short.
_PARTS = {16: "another base_url", 32: "another message", 48: "other custom fields", 64: "other users"}

Payload = tuple[EncodedIds, bytes, bytes | None]
"""One request's parts, as JSON: user ids, message, custom fields."""


class ClaimRecord(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A call's record in a claim store: no user id, no text, no key."""

    fingerprint: str
    claimed_at: float
    """Unix time when it was first claimed."""
    users: list[Run]
    """The users' states."""
    sending_until: float = 0.0
    """Unix time at which the last call that claimed users ends."""

    def states(self) -> UserStates:
        """Return the users' states."""
        return UserStates.read(self.users)

    def encode(self) -> bytes:
        """Return the record as JSON, as a store keeps it."""
        return msgspec.json.encode(self)

    @classmethod
    def decode(cls, data: bytes) -> "ClaimRecord":
        """Return the record that ``encode`` wrote. Raises ValueError for anything else."""
        return msgspec.json.decode(data, type=ClaimRecord)


def digest_of(key: object) -> str:
    """Return the key's SHA-256, which is stored in its place, in hexadecimal digits. Raises ValidationError."""
    data = encoded_key("idempotency_key", key, "the same for each delivery of a job, for example 'shipped:42'")
    return hashlib.sha256(data).hexdigest()


def encoded_key(name: str, key: object, rule: str, most: int = KEY_BYTES) -> bytes:
    """Return a key with at most ``most`` bytes in UTF-8. Raises ValidationError."""
    if not isinstance(key, str) or not key:
        raise must_be(name, f"a str that is not empty, {rule}", key, ValidationError)
    try:
        data = key.encode()
    except UnicodeEncodeError:
        data = b"\0"
    if b"\0" in data:
        raise ValidationError(f"{name} must not contain NUL or lone surrogates: use plain text, such as the job id")
    if len(data) > most:
        raise ValidationError(f"{name} must have at most {most} bytes in UTF-8: use the job id or a hash")
    return data


def fingerprint_of(key: str, base_url: str, payloads: Sequence[Payload]) -> str:
    """Return a hash over the base URL and all payloads that are sent under one key: 16 digits for each of ``_PARTS``.

    All digits depend on the key and on the parts before: otherwise a reader of the store could recognize equal
    payloads and guess their users.
    """
    digest, digits = hashlib.sha256(_PAYLOADS), ""
    columns: list[list[bytes | None]] = [[key.encode(), base_url.encode()]]
    columns += ([payload[at] for payload in payloads] for at in (1, 2, 0))
    for parts in columns:
        for part in parts:
            # The length before each part keeps different payloads from having the same bytes.
            digest.update(b"-" if part is None else b"%d:" % len(part) + part)
        digits += digest.hexdigest()[:16]
    return digits


def difference(fingerprint: str, other: str) -> str:
    """Return the first part in which two different fingerprints differ."""
    return next(part for stop, part in _PARTS.items() if fingerprint[:stop] != other[:stop])


def status_after(verdict: Verdict) -> UserStatus:
    """Return the status to store for a user after this verdict on the request."""
    status = decide(verdict).status
    return UserStatus(status.state, None if status.state is UserState.PENDING else status.status)


def recorded_verdict(status: UserStatus) -> Verdict:
    """Return the verdict that a stored status means for this call: CLAIMED by another call is UNKNOWN here."""
    return Verdict(outcome=OUTCOMES[status.state], status=status.status, recorded=True)
