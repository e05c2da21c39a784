"""Merging of calls."""

from __future__ import annotations

import math
from concurrent.futures import Future

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pushsdk._core import wire
from pushsdk._core.batching import TRANSITIONS, Batch, Batches, BatchState, Call, Content, Options
from pushsdk._core.outcome import Outcome, Verdict
from pushsdk._core.policy import Batching, RetryPolicy, Timeout
from pushsdk._core.splitting import LearnedSizes

ACCEPTED = Verdict(outcome=Outcome.ACCEPTED)


def call(*users: str) -> Call:
    return Call(users, wire.encode_user_ids(users)[1:-1], math.inf, len(users))


OPTIONS = [Options(RetryPolicy.safe(), Timeout()) for _ in range(2)]


def content(message: bytes = b'{"title":"x"}', custom_fields: bytes | None = None, options: int = 0) -> Content:
    return Content(message, custom_fields, OPTIONS[options])


def batches(sizes: LearnedSizes | None = None, **bounds: int) -> Batches:
    return Batches(Batching(**bounds), sizes or LearnedSizes())


def join(into: Batches, what: Content, one: Call) -> tuple[Batch, bool]:
    """Return the batch of the call, and True if it is a new one."""
    batch = into.join(what, one)
    return (batch, False) if batch is not None else (into.open(what, one), True)


def close(batches: Batches, batch: Batch) -> None:
    if batch.state is BatchState.OPEN:
        batches.advance(batch, BatchState.SENDING)


def body_of(batch: Batch) -> bytes:
    ids = b",".join(each.ids for each in batch.calls)
    return wire.push_body(b"[%b]" % ids, batch.content.message, batch.content.custom_fields)


# -- joining ----------------------------------------------------------------------------------------------------


def test_calls_of_equal_content_meet():
    open_batches = batches()
    first, is_new = join(open_batches, content(), call("a"))
    assert is_new
    second, is_new = join(open_batches, content(), call("b", "c"))
    assert second is first
    assert not is_new
    assert [each.users for each in first.calls] == [("a",), ("b", "c")]
    assert first.users == 3


@pytest.mark.parametrize(
    "other",
    [content(b'{"title":"y"}'), content(custom_fields=b"{}"), content(options=1)],
    ids=["message", "custom fields", "options"],
)
def test_calls_with_different_content_never_share_a_batch(other):
    open_batches = batches()
    first, _ = join(open_batches, content(), call("a"))
    second, is_new = join(open_batches, other, call("b"))
    assert is_new
    assert second is not first
    assert join(open_batches, content(), call("c"))[0] is first


def test_the_same_user_in_two_calls_makes_two_requests():
    open_batches = batches()
    first, _ = join(open_batches, content(), call("a", "b"))
    join(open_batches, content(), call("c"))
    second, is_new = join(open_batches, content(), call("d", "b"))
    assert is_new
    assert second is not first
    assert join(open_batches, content(), call("a"))[0] is second


def test_a_plain_tuple_does_for_a_content_that_is_there():
    open_batches = batches()
    first, _ = join(open_batches, content(custom_fields=b"{}"), call("a"))
    assert open_batches.join((b'{"title":"x"}', b"{}", OPTIONS[0]), call("b")) is first
    assert open_batches.join((b'{"title":"x"}', None, OPTIONS[0]), call("c")) is None


@pytest.mark.parametrize("refused", [("c", "d", "e"), ("a", "c")], ids=["no room", "a user that is there"])
def test_a_batch_that_refused_a_call_is_closed(refused):
    open_batches = batches(max_users=4)
    join(open_batches, content(), call("a", "b"))
    assert open_batches.join(content(), call(*refused)) is None
    assert open_batches.join(content(), call("f")) is None


def test_no_call_joins_a_closed_batch():
    open_batches = batches()
    first, _ = join(open_batches, content(), call("a"))
    close(open_batches, first)
    second, is_new = join(open_batches, content(), call("b"))
    assert is_new
    close(open_batches, first)
    assert join(open_batches, content(), call("c")) == (second, False)


