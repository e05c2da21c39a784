"""Dedupe keys: what is stored of a delivery, what a later delivery may still send, and what it is answered.

Decides only; the claim stores and the clock are the shell's. A position is that of a user among the distinct users of
the call, sorted: who they are is not stored, and in which order they were given does not matter.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import NamedTuple

import msgspec

from pushsdk._core.decisions import decide
from pushsdk._core.errors import PushError, ValidationError
from pushsdk._core.explain import error_for, may_repeat, partial_error, recorded_error
from pushsdk._core.outcome import Outcome, Verdict
from pushsdk._core.results import Receipt
from pushsdk._core.splitting import attempts_of
from pushsdk._core.user_states import UserState

__all__ = [
    "KEY_BYTES",
    "Mark",
    "Payload",
    "Position",
    "Record",
    "Run",
    "Share",
    "begin",
    "by_position",
    "conclude",
    "digest_of",
    "fingerprint_of",
    "fingerprint_of_all",
    "mark_of",
    "read",
    "recorded",
]

KEY_BYTES = 512
# Part of what is hashed: another version of the format never meets the keys and fingerprints of this one.
_KEYS, _PAYLOADS = b"pushsdk dedupe key 1\0", b"pushsdk payload 1"

Share = tuple[tuple[str, ...], Verdict]
"""Users of a call, and the verdict on them."""

Payload = tuple[bytes, bytes, bytes | None]
"""What one request carries, as JSON: user ids, message, custom fields."""


class Mark(StrEnum):
    """What the store says of one user of a delivery."""

    CLAIMED = "CLAIMED"
    """Being sent, or sent and never known how it ended: UNKNOWN to every other delivery."""
    ACCEPTED = "ACCEPTED"
    """Settled."""
    REJECTED = "REJECTED"
    """Settled: refused, and the same again would be too."""
    OPEN = "OPEN"
    """Not sent, or refused for a reason that may pass: the next delivery may send."""


_MARKS = {
    UserState.PENDING: Mark.OPEN,
    UserState.ACCEPTED: Mark.ACCEPTED,
    UserState.REJECTED: Mark.REJECTED,
    UserState.UNKNOWN: Mark.CLAIMED,
}
_OUTCOMES = {Mark.CLAIMED: Outcome.UNKNOWN, Mark.ACCEPTED: Outcome.ACCEPTED, Mark.REJECTED: Outcome.REJECTED}


class Position(NamedTuple):
    """The mark of one user, and the HTTP status behind it."""

    mark: Mark
    status: int | None = None


class Run(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """So many users in a row of which the same is known."""

    mark: Mark
    users: int
    status: int | None = None


class Record(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """All that is stored of a delivery: no user id, no text, no key."""

    fingerprint: str
    claimed_at: float
    """Unix time of the first claim, for people who look."""
    runs: tuple[Run, ...]

    @property
    def users(self) -> int:
        """How many it is about."""
        return sum([run.users for run in self.runs])

    def positions(self) -> list[Position]:
        """The runs, one item for each user."""
        return [Position(run.mark, run.status) for run in self.runs for _ in range(run.users)]

    def open(self) -> tuple[int, ...]:
        """Where a delivery may send."""
        places: list[int] = []
        start = 0
        for run in self.runs:
            if run.mark is Mark.OPEN:
                places += range(start, start + run.users)
            start += run.users
        return tuple(places)

    def with_positions(self, positions: Iterable[Position]) -> Record:
        """The same delivery, so far."""
        runs = tuple(Run(each.mark, len(list(same)), each.status) for each, same in itertools.groupby(positions))
        return msgspec.structs.replace(self, runs=runs)

    def all_at(self, position: Position) -> Record:
        """The same delivery, where the same is known of all."""
        return msgspec.structs.replace(self, runs=(Run(position.mark, self.users, position.status),))

    def taken(self) -> Record:
        """As it stands once a delivery has claimed all that is open."""
        claimed = Position(Mark.CLAIMED)
        return self.with_positions(claimed if each.mark is Mark.OPEN else each for each in self.positions())

    def opened(self) -> Record:
        """Before anything was claimed."""
        return self.all_at(Position(Mark.OPEN))

    def after(self, users: Sequence[str], shares: Iterable[Share]) -> Record:
        """As it stands once these users of the call, which are all by position, have their verdicts."""
        marks = {user: mark_of(verdict) for some, verdict in shares for user in some}
        return self.with_positions(
            marks.get(user, position) for user, position in zip(users, self.positions(), strict=True)
        )

    @property
    def is_void(self) -> bool:
        """Whether there is nothing to keep: every user may be sent to again."""
        return all(run.mark is Mark.OPEN for run in self.runs)

    def encode(self) -> bytes:
        """As a store keeps it: JSON, for people who look."""
        return _encode(self)


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Record).decode


def digest_of(dedupe_key: object) -> str:
    """What is stored in place of a dedupe key: its SHA-256, for it may name a person. Raises ValidationError."""
    if not isinstance(dedupe_key, str) or not dedupe_key:
        raise ValidationError(
            "dedupe_key is a str that is not empty: one for each job, the same at each delivery of it"
        )
    try:
        data = dedupe_key.encode()
    except UnicodeEncodeError:
        data = b"\0"
    if b"\0" in data:
        raise ValidationError("dedupe_key holds a NUL or half a surrogate pair: use plain text, as the id of the job")
    if len(data) > KEY_BYTES:
        raise ValidationError(f"dedupe_key is longer than {KEY_BYTES} bytes of UTF-8: use the id of the job, or a hash")
    return hashlib.sha256(_KEYS + data).hexdigest()


def fingerprint_of(dedupe_key: str, base_url: str, *, ids: bytes, message: bytes, custom_fields: bytes | None) -> str:
    """A hash of exactly what is pushed, and where.

    The key goes in, too: else whoever reads the store could tell equal payloads, and try out who they went to.
    """
    return fingerprint_of_all(dedupe_key, base_url, ((ids, message, custom_fields),))


def fingerprint_of_all(dedupe_key: str, base_url: str, payloads: Iterable[Payload]) -> str:
    """The same of several requests that are sent under one key."""
    told = hashlib.sha256(_PAYLOADS)
    for part in (dedupe_key.encode(), base_url.encode(), *itertools.chain.from_iterable(payloads)):
        # Each behind its length: no two payloads run together into the same bytes.
        told.update(b"-" if part is None else b"%d:" % len(part) + part)
    return told.hexdigest()


def by_position(users: tuple[str, ...]) -> tuple[str, ...]:
    """The users of a call, each at its position."""
    return users if len(users) == 1 else tuple(sorted(users))


def begin(fingerprint: str, users: int, now: float) -> Record:
    """The record of a first delivery: all users claimed."""
    return Record(fingerprint=fingerprint, claimed_at=now, runs=(Run(Mark.CLAIMED, users),))


def read(value: bytes, ours: Record) -> Record:
    """The record that was there before ours; where that has nothing to keep, one of ours.

    Raises ValidationError where it is about another payload, and ValueError where it is no record of this version.
    """
    found = _decode(value)
    if found.is_void:
        return ours.opened()
    if found.fingerprint != ours.fingerprint:
        raise ValidationError(
            "this dedupe_key was used for another payload (users, message, custom fields or base_url differ): "
            "nothing was sent; use a key of its own for each job, and a new one to send a job on after a change of its "
            "payload or base_url"
        )
    if found.users != ours.users:
        raise ValueError("the record is about another number of users")
    return found


def recorded(value: bytes, users: int) -> Record:
    """The record of a delivery to so many users, whatever was sent. Raises ValueError where it is none."""
    found = _decode(value)
    if found.users != users:
        raise ValueError("the record is about another number of users")
    return found


def mark_of(verdict: Verdict) -> Position:
    """What a verdict leaves in the store. An UNKNOWN stays claimed: nothing is known that would settle it."""
    status = decide(verdict).status
    mark = _MARKS[status.state]
    return Position(mark, status.status if mark in (Mark.ACCEPTED, Mark.REJECTED) else None)


def conclude(users: tuple[str, ...], repeated: int, *, before: Record, shares: Sequence[Share]) -> Receipt | PushError:
    """What the caller is told: the verdicts of this delivery, and what was recorded ``before`` of the others."""
    sent = {user for some, _ in shares for user in some}
    recorded: dict[Position, list[str]] = {}
    for user, position in zip(by_position(users), before.positions(), strict=True):
        if user not in sent:
            recorded.setdefault(position, []).append(user)
    told = [(tuple(some), Verdict(outcome=_OUTCOMES[at.mark], status=at.status)) for at, some in recorded.items()]
    parts = [*shares, *told]
    outcomes = {verdict.outcome for _, verdict in parts}
    if outcomes == {Outcome.ACCEPTED}:
        return Receipt(
            users=len(users),
            repeated=repeated,
            requests=len(shares),
            attempts=attempts_of(shares),
            deduplicated=len(users) - len(sent),
        )
    if len(outcomes) > 1:
        return partial_error(users, parts)
    if shares:
        verdict = msgspec.structs.replace(shares[-1][1], attempts=attempts_of(shares))
        error = error_for(verdict, user_ids=users)
        error.may_repeat = any(may_repeat(each) for _, each in shares)
        return error
    return recorded_error(told[-1][1], user_ids=users)
