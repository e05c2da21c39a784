"""What a claim store is asked and what is owed to it, without one: a dictionary answers, or loses, or comes late."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pushsdk import ValidationError
from pushsdk._core.dedupe import Mark, Position, Record, begin, read
from pushsdk.claims import Claim
from pushsdk.claims._owed import KEPT, LOOKS, Add, Get, Held, Op, Owed, Steps, Swap, Taking, looking, settling

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
            self.claim = there or op.claim
            return there
        if isinstance(op, Get):
            return there
        if there is None or there.token != op.token:
            return False
        self.claim = op.claim if isinstance(op, Swap) else None
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
    for marks, left in (((ACCEPTED, OPEN), [ACCEPTED, OPEN]), ((OPEN, OPEN), None)):
        entry = entry_of(*marks)
        held = walk(Taking(KEY, OURS, Owed()).steps(), entry)
        assert isinstance(held, Held)
        assert walk(settling(held.token, held.before), entry) is True
        assert entry.marks() == left


def test_a_settlement_tells_when_the_claim_had_gone() -> None:
    held = walk(Taking(KEY, OURS, Owed()).steps(), Entry())
    assert isinstance(held, Held)
    assert walk(settling(held.token, of(ACCEPTED, OPEN)), entry_of(ACCEPTED, OPEN)) is False


def test_what_is_known_here_counts_for_more_than_what_the_store_says() -> None:
    owed, entry = Owed(), entry_of(CLAIMED, CLAIMED)
    owed.note("a" * 32, of(ACCEPTED, OPEN))
    held = walk(Taking(KEY, OURS, owed).steps(), entry)
    assert isinstance(held, Held)
    assert (held.before.open(), entry.marks()) == ((1,), [ACCEPTED, CLAIMED])
    assert owed.of("a" * 32) is None, "as that entry has gone"


def test_a_look_claims_nothing_and_has_what_is_known_here_written() -> None:
    owed, entry = Owed(), entry_of(CLAIMED, CLAIMED)
    assert walk(looking(OURS, owed), Entry()) == of(OPEN, OPEN)
    assert walk(looking(OURS, owed), entry) == of(CLAIMED, CLAIMED)
    owed.note("a" * 32, of(ACCEPTED, OPEN))
    assert walk(looking(OURS, owed), entry) == of(ACCEPTED, OPEN)
    assert (entry.asked, entry.marks()) == (["Get", "Get", "Swap"], [ACCEPTED, OPEN])
    assert owed.of("a" * 32) is None


def test_what_was_never_written_is_to_be_written_where_it_is_found() -> None:
    owed, entry = Owed(), entry_of(CLAIMED, CLAIMED)
    owed.note("a" * 32, of(ACCEPTED, ACCEPTED))
    taking = Taking(KEY, OURS, owed)
    assert walk(taking.steps(), entry) == of(ACCEPTED, ACCEPTED)
    assert taking.late is not None
    held, true = taking.late
    walk(settling(held.token, true), entry)
    assert entry.marks() == [ACCEPTED, ACCEPTED]


def test_what_is_owed_is_bounded_and_the_oldest_goes_first() -> None:
    owed = Owed()
    for number in (*range(KEPT), 0, KEPT):
        owed.note(str(number), OURS)
    assert owed.of("1") == OURS, "it may be about to be written"
    owed.bound()
    assert (owed.of("1"), owed.of("0"), owed.of(str(KEPT))) == (None, OURS, OURS)


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


@given(BEFORE, FATES, FATES)
def test_a_process_knows_what_it_could_not_undo(
    before: tuple[Mark, Mark] | None, fates: list[str], undoing: list[str]
) -> None:
    entry, owed = Entry() if before is None else entry_of(*before), Owed()
    taking, open_before = Taking(KEY, OURS, owed), of(*(before or (OPEN, OPEN))).open()
    try:
        walk(taking.steps(), entry, fates)
    except LostError:
        for _ in range(2):
            try:
                walk(taking.undoing(), entry, undoing)
            except LostError:
                continue
            break
        for op in entry.late:
            entry.do(op)
        held = walk(Taking(KEY, OURS, owed).steps(), entry)
        assert (held.before.open() if isinstance(held, Held) else ()) == open_before
