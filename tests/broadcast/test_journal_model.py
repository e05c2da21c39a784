"""Random events against a journal and against the simplest thing that could be right: a list of users."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from support.run_files import KINDS, make_run, pieces

from pushsdk._broadcast.journal import Journal
from pushsdk._broadcast.plan import Event, Kind
from pushsdk._broadcast.report import Row, Tally
from pushsdk._core.outcome import Outcome

OUTCOMES = {
    None: Outcome.NOT_SENT,
    Kind.RELEASED: Outcome.NOT_SENT,
    Kind.ACCEPTED: Outcome.ACCEPTED,
    Kind.REJECTED: Outcome.REJECTED,
    Kind.CLAIMED: Outcome.UNKNOWN,
    Kind.RESENT: Outcome.UNKNOWN,
    Kind.UNKNOWN: Outcome.UNKNOWN,
}


class User(NamedTuple):
    """What is known of one, and which event said it."""

    name: str
    chunk: int
    place: int
    event: Event | None = None
    number: int = 0
    resent: bool = False

    @property
    def outcome(self) -> Outcome:
        return OUTCOMES[self.event and Kind(self.event.kind)]

    @property
    def row(self) -> Row:
        event = self.event
        if event is not None and event.kind in (Kind.CLAIMED, Kind.RESENT):
            return Row(self.name, self.outcome, None, "claimed, and never settled")
        status, reason = (event.status or None, event.reason) if event else (None, "")
        return Row(self.name, self.outcome, status, reason or ("not sent yet" * (self.outcome is Outcome.NOT_SENT)))


class JournalMachine(RuleBasedStateMachine):
    @initialize(sizes=st.lists(st.integers(1, 6), max_size=6))
    def plan(self, sizes: list[int]) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.path = Path(self.folder.name, "a.run")
        self.sizes = sizes
        self.journal = make_run(self.path, sizes)
        places = [(chunk, place) for chunk, size in enumerate(sizes) for place in range(size)]
        self.users = [User(f"u{number}", chunk, place) for number, (chunk, place) in enumerate(places)]
        self.events = 0

    @rule(data=st.data())
    def write(self, data: st.DataObject) -> None:
        if self.sizes:
            events = data.draw(st.lists(self.event(), max_size=4))
            self.journal.write(events)
            for event in events:
                self.events += 1
                self.users = [self.told(user, event) for user in self.users]

    def event(self) -> st.SearchStrategy[Event]:
        def within(chunk: int) -> st.SearchStrategy[Event]:
            ends = st.lists(st.integers(0, self.sizes[chunk]), min_size=2, max_size=2, unique=True).map(sorted)
            whole = st.just([0, self.sizes[chunk]])
            return st.builds(
                lambda kind, ends, status, reason: Event(kind, chunk, *ends, status, reason),
                st.sampled_from(KINDS),
                ends | whole,
                st.sampled_from([0, 429]),
                st.sampled_from(["", "throttled"]),
            )

        return st.integers(0, len(self.sizes) - 1).flatmap(within)

    def told(self, user: User, event: Event) -> User:
        if user.chunk != event.chunk or not event.start <= user.place < event.stop:
            return user
        resent = user.resent or event.kind is Kind.RESENT
        return user._replace(event=event, number=self.events, resent=resent)

    @rule()
    def open_again(self) -> None:
        self.journal.close()
        self.journal = Journal.open(self.path, write=True)

    @rule()
    def look_from_aside(self) -> None:
        reader = Journal.open(self.path, write=False)
        self.compare(reader)
        reader.close()

    @invariant()
    def the_same(self) -> None:
        self.compare(self.journal)

    def compare(self, journal: Journal) -> None:
        count = {outcome: sum(user.outcome is outcome for user in self.users) for outcome in Outcome}
        assert journal.tally() == Tally(
            accepted=count[Outcome.ACCEPTED],
            rejected=count[Outcome.REJECTED],
            unknown=count[Outcome.UNKNOWN],
            not_sent=count[Outcome.NOT_SENT],
            resent=sum(user.resent for user in self.users),
        )
        assert list(journal.rows()) == [user.row for user in self.users]
        for outcome in Outcome:
            assert list(journal.rows(outcome)) == [user.row for user in self.users if user.outcome is outcome]
        assert pieces(journal.planned()) == list(self.pieces(Outcome.NOT_SENT))
        assert pieces(journal.held()) == list(self.pieces(Outcome.UNKNOWN))

    def pieces(self, outcome: Outcome) -> Iterator[tuple[int, int, int]]:
        """Neighbours of whom the same event said the same."""
        for key, group in groupby(self.users, lambda user: (user.chunk, user.number, user.resent, user.outcome)):
            users = list(group)
            if key[-1] is outcome:
                yield key[0], users[0].place, users[-1].place + 1

    def teardown(self) -> None:
        self.journal.close()
        self.folder.cleanup()


JournalMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=12, deadline=None)
TestJournalMachine = JournalMachine.TestCase
