"""One entry of a claim store: granted claims, writes, and reactions to each answer."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pushsdk._core.idempotency import ClaimRecord
from pushsdk._core.user_states import UserState, UserStatus
from pushsdk._runs.claim_entry import ClaimEntry, ClaimRequest

PENDING, CLAIMED, ACCEPTED, REJECTED, UNKNOWN = UserState
ENDS = [REJECTED, UNKNOWN, PENDING]
USERS = 4
ALL = ((0, USERS),)


class KeyStore:
    """One key of a claim store."""

    def __init__(self):
        self.claim = None

    def put(self, put):
        """Return None if the put was made, else the stored claim."""
        if self.claim is not None and not put.may_replace(self.claim):
            return self.claim
        self.claim = put.claim
        return None

    def states(self):
        return [PENDING] * USERS if self.claim is None else each_of(ClaimRecord.decode(self.claim.record).states())


def each_of(states):
    return [states.at(position).state for position in range(states.users)]


def new_entry(fingerprint="f" * 64, users=USERS):
    return ClaimEntry("k" * 64, fingerprint, users, 0.0)


def ask(entry, *ranges, resends=False):
    request = ClaimRequest(entry, ranges or ALL, resends)
    entry.requests.append(request)
    return request


def write(entry, store):
    """Write until the entry has no news."""
    while (put := entry.prepare()) is not None:
        entry.answered(store.put(put))
        if not (entry.requests or not entry.is_written):
            break


def write_claims(entry, store, users):
    request = ask(entry, users)
    write(entry, store)
    return request


def write_as_other(store, users, state):
    """Record this state for some users, as another process."""
    other = new_entry()
    write_claims(other, store, users)
    other.settle((users,), UserStatus(state))
    write(other, store)


def test_a_resend_claims_only_its_own_unknown_users():
    entry = new_entry()
    store = KeyStore()
    write_as_other(store, (0, 1), UNKNOWN)
    write_claims(entry, store, (1, 3))
    entry.settle(((1, 3),), UserStatus(UNKNOWN))
    without = ask(entry, (0, 3))
    resent = ask(entry, (0, 3), resends=True)
    write(entry, store)
    assert without.claimed == []
    assert resent.claimed == [(1, 3)]
    entry.failed(OSError())
    assert entry.states().resent == 2


@pytest.mark.parametrize("outcome", [ACCEPTED, None])
def test_a_failed_claim_of_a_resend_leaves_the_last_outcome(outcome):
    entry = new_entry()
    store = KeyStore()
    entry.settle(ALL, UserStatus(UNKNOWN))
    write(entry, store)
    ask(entry, resends=True)
    assert entry.prepare() is not None
    if outcome is not None:
        entry.settle(ALL, UserStatus(outcome))
    entry.fail_requests(RuntimeError("the store fails"))
    assert each_of(entry.states()) == [outcome or UNKNOWN] * USERS


def test_an_entry_of_another_number_of_users_fails_the_claim():
    entry = new_entry()
    store = KeyStore()
    write_claims(new_entry(users=USERS + 1), store, (0, 1))
    request = ask(entry)
    write(entry, store)
    assert isinstance(request.error, ValueError)


# -- two processes and a store that loses, repeats and delays puts -------------------------------------------------


class Process:
    """The entry of one process, with one write at a time as in ``ClaimLog``."""

    def __init__(self, world):
        self.world = world
        self.entry = new_entry()
        self.waiting = []
        self.sending = []
        # The pending write, whether it took effect, and its answer.
        self.put = None
        self.is_made = False
        self.found = None

    def ask(self):
        start, stop = sorted(self.world.dice.sample(range(USERS + 1), 2))
        self.waiting.append(ask(self.entry, (start, stop), resends=self.world.dice.random() < 0.3))

    def write(self):
        if self.put is None:
            self.put = self.entry.prepare()
            self.is_made = False

    def make(self):
        """Let the pending write take effect."""
        if self.put is not None:
            self.found = self.world.store.put(self.put)
            self.is_made = True
            if self.world.dice.random() < 0.3:
                self.world.late.append(self.put)

    def answer(self):
        if self.put is not None and self.is_made:
            self.put = None
            assert self.entry.answered(self.found)
            self._take()

    def fail(self):
        """Lose the answer; the write may still take effect at any time."""
        if self.put is not None:
            self.world.late += [self.put] * self.world.dice.choice([0, 1, 2])
            self.put = None
            self.entry.failed(OSError())
            self._take()

    def look(self):
        if self.put is None:
            self.entry.refresh(self.world.store.claim)

    def withdraw(self):
        if self.waiting:
            self.entry.withdraw(self.waiting.pop())

    def settle(self):
        """End a request in flight."""
        if self.sending:
            request = self.sending.pop(self.world.dice.randrange(len(self.sending)))
            # A retry that reached no user does not undo an earlier attempt.
            state = self.world.dice.choice([ACCEPTED, UNKNOWN] if request.resends else [ACCEPTED, *ENDS])
            self.world.end(self, request, state)
            self.entry.settle(request.claimed, UserStatus(state))

    def _take(self):
        for request in [request for request in self.waiting if request.done]:
            self.waiting.remove(request)
            if request.claimed:
                assert request.error is None
                self.world.begin(self, request)
                self.sending.append(request)

    def calm_down(self):
        """End all requests and complete all writes."""
        self.make()
        self.answer()
        while self.waiting or self.sending or not self.entry.is_written:
            self.settle()
            self.write()
            self.make()
            self.answer()


def positions_of(request):
    return [position for start, stop in request.claimed for position in range(start, stop)]


class TwoProcesses:
    """Two processes, their store, and the true state of each user."""

    def __init__(self, dice):
        self.dice = dice
        self.store = KeyStore()
        # Puts that arrive late, or a second time.
        self.late = []
        self.truth = [PENDING] * USERS
        # The process that sends to a user, or did so last.
        self.sender = [None] * USERS
        self.is_out = [False] * USERS
        self.processes = [Process(self), Process(self)]

    def begin(self, process, request):
        for position in positions_of(request):
            assert not self.is_out[position], "claimed twice at once"
            is_resent = self.truth[position] is UNKNOWN and request.resends and self.sender[position] is process
            assert self.truth[position] is PENDING or is_resent
            self.is_out[position] = True
            self.sender[position] = process

    def end(self, process, request, state):
        for position in positions_of(request):
            assert self.sender[position] is process
            self.is_out[position] = False
            self.truth[position] = state

    def arrive(self):
        """Deliver a late put to the store."""
        if self.late:
            self.store.put(self.late.pop(self.dice.randrange(len(self.late))))

    def check(self):
        stored = self.store.states()
        is_put = [process.put is not None for process in self.processes]
        for position, state in enumerate(stored):
            # No user is PENDING in the store while in flight or after being reached.
            assert state is not PENDING or not self.is_out[position], is_put
            assert state is not PENDING or self.truth[position] in (PENDING,), is_put

    def live(self):
        for _ in range(60):
            process = self.dice.choice(self.processes)
            steps = [process.ask, process.write, process.make, process.answer, process.fail, process.look]
            self.dice.choice([*steps, process.write, process.answer, process.settle, process.withdraw, self.arrive])()
            self.check()
        for _ in range(2):
            for process in self.processes:
                process.calm_down()


@settings(max_examples=300)
@given(st.integers(0, 2**32))
def test_two_processes_never_share_a_claim_and_the_store_ends_true(seed):
    world = TwoProcesses(random.Random(seed))
    world.live()
    assert world.store.states() == world.truth
    while world.late:
        world.arrive()
    assert world.store.states() == world.truth, "late puts change nothing"
    for process in world.processes:
        process.entry.refresh(world.store.claim)
        assert each_of(process.entry.states()) == world.truth
