"""Idempotency keys: the record of a call in a claim store, and the result for the caller.

Decides only. A position is the index of a user among the sorted distinct users of the call. User ids are not stored,
and their order in the call does not matter.
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

KEY_BYTES = 512
# Prefixes of the hashed data: keys and fingerprints of another format version never match.
_KEYS, _PAYLOADS = b"pushsdk idempotency key 2\0", b"pushsdk payload 2"

Shares = Sequence[tuple[tuple[str, ...], Verdict]]
"""Users of a call with their verdict."""

Payload = tuple[bytes, bytes, bytes | None]
"""The parts of one request, as JSON: user ids, message, custom fields."""


class ClaimRecord(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The record of a call in a claim store: no user id, no text, no key."""

    fingerprint: str
    claimed_at: float
    """Unix time of the first claim."""
    users: msgspec.Raw
    """The states of the users, as ``UserStates.to_json`` writes them."""

    def states(self) -> UserStates:
        """Return the states. Raises ValueError if they can't be decoded."""
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
            "idempotency_key must be a non-empty str: a different key for each job, the same key for its redeliveries"
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
        raise ValidationError(f"idempotency_key must have at most {KEY_BYTES} bytes in UTF-8: use the job id or a hash")
    return hashlib.sha256(_KEYS + data).hexdigest()


def fingerprint_of(key: str, base_url: str, payloads: Iterable[Payload]) -> str:
    """Return a hash of all payloads that are sent under one key, and of the base URL.

    The hash includes the key: otherwise a reader of the store could recognize equal payloads and guess their users.
    """
    digest = hashlib.sha256(_PAYLOADS)
    for part in (key.encode(), base_url.encode(), *itertools.chain.from_iterable(payloads)):
        # The length before each part keeps different payloads from having the same bytes.
        digest.update(b"-" if part is None else b"%d:" % len(part) + part)
    return digest.hexdigest()


def by_position(users: tuple[str, ...]) -> tuple[str, ...]:
    """Return the users of a call, sorted by position."""
    return users if len(users) == 1 else tuple(sorted(users))


def status_after(verdict: Verdict) -> UserStatus:
    """Return the status to store for a user after this verdict on the request."""
    status = decide(verdict).status
    return UserStatus(status.state, None if status.state is UserState.PENDING else status.status)


def recorded_verdict(status: UserStatus) -> Verdict:
    """Return the verdict that a stored status means for this call: CLAIMED by another call is UNKNOWN here."""
    return Verdict(outcome=OUTCOMES[status.state], status=status.status, recorded=True)


def conclude(users: tuple[str, ...], duplicates: int, parts: Shares) -> Receipt | PushError:
    """Return the result of a call if the verdicts on some of its users come from the store."""
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
