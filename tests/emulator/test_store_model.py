"""The store against a dictionary as a model: writes, groups, deletes, resets, reopened files."""

import shutil
import tempfile
from collections import Counter, defaultdict, namedtuple
from itertools import groupby
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from support.store_entries import campaign, duplicates, push, put, refused, users

from pushsdk.emulator.store.queries import ALL_INBOXES, NO_BOUND, Store
from pushsdk.emulator.store.search import parse

KEYS = st.sampled_from("abc")
USER_IDS = ["ann", "bob", "eve", "Ann", "a\0", "é"]
USERS = st.lists(st.sampled_from(USER_IDS), min_size=1, max_size=6)
KINDS = st.sampled_from(["push", "other", "without text", "unanswered", "refused", "campaign"])
TEXTS = {"other": "another", "without text": "", "campaign": ""}  # else hello
KEEP = 4


# A stored request: the users whom it reached, and the texts by which pushes are a group.
Row = namedtuple("Row", ("id", "users", "text", "failed", "group"))


class Inboxes(RuleBasedStateMachine):
    """Three keys, four stored requests."""

    def __init__(self):
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.counts = defaultdict(Counter)  # of users, by key
        self.contents = defaultdict(Counter)  # of users and texts
        self.listed = defaultdict(list)
        self.former = []  # inboxes from before a reset
        self.last = 0
        self.open()

    def open(self):
        self.store = Store(self.folder / "kept", keep=KEEP)

    def teardown(self):
        self.store.close()
        shutil.rmtree(self.folder)

    @rule(groups=st.lists(st.tuples(KEYS, USERS, KINDS), max_size=5))
    def write(self, groups):
        entries = []
        for key, user_ids, kind in groups:
            box = self.store.inbox(key)
            self.last += 1
            text = TEXTS.get(kind, "hello")
            if kind == "campaign":
                entries.append(campaign(box, f"c{self.last}"))
            elif kind == "refused":
                entries.append(refused(box))
            else:
                status = None if kind == "unanswered" else 204
                entries.append(push(box, *user_ids, title=text, digest=len(text), status=status))
            reached = [] if kind in {"campaign", "refused"} else user_ids
            self.counts[key].update(reached)
            self.contents[key].update((user, text) for user in reached)
            before = [row.group for row in self.listed[key][-1:] if text and row.text == text]
            row = Row(self.last, reached, text, kind in {"refused", "unanswered"}, *(before or [self.last]))
            self.listed[key] = [*self.listed[key], row][-KEEP:]
        first = self.last - len(entries) + 1
        assert put(self.store, *entries) == list(range(first, self.last + 1))

    @precondition(lambda self: self.former)
    @rule(users=USERS, data=st.data())
    def write_late(self, users, data):
        entry = push(data.draw(st.sampled_from(self.former)), *users)
        self.store.write(entry)
        assert entry.id == 0

    @rule(key=KEYS, at=st.integers(0, KEEP))
    def delete_one(self, key, at):
        number = self.listed[key][at].id if at < len(self.listed[key]) else self.last + 1
        rows = [row for row in self.listed[key] if row.id != number]
        assert self.store.delete(self.store.find(key), only=number) == len(self.listed[key]) - len(rows)
        self.listed[key] = rows

    @rule(key=KEYS, user=st.sampled_from(["ann", "é"]))
    def delete_found(self, key, user):
        rows = [row for row in self.listed[key] if user not in row.users]
        self.store.delete(self.store.find(key), parse(f"user:{user}"))
        self.listed[key] = rows

    @rule(key=KEYS)
    def reset(self, key):
        box = self.store.inbox(key)
        new = self.store.reset(box).id
        # A second reset does nothing.
        assert self.store.reset(box).id == self.store.inbox(key).id == new != box.id
        self.former.append(box)
        self.counts[key].clear()
        self.contents[key].clear()
        self.listed[key].clear()

    @rule()
    def open_again(self):
        self.store.close()
        self.open()

    @invariant()
    def agrees(self):
        for key in "abc":
            box = self.store.find(key)
            assert users(self.store, box) == self.counts[key]
            most = {user: max(self.contents[key][user, text] for text in ("", "hello", "another")) for user in USER_IDS}
            assert duplicates(self.store, box) == {user: times for user, times in most.items() if times > 1}
            listed = self.listed[key]
            assert [request.id for request in reversed(self.store.requests(box))] == [row.id for row in listed]
            assert grouped(self.store, box) == groups(listed)
            accepted, pushes = self.store.delivered(box, "ann", size=NO_BOUND)
            assert accepted == self.counts[key]["ann"]
            expected = [(row.id, row.users.count("ann")) for row in listed if "ann" in row.users]
            assert [(push.id, push.times) for push in pushes] == expected
        assert grouped(self.store, ALL_INBOXES) == groups([row for rows in self.listed.values() for row in rows])
        assert self.store.totals()["users"] == sum(len(counts) for counts in self.counts.values())


def grouped(store, box):
    """Each group as (newest id, oldest id, requests, users reached, failed), newest first."""
    rows = store.requests(box, grouped=True)
    return [(row.id, row.group, row.requests, row.reached, row.failed) for row in rows]


def groups(rows):
    found = []
    for group, members in groupby(sorted(rows, key=lambda row: (-row.group, row.id)), lambda row: row.group):
        members = list(members)
        reached = sum(len(row.users) for row in members)
        failed = sum(row.failed for row in members)
        found.append((members[-1].id, group, len(members), reached, failed))
    return found


TestInboxes = Inboxes.TestCase
TestInboxes.settings = settings(max_examples=30, stateful_step_count=25, deadline=None)
