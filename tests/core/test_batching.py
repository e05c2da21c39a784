"""Merging of calls."""

import math

from hypothesis import example, given
from hypothesis import strategies as st

from pushsdk._core.batching import Batches, Call, Content
from pushsdk._core.body import encode_user_ids, push_body
from pushsdk._core.learned_limit import LearnedLimit
from pushsdk._core.policy import Batching, Options, RetryPolicy, Timeout

OPTIONS = [Options(RetryPolicy.safe(), Timeout()) for _ in range(2)]


def call(*users):
    return Call(users, encode_user_ids(users), math.inf, len(users))


def content(message=b'{"title":"x"}', options=0):
    return Content(message, None, OPTIONS[options])


def batches(learned=None, **bounds):
    return Batches(Batching(**bounds), learned or LearnedLimit())


def join(into, content, one):
    """Return the batch of the call, and True if it is a new one."""
    batch = into.join(content, one)
    return (batch, False) if batch is not None else (into.open(content, one), True)


def body_of(batch):
    ids = b",".join(call.ids for call in batch.units)
    return push_body(ids, batch.content.message, batch.content.custom_fields)


def test_what_was_learned_bounds_what_is_merged():
    learned = LearnedLimit()
    open_batches = batches(learned)
    batch, _ = join(open_batches, content(), call("a"))
    learned.learn(4)
    assert join(open_batches, content(), call("b")) == (batch, False)
    assert open_batches.is_full(batch)
    assert join(open_batches, content(), call("c"))[1]


calls = st.tuples(
    st.integers(0, 1),
    st.lists(st.text("abcdefghij\u00e9", min_size=1, max_size=4), min_size=1, max_size=8, unique=True),
)
steps = st.lists(calls | st.just("close") | st.just("leave"), max_size=60)


@given(steps, st.integers(1, 20), st.integers(60, 200))
@example([(0, ["a"]), (0, ["a"])], 20, 200)
def test_batches_hold_every_call_once_no_user_twice_and_stay_in_bounds(steps, max_users, max_bytes):
    open_batches = batches(max_users=max_users, max_bytes=max_bytes)
    full_batches = []
    expected = []
    for step in steps:
        if step == "close":
            for batch in full_batches:
                open_batches.close(batch)
        elif step == "leave":
            if expected:
                leaver = expected.pop()
                batch = next(batch for batch in full_batches if leaver in batch.units)
                batch.remove(leaver)
                if not batch.units:
                    open_batches.close(batch)
        else:
            number, users = step
            one = call(*users)
            batch, is_new = join(open_batches, content(options=number), one)
            assert is_new == (not any(batch is past for past in full_batches))
            full_batches += [batch] if is_new else []
            expected.append(one)
    assert sorted(map(id, expected)) == sorted(id(call) for batch in full_batches for call in batch.units)
    for batch in full_batches:
        everybody = [user for call in batch.units for user in call.users]
        assert len(everybody) == len(set(everybody)) == batch.users
        # The count errs on the safe side: by the frame of the custom fields, and a comma.
        assert len(body_of(batch)) <= batch.size <= len(body_of(batch)) + 48
        if len(batch.units) > 1:
            assert batch.users <= max_users
            assert batch.size <= max_bytes


def test_calls_join_until_a_batch_is_closed():
    open_batches = batches()
    batch, _ = join(open_batches, content(), call("a"))
    open_batches.close(batch)
    assert open_batches.join(content(), call("b")) is None
