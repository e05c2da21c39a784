"""Splitting against a simulated service: every user is settled once, with a bounded number of requests."""

import json
import math

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pushsdk._core.batching import Call
from pushsdk._core.body import encode_user_ids
from pushsdk._core.learned_limit import LearnedLimit
from pushsdk._core.outcome import Attempt, Outcome, Verdict
from pushsdk._core.splitting import (
    BatchPart,
    MessageRecord,
    Splitter,
    within,
)

FRAME = 50
SPLIT_ON = frozenset({413, 400, 422})
ACCEPTED = Outcome.ACCEPTED
REJECTED = Outcome.REJECTED


def call(*users):
    return Call(users, encode_user_ids(users), math.inf, len(users))


def singles(count):
    return [call(f"u{number:031d}") for number in range(count)]


def users_of(part):
    return [user for segment in part.units for user in segment.users]


def size_of(part):
    return FRAME + len(part.ids)


class SplittingService:
    """Sends the parts of a Splitter to a service that rejects culprits and too large requests, and records verdicts."""

    def __init__(
        self,
        *,
        culprits=(),
        max_users=math.inf,
        max_bytes=math.inf,
        status=400,
        outcome=REJECTED,
    ):
        self.culprits = {id(culprit) for culprit in culprits}
        self.max_users = max_users
        self.max_bytes = max_bytes
        self.status = status
        self.outcome = outcome
        self.learned = LearnedLimit()
        self.waves = []
        self.accepted = []
        self.settled = []
        self.message = MessageRecord()
        self.untried = []

    @property
    def requests(self):
        return sum(map(len, self.waves))

    def answer(self, part):
        status = 204
        outcome = ACCEPTED
        if part.users > self.max_users or size_of(part) > self.max_bytes:
            status = 413
            outcome = REJECTED
        elif self.culprits & {id(segment.call) for segment in part.units}:
            status = self.status
            outcome = self.outcome
        attempt = Attempt(outcome=outcome, status=status, started=float(self.requests))
        return Verdict(outcome=outcome, status=status, attempts=(*part.history, attempt))

    def splitter(self, calls, split_on=SPLIT_ON):
        parts = within(BatchPart.of(calls), self.learned.users)
        return Splitter(parts, split_on=split_on, learned=self.learned, frame=FRAME, message=self.message)

    def take(self, calls, *, split_on=SPLIT_ON):
        splitter = self.splitter(calls, split_on)
        while wave := splitter.next_wave():
            self.waves.append(wave)
            for part in wave:
                verdict = self.answer(part)
                if verdict.outcome is ACCEPTED:
                    self.accepted.append(part)
                if splitter.report(part, verdict):
                    self.settle(part, verdict)
        for part, verdict in splitter.rest():
            self.untried.append(part)
            self.settle(part, verdict)
        return self

    def settle(self, part, verdict):
        self.settled += [(user, verdict.outcome) for user in users_of(part)]

    def users(self, outcome):
        return {user for user, end in self.settled if end is outcome}


@st.composite
def crowds(draw):
    """Calls of one to five users, and the culprits among them."""
    sizes = draw(st.lists(st.integers(1, 5), min_size=1, max_size=40))
    calls = [call(*[f"u{number}-{i}" for i in range(size)]) for number, size in enumerate(sizes)]
    return calls, [users for users in calls if draw(st.booleans())]


# -- outcomes ---------------------------------------------------------------------------------------------------


@given(crowds(), st.sampled_from([400, 422]), st.integers(1, 40) | st.just(math.inf), st.booleans())
def test_every_user_is_settled_once_and_only_culprits_are_rejected_if_the_message_is_accepted_once(
    crowd, status, max_users, accepted
):
    calls, culprits = crowd
    service = SplittingService(culprits=culprits, status=status, max_users=max_users)
    service.message.accepted = accepted
    service.take(calls)
    assert sorted(user for user, _ in service.settled) == sorted(user for users in calls for user in users.users)
    assert sorted(service.users(ACCEPTED)) == sorted(user for part in service.accepted for user in users_of(part))
    assert service.users(ACCEPTED).isdisjoint(user for culprit in culprits for user in culprit.users)
    if service.message.accepted and max_users == math.inf:
        assert service.users(REJECTED) == {user for culprit in culprits for user in culprit.users}
        assert service.untried == []


