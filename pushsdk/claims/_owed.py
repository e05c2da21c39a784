"""Steps that a delivery takes at a claim store, what the answers mean, and what the store has still to be told.

Decides only. The steps are generators: they yield what to ask, and are sent the answer; the awaits are the guard's. Any
of them may fail, and what was asked may be done all the same: at once, later, or never.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable, Generator
from typing import NamedTuple, TypeVar

from pushsdk._core import dedupe
from pushsdk._core.dedupe import Record
from pushsdk._core.errors import PushError
from pushsdk.claims.store import Claim

__all__ = ["Add", "Debt", "Get", "Held", "Op", "Owed", "Steps", "Swap", "Taking", "looking"]

T = TypeVar("T")

# Another delivery may change the entry between two looks at it, but hardly so often.
LOOKS = 10
# Keys whose entries the store could not be told of: more than fail in a short outage of it.
KEPT = 10_000


class Add(NamedTuple):
    """A put that expects nothing: answered with the claim that is there, or None."""

    claim: Claim


class Get(NamedTuple):
    """``ClaimStore.get``: answered with the claim that is there, or None."""


class Swap(NamedTuple):
    """A put that expects this token, or nothing there: answered with whether it was done."""

    token: str
    claim: Claim


Op = Add | Get | Swap
Steps = Generator[Op, Claim | bool | None, T]
Debt = Callable[[], Steps[bool]]
"""Steps that tell the store what is true of an entry. They may be taken any number of times, also twice at once.

They return False if the entry had gone, and with it what it knew of users who had been sent to.
"""


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

    def settling(self, record: Record) -> Steps[bool]:
        """Write what became of the claim; or that nothing was sent, and then it is given back.

        Under another token, so that nobody replaces the outcome who has only read the claim; the same at each try.
        """
        token = hashlib.sha256(self.token.encode()).hexdigest()[: len(self.token)]
        is_there = yield Swap(self.token, Claim(token, record.encode()))
        return bool(is_there) or record == self.before


class Owed:
    """Debts to the store by key: what it is still to be told before anything else is asked about that key."""

    def __init__(self) -> None:
        self._debts: dict[str, list[Debt]] = {}
        # Those that could not be paid at once; the oldest first.
        self._overdue: dict[str, None] = {}

    def add(self, key: str, debt: Debt) -> None:
        """The store is to be told this now."""
        self._debts.setdefault(key, []).append(debt)

    def postpone(self, key: str, error: BaseException) -> None:
        """The store could not be told: later, after all others. The oldest are forgotten where they are too many.

        So is what no later try would change: another loop's store, a closed one, an entry that is damaged.
        """
        self._overdue.pop(key, None)
        if isinstance(error, PushError | ValueError):
            self._debts.pop(key, None)
        elif key in self._debts:
            self._overdue[key] = None
        if len(self._overdue) > KEPT:
            oldest = next(iter(self._overdue))
            del self._overdue[oldest], self._debts[oldest]

    def overdue(self, most: int) -> list[str]:
        """The keys to be tried next."""
        return list(self._overdue)[:most]

    def paying(self, key: str) -> Steps[bool]:
        """Tell the store all that it is to be told of this key. False where an entry had gone."""
        is_there = True
        for debt in tuple(self._debts.get(key, ())):
            is_there &= yield from debt()
            # Another call may have paid it meanwhile.
            left = [each for each in self._debts.get(key, ()) if each is not debt]
            if left:
                self._debts[key] = left
            else:
                self._debts.pop(key, None)
                self._overdue.pop(key, None)
        return is_there


class Taking:
    """A delivery's way to its claim, and back."""

    __slots__ = ("_ours", "_owed", "_replaced", "key", "written")

    def __init__(self, key: str, ours: Record, owed: Owed) -> None:
        self.key = key
        #: The entries that may have been written, or may yet be, by their tokens.
        self.written: dict[str, Held] = {}
        self._ours = ours
        self._owed = owed
        # The entry that was to be replaced last, by its token, and what it says.
        self._replaced: dict[str, Record] = {}

    def steps(self) -> Steps[Held | Record]:
        """Claimed for this delivery; or what is recorded, where it leaves nothing to send.

        Raises ValidationError for another payload, ValueError for what is no record, TimeoutError.
        """
        yield from self._owed.paying(self.key)
        for _ in range(LOOKS):
            fresh = self._writing(self._ours.opened(), self._ours)
            found = yield Add(fresh.claim)
            if found is None:
                return fresh
            assert isinstance(found, Claim)  # noqa: S101 - which is what a store answers
            # Of all that was asked before, nothing was done.
            self.written.clear()
            record = dedupe.read(found.record, self._ours)
            if not record.open():
                return record
            self._replaced = {found.token: record}
            held = self._writing(record, record.taken())
            if (yield Swap(found.token, held.claim)):
                return held
        raise TimeoutError

    def undoing(self) -> Steps[bool]:
        """After a failure: nothing of it is to hold, neither what was written nor what is still on its way.

        An add that comes late is kept out by any entry, and none is ever removed. A swap that comes late is kept out by
        another token than it expects. So in the end there is an entry of another token: open as before, or another
        delivery's.
        """
        fence = secrets.token_hex(16)
        before = {token: held.before for token, held in self.written.items()} | self._replaced
        for _ in range(LOOKS):
            for token, record in before.items():
                if (yield Swap(token, Claim(fence, record.encode()))):
                    return True
            found = yield Add(Claim(fence, self._ours.opened().encode()))
            if not isinstance(found, Claim) or found.token not in before:
                return True
            # It came between two questions.
        raise TimeoutError

    def _writing(self, before: Record, record: Record) -> Held:
        token = secrets.token_hex(16)
        self.written[token] = held = Held(self.key, token, before, record)
        return held


def looking(key: str, ours: Record, owed: Owed) -> Steps[Record]:
    """What is recorded of a delivery as ours would be; open where nothing is. Claims nothing.

    Raises ValidationError for another payload, ValueError for what is no record.
    """
    yield from owed.paying(key)
    found = yield Get()
    if found is None:
        return ours.opened()
    assert isinstance(found, Claim)  # noqa: S101 - which is what a store answers
    return dedupe.read(found.record, ours)
