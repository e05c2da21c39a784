"""Dedupe keys, without a store: what is recorded of verdicts, what may be sent again, what is answered."""

from __future__ import annotations

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pushsdk import Outcome, PartialError, PushError, Receipt, RejectedError
from pushsdk._core.dedupe import (
    Mark,
    Payload,
    Position,
    Record,
    begin,
    by_position,
    conclude,
    digest_of,
    fingerprint_of,
    fingerprint_of_all,
    mark_of,
    read,
    recorded,
)
from pushsdk._core.outcome import Attempt, Failure, Verdict, join

A, R, N, U = Outcome.ACCEPTED, Outcome.REJECTED, Outcome.NOT_SENT, Outcome.UNKNOWN

ATTEMPTS = st.one_of(
    st.just(Attempt(outcome=A, status=204)),
    st.builds(
        Attempt, outcome=st.just(R), status=st.sampled_from([302, 400, 401, 403, 404, 413]), repeatable=st.just(False)
    ),
    st.builds(Attempt, outcome=st.just(R), status=st.sampled_from([408, 429]), repeatable=st.just(True)),
    st.builds(Attempt, outcome=st.just(N), repeatable=st.booleans()),
    st.builds(Attempt, outcome=st.just(U), status=st.sampled_from([None, 500])),
)


@st.composite
def verdicts(draw: st.DrawFn) -> Verdict:
    attempts = tuple(draw(st.lists(ATTEMPTS, max_size=4)))
    return Verdict(
        outcome=join(each.outcome for each in attempts),
        attempts=attempts,
        failure=draw(st.sampled_from([None, None, Failure.DEADLINE])),
        shared=draw(st.booleans()),
    )


POSITIONS = st.builds(Position, st.sampled_from(Mark), st.sampled_from([None, 204, 400]))
KEY_CHARACTERS = st.characters(exclude_categories=["Cs"], exclude_characters="\0")
USERS = st.integers(1, 12).flatmap(lambda count: st.permutations([f"user-{n}" for n in range(count)])).map(tuple)


def record_of(positions: list[Position]) -> Record:
    return begin("f" * 64, len(positions), 1.0).with_positions(positions)


@given(verdicts())
def test_only_accepted_and_a_last_word_of_no_settle(verdict: Verdict) -> None:
    mark, status = mark_of(verdict)
    last = verdict.attempts[-1] if verdict.attempts else None
    match verdict.outcome:
        case Outcome.ACCEPTED:
            assert (mark, status) == (Mark.ACCEPTED, 204)
        case Outcome.UNKNOWN:
            assert (mark, status) == (Mark.CLAIMED, None)
        case Outcome.NOT_SENT:
            assert mark is Mark.OPEN
        case _:
            assert last is not None
            final = last.outcome is R and last.status in (400, 404) and verdict.failure is None and not verdict.shared
            assert mark is (Mark.REJECTED if final else Mark.OPEN)
            assert not final or status == last.status


@given(st.lists(POSITIONS, min_size=1, max_size=30))
def test_a_record_reads_back_as_it_was(positions: list[Position]) -> None:
    record = record_of(positions)
    assert record.positions() == positions
    assert read(record.encode(), record) == (record.opened() if record.is_void else record)
    assert record.open() == tuple(at for at, (mark, _) in enumerate(positions) if mark is Mark.OPEN)
    assert len(record.runs) <= len(positions)


def test_a_record_of_a_thousand_users_is_short() -> None:
    record = begin("f" * 64, 1000, 1.0)
    assert len(record.encode()) < 200
    assert b"user" not in record.encode()


@given(USERS, st.data())
def test_a_delivery_sends_to_the_open_and_leaves_the_others_as_they_were(
    users: tuple[str, ...], data: st.DataObject
) -> None:
    before = record_of(data.draw(st.lists(POSITIONS, min_size=len(users), max_size=len(users))))
    taken = before.taken()
    assert taken.open() == ()
    users = by_position(users)
    sent = [users[place] for place in before.open()]
    shares = tuple(((user,), data.draw(verdicts())) for user in sent if data.draw(st.booleans()))
    after = taken.after(users, shares)
    told = dict(shares)
    for user, was, now in zip(users, before.positions(), after.positions(), strict=True):
        if was.mark is not Mark.OPEN:
            assert now == was
        elif (user,) in told:
            assert now == mark_of(told[(user,)])
        else:
            assert now.mark is Mark.CLAIMED, "without a verdict it may have been sent"
    assert after.is_void is all(now.mark is Mark.OPEN for now in after.positions())
    assert before.opened().open() == tuple(range(len(users)))


@given(USERS, st.integers(0, 9), st.data())
def test_an_answer_tells_of_every_user_what_was_recorded_or_is_known_now(
    users: tuple[str, ...], repeated: int, data: st.DataObject
) -> None:
    before = record_of(data.draw(st.lists(POSITIONS, min_size=len(users), max_size=len(users))))
    placed = by_position(users)
    shares = tuple(((placed[place],), data.draw(verdicts())) for place in before.open())
    told = conclude(users, repeated, before=before, shares=shares)
    recorded = {Mark.CLAIMED: U, Mark.ACCEPTED: A, Mark.REJECTED: R}
    expected = {user: recorded.get(at.mark) for user, at in zip(placed, before.positions(), strict=True)}
    expected |= {user: verdict.outcome for (user,), verdict in shares}
    tried = {id(attempt) for _, verdict in shares for attempt in verdict.attempts}
    assert {id(attempt) for attempt in told.attempts} <= tried, "attempts are of this call only"
    if isinstance(told, PartialError):
        assert dict(told.outcomes) == expected
        assert tuple(told.outcomes) == users, "in the order of the call"
    else:
        assert set(expected.values()) == {told.outcome}
    if isinstance(told, Receipt):
        assert (told.users, told.repeated) == (len(users), repeated)
        assert (told.deduplicated, told.requests) == (len(users) - len(shares), len(shares))
    else:
        assert isinstance(told, PushError)
        assert told.user_ids == users
        assert "user-" not in f"{told}"


