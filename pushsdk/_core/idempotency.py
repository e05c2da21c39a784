"""Idempotency keys: what a claim store keeps of a call, and what the caller is told.

Decides only. A position is that of a user among the distinct users of the call, sorted: who the users are is not
stored, and the order in which they were given does not matter.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterable, Sequence

import msgspec

from pushsdk._core.decisions import OUTCOMES, decide
from pushsdk._core.error_mapping import error_for, partial_error, recorded_error, retryable
from pushsdk._core.errors import PushError, ValidationError
from pushsdk._core.outcome import Outcome, Verdict
from pushsdk._core.results import Receipt
from pushsdk._core.splitting import attempts_of
from pushsdk._core.user_states import UserState, UserStates, UserStatus

__all__ = [
    "KEY_BYTES",
    "ClaimRecord",
    "Payload",
    "Shares",
    "by_position",
    "conclude",
    "digest_of",
    "fingerprint_of",
    "recorded_verdict",
    "status_after",
]

KEY_BYTES = 512
# Part of what is hashed: another version of the format never meets the keys and fingerprints of this one.
_KEYS, _PAYLOADS = b"pushsdk idempotency key 2\0", b"pushsdk payload 2"

Shares = Sequence[tuple[tuple[str, ...], Verdict]]
"""Users of a call, and the verdict on them."""

Payload = tuple[bytes, bytes, bytes | None]
"""The parts of one request, as JSON: user ids, message, custom fields."""


class ClaimRecord(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """All that is stored of a call: no user id, no text, no key."""

    fingerprint: str
    claimed_at: float
    """Unix time of the first claim."""
    users: msgspec.Raw
    """The states of the users, as ``UserStates.to_json`` writes them."""

    def states(self) -> UserStates:
        """Return the states. Raises ValueError if there are none."""
        return UserStates.from_json(bytes(self.users))

    def encode(self) -> bytes:
        """Return the record as JSON, as a store keeps it."""
        return _encode(self)

    @classmethod
    def decode(cls, data: bytes) -> ClaimRecord:
        """Return the record that ``encode`` wrote. Raises ValueError for anything else."""
        return _decode(data)


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(ClaimRecord).decode


def digest_of(key: object) -> str:
    """Return the SHA-256 that is stored in place of an idempotency key, which may name a person.

    Raises ValidationError.
    """
    if not isinstance(key, str) or not key:
        raise ValidationError(
            "idempotency_key is a str that is not empty: one for each job, the same at each delivery of it"
        )
    try:
        data = key.encode()
    except UnicodeEncodeError:
        data = b"\0"
    if b"\0" in data:
        raise ValidationError(
            "idempotency_key must not contain NUL or lone surrogates: use plain text, such as the job id"
        )
    if len(data) > KEY_BYTES:
        raise ValidationError(f"idempotency_key is longer than {KEY_BYTES} bytes of UTF-8: use the job id, or a hash")
    return hashlib.sha256(_KEYS + data).hexdigest()


def fingerprint_of(key: str, base_url: str, payloads: Iterable[Payload]) -> str:
    """Return a hash of exactly what is sent under one key, and where.

    The key goes in, too: otherwise a reader of the store could recognize equal payloads and guess their users.
    """
    digest = hashlib.sha256(_PAYLOADS)
    for part in (key.encode(), base_url.encode(), *itertools.chain.from_iterable(payloads)):
        # Each behind its length: no two payloads run together into the same bytes.
        digest.update(b"-" if part is None else b"%d:" % len(part) + part)
    return digest.hexdigest()


def by_position(users: tuple[str, ...]) -> tuple[str, ...]:
    """Return the users of a call, each at its position."""
    return users if len(users) == 1 else tuple(sorted(users))


def status_after(verdict: Verdict) -> UserStatus:
    """Return the status of a user after this verdict on the request, for whoever sends the same call again."""
    status = decide(verdict).status
    return UserStatus(status.state, None if status.state is UserState.PENDING else status.status)


def recorded_verdict(status: UserStatus) -> Verdict:
    """Return the verdict on users of whom this is on record: CLAIMED by another call is UNKNOWN here."""
    return Verdict(outcome=OUTCOMES[status.state], status=status.status, recorded=True)


def conclude(users: tuple[str, ...], duplicates: int, parts: Shares) -> Receipt | PushError:
    """Return what the caller is told, if the verdicts on some of the users come from the record."""
    sent = [part for part in parts if not part[1].recorded]
    outcomes = {verdict.outcome for _, verdict in parts}
    if outcomes == {Outcome.ACCEPTED}:
        return Receipt(
            users=len(users),
            duplicates=duplicates,
            requests=len(sent),
            attempts=attempts_of(sent),
            already_accepted=len(users) - sum([len(part) for part, _ in sent]),
        )
    if len(outcomes) > 1:
        return partial_error(users, parts)
    if sent:
        error = error_for(msgspec.structs.replace(sent[-1][1], attempts=attempts_of(sent)), user_ids=users)
        error.retryable = any(retryable(verdict) for _, verdict in sent)
        return error
    return recorded_error(parts[-1][1], user_ids=users)
