"""What a claim store is asked and what is owed to it, without one: a dictionary answers, or loses, or comes late."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pushsdk import ConfigurationError, ValidationError
from pushsdk._core.dedupe import Mark, Position, Record, begin, read
from pushsdk.claims import Claim
from pushsdk.claims._owed import KEPT, LOOKS, Add, Get, Held, Op, Owed, Steps, Swap, Taking, looking

KEY, OURS = "0f" * 32, begin("f" * 64, 2, 1.0)
CLAIMED, ACCEPTED, OPEN = Mark.CLAIMED, Mark.ACCEPTED, Mark.OPEN


class Entry:
    """One entry of a store, and what is still on its way to it."""

    def __init__(self, claim: Claim | None = None) -> None:
        self.claim = claim
        self.asked: list[str] = []
        self.late: list[Op] = []

    def do(self, op: Op) -> Claim | bool | None:
        """As a store does it."""
        self.asked.append(type(op).__name__)
        there = self.claim
        if isinstance(op, Add):
            is_refused = there is not None and there.token != op.claim.token
            self.claim = there if is_refused else op.claim
            return there if is_refused else None
        if isinstance(op, Get):
            return there
        if there is not None and there.token not in (op.token, op.claim.token):
            return False
        self.claim = op.claim
        return True

    def marks(self) -> list[Mark] | None:
        """What it says, None where there is none."""
        return None if self.claim is None else [at.mark for at in read(self.claim.record, OURS).positions()]


class LostError(Exception):
    """There was no answer."""


def walk(steps: Steps[object], entry: Entry, fates: list[str] | None = None) -> object:
    """Ask the entry: each thing is done; or by its fate done twice, done and not told, not done, or done later."""
    try:
        op = next(steps)
        while True:
            fate = fates.pop(0) if fates else "done"
            if fate == "later":
                entry.late.append(op)
            if fate in ("later", "not done"):
                raise LostError
            answer = entry.do(op)
            if fate == "twice":
                answer = entry.do(op)
            if fate == "not told":
                raise LostError
            op = steps.send(answer)
    except StopIteration as end:
        return end.value


def of(*marks: Mark) -> Record:
    return OURS.with_positions(Position(mark) for mark in marks)


def entry_of(*marks: Mark) -> Entry:
    return Entry(Claim("a" * 32, of(*marks).encode()))


def test_what_nobody_claimed_is_ours() -> None:
    entry = Entry()
    held = walk(Taking(KEY, OURS, Owed()).steps(), entry)
    assert isinstance(held, Held)
    assert (held.claim, held.record, held.before.open()) == (entry.claim, OURS, (0, 1))


def test_what_is_open_is_taken_over_and_the_rest_left_as_it_is() -> None:
    entry = entry_of(ACCEPTED, OPEN)
    held = walk(Taking(KEY, OURS, Owed()).steps(), entry)
    assert isinstance(held, Held)
    assert (held.before.open(), entry.marks()) == ((1,), [ACCEPTED, CLAIMED])


@pytest.mark.parametrize("marks", [(CLAIMED, CLAIMED), (ACCEPTED, CLAIMED), (ACCEPTED, Mark.REJECTED)])
def test_where_nothing_is_open_nothing_is_written(marks: tuple[Mark, ...]) -> None:
    entry = entry_of(*marks)
    assert walk(Taking(KEY, OURS, Owed()).steps(), entry) == of(*marks)
    assert entry.asked == ["Add"]


def test_another_payload_is_an_error_and_leaves_nothing_to_undo() -> None:
    entry, taking = entry_of(ACCEPTED, OPEN), Taking(KEY, begin("e" * 64, 2, 1.0), Owed())
    with pytest.raises(ValidationError):
        walk(taking.steps(), entry)
    assert taking.written == {}


def test_an_entry_that_never_holds_still_is_given_up() -> None:
    steps = Taking(KEY, OURS, Owed()).steps()
    next(steps)
    with pytest.raises(TimeoutError):
        for _ in range(LOOKS):
            assert isinstance(steps.send(Claim("a" * 32, of(ACCEPTED, OPEN).encode())), Swap)
            steps.send(False)


def test_a_claim_that_is_given_back_leaves_what_was_before() -> None:
    entry = entry_of(ACCEPTED, OPEN)
    held = walk(Taking(KEY, OURS, Owed()).steps(), entry)
    assert isinstance(held, Held)
    assert walk(held.settling(held.before), entry) is True
    assert entry.marks() == [ACCEPTED, OPEN]


def test_a_settlement_tells_when_the_claim_had_gone() -> None:
    held = walk(Taking(KEY, OURS, Owed()).steps(), Entry())
    assert isinstance(held, Held)
    assert walk(held.settling(of(ACCEPTED, OPEN)), entry_of(ACCEPTED, OPEN)) is False
    assert walk(held.settling(held.before), entry_of(ACCEPTED, OPEN)) is True, "nothing of it was to be kept"


@pytest.mark.parametrize("is_look", [True, False])
def test_what_the_store_was_not_told_it_is_told_before_anything_is_asked(is_look: bool) -> None:
    owed, entry = Owed(), Entry()
    held = walk(Taking(KEY, OURS, owed).steps(), entry)
    assert isinstance(held, Held)
    owed.add(KEY, lambda: held.settling(of(ACCEPTED, ACCEPTED)))
    owed.postpone(KEY, LostError())
    entry.asked.clear()
    steps: Steps[object] = looking(KEY, OURS, owed) if is_look else Taking(KEY, OURS, owed).steps()
    assert walk(steps, entry) == of(ACCEPTED, ACCEPTED)
    assert (entry.asked, owed.overdue(9)) == (["Swap", "Get" if is_look else "Add"], [])


def test_a_look_claims_nothing() -> None:
    entry = Entry()
    assert walk(looking(KEY, OURS, Owed()), entry) == of(OPEN, OPEN)
    assert (entry.asked, entry.claim) == (["Get"], None)


def test_of_two_debts_of_one_key_the_second_stays_when_it_fails() -> None:
    owed, entry = Owed(), Entry()
    for _ in range(2):
        taking = Taking(KEY, OURS, Owed())
        next(taking.steps())
        owed.add(KEY, taking.undoing)
    owed.postpone(KEY, LostError())
    with pytest.raises(LostError):
        walk(owed.paying(KEY), entry, ["done", "done", "not done"])
    assert owed.overdue(9) == [KEY]
    entry.asked.clear()
    walk(owed.paying(KEY), entry)
    assert (entry.asked, owed.overdue(9)) == (["Swap", "Add"], [])


@pytest.mark.parametrize("error", [ValueError("damaged"), ConfigurationError("closed")])
def test_what_no_later_try_would_change_is_forgotten(error: Exception) -> None:
    owed, taking = Owed(), Taking(KEY, OURS, Owed())
    owed.add(KEY, taking.undoing)
    owed.postpone(KEY, error)
    assert (owed.overdue(9), list(owed.paying(KEY))) == ([], [])


def test_what_was_paid_meanwhile_is_not_overdue() -> None:
    owed = Owed()
    owed.postpone(KEY, LostError())
    assert owed.overdue(9) == []


def test_an_undo_that_finds_a_claim_that_no_swap_replaces_is_given_up() -> None:
    taking = Taking(KEY, OURS, Owed())
    add = next(taking.steps())
    assert isinstance(add, Add)
    undoing = taking.undoing()
    next(undoing)
    with pytest.raises(TimeoutError):
        for _ in range(LOOKS):
            assert isinstance(undoing.send(False), Add)
            assert isinstance(undoing.send(add.claim), Swap)


def test_what_is_owed_is_bounded_and_the_oldest_goes_first() -> None:
    owed, entry = Owed(), Entry()
    held = walk(Taking(KEY, OURS, Owed()).steps(), entry)
    assert isinstance(held, Held)
    for number in range(KEPT + 1):
        owed.add(str(number), lambda: held.settling(OURS))
        owed.postpone(str(number), LostError())
    owed.postpone("1", LostError())
    assert owed.overdue(1) == ["2"], "as the last try of another is over"
    assert (len(owed.overdue(2 * KEPT)), list(owed.paying("0"))) == (KEPT, [])


FATES = st.lists(st.sampled_from(["done", "twice", "not told", "not done", "later"]), max_size=6)
BEFORE = st.one_of(
    st.none(), st.tuples(*[st.sampled_from(Mark)] * 2).filter(lambda marks: OPEN in marks or CLAIMED in marks)
)


@given(BEFORE, FATES)
@example((OPEN, OPEN), ["done", "twice", "later"])
def test_who_is_sent_to_was_open_before_and_after_a_failure_is_open_again(
    before: tuple[Mark, Mark] | None, fates: list[str]
) -> None:
    entry, owed = Entry() if before is None else entry_of(*before), Owed()
    taking, open_before = Taking(KEY, OURS, owed), of(*(before or (OPEN, OPEN))).open()
    try:
        held = walk(taking.steps(), entry, fates)
    except LostError:
        walk(taking.undoing(), entry)
        # What was on its way comes now, when all is over: to another process, which knows nothing.
        for op in entry.late:
            entry.do(op)
        held = walk(Taking(KEY, OURS, Owed()).steps(), entry)
    if isinstance(held, Held):
        assert held.before.open() == open_before
        assert entry.claim == held.claim
    else:
        assert isinstance(held, Record)
        assert (held.open(), open_before) == ((), ())


@given(BEFORE, FATES)
@example((OPEN, OPEN), ["not told", "done", "done", "not told"])
def test_a_process_tells_the_store_what_it_could_not_undo(before: tuple[Mark, Mark] | None, fates: list[str]) -> None:
    entry, owed = Entry() if before is None else entry_of(*before), Owed()
    open_before = of(*(before or (OPEN, OPEN))).open()
    held: object = None
    while held is None:
        taking = Taking(KEY, OURS, owed)
        try:
            held = walk(taking.steps(), entry, fates)
        except LostError:
            owed.add(KEY, taking.undoing)
    for op in entry.late:
        entry.do(op)
    assert (held.before.open() if isinstance(held, Held) else ()) == open_before
    assert not isinstance(held, Held) or entry.claim == held.claim
