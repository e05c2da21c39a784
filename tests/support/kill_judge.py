"""The verdict on processes that were killed: their reports against the counts of the service.

Run files are read without the package.
"""

import math
import sqlite3
from collections import Counter
from contextlib import closing, contextmanager
from itertools import accumulate, compress

import msgspec

from pushsdk import Outcome
from support.kill_service import number_of

# The states of users, as bytes. RESENT is claimed in doubt.
STATES = ("PENDING", "CLAIMED", "ACCEPTED", "REJECTED", "UNKNOWN")
PENDING, CLAIMED, ACCEPTED, REJECTED, UNKNOWN, RESENT = range(6)
NAMES = {
    PENDING: Outcome.NOT_SENT,
    ACCEPTED: Outcome.ACCEPTED,
    REJECTED: Outcome.REJECTED,
    CLAIMED: Outcome.UNKNOWN,
    RESENT: Outcome.UNKNOWN,
    UNKNOWN: Outcome.UNKNOWN,
}
#: States that may precede an event of each state. A request without a connection is never claimed.
BEFORE = {
    PENDING: {PENDING, CLAIMED},
    CLAIMED: {PENDING},
    RESENT: {UNKNOWN},
    ACCEPTED: {CLAIMED, RESENT},
    # A part to be split returns to PENDING first, and may be rejected with the others.
    REJECTED: {CLAIMED, PENDING},
    UNKNOWN: {CLAIMED, RESENT, UNKNOWN},
}
decode = msgspec.msgpack.decode
decode_json = msgspec.json.decode
ONE_MORE = bytes([*range(1, 256), 255])


class Plan:
    """Return the planned users in order. Read once, as a sealed plan never changes."""

    def __init__(self, path):
        with _open(path) as db:
            rows = db.execute("SELECT data FROM plan ORDER BY first").fetchall()
        chunks = [decode_json(b"[" + ids + b"]") for (data,) in rows for _, ids, _, _ in decode(data)]
        self.names = [name for chunk in chunks for name in chunk]
        self.users = [number_of(name) for name in self.names]
        #: The place of each chunk's first user.
        self.starts = [0, *accumulate(map(len, chunks))]
        assert sorted(self.users) == list(range(len(self.users))), "everybody is planned, once"


class History:
    """The log of a run, played back user by user in the plan's order."""

    def __init__(self, path, plan):
        with _open(path) as db:
            log = db.execute("SELECT data FROM log ORDER BY seq").fetchall()
        #: The state of each user, and how often it was claimed, and claimed in doubt.
        self.states = bytearray([PENDING]) * len(plan.users)
        self.claims = bytearray(len(plan.users))
        self.resends = bytearray(len(plan.users))
        #: Events that may not follow the previous state.
        self.nonsense = []
        for (data,) in log:
            events, _ = decode(data)
            for start, stop, (state, _, _, resent) in events:
                self._play(RESENT if state == "CLAIMED" and resent else STATES.index(state), slice(start, stop))

    def _play(self, state, piece):
        before = set(self.states[piece])
        if not before <= BEFORE[state]:
            self.nonsense.append(f"an event of state {state} after {before}")
        self.states[piece] = bytes([state]) * (piece.stop - piece.start)
        if state in (CLAIMED, RESENT):
            self.claims[piece] = self.claims[piece].translate(ONE_MORE)
        if state == RESENT:
            self.resends[piece] = self.resends[piece].translate(ONE_MORE)


def verdict(users, *, doubt=math.inf):
    """Check that nobody is lost, or pushed twice unmarked, and that at most ``doubt`` users are UNKNOWN.

    ``users`` are the reported outcome, the true number of pushes and the reported resends of each user. Returns the
    number of users of each outcome.
    """
    totals = Counter()
    for finding, count in Counter(users).items():
        outcome, pushed, resends = finding
        assert pushed <= 1 + resends, ("doubled, and not marked", finding)
        if outcome == "ACCEPTED":
            assert pushed >= 1, ("lost", finding)
        elif outcome != "UNKNOWN":
            assert pushed == 0 or resends, ("pushed, and told otherwise", finding)
        totals[outcome] += count
    assert totals["UNKNOWN"] <= doubt, "more doubt than the kills and faults account for"
    return totals


def judge(path, plan, report, pushes, *, hold, every, doubt=math.inf):
    """Give the verdict on a run, and check that the report is true of its file.

    ``pushes`` is the true number of pushes of each user. With ``hold`` nobody is sent to again. ``every`` checks all
    rows, instead of the unknown and rejected ones.
    """
    history = History(path, plan)
    assert len(pushes) == len(plan.users)
    states = [NAMES[state].name for state in history.states]
    pushed = [pushes[user] for user in plan.users]
    for claims, finding in set(zip(history.claims, pushed, strict=True)):
        assert finding <= claims, "pushed without a claim before"
    assert not hold or not any(history.resends), "sent again"
    totals = verdict(zip(states, pushed, history.resends, strict=True), doubt=doubt)
    told = {"ACCEPTED": report.accepted, "REJECTED": report.rejected}
    assert totals == Counter({**told, "NOT_SENT": report.not_sent, "UNKNOWN": report.unknown}), report
    assert not history.nonsense, history.nonsense[:3]
    _judge_rows(plan, report, history, every=every)
    assert report.planned == len(plan.users)
    assert report.resent == report.planned - history.resends.count(0)
    return history


def _judge_rows(plan, report, history, *, every):
    if every:
        rows = list(report.rows())
        assert [row.user_id for row in rows] == plan.names
        assert [row.outcome for row in rows] == [NAMES[state] for state in history.states], "not what the log says"
        return
    for outcome in (Outcome.UNKNOWN, Outcome.REJECTED):
        wanted = bytes(NAMES[state] is outcome for state in range(len(NAMES)))
        names = list(compress(plan.names, history.states.translate(wanted.ljust(256))))
        assert [row.user_id for row in report.rows(outcome)] == names, "not what the log says"


@contextmanager
def _open(path):
    with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as db:
        yield db
