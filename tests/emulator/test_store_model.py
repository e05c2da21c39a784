"""The store against a dictionary as a model: writes, deletes, resets, reopened files."""

import shutil
import tempfile
from collections import Counter, defaultdict
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from support.store_entries import campaign, duplicates, push, refused, users

from pushsdk.emulator.store.queries import Store
from pushsdk.emulator.store.records import Recipient
from pushsdk.emulator.store.search import parse

KEYS = st.sampled_from("abc")
USERS = st.lists(st.sampled_from(["ann", "bob", "eve", "Ann", "a\0", "é"]), min_size=1, max_size=6)
KINDS = st.sampled_from(["push", "other", "refused", "campaign"])
KEEP = 4


class Inboxes(RuleBasedStateMachine):
    """Three keys, four stored requests."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.counts: dict[str, Counter[str]] = defaultdict(Counter)
        self.contents: dict[str, Counter[tuple[str, str]]] = defaultdict(Counter)
        self.listed: dict[str, list[tuple[int, tuple[str, ...]]]] = defaultdict(list)  # ids, and users if accepted
        self.former = []  # inboxes from before a reset
        self.last = 0
        self.open()

    def open(self) -> None:
        self.store = Store(self.folder / "kept", keep=KEEP)

    def teardown(self) -> None:
        self.store.close()
        shutil.rmtree(self.folder)

    @rule(groups=st.lists(st.tuples(KEYS, USERS, KINDS), max_size=5))
    def write(self, groups):
        entries = []
        for key, user_ids, kind in groups:
            box = self.store.inbox(key)
            self.last += 1
            is_push = kind in {"push", "other"}
            if is_push:
                entries.append(push(box, *user_ids, digest=kind == "push"))
                self.counts[key].update(user_ids)
                self.contents[key].update((user, kind) for user in user_ids)
            elif kind == "refused":
                entries.append(refused(box))
            else:
                entries.append(campaign(box, f"c{self.last}"))
            self.listed[key].append((self.last, tuple(user_ids) if is_push else ()))
            self.listed[key] = self.listed[key][-KEEP:]
        first = self.last - len(entries) + 1
        self.store.write(entries)
        assert [entry.id for entry in entries] == list(range(first, self.last + 1))

    @precondition(lambda self: self.former)
    @rule(users=USERS, data=st.data())
    def write_late(self, users, data):
        entry = push(data.draw(st.sampled_from(self.former)), *users)
        self.store.write([entry])
        assert entry.id == 0

    @rule(key=KEYS, user=USERS)
    def deliver(self, key, user):
        for latest in self.store.campaigns(self.store.find(key))[-1:]:
            self.store.withdraw(latest)
            assert self.store.deliver(latest, [(user[0], {})])
            assert self.store.recipients(latest) == [Recipient(user[0], {})]
            self.store.withdraw(latest)

    @rule(key=KEYS, at=st.integers(0, KEEP))
    def delete_one(self, key, at):
        number = self.listed[key][at][0] if at < len(self.listed[key]) else self.last + 1
        rows = [row for row in self.listed[key] if row[0] != number]
        assert self.store.delete(self.store.find(key), only=number) == len(self.listed[key]) - len(rows)
        self.listed[key] = rows

    @rule(key=KEYS, user=st.sampled_from(["ann", "é"]))
    def delete_found(self, key, user):
        rows = [row for row in self.listed[key] if user not in row[1]]
        deleted = self.store.delete(self.store.find(key), parse(f"user:{user}"))
        assert deleted == len(self.listed[key]) - len(rows)
        self.listed[key] = rows

    @rule(key=KEYS)
    def reset(self, key):
        box = self.store.inbox(key)
        assert self.store.reset(box).id == self.store.inbox(key).id != box.id
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
            contents = self.contents[key]
            same = {user: max(contents[user, "push"], contents[user, "other"]) for user in self.counts[key]}
            assert duplicates(self.store, box) == {user: times for user, times in same.items() if times > 1}
            assert [request.id for request in self.store.requests(box, forward=True)] == [
                row[0] for row in self.listed[key]
            ]
            accepted, pushes = self.store.delivered(box, "ann")
            assert accepted == self.counts[key]["ann"]
            expected = [(number, users.count("ann")) for number, users in self.listed[key] if "ann" in users]
            assert [(push.id, push.times) for push in pushes] == expected
        assert self.store.totals()["users"] == sum(len(counts) for counts in self.counts.values())


TestInboxes = Inboxes.TestCase
TestInboxes.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)
