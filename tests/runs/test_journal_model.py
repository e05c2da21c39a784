"""Random events on a journal and on a list of users, the simplest correct model."""

import tempfile
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from support.run_files import make_run, pieces, record

from pushsdk._core.decisions import OUTCOMES
from pushsdk._core.outcome import Outcome
from pushsdk._core.user_states import UserState, UserStatus
from pushsdk._runs.run_file.journal import IN_DOUBT, PENDING, Journal, Row


class User(NamedTuple):
    """One user and the user's last status."""

    name: str
    chunk: int
    status: UserStatus = UserStatus(UserState.PENDING)

    @property
    def outcome(self):
        return OUTCOMES[self.status.state]

    @property
    def row(self):
        reason = self.status.reason or ("not sent yet" * (self.outcome is Outcome.NOT_SENT))
        if self.status.state is UserState.CLAIMED:
            reason = "in flight"
        return Row(self.name, self.outcome, self.status.status, reason)


class JournalMachine(RuleBasedStateMachine):
    @initialize(sizes=st.lists(st.integers(1, 6), max_size=6))
    def plan(self, sizes):
        self.folder = tempfile.TemporaryDirectory()
        self.path = Path(self.folder.name, "a.run")
        self.sizes = sizes
        self.journal = make_run(self.path, sizes)
        chunks = [chunk for chunk, size in enumerate(sizes) for _ in range(size)]
        self.users = [User(f"u{number}", chunk) for number, chunk in enumerate(chunks)]

    @rule(data=st.data())
    def write(self, data):
        if self.users:
            events = data.draw(st.lists(self.events(), max_size=4))
            record(self.journal, events)
            for start, stop, status in events:
                for number in range(start, stop):
                    user = self.users[number]
                    resent = status.resent or user.status.resent
                    self.users[number] = user._replace(status=status._replace(resent=resent))

    def events(self):
        ends = st.lists(st.integers(0, len(self.users)), min_size=2, max_size=2, unique=True).map(sorted)
        status = st.builds(
            UserStatus,
            st.sampled_from(UserState),
            st.sampled_from([None, 429]),
            st.sampled_from(["", "throttled"]),
            st.booleans(),
        )
        return st.builds(lambda ends, status: (*ends, status), ends, status)

    @rule()
    def open_again(self):
        self.journal.close()
        self.journal = Journal.open(self.path, write=True)

    @rule()
    def look_from_aside(self):
        reader = Journal.open(self.path, write=False)
        self.compare(reader)
        reader.close()

    @invariant()
    def the_same(self):
        self.compare(self.journal)

    def compare(self, journal):
        count = {outcome: sum(user.outcome is outcome for user in self.users) for outcome in Outcome}
        assert journal.outcomes() == count
        assert journal.states.resent == sum(user.status.resent for user in self.users)
        assert list(journal.rows()) == [user.row for user in self.users]
        for outcome in Outcome:
            rows = [user.row for user in self.users if user.outcome is outcome]
            assert list(journal.rows([outcome])) == rows
            assert list(journal.rows(users={*[row.user_id for row in rows], "u"})) == rows
        for states in (PENDING, IN_DOUBT):
            assert pieces(journal.ranges(states)) == list(self.ranges(states))

    def ranges(self, states):
        """Yield the ranges of users of equal status in one chunk."""
        start = 0
        for (chunk, status), group in groupby(self.users, lambda user: (user.chunk, user.status)):
            stop = start + len(list(group))
            if status.state in states:
                yield chunk, start, stop
            start = stop

    def teardown(self):
        self.journal.close()
        self.folder.cleanup()


JournalMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=12, deadline=None)
TestJournalMachine = JournalMachine.TestCase