def test_no_call_joins_a_separate_batch_and_the_open_batch_stays_open():
    open_batches = batches()
    first, _ = join(open_batches, content(), call("a"))
    lone = open_batches.open(content(), call("b"), is_joinable=False)
    assert [each.users for each in lone.calls] == [("b",)]
    assert join(open_batches, content(), call("c"))[0] is first


def test_a_batch_is_full_at_max_users_and_then_closed_to_more():
    open_batches = batches(max_users=3)
    batch, _ = join(open_batches, content(), call("a", "b"))
    assert not batch.is_full
    assert join(open_batches, content(), call("c", "d"))[0] is not batch
    open_batches = batches(max_users=3)
    batch, _ = join(open_batches, content(), call("a", "b"))
    assert join(open_batches, content(), call("c")) == (batch, False)
    assert batch.is_full


def test_a_call_over_max_bytes_by_its_message_gets_its_own_request():
    open_batches = batches(max_bytes=100)
    large = content(b'{"title":"%b"}' % (b"x" * 200))
    batch, _ = join(open_batches, large, call("a"))
    assert batch.is_full
    other, is_new = join(open_batches, large, call("b"))
    assert is_new
    assert other is not batch


def test_custom_fields_count_towards_max_bytes():
    plain, _ = join(batches(), content(), call("a"))
    with_fields, _ = join(batches(), content(custom_fields=b'{"name":"Ada"}'), call("a"))
    assert with_fields.size - plain.size == len(b'{"name":"Ada"}')


def test_what_was_learned_bounds_what_is_merged():
    sizes = LearnedSizes()
    open_batches = batches(sizes)
    batch, _ = join(open_batches, content(), call("a"))
    sizes.learn(4, 50, 100_000)
    assert join(open_batches, content(), call("b")) == (batch, False)
    assert batch.is_full
    assert join(open_batches, content(), call("c"))[1]
    sizes.learn(2, 50, 60)
    batch, is_new = join(open_batches, content(b"{}"), call("x" * 40))
    assert is_new
    assert batch.is_full


def test_a_setting_below_what_was_learned_stays_the_bound():
    sizes = LearnedSizes()
    sizes.learn(100, 50, 10**6)
    open_batches = batches(sizes, max_users=1)
    batch, _ = join(open_batches, content(), call("a"))
    assert batch.is_full


def test_a_removed_call_makes_room_and_its_users_may_join_again():
    open_batches = batches(max_users=3)
    leaver = call("b")
    batch, _ = join(open_batches, content(), call("a"))
    join(open_batches, content(), leaver)
    batch.remove(leaver)
    assert (batch.users, [each.users for each in batch.calls]) == (1, [("a",)])
    assert join(open_batches, content(), call("b")) == (batch, False)


def test_removing_the_only_call_leaves_an_empty_batch_of_the_size_of_its_frame():
    only = call("a", "b")
    batch, _ = join(batches(), content(), only)
    assert batch.size > batch.frame
    batch.remove(only)
    assert (batch.users, batch.size, batch.calls) == (0, batch.frame, [])


def test_a_batch_that_all_had_left_still_takes_each_user_once():
    open_batches = batches()
    only = call("a")
    batch, _ = join(open_batches, content(), only)
    batch.remove(only)
    assert [join(open_batches, content(), call("a"))[0] is batch for _ in range(2)] == [True, False]


calls = st.tuples(
    st.integers(0, 1),
    st.lists(st.text("abcdefghij\u00e9", min_size=1, max_size=4), min_size=1, max_size=8, unique=True),
)
steps = st.lists(calls | st.just("close") | st.just("leave"), max_size=60)


@given(steps, st.integers(1, 20), st.integers(60, 200))
def test_batches_hold_every_call_once_no_user_twice_and_stay_in_bounds(steps, max_users, max_bytes):
    open_batches = batches(max_users=max_users, max_bytes=max_bytes)
    made: list[Batch] = []
    expected: list[Call] = []
    for step in steps:
        if step == "close":
            for batch in made:
                close(open_batches, batch)
        elif step == "leave":
            if expected:
                leaver = expected.pop()
                batch = next(batch for batch in made if leaver in batch.calls)
                batch.remove(leaver)
                if not batch.calls:
                    close(open_batches, batch)
        else:
            number, users = step
            one = call(*users)
            batch, is_new = join(open_batches, content(options=number), one)
            assert is_new == (not any(batch is known for known in made))
            made += [batch] if is_new else []
            expected.append(one)
    assert sorted(map(id, expected)) == sorted(id(each) for batch in made for each in batch.calls)
    for batch in made:
        everybody = [user for each in batch.calls for user in each.users]
        assert len(everybody) == len(set(everybody)) == batch.users
        # The count errs on the safe side: by the frame of the custom fields, and a comma.
        assert len(body_of(batch)) <= batch.size <= len(body_of(batch)) + 48
        if len(batch.calls) > 1:
            assert batch.users <= max_users
            assert batch.size <= max_bytes


