"""The time that an attempt is likely to take, and when a service counts as silent."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pushsdk._core.attempt_times import GRANULARITY, PACE, AttemptTimes


def after(*seconds):
    """Return the estimate after single accepted attempts that took these times, one after the other from 0 on."""
    times = AttemptTimes()
    now = 0.0
    for one in seconds:
        sent = times.sent(now)
        now += one
        times.ended(now, sent, 204)
    return times


def test_the_deviation_is_half_of_the_first_answer_and_shrinks_to_what_a_loop_is_late():
    assert after(0.1).usual == pytest.approx(0.1)
    assert after(0.1).likely == pytest.approx(0.1 + 8 * 0.05)
    assert after(*[0.1] * 100).likely == pytest.approx(0.1 + GRANULARITY)


def test_others_that_wait_ask_for_certainty_and_none_for_the_mean_and_the_only_call_is_begun_in_any_case():
    times = after(*[0.1, 0.3] * 50)
    assert times.needed(others_wait=False) == 0.0
    assert times.needed(others_wait=True) == times.likely > 0.5
    times.sent(100.0)
    assert times.needed(others_wait=True) == times.likely > 0.5
    assert times.needed(others_wait=False) == times.usual < 0.3


@pytest.mark.parametrize(("each", "needed"), [(0.1, 2.1), (0.0, 1.0)])
def test_requests_that_queue_in_the_service_need_the_time_of_those_before_them(each, needed):
    times = after(1.0)
    for number in range(400):
        others = [times.sent(0.0) for _ in range(number % 16)]
        times.ended(1.0 + each * (len(others) + 1), times.sent(0.0), 204)
        for other in others:
            times.withdrawn(other)
    for _ in range(10):
        times.sent(0.0)
    assert times.needed(others_wait=False) == pytest.approx(needed, abs=0.1)


@pytest.mark.parametrize("status", [500, None])
def test_only_accepted_answers_lower_the_estimate(status):
    times = after(*[1.0] * 50)
    before = times.usual, times.likely
    for number in range(100):
        times.ended(60.1 + number, times.sent(60.0 + number), status)
    assert (times.usual, times.likely) == before


def test_an_attempt_hangs_once_it_was_overtaken_and_takes_longer_than_others_do():
    times = after(*[0.1] * 50)
    overtaken = times.sent(100.0)
    times.sent(110.0)
    times.ended(110.02, times.sent(110.01), 400)
    assert times.hanging(110.11) == 0
    times.ended(110.11, times.sent(110.01), 204)
    assert times.hanging(110.11) == 1
    assert times.ended(110.11, overtaken, None)
    assert times.hanging(110.11) == 0


@pytest.mark.parametrize("status", [500, None])
def test_a_slow_refusal_and_a_late_end_while_others_are_answered_raise_the_estimate(status):
    times = after(*[1.0] * 50)
    sent = times.sent(60.0)
    times.ended(62.9, None, 204)
    times.ended(63.0, sent, status)
    assert times.usual > 1.2
    assert not times.is_stalled


def test_in_a_silence_probes_start_at_growing_distances():
    times = after(*[0.1] * 50)
    times.sent(100.0)
    starts = []
    now = 100.2
    while now < 200.0:
        assert times.not_before(now, 1) <= now
        times.started_at = now
        times.sent(now)
        starts.append(now - 100.0)
        now = times.not_before(now, 1)
    assert starts == pytest.approx([0.2, 0.8, 3.2, 12.8, 51.2])


# The service ended the second: the next attempt tells at once whether there are more.
@pytest.mark.parametrize(("status", "start"), [(None, 102.0 + PACE), (0, 102.1)])
def test_an_attempt_that_ends_in_a_silence_stalls_the_client_and_measures_nothing(status, start):
    times = after(*[0.1] * 50)
    before = times.usual, times.likely
    times.ended(102.0, times.sent(100.0), status)
    assert (times.usual, times.likely) == before
    assert times.needed(others_wait=True) == 0.0  # the probe
    times.started_at = 102.0
    assert times.not_before(102.1, 0) == start


def test_a_client_that_was_never_answered_is_stalled_by_its_first_timeout():
    times = AttemptTimes()
    times.ended(2.0, times.sent(0.0), None)
    assert times.is_stalled
    times.ended(3.0, None, 204)
    assert not times.is_stalled


@settings(max_examples=200, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from(["send", "accept", "refuse", "lose", "answer"]), st.floats(0.0, 20.0)), max_size=60
    )
)
def test_whatever_happens_a_request_starts_at_last(script):
    times = AttemptTimes()
    now = 0.0
    sent = []
    for step, seconds in script:
        now += seconds
        if step == "send":
            times.started_at = now
            sent.append(times.sent(now))
        elif step == "answer":
            times.ended(now, None, 204)
        elif sent:
            times.ended(now, sent.pop(0), {"accept": 204, "refuse": 500}.get(step))
        assert times.hanging(now) <= len(sent)
        assert 0.0 <= times.usual <= times.likely < math.inf
        assert times.not_before(now, len(sent)) < math.inf
        assert times.not_before(now, 0) <= now + PACE
        assert times.needed(others_wait=False) <= times.needed(others_wait=True)