@pytest.mark.parametrize("last", [0, 1])
def test_refused_in_several_ways_the_call_may_be_repeated_where_anybody_is_open(last: int) -> None:
    throttled = Verdict(outcome=R, status=429, attempts=(Attempt(outcome=R, status=429, repeatable=True),))
    refused = Verdict(outcome=R, status=400, attempts=(Attempt(outcome=R, status=400),))
    shares = [(("a",), throttled), (("b",), refused)]
    before = record_of([Position(Mark.OPEN)] * 2)
    told = conclude(("a", "b"), 0, before=before, shares=shares[:: 1 - 2 * last])
    assert isinstance(told, RejectedError)
    assert told.may_repeat


def test_a_recorded_status_is_told() -> None:
    told = conclude(("u",), 0, before=record_of([Position(Mark.REJECTED, 422)]), shares=())
    assert isinstance(told, RejectedError)
    assert (told.status, told.headers, told.body) == (422, {}, b"")
    told = conclude(("u",), 0, before=record_of([Position(Mark.REJECTED)]), shares=())
    assert isinstance(told, RejectedError)
    assert told.status == 0


PAYLOAD = {"ids": b'"u"', "message": b"{}", "custom_fields": None}
OTHERS = [
    {"ids": b'"v"'},
    {"message": b'{"a":1}'},
    {"custom_fields": b"{}"},
    {"custom_fields": b""},
    # The same bytes, divided otherwise.
    {"ids": b'"u"{', "message": b"}"},
]


@pytest.mark.parametrize("other", OTHERS, ids=str)
def test_another_payload_has_another_fingerprint(other: dict[str, bytes]) -> None:
    assert fingerprint_of("k", "https://a", **PAYLOAD) == fingerprint_of("k", "https://a", **PAYLOAD)
    assert fingerprint_of("k", "https://a", **PAYLOAD) != fingerprint_of("k", "https://a", **{**PAYLOAD, **other})


def test_another_key_or_service_has_another_fingerprint() -> None:
    told = {fingerprint_of(key, url, **PAYLOAD) for key in ("k", "kh") for url in ("https://a", "ttps://a")}
    assert len(told) == 4


@given(st.text(KEY_CHARACTERS, min_size=1, max_size=100), st.text(KEY_CHARACTERS, min_size=1, max_size=100))
def test_keys_are_told_apart_and_are_not_in_what_is_stored(one: str, two: str) -> None:
    first, second = digest_of(one), digest_of(two)
    assert (first == second) is (one == two)
    assert len(first) == 64
    assert set(first) <= set("0123456789abcdef")


def test_a_record_with_nothing_to_keep_binds_nobody() -> None:
    ours = begin("f" * 64, 2, 2.0)
    assert read(begin("e" * 64, 3, 1.0).opened().encode(), ours) == ours.opened()


@given(USERS)
def test_users_have_their_positions_whatever_order_they_come_in(users: tuple[str, ...]) -> None:
    assert by_position(users) == tuple(sorted(users))


def test_a_record_of_another_size_is_none_of_ours() -> None:
    with pytest.raises(ValueError, match="another number of users"):
        read(begin("f", 3, 1.0).encode(), begin("f", 2, 1.0))
    with pytest.raises(ValueError, match="another number of users"):
        recorded(begin("f", 3, 1.0).encode(), 2)


def test_what_is_recorded_is_told_to_who_does_not_know_the_payload() -> None:
    record = begin("f", 3, 1.0)
    assert recorded(record.encode(), 3) == record
    with pytest.raises(ValueError, match="missing required field"):
        recorded(b"{}", 3)


PAYLOADS = st.tuples(st.binary(max_size=3), st.binary(max_size=3), st.none() | st.binary(max_size=3))


@given(st.lists(PAYLOADS, max_size=3), st.lists(PAYLOADS, max_size=3))
def test_requests_under_one_key_are_told_apart(one: list[Payload], two: list[Payload]) -> None:
    first, second = (fingerprint_of_all("k", "https://a", each) for each in (one, two))
    assert (first == second) is (one == two)


def test_one_request_alone_has_the_fingerprint_of_a_send() -> None:
    payload = (PAYLOAD["ids"], PAYLOAD["message"], PAYLOAD["custom_fields"])
    assert fingerprint_of_all("k", "https://a", [payload]) == fingerprint_of("k", "https://a", **PAYLOAD)


def test_the_fingerprint_of_a_send_is_that_of_earlier_versions() -> None:
    told = fingerprint_of("k", "https://a", ids=b'"u"', message=b"{}", custom_fields=None)
    assert told == hashlib.sha256(b'pushsdk payload 11:k9:https://a3:"u"2:{}-').hexdigest()


@given(st.lists(POSITIONS, min_size=1, max_size=30), POSITIONS)
def test_where_the_same_is_known_of_all_it_is_one_run(positions: list[Position], position: Position) -> None:
    record = record_of(positions)
    assert record.users == len(positions)
    assert record.all_at(position).positions() == [position] * len(positions)
    assert record.opened() == record.all_at(Position(Mark.OPEN))