# -- one call ---------------------------------------------------------------------------------------------------


def test_a_call_is_through_when_its_last_user_has_a_verdict():
    one = call("a", "b", "c")
    assert not one.settle(("a", "c"), ACCEPTED)
    assert one.unsettled == 1
    assert one.settle(("b",), ACCEPTED)
    assert one.parts == ((("a", "c"), ACCEPTED), (("b",), ACCEPTED))
    assert call("d").parts == ()


def test_a_call_whose_users_share_a_verdict_has_it_whole():
    one = call("a", "b")
    assert one.settle(("a", "b"), ACCEPTED)
    assert one.verdict is ACCEPTED
    assert one.parts == ((("a", "b"), ACCEPTED),)


def test_a_caller_is_woken_once_its_last_user_has_a_verdict():
    one = call("a", "b")
    one.future = Future()
    one.settle(("a",), ACCEPTED, "receipt")
    assert not one.future.done()
    one.settle(("b",), ACCEPTED, "receipt")
    assert one.future.result() is None


def test_a_call_settled_whole_wakes_its_caller_with_the_receipt():
    one = call("a", "b")
    one.future = Future()
    one.settle(("a", "b"), ACCEPTED, "receipt")
    assert one.future.result() == "receipt"


def test_a_caller_is_woken_only_once():
    one = call("a")
    one.wake()
    one.future = Future()
    one.wake()
    one.wake("receipt")
    assert one.settle(("a",), ACCEPTED)
    assert one.future.result() is None


# -- the states of a batch --------------------------------------------------------------------------------------


def test_every_transition_that_the_table_lacks_raises():
    for before in BatchState:
        for after in BatchState:
            open_batches = batches()
            batch, _ = join(open_batches, content(), call("a"))
            batch.state = before
            if after in TRANSITIONS[before]:
                open_batches.advance(batch, after)
                assert batch.state is after
            else:
                with pytest.raises(RuntimeError, match=f"{before.name} can't become {after.name}"):
                    open_batches.advance(batch, after)


@pytest.mark.parametrize("state", BatchState)
def test_calls_join_until_a_batch_is_in_flight(state):
    open_batches = batches()
    batch, _ = join(open_batches, content(), call("a"))
    if state is not BatchState.OPEN:
        open_batches.advance(batch, state)
    is_joined = open_batches.join(content(), call("b")) is batch
    assert is_joined == (state < BatchState.SENDING)


def test_the_call_that_opened_a_batch_sends_it_if_no_other_call_shares_it():
    first, second = call("a"), call("b")
    for leaving in ((), (second,), (first,)):
        open_batches = batches()
        batch, _ = join(open_batches, content(), first)
        open_batches.join(content(), second)
        for leaver in leaving:
            batch.remove(leaver)
        assert not batch.is_sent_by(first)
        open_batches.advance(batch, BatchState.SENDING)
        assert batch.is_sent_by(first) == (leaving == (second,))
        assert not batch.is_sent_by(second)


def test_a_batch_that_is_done_refers_to_no_call():
    open_batches = batches()
    one = call("a")
    batch, _ = join(open_batches, content(), one)
    assert one.batch is batch
    open_batches.advance(batch, BatchState.DONE)
    assert (batch.calls, batch.leader, batch.entry) == ([], None, None)


def test_no_user_nor_text_shows_in_a_repr():
    batch, _ = join(batches(), content(b'{"title":"hello"}'), call("ada", "bob"))
    shown = f"{batch!r} {batch.calls[0]!r} {batch.content!r}"
    assert not any(word in shown for word in ("ada", "bob", "hello"))
