"""What is asked of a claim store, step by step, what its answers mean, and what it was not told. Decides only.

The steps are generators: they yield what to ask, and are sent the answer; the awaits are the guard's. Any of them may
fail, and what was asked may be done all the same: at once, later, or never.
"""

from __future__ import annotations

import secrets
from collections.abc import Generator
from typing import NamedTuple, TypeVar

from pushsdk._core import dedupe
from pushsdk._core.dedupe import Record
from pushsdk.claims.store import Claim

__all__ = ["Add", "Get", "Held", "Op", "Owed", "Remove", "Steps", "Swap", "Taking", "looking", "settling"]

T = TypeVar("T")

# Another delivery may change the entry between two looks at it, but hardly so often.
LOOKS = 10
# What the store could not be told: more than fails in a short outage of it.
KEPT = 10_000


class Add(NamedTuple):
    """``ClaimStore.add``: answered with the claim that is there, or None."""

    claim: Claim


class Get(NamedTuple):
    """``ClaimStore.get``: answered with the claim that is there, or None."""


class Swap(NamedTuple):
    """``ClaimStore.swap``: answered with whether it was done."""

    token: str
    claim: Claim


class Remove(NamedTuple):
    """``ClaimStore.remove``: answered with whether it was done."""

    token: str


Op = Add | Get | Swap | Remove
Steps = Generator[Op, Claim | bool | None, T]


class Held(NamedTuple):
    """A claim of ours, as the store has it."""

    key: str
    token: str
    before: Record
    """What holds if nothing is sent: open where this delivery may send."""
    record: Record
    """What the store has: the same, claimed."""

    @property
    def claim(self) -> Claim:
        """The same, as it is written."""
        return Claim(self.token, self.record.encode())


class Owed:
    """What is true of entries that this process wrote, or may have written, where the store says something else.

    By their tokens: each was written once, so an entry that comes late, or comes back, is known by it.
    """

    def __init__(self) -> None:
        self._true: dict[str, Record] = {}

    def note(self, token: str, record: Record) -> None:
        """This is true of the entry with this token, whatever the store says."""
        self._true.pop(token, None)
        self._true[token] = record

    def clear(self, token: str) -> None:
        """The store says the same now, or will never have this entry."""
        self._true.pop(token, None)

    def bound(self) -> None:
        """Forget the oldest: to be called when something stays."""
        while len(self._true) > KEPT:
            del self._true[next(iter(self._true))]

    def of(self, token: str) -> Record | None:
        """What is true of this entry, if that is not what the store says."""
        return self._true.get(token)


class Taking:
    """A delivery's way to its claim, and back."""

    __slots__ = ("_fence", "_ours", "_owed", "_replaced", "_replaced_is", "key", "late", "written")

    def __init__(self, key: str, ours: Record, owed: Owed) -> None:
        self.key = key
        #: The entries that may have been written, or may yet be, by their tokens.
        self.written: dict[str, Held] = {}
        #: What was found claimed by a delivery that is known here to have ended, and what is to be written of it.
        self.late: tuple[Held, Record] | None = None
        self._ours = ours
        self._owed = owed
        # The entry that was to be replaced last, and what is true of it.
        self._replaced, self._replaced_is = "", ours
        # The entry that keeps out what comes late.
        self._fence = ""

    def steps(self) -> Steps[Held | Record]:
        """Claimed for this delivery; or what is recorded, where it leaves nothing to send.

        Raises ValidationError for another payload, ValueError for what is no record, TimeoutError.
        """
        for _ in range(LOOKS):
            fresh = self._writing(self._ours.opened(), self._ours)
            found = yield Add(fresh.claim)
            if found is None:
                return fresh
            assert isinstance(found, Claim)  # noqa: S101 - which is what a store answers
            if found.token in self.written:
                # A store that asks again after a lost answer meets its own claim: that of an add, or of a swap.
                return self.written[found.token]
            # Of all that was asked before, nothing was done.
            self.written.clear()
            record = self._read(found)
            if not record.open():
                return record
            self._replaced, self._replaced_is = found.token, record
            held = self._writing(record, record.taken())
            if (yield Swap(found.token, held.claim)):
                self._owed.clear(found.token)
                return held
        raise TimeoutError

    def undoing(self) -> Steps[bool]:
        """After a failure: nothing of it is to hold, neither what was written nor what is still on its way.

        What comes late is kept out by an entry that is not what it expects: open as before, under another token.
        """
        for held in self.written.values():
            self._owed.note(held.token, held.before)
        self._fence = self._fence or secrets.token_hex(16)
        for held in self.written.values():
            # Where nothing else may come, nothing need stay.
            is_all = held.before.is_void and len(self.written) == 1
            if (yield Remove(held.token) if is_all else self._fencing(held.token, held.before)):
                self._clear()
                return True
        found = yield Add(Claim(self._fence, self._ours.opened().encode()))
        token = found.token if isinstance(found, Claim) else self._fence
        if token == self._replaced:
            yield self._fencing(token, self._replaced_is)
            self._owed.clear(token)
        if token in (self._fence, self._replaced):
            self._clear()
        # Else there is another delivery's: nothing comes late while that stands, and after it we know what is true.
        return True

    def _fencing(self, token: str, record: Record) -> Swap:
        return Swap(token, Claim(self._fence, record.encode()))

    def _writing(self, before: Record, record: Record) -> Held:
        token = secrets.token_hex(16)
        self.written[token] = held = Held(self.key, token, before, record)
        return held

    def _clear(self) -> None:
        for token in self.written:
            self._owed.clear(token)

    def _read(self, found: Claim) -> Record:
        record = dedupe.read(found.record, self._ours)
        true = self._owed.of(found.token)
        if true is None:
            return record
        if not true.open():
            # What could not be written then may be now.
            self.late = Held(self.key, found.token, record, record), true
        return true


def looking(ours: Record, owed: Owed) -> Steps[Record]:
    """What is recorded of a delivery as ours would be; open where nothing is. Claims nothing.

    What could not be written of it is written now: what is told here has to be so for everybody. Raises
    ValidationError for another payload, ValueError for what is no record.
    """
    found = yield Get()
    if found is None:
        return ours.opened()
    assert isinstance(found, Claim)  # noqa: S101 - which is what a store answers
    record = dedupe.read(found.record, ours)
    true = owed.of(found.token)
    if true is None:
        return record
    yield from settling(found.token, true)
    owed.clear(found.token)
    return true


def settling(token: str, record: Record) -> Steps[bool]:
    """What became of a claim; or that nothing did, and then it is given back. False where the claim had gone."""
    if record.is_void:
        yield Remove(token)
        return True
    return bool((yield Swap(token, Claim(token, record.encode()))))
