"""Splitting, against a simulated service: nobody lost, nobody settled twice, and at what cost."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Collection, Sequence

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pushsdk._core import wire
from pushsdk._core.batching import Call
from pushsdk._core.outcome import Attempt, Outcome, Verdict
from pushsdk._core.splitting import Hopeless, LearnedSizes, Piece, Splitter, attempts_of, call_of, pieces_of

FRAME = 50
SPLIT_ON = frozenset({413, 400, 422})
ACCEPTED, REJECTED = Outcome.ACCEPTED, Outcome.REJECTED


def call(*users: str) -> Call:
    return Call(users, wire.encode_user_ids(users)[1:-1], math.inf, len(users))


def singles(count: int) -> list[Call]:
    return [call(f"u{number:07d}") for number in range(count)]


def users_of(piece: Piece) -> list[str]:
    return [user for segment in piece.segments for user in segment.users]


def size_of(piece: Piece) -> int:
    return FRAME + len(piece.ids)


class Service:
    """Sends what a Splitter says to a service that rejects culprits and too large requests, and keeps the books."""

    def __init__(
        self,
        *,
        culprits: Collection[Call] = (),
        max_users: float = math.inf,
        max_bytes: float = math.inf,
        status: int = 400,
        outcome: Outcome = REJECTED,
    ) -> None:
        self.culprits = {id(culprit) for culprit in culprits}
        self.max_users, self.max_bytes = max_users, max_bytes
        self.status, self.outcome = status, outcome
        self.sizes = LearnedSizes()
        self.waves: list[list[Piece]] = []
        self.accepted: list[Piece] = []
        self.settled: list[tuple[str, Outcome]] = []
        self.gave_up = False

    @property
    def requests(self) -> int:
        return sum(map(len, self.waves))

    def answer(self, piece: Piece) -> Verdict:
        status, outcome = 204, ACCEPTED
        if piece.users > self.max_users or size_of(piece) > self.max_bytes:
            status, outcome = 413, REJECTED
        elif self.culprits & {id(call_of(segment)) for segment in piece.segments}:
            status, outcome = self.status, self.outcome
        attempt = Attempt(outcome=outcome, status=status, started=float(self.requests))
        return Verdict(outcome=outcome, status=status, attempts=(*piece.history, attempt))

    def take(self, calls: Sequence[Call], *, split_on: frozenset[int] = SPLIT_ON, worth: bool = True) -> Service:
        splitter = Splitter(
            pieces_of(calls, self.sizes, FRAME), split_on=split_on, sizes=self.sizes, frame=FRAME, worth=worth
        )
        while wave := splitter.next_wave():
            self.waves.append(wave)
            for piece in wave:
                verdict = self.answer(piece)
                if verdict.outcome is ACCEPTED:
                    self.accepted.append(piece)
                settled = splitter.report(piece, verdict)
                if settled is not None:
                    self.settle(*settled)
        for settled in splitter.rest():
            self.settle(*settled)
        self.gave_up = splitter.gave_up
        return self

    def settle(self, piece: Piece, verdict: Verdict) -> None:
        self.settled += [(user, verdict.outcome) for user in users_of(piece)]

    def users(self, outcome: Outcome) -> set[str]:
        return {user for user, ended in self.settled if ended is outcome}


@st.composite
def crowds(draw) -> tuple[list[Call], list[Call]]:
    """Some calls of one to five users, and the culprits among them."""
    sizes = draw(st.lists(st.integers(1, 5), min_size=1, max_size=40))
    calls = [call(*[f"u{number}-{i}" for i in range(size)]) for number, size in enumerate(sizes)]
    return calls, [each for each in calls if draw(st.booleans())]


# -- who ends how -----------------------------------------------------------------------------------------------


@given(crowds(), st.sampled_from([400, 422]), st.integers(1, 40) | st.just(math.inf))
def test_every_user_is_settled_exactly_once_and_no_culprit_is_accepted(crowd, status, max_users):
    calls, culprits = crowd
    service = Service(culprits=culprits, status=status, max_users=max_users).take(calls)
    everybody = [user for each in calls for user in each.users]
    assert sorted(user for user, _ in service.settled) == sorted(everybody)
    assert service.users(ACCEPTED) == {user for piece in service.accepted for user in users_of(piece)}
    assert Counter(user for piece in service.accepted for user in users_of(piece)).total() == len(
        service.users(ACCEPTED)
    )
    assert service.users(ACCEPTED).isdisjoint(user for each in culprits for user in each.users)


@given(crowds())
def test_nobody_is_punished_for_a_neighbour_unless_it_gave_up(crowd):
    calls, culprits = crowd
    service = Service(culprits=culprits).take(calls)
    if not service.gave_up:
        assert service.users(REJECTED) == {user for each in culprits for user in each.users}


def test_a_calls_users_are_one_unit_for_a_400():
    calls = [call("a", "b", "c"), call("d", "e"), call("f")]
    service = Service(culprits=calls[:1]).take(calls)
    assert [users_of(piece) for wave in service.waves for piece in wave] == [
        ["a", "b", "c", "d", "e", "f"],
        ["a", "b", "c"],
        ["d", "e", "f"],
    ]
    assert service.users(REJECTED) == {"a", "b", "c"}


def test_a_half_carries_the_attempts_of_what_it_was_cut_from():
    calls = singles(4)
    service = Service(culprits=calls[3:]).take(calls)
    assert [len(piece.history) for wave in service.waves for piece in wave] == [0, 1, 1, 2, 2]
    assert service.waves[2][0].history[0] is service.waves[1][0].history[0]


# -- at what cost -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [*range(1, 34), 100])
def test_one_culprit_anywhere_costs_at_most_two_requests_a_level(count):
    calls = singles(count)
    for culprit in calls:
        service = Service(culprits=[culprit]).take(calls)
        assert service.users(REJECTED) == set(culprit.users)
        assert not service.gave_up
        assert service.requests - 1 <= 2 * math.ceil(math.log2(count))


@given(st.integers(1, 800), st.data())
def test_so_do_one_culprit_of_many_and_each_of_several(count, data):
    calls = singles(count)
    several = data.draw(st.lists(st.sampled_from(calls), min_size=1, max_size=3, unique_by=id))
    service = Service(culprits=several).take(calls)
    assert service.requests - 1 <= 2 * len(several) * math.ceil(math.log2(count))


@given(st.integers(2, 1500))
def test_a_message_that_is_bad_for_everybody_stops_early(count):
    service = Service(culprits=(calls := singles(count))).take(calls)
    assert service.requests <= 4 * math.ceil(math.log2(count))
    assert len(service.users(REJECTED)) == count
    assert service.gave_up or count < 5


def test_what_was_given_up_ends_as_it_did_when_last_sent():
    calls = singles(64)
    splitter = Splitter(
        pieces_of(calls, LearnedSizes(), FRAME), split_on=SPLIT_ON, sizes=LearnedSizes(), frame=FRAME, worth=True
    )
    told: dict[int, Verdict] = {}
    service = Service(culprits=calls)
    while wave := splitter.next_wave():
        for piece in wave:
            told[id(piece)] = service.answer(piece)
            splitter.report(piece, told[id(piece)])
    rest = splitter.rest()
    assert rest
    assert all(settled.verdict is told[id(settled.piece)] for settled in rest)
    assert splitter.rest() == []


@pytest.mark.parametrize("count", [3, 4])
def test_a_message_bad_for_three_calls_and_accepted_for_none_is_given_up_in_small_batches_too(count):
    calls = singles(count)
    assert Service(culprits=calls).take(calls).gave_up


def test_after_one_acceptance_every_culprit_is_looked_for():
    calls = singles(64)
    culprits = [each for number, each in enumerate(calls) if number % 2 or number < 62]
    service = Service(culprits=culprits).take(calls)
    assert service.users(ACCEPTED) == set(calls[62].users)
    assert not service.gave_up


def test_after_two_failures_it_looks_in_the_far_corner_before_it_gives_up():
    calls = singles(16)
    service = Service(culprits=[calls[0], *calls[8:]]).take(calls)
    assert service.users(ACCEPTED) == {user for each in calls[1:8] for user in each.users}
    assert not service.gave_up


def test_a_message_known_to_be_hopeless_is_not_split_again():
    service = Service(culprits=(calls := singles(16))).take(calls, worth=False)
    assert service.requests == 1
    assert len(service.users(REJECTED)) == 16


# -- what is never split ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [400, 413, 422])
@pytest.mark.parametrize("outcome", [Outcome.UNKNOWN, Outcome.NOT_SENT])
def test_only_a_rejection_is_split(status, outcome):
    calls = singles(8)
    service = Service(culprits=calls[:1], status=status, outcome=outcome).take(calls)
    assert service.requests == 1
    assert service.users(outcome) == {user for each in calls for user in each.users}


@pytest.mark.parametrize("status", [401, 403, 404, 429, 302, 501, None])
def test_only_the_statuses_of_split_on_are_split(status):
    calls = singles(8)
    assert Service(culprits=calls[:1], status=status).take(calls).requests == 1


def test_an_empty_split_on_switches_splitting_off():
    calls = singles(8)
    for service in (Service(culprits=calls[:1]), Service(max_users=4)):
        service.take(calls, split_on=frozenset())
        assert service.requests == 1
        assert len(service.users(REJECTED)) == 8
        assert service.sizes.users is None


# -- 413 --------------------------------------------------------------------------------------------------------


@given(crowds(), st.integers(1, 60))
@example(([call("a", "b", "c"), call("d", "e", "f"), call("g", "h", "i")], []), 5)
def test_after_a_413_every_request_gets_through_at_or_below_the_limit(crowd, max_users):
    calls, _ = crowd
    # Ids long enough to be half of the bytes, also of the smallest piece.
    calls = [call(*[f"{user}-{'x' * FRAME}" for user in each.users]) for each in calls]
    service = Service(max_users=max_users).take(calls)
    assert len(service.users(ACCEPTED)) == sum(len(each.users) for each in calls)
    assert all(piece.users <= max_users for piece in service.accepted)
    refused = [piece.users for wave in service.waves for piece in wave if piece.users > max_users]
    assert service.sizes.proven[0] == ((min(refused) + 1) // 2 if refused else None)


@given(st.lists(st.integers(40, 90), min_size=1, max_size=40), st.integers(FRAME + 95, 4000))
def test_so_it_does_at_a_limit_in_bytes(lengths, max_bytes):
    one = call(*[f"{number:040d}".ljust(length, "x") for number, length in enumerate(lengths)])
    service = Service(max_bytes=max_bytes).take([one])
    assert service.users(ACCEPTED) == set(one.users)
    assert all(size_of(piece) <= max_bytes for piece in service.accepted)


def test_a_413_is_halved_within_a_call_and_with_the_others_it_is_remembered():
    one = call(*[f"{number:060d}" for number in range(8)])
    service = Service(max_users=2).take([one])
    assert [[piece.users for piece in wave] for wave in service.waves] == [[8], [4, 4], [2, 2], [2, 2]]
    assert service.sizes.users == 2
    before = len(service.accepted)
    service.take([one])
    assert service.accepted[before:] == service.waves[4]
    assert len(service.waves) == 5


def test_a_user_too_large_alone_is_rejected_and_teaches_nothing():
    calls = [call("x" * 500)]
    service = Service(max_bytes=100).take(calls)
    assert (service.requests, len(service.users(REJECTED))) == (1, 1)
    assert service.sizes.users is None


def test_where_the_message_is_most_of_the_bytes_fewer_users_would_not_make_it_fit():
    calls = [call("u1", "u2", "u3")]
    service = Service(max_users=1).take(calls)
    assert (service.requests, len(service.users(REJECTED))) == (1, 3)
    assert service.sizes.users is None


# -- learned sizes and the pieces cut by them -------------------------------------------------------------------


failures = st.tuples(st.integers(1, 5000), st.integers(1, 10**5), st.integers(1, 10**7))


@given(st.lists(failures, min_size=1))
def test_learned_sizes_are_the_larger_half_of_what_failed_and_only_shrink(failures):
    sizes = LearnedSizes()
    for users, frame, ids in failures:
        before = (sizes.users or math.inf, sizes.bytes or math.inf)
        sizes.learn(users, frame, ids)
        assert 1 <= sizes.users <= (users + 1) // 2
        assert 1 <= sizes.bytes <= frame + ids * 9 / 16
        assert sizes.users <= before[0]
        assert sizes.bytes <= before[1]


def learned(users: int, size: int) -> LearnedSizes:
    sizes = LearnedSizes()
    sizes.users, sizes.bytes = users, size
    return sizes


def check_pieces(calls: Sequence[Call], pieces: Sequence[Piece]) -> None:
    assert [user for piece in pieces for user in users_of(piece)] == [user for each in calls for user in each.users]
    for piece in pieces:
        assert json.loads(b"[%b]" % piece.ids) == users_of(piece)
        assert piece.users == len(users_of(piece)) > 0
        assert piece.history == ()


@given(st.lists(st.integers(1, 30), min_size=1, max_size=12), st.integers(1, 40), st.integers(2 * FRAME, 3000))
def test_pieces_hold_every_user_once_in_order_and_stay_within_the_learned_sizes(counts, users, size):
    calls = [call(*[f"u{number:02d}-{i:02d}-{'x' * 60}" for i in range(count)]) for number, count in enumerate(counts)]
    pieces = pieces_of(calls, learned(users, size), FRAME)
    check_pieces(calls, pieces)
    assert all(piece.users <= users for piece in pieces)
    # Cut by users, a piece of equally long ids is over by less than one of them: see the next but one.
    assert all(size_of(piece) < size + 70 or piece.users == 1 for piece in pieces)


@given(st.lists(st.lists(st.text(min_size=1, max_size=90), min_size=1, max_size=9), max_size=9), st.integers(1, 40))
def test_pieces_hold_every_user_once_whatever_the_ids_are(ids, users):
    calls = [call(*each) for each in ids]
    if calls:
        check_pieces(calls, pieces_of(calls, learned(users, 400), FRAME))


@pytest.mark.parametrize("ids", [["x" * 60] * 4, [f"{i}" * 100 for i in range(5)] + ["a"] * 5], ids=["even", "uneven"])
def test_pieces_of_one_call_stay_within_the_learned_bytes(ids):
    one = call(*[f"{number}{each}" for number, each in enumerate(ids)])
    size = FRAME + len(one.ids) * 2 // 5
    assert all(size_of(piece) <= size or piece.users == 1 for piece in pieces_of([one], learned(10, size), FRAME))


@pytest.mark.parametrize(
    ("count", "length", "sizes"),
    [
        (10, 60, LearnedSizes()),
        (10, 60, learned(10, 10_000)),
        (10, 1, learned(5, 10_000)),
    ],
    ids=["nothing learned", "it fits", "the message is most of it"],
)
def test_what_need_not_be_cut_is_one_piece(count, length, sizes):
    calls = [call(f"{number}".rjust(length, "u")) for number in range(count)]
    assert len(pieces_of(calls, sizes, FRAME)) == 1


def test_no_user_shows_in_the_repr_of_a_piece():
    (piece,) = pieces_of([call("ada", "bob"), call("cy")], LearnedSizes(), FRAME)
    assert repr(piece) == "Piece(calls=2, users=3)"
    assert [repr(half.segments) for half in piece.halves((), within_calls=True)] == [
        "[Call(users=2, left=2)]",
        "[Call(users=1, left=1)]",
    ]
    _, last = pieces_of([call("a" * 99, "b" * 99, "c" * 99)], learned(2, 10_000), FRAME)
    assert repr(last.segments) == "[Segment(users=1)]"


def test_a_part_of_a_call_has_the_calls_deadline():
    one = call("a" * 99, "b" * 99)
    one.deadline = 7.5
    pieces = pieces_of([one], learned(1, 10_000), FRAME)
    assert [[segment.deadline for segment in piece.segments] for piece in pieces] == [[7.5], [7.5]]
    assert [[call_of(segment) for segment in piece.segments] for piece in pieces] == [[one], [one]]


# -- the rest ---------------------------------------------------------------------------------------------------


def test_a_hopeless_message_is_remembered_until_it_is_accepted_for_somebody():
    hopeless = Hopeless()
    hopeless.discard("a")
    hopeless.add("a")
    hopeless.add("a")
    assert "a" in hopeless
    assert "b" not in hopeless
    hopeless.discard("b")
    hopeless.discard("a")
    assert "a" not in hopeless


def test_of_hopeless_messages_the_last_256_are_remembered():
    hopeless = Hopeless()
    for number in range(300):
        hopeless.add(number)
    assert [number for number in range(300) if number in hopeless] == list(range(44, 300))


def test_the_attempts_behind_several_verdicts_are_each_counted_once_oldest_first():
    first, second, third = (Attempt(outcome=REJECTED, started=float(number)) for number in range(3))
    twin = msgspec.structs.replace(third)
    parts = [
        (("a",), Verdict(outcome=REJECTED, attempts=(first, third))),
        (("b",), Verdict(outcome=REJECTED, attempts=(first, second, twin))),
    ]
    assert [id(attempt) for attempt in attempts_of(parts)] == [id(each) for each in (first, second, third, twin)]
    assert attempts_of([]) == ()


def test_where_nothing_is_small_enough_the_halving_ends_early_and_teaches_nothing():
    calls = [call(f"{number:060d}") for number in range(512)]
    service = Service(max_users=0).take(calls)
    assert service.requests <= 2 * 9 + 1
    assert len(service.users(REJECTED)) == 512
    assert service.sizes.users is None


def test_a_bound_in_bytes_is_not_held_against_a_message_that_is_most_of_it():
    calls = [call(f"{number:060d}") for number in range(500)]
    sizes = LearnedSizes()
    sizes.learn(1000, FRAME, 40_000)
    assert len(pieces_of(calls, sizes, FRAME)) == 2
    assert len(pieces_of(calls, sizes, 20_000)) == 1


# -- larger sizes are tried again -------------------------------------------------------------------------------

ID = 60


class Limited:
    """Sends chunks of a run, in halves of what does not fit, to a service with a limit that may change."""

    def __init__(self, limit: int, *, chunk: int = 1000) -> None:
        self.sizes = LearnedSizes()
        self.limit, self.chunk = limit, chunk
        self.id_size = ID
        self.requests = self.refused = 0

    def send_chunks(self, count: int) -> None:
        for _ in range(count):
            self.send(self.chunk)

    def send(self, users: int) -> None:
        if not self.sizes.fits(users, FRAME, users * self.id_size):
            self.send(users - users // 2)
            self.send(users // 2)
            return
        self.requests += 1
        if users <= self.limit:
            self.sizes.accepted(users, FRAME + users * self.id_size)
            return
        self.refused += 1
        self.sizes.learn(users, FRAME, users * self.id_size)
        self.send(users - users // 2)
        self.send(users // 2)


@pytest.mark.parametrize("limit", [1, 10, 100, 333, 500, 700, 999])
def test_less_than_one_request_in_a_hundred_is_a_trial_that_fails(limit):
    run, halvings = Limited(limit), math.ceil(math.log2(1000 / limit))
    for chunks in (1, 20, 50, 500, 100_000 if limit > 300 else 2000):
        run.send_chunks(chunks)
        assert run.refused - halvings < 0.01 * run.requests
    assert run.refused - halvings < 0.0005 * run.requests
    assert limit // 2 <= run.sizes.proven[0] <= limit


@pytest.mark.parametrize(("limit", "doublings"), [(700, 1), (400, 2), (100, 4)])
@pytest.mark.parametrize("chunks_before", [10, 20_000])
def test_a_limit_that_was_raised_is_found_out_after_a_bounded_number_of_requests(limit, doublings, chunks_before):
    run = Limited(limit)
    run.send_chunks(chunks_before)
    run.limit, before = 1000, run.requests
    bound = (4096 if chunks_before > 10 else 128) + 128 * (doublings - 1) + 1000
    while run.sizes.proven[0] < 1000 and run.requests - before <= bound:
        run.send_chunks(1)
    assert run.requests - before <= bound
    before = run.requests
    run.send_chunks(1000)
    assert run.requests - before == 1000


def near(sizes: LearnedSizes, count: int) -> None:
    for _ in range(count):
        assert sizes.fits(500, FRAME, 500 * ID)
        sizes.accepted(500, FRAME + 500 * ID)


def after_a_413() -> LearnedSizes:
    sizes = LearnedSizes()
    sizes.learn(1000, FRAME, 1000 * ID)
    return sizes


def is_tried(sizes: LearnedSizes, users: int) -> bool:
    # The first that asks is passed over, in favour of one with more bytes only.
    return any(sizes.fits(users, FRAME, users * ID) for _ in range(2))


def whole_fits(sizes: LearnedSizes) -> bool:
    return is_tried(sizes, 1000)


def test_before_any_413_everything_fits_and_nothing_is_counted():
    sizes = LearnedSizes()
    sizes.accepted(1, FRAME)
    assert sizes.fits(10**6, 10**6, 10**6)
    assert sizes.proven == (None, None)
    assert sizes.bytes_for(10) is None


def test_one_request_at_a_time_is_a_trial():
    sizes = after_a_413()
    near(sizes, 127)
    assert not whole_fits(sizes)
    near(sizes, 1)
    assert (sizes.users, sizes.proven[0]) == (1000, 500)
    assert not sizes.fits(1001, FRAME, 1000)
    assert not sizes.fits(600, FRAME, 1001 * ID)
    assert whole_fits(sizes)
    assert not whole_fits(sizes)
    assert (sizes.users, sizes.proven[0]) == (500, 500)


def test_a_trial_that_succeeds_raises_the_bound_and_one_that_fails_leaves_it():
    sizes = after_a_413()
    near(sizes, 128)
    assert whole_fits(sizes)
    sizes.accepted(1000, FRAME + 1000 * ID)
    assert sizes.proven == (1000, FRAME + 1000 * ID)
    sizes = after_a_413()
    near(sizes, 128)
    assert is_tried(sizes, 700)
    sizes.learn(700, FRAME, 700 * ID)
    assert sizes.proven == after_a_413().proven


def test_each_trial_that_fails_doubles_the_wait_for_the_next_up_to_a_bound_and_one_that_succeeds_ends_that():
    sizes = after_a_413()
    waits = []
    for _ in range(8):
        count = 0
        while not whole_fits(sizes) and count < 5000:
            near(sizes, 1)
            count += 1
        waits.append(count)
        sizes.learn(1000, FRAME, 1000 * ID)
    assert waits == [128, 256, 512, 1024, 2048, 4096, 4096, 4096]
    near(sizes, 4096)
    assert is_tried(sizes, 501)
    sizes.accepted(501, FRAME + 501 * ID)
    near(sizes, 128)
    assert whole_fits(sizes)


def test_a_trial_whose_outcome_never_comes_is_followed_by_another():
    sizes = after_a_413()
    near(sizes, 128)
    assert whole_fits(sizes)
    near(sizes, 128)
    assert whole_fits(sizes)


def test_requests_of_before_a_413_that_end_after_it_are_no_trials():
    sizes = after_a_413()
    for _ in range(20):
        sizes.learn(1000, FRAME, 1000 * ID)
        sizes.accepted(1000, FRAME + 1000 * ID)
    assert sizes.proven[0] == 500
    near(sizes, 127)
    assert whole_fits(sizes)


def test_more_bytes_are_tried_before_more_users():
    sizes = after_a_413()
    near(sizes, 128)
    assert not sizes.fits(1000, FRAME, 1000 * 70)
    assert sizes.fits(500, FRAME, 500 * 70)
    assert not sizes.fits(500, FRAME, 500 * 70)
    sizes.accepted(500, FRAME + 500 * 70)
    assert sizes.proven == (500, FRAME + 500 * 70)
    assert sizes.fits(500, FRAME, 500 * 70)


@pytest.mark.parametrize("chunk", [999, 1000, 125])
def test_both_halves_of_what_failed_fit_though_one_is_larger(chunk):
    sizes = LearnedSizes()
    sizes.learn(chunk, FRAME, chunk * ID - 1)
    larger = chunk - chunk // 2
    assert sizes.fits(larger, FRAME, larger * ID - 1)
    assert not sizes.fits(larger + 1, FRAME, larger * ID - 1)


def test_ids_that_grow_longer_do_not_make_ever_smaller_requests():
    run = Limited(700)
    run.send_chunks(1)
    run.id_size = 2 * ID - 10
    run.send_chunks(2000)
    before = run.requests
    run.send_chunks(1000)
    assert run.requests - before <= 2010


def test_small_requests_say_nothing_of_large_ones():
    sizes = after_a_413()
    for _ in range(1000):
        sizes.accepted(250, FRAME // 2)
    assert not whole_fits(sizes)


def test_a_single_user_and_a_message_that_is_most_of_its_request_fit_and_are_no_trials():
    sizes = after_a_413()
    near(sizes, 128)
    assert sizes.fits(1, FRAME, 2000 * ID)
    assert sizes.fits(900, 10**6, 900)
    assert whole_fits(sizes)


def test_what_is_merged_while_a_trial_is_due_is_cut_to_what_is_proven_but_for_one():
    sizes = after_a_413()
    near(sizes, 128)
    calls = [call(f"{number:057d}") for number in range(900)]
    sent = [[piece.users for piece in pieces_of(calls, sizes, FRAME)] for _ in range(4)]
    assert sent == [[500, 400], [900], [500, 400], [500, 400]]
    near(sizes, 128)
    assert [piece.users for piece in pieces_of([*calls, *calls], sizes, FRAME)] == [500, 500, 500, 300]


def test_an_acceptance_in_a_split_batch_counts():
    sizes = after_a_413()
    near(sizes, 127)
    splitter = Splitter(
        pieces_of([call(f"{number:057d}") for number in range(500)], sizes, FRAME),
        split_on=SPLIT_ON,
        sizes=sizes,
        frame=FRAME,
        worth=True,
    )
    (piece,) = splitter.next_wave()
    splitter.report(piece, Verdict(outcome=ACCEPTED, status=204))
    assert whole_fits(sizes)


def test_what_was_not_to_blame_leaves_no_doubled_bound_behind():
    sizes = after_a_413()
    near(sizes, 128)
    calls = [call("x" * 90_000)]
    splitter = Splitter(pieces_of(calls, sizes, FRAME), split_on=SPLIT_ON, sizes=sizes, frame=FRAME, worth=True)
    (piece,) = splitter.next_wave()
    splitter.report(piece, Verdict(outcome=REJECTED, status=413))
    assert splitter.next_wave() == []
    assert sizes.proven[0] == 500


steps = st.tuples(
    st.sampled_from(["accepted", "refused", "lost"]), st.integers(1, 2000), st.integers(0, 5000), st.integers(1, 200)
)


@given(st.lists(steps, max_size=60), st.integers(1, 300))
def test_the_proven_bound_is_never_above_what_was_accepted_or_half_of_what_was_refused(told, repeats):
    sizes, largest = LearnedSizes(), 1
    for end, users, frame, one in told:
        for _ in range(repeats):
            if not sizes.fits(users, frame, users * one):
                break
            if end == "accepted":
                sizes.accepted(users, frame + users * one)
                largest = max(largest, users)
            elif end == "refused":
                sizes.learn(users, frame, users * one)
                largest = max(largest, (users + 1) // 2)
        if sizes.users is not None:
            max_users, max_bytes = sizes.proven
            assert 1 <= max_users <= largest
            assert (sizes.users, sizes.bytes) in ((max_users, max_bytes), (2 * max_users, 2 * max_bytes))
            assert sizes.fits(max_users, 0, max_bytes)