# -- number of requests -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("count", "requests"), [(1, 1), (8, 9), (1000, 9)])
def test_a_message_that_is_bad_for_everybody_costs_nine_requests_at_most_and_then_two(count, requests):
    service = SplittingService(culprits=(calls := singles(count))).take(calls)
    assert service.requests == requests
    service.message.is_rejected = True
    assert service.take(calls).requests == requests + min(count, 2)
    assert len(service.settled) == 2 * count
    assert service.users(ACCEPTED) == set()


def test_of_a_batch_that_left_in_parts_units_of_several_are_sent_alone():
    service = SplittingService(culprits=(calls := [call(f"{number:060d}") for number in range(40)]))
    service.learned.learn(20)
    service.take(calls)
    assert [len(wave) for wave in service.waves] == [4, 8]
    assert len(service.users(REJECTED)) == 40


@pytest.mark.parametrize("status", [400, 413])
def test_of_a_part_with_a_culprit_or_too_large_the_unit_that_is_left_is_sent(status):
    whole, record = BatchPart.of(singles(2)), MessageRecord(accepted=True)
    splitter = Splitter([whole], split_on=SPLIT_ON, learned=LearnedLimit(), frame=FRAME, message=record)
    splitter.report(*splitter.next_wave(), Verdict(outcome=REJECTED, status=status))
    splitter.narrow(lambda part, _: part.bisect(())[0])
    assert [len(part.units) for part in splitter.next_wave()] == [1]


# -- what is never split ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "outcome"),
    [(400, Outcome.UNKNOWN), (413, Outcome.NOT_SENT), (401, REJECTED), (429, REJECTED), (None, REJECTED)],
)
def test_only_a_rejection_with_a_status_of_split_on_is_split(status, outcome):
    calls = singles(8)
    service = SplittingService(culprits=calls[:1], status=status, outcome=outcome).take(calls)
    assert service.requests == 1
    assert service.users(outcome) == {user for users in calls for user in users.users}


# -- 413 --------------------------------------------------------------------------------------------------------


@given(crowds(), st.integers(1, 60), st.integers(FRAME + 95, 4000) | st.just(math.inf))
@example(([call("a", "b", "c"), call("d", "e", "f"), call("g", "h", "i")], []), 5, math.inf)
def test_after_a_413_every_request_gets_through_at_or_below_the_limit(crowd, max_users, max_bytes):
    calls, _ = crowd
    # Ids long enough to be half of the bytes, also of the smallest part.
    calls = [call(*[f"{user}-{'x' * FRAME}" for user in users.users]) for users in calls]
    service = SplittingService(max_users=max_users, max_bytes=max_bytes).take(calls)
    assert len(service.users(ACCEPTED)) == sum(len(users.users) for users in calls)
    assert all(part.users <= max_users and size_of(part) <= max_bytes for part in service.accepted)
    refused = [part.users for wave in service.waves for part in wave if part.users > max_users]
    assert max_bytes < math.inf or service.learned.users == (
        (min(refused) + 1) // 2 if refused else LearnedLimit().users
    )


def check_parts(calls, parts):
    assert [user for part in parts for user in users_of(part)] == [user for users in calls for user in users.users]
    for part in parts:
        assert json.loads(b"[%b]" % part.ids) == users_of(part)
        assert part.users == len(users_of(part)) > 0
        assert part.history == ()


@given(st.lists(st.integers(1, 30), min_size=1, max_size=12), st.integers(1, 40))
def test_parts_hold_every_user_once_in_order_and_stay_within_the_learned_limit(counts, users):
    calls = [call(*[f"u{number:02d}-{i:02d}" for i in range(count)]) for number, count in enumerate(counts)]
    parts = list(within(BatchPart.of(calls), users))
    check_parts(calls, parts)
    assert all(part.users <= users for part in parts)
